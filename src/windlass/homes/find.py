"""From a command to its home: the folder is found, judged, and refused unless it is the user's own.

In the current folder, a home that is not the user's own is refused; in a folder above, it is passed over, and a warning
says so. A home that was named (`--home`, `WINDLASS_HOME`) is judged like any other. Nothing is made here by looking.

`adopt_home` makes a folder the user's own after its content was shown. Files that others may know or have prepared (the
server's token, kept answers of tools, lists of MCP tools) are removed; they are made again when they are needed.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from windlass.errors import NotPermitted
from windlass.homes.names import DATABASE, HARMLESS, HOME_FILE, STATE_NAMES, user_folder
from windlass.homes.proof import mark_home_as_ours, mark_new_home, read_key, read_proof
from windlass.homes.safety import entry_flaw, folder_flaw, parents_flaw, state_flaw

__all__ = [
    "HomeJudgement",
    "adopt_home",
    "database_of",
    "find_home",
    "locate",
    "look_at",
    "prepare_home",
    "require_adoptable",
]

log = logging.getLogger("windlass.homes")

_ELSEWHERE = "keep the state where only you can write: windlass --home DIR …, or WINDLASS_HOME"
_passed_over: set[Path] = set()
"""Homes that a warning was given about already."""


class HomeJudgement(msgspec.Struct, frozen=True):
    """The result of looking at a folder that may be a home."""

    home: Path
    """Free of links."""
    reason: str = ""
    """Against using it; empty if nothing is."""
    advice: tuple[str, ...] = ()
    adoptable: bool = False
    """`windlass adopt` could make it the user's own."""
    marked: bool = False
    """It has the user's proof. Without one and without a reason against it, there is nothing in it yet."""

    def require(self) -> Path:
        """The home, or NotPermitted."""
        if self.reason:
            raise NotPermitted(f"the home {self.home} is not used: {self.reason}", advice=self.advice)
        return self.home


def find_home(given: str | os.PathLike[str] | None = None, env: Mapping[str, str] = os.environ) -> Path:
    """The home, free of links: as given, else the nearest `.windlass` upwards, else one in this folder.

    Raises NotPermitted unless it is the user's own, or has nothing in it that would be believed.
    """
    return locate(given, env).require()


def locate(given: str | os.PathLike[str] | None = None, env: Mapping[str, str] = os.environ) -> HomeJudgement:
    """Judge a home without raising an error."""
    named = given or env.get("WINDLASS_HOME")
    if named:
        return look_at(Path(named).expanduser().absolute(), env)
    here = Path.cwd()
    for candidate in _candidates(here):
        judgement = _link_out(candidate) or look_at(candidate, env)
        if candidate.parent == here or not judgement.reason:
            return judgement
        _warn(judgement)
    return look_at(here / ".windlass", env)


def look_at(home: Path, env: Mapping[str, str] = os.environ) -> HomeJudgement:
    """Judge a folder: by its owner and mode and those of all above it, by its proof, by its files."""
    real = Path(os.path.realpath(home))
    try:
        found = os.lstat(real)
    except FileNotFoundError:
        flaw = parents_flaw(real)
        return HomeJudgement(real, flaw, (_ELSEWHERE,) if flaw else ())
    except OSError as error:
        return HomeJudgement(real, f"it cannot be read: {error.strerror}", (_ELSEWHERE,))
    if not stat.S_ISDIR(found.st_mode):
        return HomeJudgement(real, "it is not a folder", (_ELSEWHERE,))
    if flaw := parents_flaw(real):
        return HomeJudgement(real, flaw, (_ELSEWHERE,))
    if flaw := folder_flaw(real, found):
        return _flawed(real, real, flaw)
    try:
        reason = _unproven(real, env)
    except NotPermitted as error:  # the user's key cannot be used
        return HomeJudgement(real, error.message, error.advice)
    if reason:
        return HomeJudgement(real, reason, _adopt(real), adoptable=True)
    present = frozenset(os.listdir(real))
    for name in STATE_NAMES:
        if name in present and (flaw := state_flaw(real / name)):
            return _flawed(real, real / name, flaw)
    return HomeJudgement(real, marked=HOME_FILE in present)


def prepare_home(home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Make a home that `find_home` gave, if it is not there, and mark it as the user's own before anything is in it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    judgement = look_at(home, env)
    judgement.require()
    if not judgement.marked:
        mark_new_home(home, env)
        look_at(home, env).require()
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n!config.toml\n!agents/\n!composed-tools/\n!composed-tools/*.js\n!composed-tools/*.json\n")


def _candidates(here: Path) -> Iterator[Path]:
    for folder in (here, *here.parents):
        if os.path.lexists(folder / ".windlass"):
            yield folder / ".windlass"


def _link_out(candidate: Path) -> HomeJudgement | None:
    """A link may have come with the folder that it is in: then its target was not chosen by the user."""
    real = Path(os.path.realpath(candidate))
    if not candidate.is_symlink() or real.is_relative_to(candidate.parent):
        return None
    advice = (f"if that is your home, name it: windlass --home {shlex.quote(str(real))} …, or WINDLASS_HOME",)
    return HomeJudgement(candidate, f"it is a link to {real}, outside its folder", advice)


def _unproven(home: Path, env: Mapping[str, str]) -> str:
    """The reason why a home is not the user's own; empty if it is, or has nothing in it that would be believed."""
    try:
        proof = read_proof(home)
        if proof is None:
            strange = _strange_entries(home)
            # Another process may have made the home meanwhile. The proof is the first thing that it makes.
            proof = read_proof(home) if strange else None
            if proof is None:
                return f"you did not create it, and it contains {_listed(strange)}" if strange else ""
    except ValueError as error:
        return str(error)
    key = read_key(user_folder(env))
    if key is None:
        return "it was created by another user or on another machine: you have no key yet"
    return "" if proof.holds(key) else "it was created by another user or with another key"


def _strange_entries(home: Path) -> list[str]:
    return sorted(name for name in os.listdir(home) if name not in HARMLESS and not name.startswith(f".{HOME_FILE}."))


def _listed(names: list[str]) -> str:
    shown = [name if name.isprintable() else ascii(name) for name in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _flawed(home: Path, entry: Path, flaw: str) -> HomeJudgement:
    """Modes can be set right by adopting; a link, or what belongs to somebody else, cannot."""
    if entry_flaw(entry) or os.lstat(entry).st_uid != os.geteuid():
        return HomeJudgement(home, flaw, (f"inspect it: ls -la {shlex.quote(str(home))}", _ELSEWHERE))
    return HomeJudgement(home, flaw, _adopt(home), adoptable=True)


def _adopt(home: Path) -> tuple[str]:
    return (f"review and adopt it: windlass adopt {shlex.quote(str(home))}",)


def _warn(judgement: HomeJudgement) -> None:
    if judgement.home not in _passed_over:
        _passed_over.add(judgement.home)
        advice = f" ({judgement.advice[0]})" if judgement.advice else ""
        log.warning("ignoring the home %s: %s%s", judgement.home, judgement.reason, advice)


NOT_TAKEN_OVER = ("server.token", "mcp-tools.json", "gates.db", "gates.db-wal", "gates.db-shm")


def require_adoptable(home: Path) -> None:
    """Raise unless all that keeps a home from being used is a missing proof, or modes that can be set right."""
    for path in (home, *(home / name for name in STATE_NAMES)):
        if flaw := entry_flaw(path):
            raise NotPermitted(f"the home {home} cannot be adopted: {flaw}", advice=(f"inspect it: ls -la {home}",))


def adopt_home(home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Make a home whose content its user has seen the user's own, and private.

    Files that say nothing about executions and that others may know or have prepared are not taken over: the server's
    token, cached results of tools, the list of tools of MCP servers. They are made anew when they are needed.
    """
    require_adoptable(home)
    os.chmod(home, 0o700)
    for name in NOT_TAKEN_OVER:
        (home / name).unlink(missing_ok=True)
    for path in (home / name for name in STATE_NAMES):
        if path.exists():
            os.chmod(path, stat.S_IMODE(path.stat().st_mode) & 0o700)
    mark_home_as_ours(home, env)
    look_at(home, env).require()


def database_of(home: Path) -> list[Path]:
    """The files that its database is made of, as far as they are there."""
    return [path for suffix in ("", "-wal") if (path := home / (DATABASE + suffix)).exists()]
