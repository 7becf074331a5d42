"""`files.search`: the lines beneath a folder that a pattern is found in. Nothing here changes anything."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from windlass.errors import Category, ToolError
from windlass.schemas.patterns import BadPattern, Pattern, line_pattern
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.look import path_filter
from windlass.tools.files.models import Search
from windlass.tools.files.place import OpenedPath, count_read, kind, walk
from windlass.tools.files.safe_path import Root, names_in

__all__ = ["search"]

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
        stopped = ""
        try:
            for place in _files(root, top, arguments, check):
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


def _files(root: Root, top: OpenedPath, arguments: Search, check: Callable[[], None]) -> Iterator[OpenedPath]:
    """The files to look into. Links are not followed; the engine's state and git's own folder are left out."""
    fits = path_filter(arguments.glob)
    start = "" if top.path == "." else f"{top.path}/"

    def enter(place: OpenedPath) -> bool:
        check()
        return place is top or not (root.is_state(place) or place.name == ".git")

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
        text = data.decode("utf-8", "replace").encode().removesuffix(b"\n")
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
