"""The head of a Markdown file: `---`, a few keys in YAML, `---`, and the body after it.

The YAML is read by the reader of plans: no tags, no alias bombs, duplicate keys and places are known to it. One thing
is forgiven, because Claude Code and OpenCode forgive it and many files have it: an unquoted `key: text` on one line
whose text holds `: ` or ` #`.

What is wrong becomes a `Problem` with file and line. `broken` says that the keys cannot be relied on at all.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.agents.reading import Unreadable, decode_strictly
from windlass.errors import PlanInvalid, Problem
from windlass.plan.schema import kind_of
from windlass.plan.yamlread import Document, read

__all__ = ["MAX_FRONTMATTER", "Matter", "read_matter"]

MAX_FRONTMATTER = 64 * 1024
"""Bytes between the two fences."""

_OPEN = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\n")
_CLOSE = re.compile(rb"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_ONE_LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]+(?![\"'\[{|>&*!#])(.*)$", re.MULTILINE)
_NEEDS_QUOTES = re.compile(r":(?:\s|$)|\s#")


@dataclass(frozen=True, slots=True)
class Matter:
    """A file taken apart."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""
    body_line: int = 1
    """The line of the file that the body begins on."""
    problems: tuple[Problem, ...] = ()
    broken: bool = False
    present: bool = False
    """There is a frontmatter, whatever it is worth."""
    line_of: Callable[[str], int | None] = field(default=lambda _key: None)
    """Where a key stands."""

    def text(self) -> str:
        """The body as text; raises `Unreadable`."""
        try:
            return decode_strictly(self.body)
        except Unreadable as error:
            line = None if error.line is None else error.line + self.body_line - 1
            raise Unreadable(error.why, line) from error


def read_matter(data: bytes, file: str) -> Matter:
    """Take a file apart. `data` may be only its beginning, if that is at least MAX_FRONTMATTER long."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    opened = _OPEN.match(data)
    if opened is None:
        return Matter(body=data)
    closed = _CLOSE.search(data, opened.end())
    if closed is None or closed.start() - opened.end() > MAX_FRONTMATTER:
        return _broken(
            Problem(f"the frontmatter that opens here is not closed within {MAX_FRONTMATTER // 1024} KiB", file, 1)
            if len(data) > MAX_FRONTMATTER
            else Problem("the frontmatter that opens here is never closed", file, 1, hint="end it with a line `---`")
        )
    body, body_line = data[closed.end() :], data.count(b"\n", 0, closed.end()) + 1
    try:
        text = decode_strictly(data[opened.end() : closed.start()])
    except Unreadable as error:
        line = None if error.line is None else error.line + 1
        return _broken(Problem(error.why, file, line), body=body, body_line=body_line)
    if _says_nothing(text):
        return Matter({}, body, body_line, present=True)
    try:
        document = _document(text, file)
    except PlanInvalid as invalid:
        return _broken(*map(_reworded, invalid.problems), body=body, body_line=body_line)
    if not isinstance(document.data, dict):
        problem = Problem(f"the frontmatter must be `key: value` lines, not {kind_of(document.data)}", file, 2)
        return _broken(problem, body=body, body_line=body_line)

    def line_of(key: str) -> int | None:
        place = document.locate((key,))
        return place.line if place else None

    problems = tuple(map(_reworded, document.problems))
    return Matter(document.data, body, body_line, problems, present=True, line_of=line_of)


def _says_nothing(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return "".join(line for line in lines if not line.startswith("#")) in ("", "~", "null")


def _document(text: str, file: str) -> Document:
    # The line break stands for the fence, so that lines count as in the file.
    try:
        return read("\n" + text, file=file)
    except PlanInvalid:
        forgiven = _ONE_LINE.sub(_quoted, text)
        if forgiven == text:
            raise
        # If it was not that, the first complaint, about the text as it stands, is the one to tell.
        with contextlib.suppress(PlanInvalid):
            return read("\n" + forgiven, file=file)
        raise


def _quoted(line: re.Match[str]) -> str:
    if not _NEEDS_QUOTES.search(line[2]):
        return line[0]
    return f"{line[1]}: {json.dumps(line[2].strip(), ensure_ascii=False)}"


def _reworded(problem: Problem) -> Problem:
    """The reader was made for plans, and says so."""
    message = problem.message.replace(" in plans", " here").replace(" that a plan can hold", " that can be held")
    return msgspec.structs.replace(problem, message=message)


def _broken(*problems: Problem, body: bytes = b"", body_line: int = 1) -> Matter:
    return Matter(body=body, body_line=body_line, problems=problems, broken=True, present=True)
