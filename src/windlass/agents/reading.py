"""Reading files that strangers may have written: regular files only, never more than asked for, never outside.

A name in a cloned project can be a pipe, a device, a loop of links or a link to somebody's keys. What cannot be read
is an `Unreadable` with a sentence for people.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

__all__ = ["Piece", "Unreadable", "decode_strictly", "read_ends", "read_head", "shown_path", "stays_inside"]


_HALVES = re.compile("[\ud800-\udfff]")
"""How Python shows bytes that are no text."""


class Unreadable(Exception):
    """Why a file's text cannot be had."""

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
        raise Unreadable("that is no path") from error
    except OSError as error:
        raise Unreadable(_reason(error)) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is not a regular file")
        first = _read(fd, head + tail)
        if found.st_size <= len(first):
            return Piece(first, b"", len(first))
        if not tail:
            return Piece(first, b"", found.st_size)
        os.lseek(fd, -tail, os.SEEK_END)
        return Piece(first[:head], _read(fd, tail), found.st_size)
    except OSError as error:
        raise Unreadable(_reason(error)) from error
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
        raise Unreadable("it is not text: it holds zero bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"it is not UTF-8 text: byte 0x{data[error.start]:02x}", line) from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as text that can be printed and kept, even if its bytes are not UTF-8."""
    return _HALVES.sub("\ufffd", os.fspath(path))


def stays_inside(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether what a path leads to, all links followed, lies in a folder."""
    try:
        real, base = os.path.realpath(path, strict=True), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return Path(real).is_relative_to(base)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
