"""The engine's own state, which no tool that takes a path may touch: known by name, and by device and inode.

A folder named `.windlass` is a home, whoever's it is. The home of the engine itself is known under every name: a link,
a bind mount, `--home ./state`, a hard link to one of its files.
"""

from __future__ import annotations

import os
from pathlib import Path

from windlass.homes import STATE_NAMES

__all__ = ["EngineState", "is_state"]

Identity = tuple[int, int]


def is_state(name: str) -> bool:
    """Whether a name is that of a home, also on file systems that ignore case."""
    return name.casefold() == ".windlass"


class EngineState:
    """The home of the engine as a file tool meets it. `fd` is the working directory, above which nobody looks."""

    def __init__(self, home: Path | None, fd: int, workdir: str) -> None:
        """`workdir` is the path of the working directory; both paths are free of links."""
        self._top = _identity(os.fstat(fd))
        self._own = _own(home, workdir) if home is not None else frozenset[Identity]()

    def __contains__(self, found: os.stat_result) -> bool:
        """Whether it is the home itself, or an entry of it under whatever name."""
        return _identity(found) in self._own

    def holds(self, fd: int) -> bool:
        """Whether an open directory below the working directory is the home, or in it."""
        if not self._own:
            return False
        up, last = ".", None
        while (now := _identity(os.stat(up, dir_fd=fd))) not in (self._top, last):
            if now in self._own:
                return True
            up, last = f"{up}/..", now  # the same twice is the root of the file system
        return False


def _own(home: Path, workdir: str) -> frozenset[Identity]:
    """The home and all that is in it; only the engine's files in it where the working directory is inside the home."""
    try:
        found = os.stat(home)
        with os.scandir(home) as entries:
            inside = {entry.name: (found.st_dev, entry.inode()) for entry in entries}
    except OSError:
        return frozenset()  # there is none yet
    if f"{workdir}/".startswith(f"{home}/"):
        return frozenset(inside[name] for name in STATE_NAMES if name in inside)
    return frozenset({_identity(found), *inside.values()})


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
