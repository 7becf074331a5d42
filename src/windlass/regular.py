"""Read files whole, up to a size: a device may have no end.

A file that nobody has named for this one use has to be a regular one: a pipe in its place would be waited for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

__all__ = ["open_regular", "read_beginning", "read_regular", "read_stdin", "read_text"]


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """The file, to be read. Raises OSError, also for another kind of file: its `strerror` says so in words."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        yield file


def read_regular(path: str | os.PathLike[str], most: int = 16 << 20) -> bytes:
    """All of the file. Raises OSError, also for one of more bytes."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    _check_size(data, most, path)
    return data


def read_text(path: str | os.PathLike[str], most: int) -> str:
    """All of a text that a person names, also out of a pipe. Raises OSError, also for one of more characters."""
    with open(path, encoding="utf-8") as file:
        text = file.read(most + 1)
    _check_size(text, most, path)
    return text


def read_stdin(most: int = 16 << 20) -> bytes:
    """All of standard input. Raises OSError, also for one of more bytes."""
    with open(0, "rb", closefd=False) as stream:
        data = stream.read(most + 1)
    _check_size(data, most, "standard input")
    return data


def _check_size(found: str | bytes, most: int, path: str | os.PathLike[str]) -> None:
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))


def read_beginning(descriptor: int, most: int) -> tuple[os.stat_result, bytes]:
    """The facts of an open file, and its first bytes: none of a folder or a pipe. Closes it."""
    try:
        found = os.fstat(descriptor)
        return found, os.read(descriptor, most) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)
