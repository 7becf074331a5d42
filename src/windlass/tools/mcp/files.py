"""Settings files of other programs: JSON, where comments and trailing commas are no mistake.

They may come with a cloned project: regular files only, of a bearable size, and what is wrong with one is a sentence.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from windlass import jsonc

__all__ = ["Unreadable", "read_json"]

MOST_BYTES = 32 * 1024 * 1024
"""Claude Code keeps much else in its file, too."""


class Unreadable(Exception):
    """Why a file says nothing."""


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None where there is no file."""
    try:
        text = _text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"it cannot be read: {(error.strerror or 'unknown').lower()}") from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error
    try:
        data = jsonc.parse(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"it is not valid JSON{where}") from error
    if not isinstance(data, dict):
        raise Unreadable("it must hold an object")
    return data


def _text(path: Path) -> str:
    # Without O_NONBLOCK, to open a pipe that nobody writes to would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        os.close(fd)
        wrong = f"larger than {MOST_BYTES >> 20} MiB" if stat.S_ISREG(found.st_mode) else "not a regular file"
        raise Unreadable(f"it is {wrong}")
    with open(fd, "rb") as file:
        return file.read(MOST_BYTES).decode("utf-8-sig")
