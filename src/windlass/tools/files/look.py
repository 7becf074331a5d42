"""Read, list, and search for the lines that a pattern is found in: nothing here changes anything."""

from __future__ import annotations

import base64
import codecs
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from windlass.clock import iso
from windlass.errors import Category, ToolError
from windlass.globs import glob_filter
from windlass.schemas.patterns import BadPattern, Pattern, line_pattern
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.models import List, Read, Search
from windlass.tools.files.place import OpenedPath, count_read, enterable, kind, too_deep, walk
from windlass.tools.files.safe_path import Root, names_in

__all__ = ["encode", "list_entries", "need_entry", "path_filter", "read", "regular", "search"]


def path_filter(glob: str | None) -> Callable[[str], bool]:
    try:
        return glob_filter(glob)
    except ValueError as error:
        raise ToolError(f"{shown(glob or '')} is not a pattern: {error}", category=Category.CONFIGURATION) from None


def regular(place: OpenedPath, path: str) -> os.stat_result | None:
    """Status of the regular file at a place; None when nothing is there. Anything else is refused."""
    found = place.stat()
    if path.endswith(("/", "/.")) or (found and stat.S_ISDIR(found.st_mode)):
        raise unusable(path, "names a directory, not a file", "name a file, or use files.list")
    if found and not stat.S_ISREG(found.st_mode):
        raise unusable(path, "is not a regular file but a device, FIFO, socket or link", "use a file")
    return found


def need_entry(place: OpenedPath, path: str) -> None:
    """Refuse a folder that may not be looked into: it would seem to be empty."""
    if not enterable(place):
        raise ToolError(
            f"{shown(path)} is a directory that may not be looked into",
            category=Category.PERMISSION,
            advice=("check the owner and the mode of the directory",),
        )


def read(root: Root, arguments: Read, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    limit = max(1, arguments.max_bytes >> reduced)
    with root.locate(arguments.path) as place:
        if regular(place, arguments.path) is None:
            raise Missing(arguments.path, place.name, names_in(place.fd))
        fd = place.open(os.O_RDONLY)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise unusable(arguments.path, "became something else while it was being opened")
            data = _read(fd, arguments.offset, limit + 1, check)
            head = os.pread(fd, 4, 0)
        finally:
            os.close(fd)
    cut = len(data) > limit
    content, used = _decode(data[:limit], cut, head, arguments)
    return {
        "path": place.text,
        "content": content,
        "bytes": used,
        "truncated": cut,
        "sha256": hashlib.sha256(data[:used]).hexdigest(),
        "size": found.st_size,
    }


def _read(fd: int, offset: int, limit: int, check: Callable[[], None]) -> bytes:
    data = bytearray()
    while len(data) < limit:
        check()
        chunk = os.pread(fd, min(1 << 20, limit - len(data)), offset + len(data))
        if not chunk:
            break
        count_read(len(chunk))
        data += chunk
    return bytes(data)


def _decode(data: bytes, cut: bool, head: bytes, arguments: Read) -> tuple[str, int]:
    """The text, and how many bytes of it: a character that the limit cuts in two waits for the next read."""
    if arguments.encoding == "base64":
        return base64.b64encode(data).decode(), len(data)
    codec, offset = _codec(arguments.encoding), arguments.offset
    if codec.incrementaldecoder is None:
        raise _no_codec(arguments.encoding)
    if (offset or cut) and codec.name.startswith(("iso2022", "hz")):
        why = f"can be read as {arguments.encoding} in one piece alone: its bytes mean what those before them say"
        raise unusable(arguments.path, why, "read it from its beginning, with a larger max_bytes")
    if offset and codec.name == "utf-8-sig":
        codec = codecs.lookup("utf-8")  # the mark is at the beginning alone
    decoding = codec.incrementaldecoder("strict")
    try:
        if codec.name in ("utf-16", "utf-32"):
            decoding.decode(head[: min(offset, len("".encode(codec.name)))])  # it says the order of the bytes
        if offset % _UNITS.get(codec.name[:6], 1):
            raise UnicodeError("it is in the middle of a character")
        text = decoding.decode(data, final=not cut)
    except UnicodeError as error:
        raise unusable(
            arguments.path,
            f"is not {arguments.encoding} text from byte {offset} on: {error}",
            "read it with encoding: base64",
            "or name the encoding it has, e.g. latin-1",
        ) from None
    used = len(data) - (len(decoding.getstate()[0]) if cut else 0)
    if cut and not used:
        raise unusable(arguments.path, f"has no whole character in {len(data)} bytes", "raise max_bytes")
    return text, used


_UNITS = {"utf-16": 2, "utf-32": 4}
"""Bytes of the smallest character; a larger one has a multiple of them."""


def encode(content: str, encoding: str, path: str) -> bytes:
    """The bytes of content that is to be written."""
    try:
        if encoding == "base64":
            return base64.b64decode("".join(content.split()), validate=True)
        return _codec(encoding).encode(content)[0]
    except UnicodeError as error:
        raise unusable(path, f"cannot be written as {encoding}: {error}", "use encoding: utf-8") from None
    except ValueError as error:
        raise unusable(path, f"cannot be written: the content is not base64 ({error})") from None


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        "".encode(encoding)  # also refuses the codecs that are no text encodings, such as zip
        return codecs.lookup(encoding)
    except (LookupError, ValueError, UnicodeError):
        raise _no_codec(encoding) from None


def _no_codec(encoding: str) -> ToolError:
    return ToolError(
        f"{shown(encoding)} is not a text encoding that is known here",
        category=Category.CONFIGURATION,
        advice=("use utf-8, utf-16, latin-1, cp1252 … or base64",),
    )


def list_entries(root: Root, arguments: List, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    limit = max(1, arguments.max_entries >> reduced)
    wanted = path_filter(arguments.glob)
    with root.locate(arguments.path) as top:
        found = top.stat()
        if found is None:
            raise Missing(arguments.path, top.name, names_in(top.fd))
        if not stat.S_ISDIR(found.st_mode):
            raise unusable(arguments.path, "is not a directory", "use files.read for a file")
        need_entry(top, arguments.path)
        start = "" if top.path == "." else f"{top.path}/"

        deeper: list[str] = []

        def enter(place: OpenedPath) -> bool:
            check()
            if too_deep(place, top):
                deeper.append(place.path)
                return False
            return place is top or (arguments.recursive and not root.is_state(place))

        entries = (
            _entry(place, found)
            for place, found in walk(top, enter)
            if place is not top and not root.is_state(place, found) and wanted(place.path.removeprefix(start))
        )
        some = list(islice(entries, limit + 1))
    return {
        "path": top.text,
        "entries": some[:limit],
        "truncated": len(some) > limit or bool(deeper),
    }


def _entry(place: OpenedPath, found: os.stat_result) -> dict[str, Any]:
    what = kind(found)
    return {
        "path": place.text,
        "type": what,
        "bytes": found.st_size if what == "file" else 0,
        "modified": iso(found.st_mtime),
    }


LARGEST = 16 << 20
"""Bytes of a file that is read; a larger one is counted as skipped."""
MOST_TEXT = 4 << 20
"""Characters of all lines that are given back."""
MOST_STEPS = 5_000_000_000
"""Of RE2 at worst, for the longest line of a file: a few seconds, in which the search cannot be stopped."""
_SAMPLE = 8192
"""Bytes in which a binary file shows itself by a NUL."""


class _Enough(Exception):
    """A limit is reached; its name is the argument."""


def search(root: Root, arguments: Search, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    try:
        pattern = line_pattern(arguments.pattern, plain=arguments.plain, ignore_case=arguments.ignore_case)
    except BadPattern as error:
        raise ToolError(
            f"{shown(arguments.pattern)} cannot be searched for: {error}",
            category=Category.CONFIGURATION,
            advice=("correct the pattern, or search for literal text with plain: true",),
        ) from None
    hunt = _FileSearch(arguments, pattern, check, reduced)
    with root.locate(arguments.path) as top:
        found = top.stat()
        if found is None:
            raise Missing(arguments.path, top.name, names_in(top.fd))
        if kind(found) not in ("file", "directory"):
            raise unusable(arguments.path, "is neither a file nor a folder", "name a file or a folder")
        if kind(found) == "directory":
            need_entry(top, arguments.path)
        stopped = ""
        try:
            for place in _files(root, top, arguments, check, hunt.skipped):
                hunt.look_into(place)
        except _Enough as limit:
            stopped = str(limit)
    return {
        "path": top.text,
        "matches": hunt.matches,
        "files": hunt.files,
        "skipped": {why: hunt.skipped[why] for why in ("binary", "large", "unreadable")},
        "truncated": bool(stopped),
        "limit": stopped or None,
    }


def _files(
    root: Root, top: OpenedPath, arguments: Search, check: Callable[[], None], skipped: Counter[str]
) -> Iterator[OpenedPath]:
    """The files to look into. Links are not followed; the engine's state and git's own folder are left out."""
    fits = path_filter(arguments.glob)
    start = "" if top.path == "." else f"{top.path}/"

    def enter(place: OpenedPath) -> bool:
        check()
        if place is not top and (root.is_state(place) or place.name == ".git"):
            return False
        if not enterable(place) or too_deep(place, top):
            skipped["unreadable"] += 1
            return False
        return True

    for place, found in walk(top, enter):
        if not stat.S_ISREG(found.st_mode) or root.is_state(place, found):
            continue
        if place is top or fits(place.path.removeprefix(start)):
            yield place


class _FileSearch:
    def __init__(self, arguments: Search, pattern: Pattern, check: Callable[[], None], reduced: int) -> None:
        self._arguments, self._pattern, self._check = arguments, pattern, check
        self._stretch = MOST_STEPS // pattern.instructions
        """Bytes that are searched at once."""
        self._most = max(1, arguments.max_matches >> reduced)
        self._bytes = max(1, arguments.max_bytes >> reduced)
        self._text = MOST_TEXT >> reduced
        self.matches: list[dict[str, Any]] = []
        self.files = 0
        self.skipped: Counter[str] = Counter()

    def look_into(self, place: OpenedPath) -> None:
        self._check()
        if self.files >= self._arguments.max_files:
            raise _Enough("max_files")
        data = self._read(place)
        if data is None:
            return
        # Bytes that are not UTF-8 become U+FFFD, for the pattern as in the result.
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").encode().removesuffix(b"\n")
        text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        if len(text) > self._stretch and any(len(line) > self._stretch for line in text.split(b"\n")):
            self.skipped["large"] += 1
            return
        self.files += 1
        number, counted = 1, 0
        for start, end, match in self._lines(text) if data else ():
            number, counted = number + text.count(b"\n", counted, start), start
            self._note(place, number, text, start, end, match)

    def _lines(self, text: bytes) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Each line with a match: where the line starts and ends, and the match. Many lines are searched at once."""
        at, last = 0, len(text)
        while at <= last:
            self._check()
            stop = last if last - at <= self._stretch else text.rfind(b"\n", at, at + self._stretch + 1)
            while at <= stop and (match := self._pattern.span(text, at, stop)):
                start = max(at, text.rfind(b"\n", at, match[0]) + 1)
                end = text.find(b"\n", match[1], last)
                end = last if end < 0 else end
                yield start, end, match
                at = end + 1
            at = max(at, stop + 1)

    def _read(self, place: OpenedPath) -> bytes | None:
        """The content, if it is text of a bearable size."""
        try:
            fd = place.open(os.O_RDONLY)
        except OSError:
            self.skipped["unreadable"] += 1
            return None
        data = b""
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self.skipped["unreadable"] += 1
                return None
            if found.st_size > LARGEST:
                self.skipped["large"] += 1
                return None
            if found.st_size > self._bytes:
                raise _Enough("max_bytes")
            data = os.pread(fd, _SAMPLE, 0)
            if b"\0" in data:
                self.skipped["binary"] += 1
                return None
            while len(data) < LARGEST and (chunk := os.pread(fd, 1 << 20, len(data))):
                self._check()
                data += chunk
        finally:
            count_read(len(data))
            os.close(fd)
        self._bytes -= len(data)
        return data

    def _note(self, place: OpenedPath, number: int, text: bytes, start: int, end: int, match: tuple[int, int]) -> None:
        longest = self._arguments.max_line
        line = text[start:end].decode()
        began, ended = (len(text[start:at].decode()) for at in match)
        first = min(began, max(0, ended - longest))
        shown = line[first : first + longest]
        before, after = self._around(text, start, end)
        self._text -= len(shown) + sum(map(len, before)) + sum(map(len, after)) + len(place.path)
        if len(self.matches) >= self._most:
            raise _Enough("max_matches")
        if self._text < 0:
            raise _Enough("text")
        self.matches.append(
            {
                "path": place.text,
                "line": number,
                "text": shown,
                "cut": len(shown) < len(line),
                "before": before,
                "after": after,
            }
        )

    def _around(self, text: bytes, start: int, end: int) -> tuple[list[str], list[str]]:
        """The lines before and after a line."""
        before: list[str] = []
        after: list[str] = []
        longest = self._arguments.max_line
        for _ in range(self._arguments.context):
            if start:
                end_before, start = start - 1, text.rfind(b"\n", 0, start - 1) + 1
                before.insert(0, text[start:end_before].decode()[:longest])
            if end < len(text):
                start_after, end = end + 1, text.find(b"\n", end + 1)
                end = len(text) if end < 0 else end
                after.append(text[start_after:end].decode()[:longest])
        return before, after
