"""`files.search`: the lines beneath a folder that a pattern is found in. Nothing here changes anything."""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from windlass.tools.files.arguments import Search
from windlass.tools.files.failures import Missing, unusable
from windlass.tools.files.glob import glob_filter
from windlass.tools.files.match import Find, finder
from windlass.tools.files.place import Place, kind, walk
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.files.tally import count_read

__all__ = ["search"]

LARGEST = 16 << 20
"""Bytes of a file that is read; a larger one is counted as skipped."""
MOST_TEXT = 4 << 20
"""Characters of all lines that are given back."""
_SAMPLE = 8192
"""Bytes in which a binary file shows itself by a NUL."""


class _Enough(Exception):
    """A limit is reached; its name is the argument."""


def search(root: Root, arguments: Search, check: Callable[[], None], reduced: int = 0) -> dict[str, Any]:
    find = finder(arguments.pattern, plain=arguments.plain, ignore_case=arguments.ignore_case, check=check)
    hunt = _Hunt(arguments, find, check, reduced)
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


def _files(root: Root, top: Place, arguments: Search, check: Callable[[], None]) -> Iterator[Place]:
    """The files to look into. Links are not followed; the engine's state and git's own folder are left out."""
    fits = glob_filter(arguments.glob)
    start = "" if top.path == "." else f"{top.path}/"

    def enter(place: Place) -> bool:
        check()
        return place is top or not (root.is_state(place) or place.name == ".git")

    for place, found in walk(top, enter):
        if not stat.S_ISREG(found.st_mode) or root.is_state(place, found):
            continue
        if place is top or fits(place.path.removeprefix(start)):
            yield place


def _lines(text: str, start: int) -> Iterator[tuple[str, int]]:
    """One line after the other, each with where the next begins: a list of all would be larger than the text."""
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end].removesuffix("\r"), end + 1
        start = end + 1


class _Hunt:
    def __init__(self, arguments: Search, find: Find, check: Callable[[], None], reduced: int) -> None:
        self._arguments, self._find, self._check = arguments, find, check
        self._most = max(1, arguments.max_matches >> reduced)
        self._bytes = max(1, arguments.max_bytes >> reduced)
        self._text = MOST_TEXT >> reduced
        self.matches: list[dict[str, Any]] = []
        self.files = 0
        self.skipped: Counter[str] = Counter()

    def look_into(self, place: Place) -> None:
        self._check()
        if self.files >= self._arguments.max_files:
            raise _Enough("max_files")
        data = self._read(place)
        if data is None:
            return
        self.files += 1
        if not data or (self._arguments.plain and not self._arguments.ignore_case and not self._worth(data)):
            return
        text = data.decode("utf-8", "replace")
        before: deque[str] = deque(maxlen=self._arguments.context)
        for number, (line, behind) in enumerate(_lines(text, 0), 1):
            if number % 1000 == 0:
                self._check()
            end = self._find(line)
            if end >= 0:
                after = [follows for follows, _ in islice(_lines(text, behind), self._arguments.context)]
                self._note(place, number, line, end, list(before), after)
            before.append(line)

    def _worth(self, data: bytes) -> bool:
        """Whether a plain text is in the file at all: one look instead of one a line."""
        return self._arguments.pattern.encode("utf-8", "replace") in data or b"\xef\xbf\xbd" in data

    def _read(self, place: Place) -> bytes | None:
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

    def _note(self, place: Place, number: int, line: str, end: int, before: list[str], after: list[str]) -> None:
        longest = self._arguments.max_line
        start = max(0, min(end, len(line)) - longest)
        shown = line[start : start + longest]
        before, after = ([text[:longest] for text in lines] for lines in (before, after))
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
