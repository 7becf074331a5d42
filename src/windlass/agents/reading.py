"""Reading files that strangers may have written: regular files only, never more than asked for, never outside.

A name in a cloned project can be a pipe, a device, a loop of links or a link to somebody's keys. What cannot be read
is an `UnreadableFile` with a sentence for people.

`read_matter` takes the head of a Markdown file apart: `---`, a few keys in YAML, `---`, and the body after it. The YAML
is read by the reader of plans: no tags, no alias bombs, duplicate keys and places are known to it. One thing is
forgiven, because Claude Code and OpenCode forgive it and many files have it: an unquoted `key: text` on one line whose
text holds `: ` or ` #`. What is wrong becomes a `Problem` with file and line; `broken` says that the keys cannot be
relied on at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.errors import PlanInvalid, Problem
from windlass.plan.schema import kind_of
from windlass.plan.yamlread import Document, read

__all__ = [
    "MAX_FRONTMATTER",
    "FrontMatterFile",
    "Piece",
    "UnreadableFile",
    "decode_strictly",
    "read_ends",
    "read_head",
    "read_matter",
    "shown_path",
    "stays_inside",
]

_HALVES = re.compile("[\ud800-\udfff]")
"""Surrogates, as which Python decodes bytes that are not UTF-8."""


class UnreadableFile(Exception):
    """A file's text cannot be read; `why` gives the reason."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


class Piece(NamedTuple):
    """The beginning of a file and, where something in the middle is left out, its end."""

    head: bytes
    tail: bytes
    size: int

    @property
    def left_out(self) -> int:
        return self.size - len(self.head) - len(self.tail)


def read_head(path: str | os.PathLike[str], limit: int) -> Piece:
    """At most `limit` bytes from the beginning."""
    return read_ends(path, limit, 0)


def read_ends(path: str | os.PathLike[str], head: int, tail: int) -> Piece:
    """The whole file if it has at most `head + tail` bytes, else so many from its two ends."""
    try:
        # Without O_NONBLOCK, to open a pipe that nobody writes to would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise UnreadableFile("that is not a path") from error
    except OSError as error:
        raise UnreadableFile(_reason(error)) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableFile("it is not a regular file")
        first = _read(fd, head + tail)
        if found.st_size <= len(first):
            return Piece(first, b"", len(first))
        if not tail:
            return Piece(first, b"", found.st_size)
        os.lseek(fd, -tail, os.SEEK_END)
        return Piece(first[:head], _read(fd, tail), found.st_size)
    except OSError as error:
        raise UnreadableFile(_reason(error)) from error
    finally:
        os.close(fd)


def _read(fd: int, count: int) -> bytes:
    data = os.read(fd, count)
    while len(data) < count and (more := os.read(fd, count - len(data))):
        data += more
    return data


def decode_strictly(data: bytes) -> str:
    """Text, if that is what it is; line ends become plain ones and the byte order mark goes."""
    if b"\0" in data:
        raise UnreadableFile("it is not text: it contains NUL bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile(f"it is not UTF-8 text: byte 0x{data[error.start]:02x}", line) from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as text that can be printed and kept, even if its bytes are not UTF-8."""
    return _HALVES.sub("\ufffd", os.fspath(path))


def stays_inside(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Tell if a path, all links followed, lies in a folder."""
    try:
        real, base = os.path.realpath(path, strict=True), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return Path(real).is_relative_to(base)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


MAX_FRONTMATTER = 64 * 1024
"""Bytes between the two fences."""

_OPEN = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\n")
_CLOSE = re.compile(rb"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_ONE_LINE = re.compile(r"^([A-Za-z_][\w-]*):[ \t]+(?![\"'\[{|>&*!#])(.*)$", re.MULTILINE)
_NEEDS_QUOTES = re.compile(r":(?:\s|$)|\s#")


@dataclass(frozen=True, slots=True)
class FrontMatterFile:
    """A file taken apart."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""
    body_line: int = 1
    """The line of the file that the body begins on."""
    problems: tuple[Problem, ...] = ()
    broken: bool = False
    present: bool = False
    """The file has a frontmatter, valid or not."""
    line_of: Callable[[str], int | None] = field(default=lambda _key: None)
    """Finds the line of a key."""

    def text(self) -> str:
        """Give the body as text; raises `UnreadableFile`."""
        try:
            return decode_strictly(self.body)
        except UnreadableFile as error:
            line = None if error.line is None else error.line + self.body_line - 1
            raise UnreadableFile(error.why, line) from error


def read_matter(data: bytes, file: str) -> FrontMatterFile:
    """Take a file apart. `data` may be only its beginning, if that is at least MAX_FRONTMATTER long."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    opened = _OPEN.match(data)
    if opened is None:
        return FrontMatterFile(body=data)
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
    except UnreadableFile as error:
        line = None if error.line is None else error.line + 1
        return _broken(Problem(error.why, file, line), body=body, body_line=body_line)
    if _says_nothing(text):
        return FrontMatterFile({}, body, body_line, present=True)
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
    return FrontMatterFile(document.data, body, body_line, problems, present=True, line_of=line_of)


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
    """Replace the words of the reader of plans in a message."""
    message = problem.message.replace(" in plans", " here").replace(" that a plan can hold", " that can be held")
    return msgspec.structs.replace(problem, message=message)


def _broken(*problems: Problem, body: bytes = b"", body_line: int = 1) -> FrontMatterFile:
    return FrontMatterFile(body=body, body_line=body_line, problems=problems, broken=True, present=True)
