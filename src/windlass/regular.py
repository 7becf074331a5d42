"""Read files that have to be regular ones: a pipe would be waited for, and a device may have no end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

__all__ = ["open_regular", "read_regular"]


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
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))
    return data
