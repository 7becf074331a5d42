"""Files of the checks themselves (K2): those that are protected are put back before the checks run.

What an agent changed is taken from the records of the files around its work. A file that a check runs as a program, and
that is not protected, is left as the agent made it, and named: it may be the very thing that was to be mended.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.core.agent import AgentState
from windlass.errors import Category, ToolError
from windlass.globs import glob_filter, is_pattern
from windlass.ports import Call
from windlass.workspaces.put_back import put_back
from windlass.workspaces.store import shown, store_of

__all__ = ["restore_protected", "touched_programs"]

_INTERPRETERS = ("sh", "bash", "python", "python3", "node", "ruby", "perl", "source", ".")


def restore_protected(agent: AgentState | None, patterns: Sequence[str], call: Call) -> tuple[str, ...]:
    """Put back the protected files that the agent changed; gives their paths. Raises `ToolError` if it cannot."""
    if not patterns:
        return ()
    periods = [period for period in agent.periods if period.after] if agent is not None else []
    if not periods:
        why = agent.unrecorded if agent is not None else ""
        raise ToolError(
            f"the files of `protect` cannot be protected: {why or 'the agent has worked on no recorded files'}",
            category=Category.CONFIGURATION,
            advice=("let it work in a git repository, or leave `protect` out",),
        )
    done: list[str] = []
    for root in dict.fromkeys(period.root for period in periods):
        pairs = [(period.before, period.after) for period in periods if period.root == root]
        store = store_of(Path(root), pairs[0][0].partition(":")[0], call.home)
        done += [one["path"] for one in put_back(store, pairs, _protects(patterns, call.workdir, Path(root)))]
    return tuple(done)


def touched_programs(agent: AgentState | None, uses: Iterable[Mapping[str, Any]], call: Call) -> tuple[str, ...]:
    """Files that the checks run as programs, as far as the commands name them, and that the agent changed."""
    named = {name for use in uses for name in _programs(str(use["with"].get("line", "")))}
    if agent is None or not named:
        return ()
    found: list[str] = []
    for period in agent.periods:
        if period.after and call.workdir.is_relative_to(period.root):
            store = store_of(Path(period.root), period.before.partition(":")[0], call.home)
            paths = {str((call.workdir / name).relative_to(period.root)) for name in named}
            changes = store.changes(period.before, period.after)
            found += [shown(one.path) for one in changes if one.old is not None and one.path in paths]
    return tuple(dict.fromkeys(found))


def _programs(line: str) -> list[str]:
    """Paths of the scripts that a command line runs: `./check.sh`, `python tests/run.py`."""
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    found = [word for before, word in zip(["", *words], words, strict=False) if _runs(before, word)]
    return [word.removeprefix("./") for word in found if not word.startswith(("/", "-", "~")) and ".." not in word]


def _runs(before: str, word: str) -> bool:
    is_first = before in ("", "&&", "||", ";", "|", "!")
    return (is_first and "/" in word) or (before in _INTERPRETERS and not word.startswith("-"))


def _protects(patterns: Sequence[str], workdir: Path, root: Path) -> Callable[[str], bool]:
    """True for the path of a file, from the root, that one of the patterns names, from the working directory."""
    inside = "" if workdir == root else f"{workdir.relative_to(root).as_posix()}/"
    tests = [_fits(pattern.removeprefix("./")) for pattern in patterns]

    def protects(path: str) -> bool:
        name = path.removeprefix(inside)
        return path.startswith(inside) and any(test(name) for test in tests)

    return protects


def _fits(pattern: str) -> Callable[[str], bool]:
    if is_pattern(pattern):
        return glob_filter(pattern)
    folder = f"{pattern.rstrip('/')}/"
    return lambda name: name == pattern or name.startswith(folder)
