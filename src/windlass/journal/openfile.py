"""Notices that a database was deleted, replaced or cut while it is in use (D9).

SQLite goes on writing to a file that no path leads to any more, and every commit succeeds; all of it is gone when the
process ends. So whoever acknowledges a commit looks first whether the path still leads to the file that was opened.

The file is looked at with `stat` alone and never opened: closing a descriptor of it would drop SQLite's locks on it,
which belong to the process. While it is open here its inode cannot be given to another file, so the same device and
inode mean the same file. The same holds for the write-ahead log, which nobody deletes while a connection is open.
"""

from __future__ import annotations

import os
from pathlib import Path

from windlass.errors import Vanished

__all__ = ["OpenFile"]

SMALLEST = 512
"""Bytes of the smallest page: a database of ours is never shorter."""


class OpenFile:
    """A database file as it was when it was opened."""

    def __init__(self, path: Path | str) -> None:
        """To be made while a connection is open, right after it was."""
        self._path = str(path)
        self._log_path = f"{path}-wal"
        self._file = _identity(os.stat(self._path))
        self._log: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise `Vanished` unless the path still leads to the file that was opened."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._vanished("was deleted or moved away") from None
        if _identity(found) != self._file:
            raise self._vanished("was replaced by another file")
        if found.st_size < SMALLEST:
            raise self._vanished("was emptied")
        try:
            log = _identity(os.stat(self._log_path))
        except FileNotFoundError:
            if self._log is None:
                return  # nothing was written yet
            raise self._vanished("lost its write-ahead log (-wal), which was deleted") from None
        if self._log is None:
            self._log = log
        elif log != self._log:
            raise self._vanished("had its write-ahead log (-wal) replaced by another file")

    def _vanished(self, happened: str) -> Vanished:
        return Vanished(
            f"{self._path} {happened} while it was in use; nothing more is written, and what was written last is lost",
            advice=(
                "put the home back where it was, or restore a backup: windlass restore FILE",
                "see what is left: windlass doctor --deep",
            ),
        )


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
