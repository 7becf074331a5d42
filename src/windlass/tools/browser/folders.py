"""The browser's folder: its profile and its temporary files, gone when it is gone.

Its owner holds a lock on it for as long as it lives. One whose lock nobody holds is what a killed engine has left
behind, and goes when the next browser starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["Folder"]

PREFIX = "windlass-browser-"
LONGEST = 36
"""Characters of the folder that it is in: the path of the browser's socket may have 107."""
FRESH = 60.0
"""Seconds: a folder that is younger may not be locked yet."""


class Folder:
    def __init__(self) -> None:
        base = tempfile.gettempdir()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base if len(base) <= LONGEST else "/tmp"))
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for name in ("home", "files"):
            (self.path / name).mkdir(mode=0o700)
        _sweep(self.path)

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def files(self) -> Path:
        """Where downloads arrive."""
        return self.path / "files"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(mine: Path) -> None:
    """Remove what no living engine holds."""
    now = mine.stat().st_mtime
    for folder in mine.parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, gone by now, or held: not ours to remove
            if folder == mine or folder.is_symlink() or now - folder.stat().st_mtime < FRESH:
                continue
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
