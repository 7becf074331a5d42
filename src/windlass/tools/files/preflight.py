"""Checks before a change: may every path of the step be changed, is there room on the disk, is it what was approved?

`preflight` looks at the whole step before its first change, so that the last of a hundred files does not fail for a
reason that was there to be seen at the beginning. Only what can be known is judged: where an earlier change of the same
step moves or deletes something, the later ones there are left to the work itself, which takes everything back if it
fails.

`basis_in` hashes every path that a request names. `Approved` holds what a person was shown; `Undo` compares each entry
that it has just taken away or is about to put somewhere, so that also a file that is swapped between the first look and
the rename is noticed (C6). A file that somebody still writes to through an open descriptor is not.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.core.approval import ABSENT, Basis, changes
from windlass.errors import ApprovalOutdated, Category, ToolError
from windlass.tools.files.diff_text import read_diff
from windlass.tools.files.failures import Missing, nested, shown
from windlass.tools.files.look import encode
from windlass.tools.files.models import Apply, Copy, Delete, Edit, Move, Patch, Write
from windlass.tools.files.place import OpenedPath, mark, read_chunks, readable
from windlass.tools.files.safe_path import Root

__all__ = ["Approved", "PathTarget", "Preflight", "basis_in", "need_room", "need_write", "preflight"]


@dataclass(frozen=True, slots=True)
class PathTarget:
    """A path that a step is going to touch."""

    path: str
    size: int = 0
    """Bytes that will be written there."""
    content: bool = False
    """A file's content is replaced: the file itself must be writable, and a link is followed to it."""
    again: bool = False
    """The file's present content is written once more, with the rest."""
    vacated: bool = False
    """The present entry goes away, so that a later entry there is not known yet."""


def preflight(root: Root, given: Any, floor: int) -> None:
    """Refuse a step that cannot work, as far as its arguments say what it touches."""
    checks = Preflight(root, floor)
    if not isinstance(given, Apply):
        checks.all(_targets(given))
        return
    for number, change in enumerate(given.changes, 1):
        with nested(f"change {number} of {len(given.changes)} ({change.do})"):
            checks.all(_targets(change))


def _targets(given: Any) -> list[PathTarget]:
    match given:
        case Write():
            size = len(encode(given.content, given.encoding, given.path))
            return [PathTarget(given.path, size, content=True, again=given.mode == "append")]
        case Edit():
            return [PathTarget(given.path, content=True, again=True)]
        case Move():
            return [PathTarget(given.source, vacated=True), PathTarget(given.to, vacated=True)]
        case Delete():
            return [PathTarget(given.path, vacated=True)]
        case _:
            return []  # those that must read first look ahead themselves


class Preflight:
    """Facts about the paths of one step before it begins."""

    def __init__(self, root: Root, floor: int) -> None:
        self._root, self._floor = root, floor
        self._needs: dict[int, int] = {}
        """Bytes to be written, by file system."""
        self._gone: set[str] = set()
        """Paths that the step vacates, and all above them."""
        self._vacated: set[str] = set()

    def all(self, targets: list[PathTarget]) -> None:
        for target in targets:
            parts = self._root.parts(target.path)
            if not self._uncertain(parts):
                self._look(target, parts)
        for target in targets:
            if target.vacated:
                parts = self._root.parts(target.path)
                self._vacated.add("/".join(parts))
                self._gone.update(_heads(parts))

    def _uncertain(self, parts: list[str]) -> bool:
        return "/".join(parts) in self._gone or not self._vacated.isdisjoint(_heads(parts))

    def _look(self, target: PathTarget, parts: list[str]) -> None:
        """Judge the place of a target, or the nearest folder on the way to it that is there."""
        for length in range(len(parts), 0, -1):
            try:
                with self._root.locate("/".join(parts[:length]), follow=target.content) as place:
                    self._judge(target, place, there=length == len(parts))
                    return
            except Missing:
                continue
            except ToolError as error:
                if error.failure.category is Category.CONFIGURATION:
                    return  # the work comes to it, and knows more to say about it
                raise

    def _judge(self, target: PathTarget, place: OpenedPath, *, there: bool) -> None:
        if place.name == ".":
            return
        found = place.stat() if there else None
        size = target.size
        if found is not None and target.content:
            need_write(place)
            size += found.st_size if target.again else 0
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd, effective_ids=True):
            raise ToolError(
                f"{shown(target.path)}: its folder cannot be written",
                category=Category.PERMISSION,
                advice=("check the owner and the mode of the folder, and whether its file system is read-only",),
            )
        device = os.fstat(place.fd).st_dev
        self._needs[device] = self._needs.get(device, 0) + size
        if size:
            need_room(place, self._needs[device], self._floor)


def _heads(parts: list[str]) -> list[str]:
    """The path and all above it."""
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def need_write(place: OpenedPath) -> None:
    """Refuse a file that is write-protected.

    A rename would not ask, and the user who write-protected the file expects it to hold.
    """
    if not os.access(place.name, os.W_OK, dir_fd=place.fd, effective_ids=True):
        raise ToolError(
            f"{shown(place.path)} is write-protected",
            category=Category.PERMISSION,
            advice=("make it writable first: chmod u+w",),
        )


def need_room(place: OpenedPath, size: int, floor: int) -> None:
    """Refuse to write so much if the file system would then have less than `floor` bytes left."""
    about = os.fstatvfs(place.fd)
    free = about.f_bavail * about.f_frsize
    if about.f_blocks and free - size < floor:
        kept = f", and {floor:,} are to stay free" if floor else ""
        raise ToolError(
            f"{shown(place.path)}: the disk is full: {size:,} bytes are to be written, {free:,} are free{kept}",
            category=Category.RESOURCE,
            advice=("free some space, or ask for less", "then: windlass resume"),
        )


MOST_HASHED = 16 << 20
"""Bytes of a file that are hashed; a larger one is known by its size and its time of change."""
_LABEL = "file "


def basis_in(root: Root, given: Any) -> dict[str, str]:
    """Every file and folder that a request names, with the hash of what is there now."""
    basis: dict[str, str] = {}
    for path, follow in _named(given):
        try:
            with root.locate(path, follow=follow) as place:
                basis[_LABEL + place.text] = fingerprint(place)
        except (ToolError, OSError):
            basis[_LABEL + path] = ABSENT  # not there, or not to be reached: the work says why
    return basis


def fingerprint(place: OpenedPath) -> str:
    """The hash of a file's content; of a link where it leads; of a folder names, sizes and times of what is in it."""
    found = place.stat()
    if found is None:
        return ABSENT
    if not stat.S_ISREG(found.st_mode):
        return mark(place) or ABSENT
    if found.st_size > MOST_HASHED:
        return f"{found.st_size} bytes of {found.st_mtime_ns}"
    return _hash(read_chunks(place, lambda: None))


class Approved:
    """The entries that a person approved to be changed, as long as they are not changed yet."""

    def __init__(self, basis: Mapping[str, str] | None = None) -> None:
        self._left = {name.removeprefix(_LABEL): value for name, value in (basis or {}).items() if _is_file(name)}
        self._strict = basis is not None

    def compare(self, now: Basis) -> None:
        """Raises ApprovalOutdated if a file is not what it was when the person was asked."""
        if self._strict:
            self._raise({_LABEL + path: value for path, value in self._left.items()}, now)

    def knows(self, path: str) -> bool:
        """Tell if the entry there must be the one that was shown."""
        return readable(path) in self._left

    def check(self, path: str, entry: OpenedPath) -> None:
        """Compare an entry that was taken from the path, or copied from there, with the one that was shown."""
        if self.knows(path):
            self._one(path, fingerprint(entry))

    def check_content(self, path: str, content: bytes) -> None:
        """The same for content that was read."""
        if self.knows(path) and len(content) <= MOST_HASHED:
            self._one(path, _hash([content]))

    def hashed(self, path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same for content that is being read: it is compared when all of it is."""
        if len(self._left.get(readable(path), "")) != 64:
            yield from chunks
            return
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
        self._one(path, digest.hexdigest())

    def done(self, *paths: str | None) -> None:
        """From here on it is our own change that stands there."""
        for path in paths:
            self._left.pop(readable(path or ""), None)

    def created(self, path: str) -> None:
        """Somebody else has put something where nothing was."""
        self._one(path, "something")

    def _one(self, path: str, now: str) -> None:
        label = readable(path)
        self._raise({_LABEL + label: self._left[label]}, {_LABEL + label: now})

    def _raise(self, before: Basis, now: Basis) -> None:
        if found := changes(before, now):
            raise ApprovalOutdated(found)


def _is_file(label: str) -> bool:
    return label.startswith(_LABEL)


def _hash(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _named(given: Any) -> Iterator[tuple[str, bool]]:
    """The paths of a request, each with whether a link at its end is followed."""
    match given:
        case Write() | Edit():
            yield given.path, True
        case Move() | Copy():
            yield given.source, False
            yield given.to, False
        case Delete():
            yield given.path, False
        case Patch():
            try:
                names = {name for diff in read_diff(given.patch, given.strip) for name in (diff.old, diff.new) if name}
            except ToolError:
                return  # it is no diff: the work says what is wrong with it
            yield from ((os.fspath(name), True) for name in sorted(names))
        case Apply():
            for change in given.changes:
                yield from _named(change)
