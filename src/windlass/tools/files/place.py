"""An `OpenedPath` is a name in an open directory, with operations on it that never resolve a path again.

The holder of an `OpenedPath` holds the directory itself, so renaming or swapping directories elsewhere cannot
redirect it. Nothing here follows a link. `safe_path.py` makes Places from paths; `undo.py` makes them for
its backups. The depth of a tree is bounded, because each level costs a descriptor.

`Tally` counts the contents that are read and written here, undo copies included (H1). It goes with the context of the
thread that does the work.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.failures import shown, unusable

__all__ = [
    "DIRECTORY",
    "OpenedPath",
    "Tally",
    "copy",
    "count_read",
    "directory",
    "discard",
    "dress",
    "enterable",
    "kind",
    "mark",
    "read_chunks",
    "readable",
    "size_of",
    "tally",
    "too_deep",
    "walk",
    "write_chunks",
]


class Tally:
    """Bytes, so far."""

    __slots__ = ("cpu", "read", "written")

    def __init__(self) -> None:
        self.read = self.written = 0
        self.cpu = 0.0
        """Seconds that the thread computed."""


tally: ContextVar[Tally | None] = ContextVar("windlass_files_tally", default=None)
"""Of the use whose work this is; None where nobody counts."""


def count_read(size: int) -> None:
    if (counting := tally.get()) is not None:
        counting.read += size


def count_written(size: int) -> None:
    if (counting := tally.get()) is not None:
        counting.written += size


def readable(path: str) -> str:
    """A path for results and the journal: a name that is not UTF-8 gets \\x escapes, as JSON cannot carry it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_DEPTH = 200
"""Levels of folders beneath the one that is walked through."""
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenedPath:
    fd: int
    """The open directory; the maker of the `OpenedPath` closes it."""
    name: str
    """The entry in it. `.` is the directory itself."""
    path: str
    """From the working directory, without links: for messages and for the undo log."""

    @property
    def text(self) -> str:
        """The path for results."""
        return readable(self.path)

    def beside(self, name: str) -> OpenedPath:
        """Another entry of the same directory."""
        folder = self.path.rpartition("/")[0]
        return replace(self, name=name, path=f"{folder}/{name}" if folder else name)

    def stat(self) -> os.stat_result | None:
        """The entry's status, a link's own; None when nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open the entry, never a link, and never waiting (a FIFO would wait for its other end)."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(self.name, flags, mode, dir_fd=self.fd)

    def rename(self, to: OpenedPath) -> None:
        os.rename(self.name, to.name, src_dir_fd=self.fd, dst_dir_fd=to.fd)

    def sync(self) -> None:
        """Make the names in the directory durable."""
        os.fsync(self.fd)


def kind(found: os.stat_result) -> str:
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISDIR(found.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(found.st_mode) else "other"


def enterable(place: OpenedPath) -> bool:
    """Tell if what is in a folder may be seen."""
    return os.access(place.name, os.R_OK | os.X_OK, dir_fd=place.fd, effective_ids=True)


def too_deep(place: OpenedPath, top: OpenedPath) -> bool:
    """Tell if a folder on a walk from the top is nested deeper than one can be walked through."""
    return place.path.count("/") - top.path.count("/") + (top.path == ".") > MAX_DEPTH


@contextmanager
def directory(place: OpenedPath) -> Iterator[int]:
    fd = os.open(place.name, DIRECTORY, dir_fd=place.fd)
    try:
        yield fd
    finally:
        os.close(fd)


def walk(
    place: OpenedPath, enter: Callable[[OpenedPath], bool] = lambda _: True, depth: int = 0
) -> Iterator[tuple[OpenedPath, os.stat_result]]:
    """The entry and all beneath it in order of names. An `OpenedPath` is good until the next is asked for.

    Entries that vanish meanwhile are left out; a directory that may not be read is named and not entered.
    """
    found = place.stat()
    if found is None:
        return
    yield place, found
    if not stat.S_ISDIR(found.st_mode) or not enter(place):
        return
    _bound(place, depth)
    try:
        with directory(place) as fd:
            for name in sorted(os.listdir(fd)):
                path = name if place.path == "." else f"{place.path}/{name}"
                yield from walk(OpenedPath(fd, name, path), enter, depth + 1)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def size_of(place: OpenedPath) -> int:
    """Bytes of the files in an entry and all beneath it."""
    return sum(found.st_size for _, found in walk(place) if stat.S_ISREG(found.st_mode))


def mark(place: OpenedPath) -> str | None:
    """A fingerprint of the entry and all beneath it, None when nothing is there.

    Made of names, kinds, modes, sizes and modification times, as `make` and `rsync` judge sameness: no
    content is read. Inodes are left out, so that a faithful copy has the mark of its original; so are the
    times of directories, which change with every entry that comes and goes again.
    """
    digest: hashlib._Hash | None = None
    for entry, found in walk(place):
        if digest is None:
            digest, top = hashlib.sha256(), len(entry.path)
        line: list[object] = [entry.path[top:], found.st_mode]
        if stat.S_ISREG(found.st_mode):
            line += [found.st_size, found.st_mtime_ns]
        elif stat.S_ISLNK(found.st_mode):
            line.append(os.readlink(entry.name, dir_fd=entry.fd))
        digest.update(repr(line).encode())
    return digest.hexdigest()[:32] if digest else None


def read_chunks(place: OpenedPath, check: Callable[[], None]) -> Iterator[bytes]:
    fd = place.open(os.O_RDONLY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise unusable(place.path, "is not a regular file")
        while chunk := os.read(fd, CHUNK):
            count_read(len(chunk))
            check()
            yield chunk
    finally:
        os.close(fd)


def write_chunks(fd: int, chunks: Iterable[bytes], check: Callable[[], None]) -> tuple[int, str]:
    """Write everything: how many bytes, and their SHA-256."""
    size, digest = 0, hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        rest = memoryview(chunk)
        while rest:
            check()
            count = os.write(fd, rest[:CHUNK])
            count_written(count)
            rest = rest[count:]
            fault_point("files.chunk")
    return size, digest.hexdigest()


def dress(fd: int, like: os.stat_result, *, setuid: bool = False, times: bool = False) -> None:
    """Give an open entry the owner, the mode and, if asked, the times of another one."""
    mode = stat.S_IMODE(like.st_mode)
    try:
        os.fchown(fd, like.st_uid, like.st_gid)
    except OSError:
        # Only root gives files away. The copy is then ours, and must not run as us for others.
        setuid = False
    os.fchmod(fd, mode if setuid else mode & ~(stat.S_ISUID | stat.S_ISGID))
    if times:
        os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))


def copy(source: OpenedPath, to: OpenedPath, check: Callable[[], None], depth: int = 0) -> None:
    """Copy a file, link or tree to a free name: content, owner if allowed, mode and times, durable."""
    found = source.stat()
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), source.path)
    check()
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source.name, dir_fd=source.fd), to.name, dir_fd=to.fd)
        times = (found.st_atime_ns, found.st_mtime_ns)
        os.utime(to.name, ns=times, dir_fd=to.fd, follow_symlinks=False)
    elif stat.S_ISREG(found.st_mode):
        fd = to.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_chunks(fd, read_chunks(source, check), check)
            dress(fd, found, setuid=True, times=True)
            os.fsync(fd)
        finally:
            os.close(fd)
    elif stat.S_ISDIR(found.st_mode):
        _bound(source, depth)
        os.mkdir(to.name, 0o700, dir_fd=to.fd)
        with directory(source) as inner, directory(to) as outer:
            for name in sorted(os.listdir(inner)):
                path = f"{source.path}/{name}"
                copy(OpenedPath(inner, name, path), OpenedPath(outer, name, path), check, depth + 1)
            dress(outer, found, setuid=True, times=True)
            os.fsync(outer)
    else:
        raise unusable(source.path, "is a device, FIFO or socket: it cannot be copied")


def discard(place: OpenedPath) -> None:
    """Delete an entry of ours and all beneath it, if it is there."""
    found = place.stat()
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(place.name, dir_fd=place.fd)
        return
    with directory(place) as fd:
        if found.st_mode & 0o700 != 0o700:
            os.fchmod(fd, 0o700)  # a write-protected directory would keep its entries
        for name in os.listdir(fd):
            discard(OpenedPath(fd, name, f"{place.path}/{name}"))
            fault_point("files.discarded")
    os.rmdir(place.name, dir_fd=place.fd)


def _bound(place: OpenedPath, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ToolError(
            f"{shown(place.path)} is nested more than {MAX_DEPTH} directories deep",
            category=Category.RESOURCE,
            advice=("work on a directory further down",),
        )
