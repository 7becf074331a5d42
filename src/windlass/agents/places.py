"""Folders of roles, skills and rules, in order of precedence.

From the working directory up to the git root, folder by folder, the nearest first; then the user's own folders. In one
folder: Windlass's, then Claude Code's, then OpenCode's, then what is shared. Without a git root around it, a working
directory stands for itself.

`walk` lists the files beneath such a place within stated bounds: no loop of links, no forest of files and no folder
that cannot be read holds it up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from windlass.agents.reading import shown_path, stays_inside
from windlass.errors import Problem
from windlass.homes import user_folder
from windlass.runtimes import CLAUDE_CODE, OPEN_CODE

__all__ = ["MAX_DEPTH", "MAX_ENTRIES", "MAX_FILES", "ConfigSource", "ConfigSources", "walk"]

MAX_DEPTH = 8
"""Folders beneath a place that are looked into, one in another."""
MAX_ENTRIES = 20_000
"""Names that are looked at beneath one place."""
MAX_FILES = 2_000
"""Files that are read beneath one place."""
_MAX_PARENTS = 100
_SKIPPED = frozenset({".git", "node_modules"})

Origin = Literal["project", "user", "built-in"]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """One folder (or OpenCode configuration file) to look into."""

    path: Path
    runtime: str
    """The runtime whose users keep things there; empty for Windlass itself and for what is shared."""
    origin: Origin
    boundary: Path | None = None
    """Folder that a project's files must not leave, links followed. The user's own may lead anywhere."""
    is_config: bool = False
    home: Path | None = None
    """Meaning of `~` in a file there; None in a project's."""


class ConfigSources:
    """The places of one working directory and one user."""

    def __init__(self, workdir: Path, env: Mapping[str, str]) -> None:
        self.workdir = Path(os.path.realpath(workdir))
        """The real path: the parents of a link are not those of its target."""
        self.folders = _up_to_git_root(self.workdir)
        """The project's, nearest first."""
        self.root = self.folders[-1]
        self._home = home = Path(env.get("HOME") or Path.home())
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
        self._windlass = user_folder(env)
        self._claude = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        self._opencode = config / "opencode"
        self._shared = home / ".agents"

    def roles(self) -> Iterator[ConfigSource]:
        for folder in self.folders:
            yield self._ours(folder / ".windlass" / "agents", "")
            yield self._ours(folder / ".claude" / "agents", CLAUDE_CODE.name)
            yield self._ours(folder / ".opencode" / "agent", OPEN_CODE.name)
            yield self._ours(folder / ".opencode" / "agents", OPEN_CODE.name)
            yield from self.configs(folder)
        yield ConfigSource(self._windlass / "agents", "", "user")
        yield ConfigSource(self._claude / "agents", CLAUDE_CODE.name, "user")
        yield ConfigSource(self._opencode / "agent", OPEN_CODE.name, "user")
        yield ConfigSource(self._opencode / "agents", OPEN_CODE.name, "user")
        yield ConfigSource(self._opencode / "opencode.json", OPEN_CODE.name, "user", is_config=True, home=self._home)
        yield ConfigSource(self._opencode / "opencode.jsonc", OPEN_CODE.name, "user", is_config=True, home=self._home)

    def skills(self) -> Iterator[ConfigSource]:
        for folder in self.folders:
            yield self._ours(folder / ".windlass" / "skills", "")
            yield self._ours(folder / ".claude" / "skills", CLAUDE_CODE.name)
            yield self._ours(folder / ".opencode" / "skill", OPEN_CODE.name)
            yield self._ours(folder / ".opencode" / "skills", OPEN_CODE.name)
            yield self._ours(folder / ".agents" / "skills", "")
        yield ConfigSource(self._windlass / "skills", "", "user")
        yield ConfigSource(self._claude / "skills", CLAUDE_CODE.name, "user")
        yield ConfigSource(self._opencode / "skill", OPEN_CODE.name, "user")
        yield ConfigSource(self._opencode / "skills", OPEN_CODE.name, "user")
        yield ConfigSource(self._shared / "skills", "", "user")

    def configs(self, folder: Path) -> Iterator[ConfigSource]:
        """OpenCode's configuration files of one folder of the project."""
        for inner in (folder, folder / ".opencode"):
            for name in ("opencode.json", "opencode.jsonc"):
                yield ConfigSource(inner / name, OPEN_CODE.name, "project", self.root, is_config=True)

    def _ours(self, path: Path, runtime: str) -> ConfigSource:
        return ConfigSource(path, runtime, "project", self.root)


def _up_to_git_root(workdir: Path) -> tuple[Path, ...]:
    chain = (workdir, *workdir.parents)[:_MAX_PARENTS]
    for count, folder in enumerate(chain, 1):
        if os.path.lexists(folder / ".git"):
            return chain[:count]
    return (workdir,)


def walk(place: ConfigSource, wanted: Callable[[str], bool], complain: Callable[[Problem], None]) -> list[Path]:
    """The files beneath a place whose names are wanted, sorted by path."""
    found: list[Path] = []
    try:
        start = os.stat(place.path)
    except (FileNotFoundError, NotADirectoryError):
        return []  # where something above it is a file, there is no such place either
    except OSError as error:
        complain(_closed(place.path, error))
        return []
    if place.boundary is not None and not stays_inside(place.path, place.boundary):
        complain(Problem("is a link that leaves the project, so it is not followed", shown_path(place.path)))
        return []
    seen = {(start.st_dev, start.st_ino)}
    entries = 0
    queue: list[tuple[str, int]] = [(str(place.path), 0)]
    while queue:
        folder, depth = queue.pop()
        try:
            with os.scandir(folder) as listing:
                names = sorted(islice(listing, MAX_ENTRIES + 1), key=lambda entry: entry.name)
        except OSError as error:
            complain(_closed(folder, error))
            continue
        for entry in names:
            entries += 1
            if entries > MAX_ENTRIES or len(found) >= MAX_FILES:
                text = f"holds more than {MAX_ENTRIES:,} names or {MAX_FILES:,} files: the rest is ignored"
                complain(Problem(text, shown_path(place.path)))
                return sorted(found)
            if entry.is_symlink() and not _may_follow(entry.path, place, complain, wanted(entry.name)):
                continue
            if not _is_folder(entry):
                if wanted(entry.name):
                    found.append(Path(entry.path))
            elif entry.name not in _SKIPPED and depth < MAX_DEPTH:
                identity = entry.stat()
                if (identity.st_dev, identity.st_ino) not in seen:
                    seen.add((identity.st_dev, identity.st_ino))
                    queue.append((entry.path, depth + 1))
    return sorted(found)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a loop of links: whoever wants to read it is told


def _closed(path: str | Path, error: OSError) -> Problem:
    return Problem(f"cannot be looked into: {(error.strerror or 'unknown').lower()}", shown_path(path))


def _may_follow(path: str, place: ConfigSource, complain: Callable[[Problem], None], wanted: bool) -> bool:
    if place.boundary is None or stays_inside(path, place.boundary):
        return True
    if wanted or os.path.isdir(path):
        reason = "leaves the project" if os.path.exists(path) else "leads nowhere"
        complain(Problem(f"is a link that {reason}, so it is not followed", shown_path(path)))
    return False
