"""The files that a change was approved for: their hashes, and the comparison in the moment of the change (C6).

`basis_in` looks at every path that a request names. `Approved` holds what a person was shown; `Undo` asks it about each
entry that it has just taken away or is about to put somewhere, so that also a file that is swapped between the first
look and the rename is noticed. A file that somebody still writes to through an open descriptor is not.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.core.approval import ABSENT, Basis, changes
from windlass.errors import ApprovalOutdated, ToolError
from windlass.tools.files.arguments import Apply, Copy, Delete, Edit, Move, Patch, Write
from windlass.tools.files.diff_text import read_diff
from windlass.tools.files.place import Place, mark, read_chunks
from windlass.tools.files.safe_path import Root

__all__ = ["Approved", "basis_in"]

MOST_HASHED = 16 << 20
"""Bytes of a file that are hashed; a larger one is known by its size and its time of change."""
_LABEL = "file "


def basis_in(root: Root, given: Any) -> dict[str, str]:
    """Every file and folder that a request names, with the hash of what is there now."""
    basis: dict[str, str] = {}
    for path, follow in _named(given):
        try:
            with root.locate(path, follow=follow) as place:
                basis[_LABEL + place.path] = fingerprint(place)
        except (ToolError, OSError):
            basis[_LABEL + path] = ABSENT  # not there, or not to be reached: the work says why
    return basis


def fingerprint(place: Place) -> str:
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
    """What a person allowed to be changed, as long as it was not changed yet."""

    def __init__(self, basis: Mapping[str, str] | None = None) -> None:
        self._left = {name.removeprefix(_LABEL): value for name, value in (basis or {}).items() if _is_file(name)}
        self._strict = basis is not None

    def compare(self, now: Basis) -> None:
        """Raises ApprovalOutdated if a file is not what it was when the person was asked."""
        if self._strict:
            self._raise({_LABEL + path: value for path, value in self._left.items()}, now)

    def knows(self, path: str) -> bool:
        """Whether the entry there is to be the one that was shown."""
        return path in self._left

    def check(self, path: str, entry: Place) -> None:
        """Compare an entry that was taken from the path, or copied from there, with the one that was shown."""
        if path in self._left:
            self._one(path, fingerprint(entry))

    def check_content(self, path: str, content: bytes) -> None:
        """The same for content that was read."""
        if path in self._left and len(content) <= MOST_HASHED:
            self._one(path, _hash([content]))

    def hashed(self, path: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same for content that is being read: it is compared when all of it is."""
        if path not in self._left or len(self._left[path]) != 64:
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
            self._left.pop(path or "", None)

    def created(self, path: str) -> None:
        """Somebody else has put something where nothing was."""
        self._one(path, "something")

    def _one(self, path: str, now: str) -> None:
        self._raise({_LABEL + path: self._left[path]}, {_LABEL + path: now})

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
