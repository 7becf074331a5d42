"""Folders that triggers watch: which of their files are new or changed since they were last seen (L1).

A folder is looked into at each tick. A file is read only if its size or its time has changed; it counts as changed only
if its content has. Links and folders are passed over, and a file that was changed a moment ago is left for later.
So is a file that cannot be read. A file whose name cannot be an input comes too, with the reason why it starts nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from unicodedata import category

from windlass.core.triggers import Arrival
from windlass.engine.starting import check_workdir
from windlass.errors import UsageError
from windlass.globs import glob_filter
from windlass.plan.triggers import FolderWatch
from windlass.ports.triggers import WatchedFile

__all__ = ["FolderLook", "folder_trouble", "look_into", "seen_files", "watched_name"]

Seen = dict[str, WatchedFile]
_BLOCK = 1024 * 1024
AHEAD = 60.0
"""Seconds by which the time of a file that is being written may be ahead: it has that of a file server, whose clock is
another one, and the tick may have begun long before it came to this folder."""
_LATEST = 2**63 - 1
"""The greatest time of a file, in nanoseconds, that a database holds. Whoever writes a file sets its time as well."""


class FolderLook(NamedTuple):
    """The files that one look into a folder has found."""

    arrived: list[Arrival]
    """Files that have come or were changed, oldest first."""
    seen: Seen | None
    """All files that were seen, if that is news."""
    held: dict[str, str]
    """Files that are left for later, with the reasons: they may still be written, or cannot be read."""


def seen_files(watch: FolderWatch, workdir: str) -> Seen:
    """All files that are there: what was there before the plan was scheduled does not start it."""
    with _in_words(watch):
        found = {_storable(entry.name): _as_it_is(entry) for entry in _entries(watch, workdir)}
        return {name: file for name, file in found.items() if file is not None}


def folder_trouble(watch: FolderWatch, workdir: str) -> str:
    """The reason why no file can come now; empty if there is none. A folder that is not there may still come."""
    try:
        with _in_words(watch):
            _entries(watch, workdir)
    except UsageError as error:
        return error.message
    return "" if os.path.exists(os.path.join(workdir, watch.path)) else f"the folder {watch.path} is not there"


def watched_name(watch: FolderWatch, workdir: str, file: str) -> str:
    """The name of a file in the folder that fits the pattern, by its name or its path. Raises if there is none."""
    folder = os.path.realpath(os.path.join(workdir, watch.path))
    place, name = os.path.split(file)
    with _in_words(watch):
        known = [entry.name for entry in _entries(watch, workdir)]
    if name not in known or (place and os.path.realpath(place) != folder):
        raise UsageError(f"the folder {watch.path} has no file {file} that fits {watch.files}")
    if refusal := _refusal(name):
        raise UsageError(f"{_storable(name)}: {refusal}")
    return name


def look_into(watch: FolderWatch, workdir: str, known: Mapping[str, WatchedFile], now: float, room: int) -> FolderLook:
    """Find at most `room` files that have come or were changed.

    Files for which there is no room, and those that may still be written, are left as if they had not changed.
    A file comes when it is seen, whatever time it has: a copy may have that of the original.
    """
    seen: Seen = {}
    held: dict[str, str] = {}
    changed: dict[str, WatchedFile] = {}
    refusals: dict[str, str] = {}
    with _in_words(watch):
        for entry in _entries(watch, workdir):
            name = _storable(entry.name)
            before = known.get(name)
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # somebody has taken it away meanwhile
            if before is not None:
                seen[name] = before
                if (before.size, before.changed) == (found.st_size, _changed(found)):
                    continue
            age = now - found.st_mtime
            if watch.settle and -AHEAD < age < watch.settle:
                held[name] = f"settles in {math.ceil(watch.settle - age)} s"
                continue
            if room <= 0:
                continue  # nobody needs to know its content yet
            try:
                file = _read(entry)
            except OSError as error:
                held[name] = f"cannot be read: {error.strerror}"
                continue
            if file is None:
                continue
            if before is not None and before.digest == file.digest:
                seen[name] = file
            else:
                changed[name] = file
                refusals[name] = _refusal(entry.name)
    taken = sorted(changed, key=lambda name: (changed[name].changed, name))[:room]
    seen |= {name: changed[name] for name in taken}
    # A millisecond apart, so that they are started in this order, and their executions are listed in it.
    times = {name: now + number / 1000 for number, name in enumerate(taken)}
    arrived = [Arrival(name, changed[name].digest, at, refusals[name]) for name, at in times.items()]
    return FolderLook(arrived, seen if seen != known else None, held)


def _entries(watch: FolderWatch, workdir: str) -> list[os.DirEntry[str]]:
    """The files of the folder that fit the pattern; none while there is no such folder in the working directory."""
    try:
        entries = list(os.scandir(os.path.join(workdir, watch.path)))
    except FileNotFoundError:
        check_workdir(workdir)
        return []
    fits = glob_filter(watch.files)
    return [entry for entry in entries if fits(entry.name) and entry.is_file(follow_symlinks=False)]


def _refusal(name: str) -> str:
    """The reason why a file of this name starts nothing; empty if there is none."""
    kinds = {category(character) for character in name}
    if "Cs" in kinds:
        return "its name is not UTF-8, so it cannot be an input: rename it"
    return "its name has control characters, so it cannot be an input: rename it" if "Cc" in kinds else ""


def _storable(name: str) -> str:
    """The name; written out in quotes if it cannot be an input."""
    return repr(name) if _refusal(name) else name


@contextmanager
def _in_words(watch: FolderWatch) -> Iterator[None]:
    """Errors of the system in words."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the folder {watch.path} cannot be watched: {error.strerror} ({error.filename})") from error


def _as_it_is(entry: os.DirEntry[str]) -> WatchedFile | None:
    """The file, or only its size and time if it cannot be read."""
    try:
        return _read(entry)
    except OSError:
        found = entry.stat(follow_symlinks=False)
        return WatchedFile(found.st_size, _changed(found), "")


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
