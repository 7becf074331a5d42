"""Folders that triggers watch: which of their files are new or changed since they were last seen (L1).

A folder is looked into at each tick. A file is read only if its size or its time has changed; it counts as changed only
if its content has. Links and folders are passed over, and a file that was changed a moment ago is left for later.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

from windlass.core.triggers import Arrival
from windlass.errors import UsageError
from windlass.plan.triggers import FolderWatch
from windlass.ports.triggers import WatchedFile

__all__ = ["look_into", "seen_files"]

Seen = dict[str, WatchedFile]
_BLOCK = 1024 * 1024
_LATEST = 2**63 - 1
"""The greatest time of a file, in nanoseconds, that a database holds. Whoever writes a file sets its time as well."""


def seen_files(watch: FolderWatch, workdir: str) -> Seen:
    """All files that are there: what was there before the plan was scheduled does not start it."""
    with _in_words(watch):
        found = {entry.name: _read(entry) for entry in _entries(watch, workdir)}
        return {name: file for name, file in found.items() if file is not None}


def look_into(
    watch: FolderWatch, workdir: str, known: Mapping[str, WatchedFile], now: float, room: int
) -> tuple[list[Arrival], Seen | None]:
    """At most `room` files that have come or were changed, oldest first; and all that were seen, if that is news.

    Files for which there is no room, and those that may still be written, are left as if they had not changed.
    A file comes when it is seen, whatever time it has: a copy may have that of the original.
    """
    seen: Seen = {}
    changed: dict[str, WatchedFile] = {}
    with _in_words(watch):
        for entry in _entries(watch, workdir):
            before = known.get(entry.name)
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # somebody has taken it away meanwhile
            if before is not None:
                seen[entry.name] = before
                if (before.size, before.changed) == (found.st_size, _changed(found)):
                    continue
            if 0 <= now - found.st_mtime < watch.settle:
                continue
            file = _read(entry)
            if file is None:
                continue
            if before is not None and before.digest == file.digest:
                seen[entry.name] = file
            else:
                changed[entry.name] = file
    taken = sorted(changed, key=lambda name: (changed[name].changed, name))[: max(room, 0)]
    seen |= {name: changed[name] for name in taken}
    # A millisecond apart, so that they are started in this order, and their executions are listed in it.
    arrived = [Arrival(name, changed[name].digest, now + number / 1000) for number, name in enumerate(taken)]
    return arrived, seen if seen != known else None


def _entries(watch: FolderWatch, workdir: str) -> list[os.DirEntry[str]]:
    """The files of the folder that fit the pattern; none while there is no such folder."""
    try:
        entries = list(os.scandir(os.path.join(workdir, watch.path)))
    except FileNotFoundError:
        return []
    fitting = [entry for entry in entries if fnmatchcase(entry.name, watch.files) and entry.name.isprintable()]
    return [entry for entry in fitting if entry.is_file(follow_symlinks=False)]


@contextmanager
def _in_words(watch: FolderWatch) -> Iterator[None]:
    """Errors of the system in words."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the folder {watch.path} cannot be watched: {error.strerror} ({error.filename})") from error


def _read(entry: os.DirEntry[str]) -> WatchedFile | None:
    """The file as it is; None if it was taken away, or became something else."""
    digest = hashlib.sha256()
    try:
        with open(entry.path, "rb", opener=_open_file) as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                return None
            while block := stream.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return None
    return WatchedFile(found.st_size, _changed(found), digest.hexdigest())


def _open_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _changed(found: os.stat_result) -> int:
    return min(found.st_mtime_ns, _LATEST)
