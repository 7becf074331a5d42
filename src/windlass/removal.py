"""Remove a folder with all that is in it, also where folders in it are write-protected or cannot be looked into."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Raises OSError for what cannot be removed, unless that is to be left; the rest goes. No link is followed."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        _open_up(folder)
        shutil.rmtree(folder, ignore_errors=ignore_errors)


def _open_up(folder: str | Path) -> None:
    """Let us see and change the entries of a folder and of all folders in it, as far as they are ours."""
    with suppress(OSError):
        mode = os.lstat(folder).st_mode
        if not stat.S_ISDIR(mode):  # a link may lead to a folder of somebody else
            return
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IRWXU)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _open_up(entry.path)
