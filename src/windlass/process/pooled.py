"""Memory that several commands share: each keeper tells what its tree uses, and sees what the others have told.

Every keeper has a file of its own in a folder that they share, named after its process. A keeper whose tree has grown,
and finds that the sum is passed, ends its own: so the command ends that grew beyond the limit, and not one that only
was large. What a killed keeper left is passed over, and removed.

Loaded by the warden from this file, with `bounds`. Standard library alone, as for `warden`.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["PooledMemory"]

WIDTH = 20
"""Digits of a figure: each one takes the place of the one before as a whole."""


class PooledMemory:
    def __init__(self, folder: str, limit: int) -> None:
        """OSError: the folder cannot be used."""
        self.limit = limit
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._name = _name_of(os.getpid())
        self._file = os.open(f"{folder}/{self._name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._last = 0

    def passed(self, mine: int) -> bool:
        """Tell what the tree uses; whether it grew beyond what all of them may use together."""
        grew, self._last = mine > self._last, mine
        self._tell(mine)
        if not grew or mine + self._others() <= self.limit:
            return False
        self._tell(0)  # it is about to end, and the others must not end for it as well
        return True

    def room(self, mine: int) -> int:
        return self.limit - mine - self._others()

    def close(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            os.unlink(f"{self._folder}/{self._name}")
            os.rmdir(self._folder)  # unless others are there

    def _tell(self, memory: int) -> None:
        with suppress(OSError):  # a full disk: the others count what was told last
            os.pwrite(self._file, b"%0*d" % (WIDTH, memory), 0)

    def _others(self) -> int:
        total = 0
        with suppress(OSError):
            for name in os.listdir(self._folder):
                if name != self._name:
                    total += self._told_by(name)
        return total

    def _told_by(self, name: str) -> int:
        path = f"{self._folder}/{name}"
        with suppress(OSError, ValueError):  # it has ended meanwhile, or has told nothing yet
            if _name_of(int(name.partition("-")[0])) != name:
                os.unlink(path)
                return 0
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return int(os.read(fd, WIDTH) or b"0")
            finally:
                os.close(fd)
        return 0


def _name_of(pid: int) -> str:
    """Of a living process: its pid, and when it was born, which tells it from a later one of that pid."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return f"{pid}-{int(os.read(fd, 4096).rpartition(b')')[2].split()[19])}"
    finally:
        os.close(fd)
