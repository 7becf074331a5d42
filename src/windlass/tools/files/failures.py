"""Failures of the file tools: every refusal and every operating-system error, in words.

The category says who can mend it: `permission` for paths that are out of bounds, `configuration` for
arguments that do not fit what is on disk, `resource` for a full disk, `transient` for a clash in time.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from windlass.errors import ApprovalOutdated, Category, ToolError, classify

__all__ = ["Missing", "explain", "nearest", "nested", "outside", "shown", "unusable"]

_SHOWN = 200
_MATCHED = 20_000
"""Names or lines looked through for a similar one: enough to help, too few to stall."""


class Missing(ToolError):
    """Nothing of that name is there."""

    def __init__(self, path: str, name: str, names: Iterable[str]) -> None:
        near = nearest(name, names)
        hint = f"; the nearest name there is {shown(near)}" if near else ""
        part = f": there is no {shown(name)}" if name != path else ""
        super().__init__(
            f"{shown(path)} does not exist{part}{hint}",
            category=Category.CONFIGURATION,
            advice=("correct the path", "files.list shows what is there"),
        )


def outside(path: str, why: str) -> ToolError:
    """The refusal of a path that is out of bounds."""
    return ToolError(
        f"{shown(path)} is refused: {why}",
        category=Category.PERMISSION,
        advice=("use a path inside the working directory, without .. or links that leave it",),
    )


def unusable(path: str, why: str, *advice: str) -> ToolError:
    """The refusal of a path that is inside, and of the wrong kind."""
    return ToolError(f"{shown(path)} {why}", category=Category.CONFIGURATION, advice=advice)


def nearest(word: str, words: Iterable[str]) -> str | None:
    candidates = [w for w, _ in zip(words, range(_MATCHED), strict=False)]
    found = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return found[0] if found else None


def shown(text: str) -> str:
    """Text from outside, on one line and of bounded length."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_SPACE = ("free some space, or ask for less", "then: windlass resume")
_KNOWN: dict[int, tuple[Category, str, tuple[str, ...]]] = {
    errno.ENOSPC: (Category.RESOURCE, "the disk is full", _SPACE),
    errno.EDQUOT: (Category.RESOURCE, "your disk quota is used up", _SPACE),
    errno.EFBIG: (Category.RESOURCE, "the file would be larger than allowed here", _SPACE),
    errno.EACCES: (
        Category.PERMISSION,
        "the operating system does not allow it",
        ("check the owner and the mode of the file and its folder",),
    ),
    errno.EPERM: (
        Category.PERMISSION,
        "the operating system does not allow it",
        ("check the owner and the attributes of the file and its folder",),
    ),
    errno.EROFS: (
        Category.PERMISSION,
        "the file system is read-only",
        ("use a working directory that can be written",),
    ),
    errno.ENOENT: (
        Category.CONFIGURATION,
        "it does not exist, or vanished meanwhile",
        ("files.list shows what is there",),
    ),
    errno.ENOTDIR: (
        Category.CONFIGURATION,
        "a part of the path is not a directory",
        ("correct the path",),
    ),
    errno.EISDIR: (Category.CONFIGURATION, "it is a directory", ("name a file",)),
    errno.ENAMETOOLONG: (Category.CONFIGURATION, "the name is too long", ("shorten the name",)),
    errno.EEXIST: (
        Category.TRANSIENT,
        "something else created it at the same moment",
        ("try again",),
    ),
    errno.EBUSY: (Category.TRANSIENT, "it is in use, or a mount point", ("try again later",)),
    errno.ESTALE: (Category.TRANSIENT, "the network file system lost it", ("try again",)),
    errno.EIO: (Category.TRANSIENT, "the disk reported an error", ("look at the system's log",)),
    errno.ELOOP: (
        Category.PERMISSION,
        "a part of the path became a link while it was being opened",
        ("find out what else is changing this folder",),
    ),
}


def explain(error: OSError, doing: str) -> ToolError:
    """The ToolError for an operating-system error, `doing` being e.g. `files.write 'a.txt'`."""
    if error.errno in _KNOWN:
        category, text, advice = _KNOWN[error.errno]
    else:
        category = classify(error).category
        text = os.strerror(error.errno).lower() if error.errno else str(error)
        advice = ()
    return ToolError(f"{doing}: {text}", category=category, advice=advice)


@contextmanager
def nested(where: str) -> Iterator[None]:
    """Say of everything that goes wrong inside where it did: `change 2 of 3 (edit)`."""
    try:
        yield
    except OSError as error:
        raise explain(error, where) from error
    except ApprovalOutdated:
        raise
    except ToolError as error:
        raise ToolError(f"{where}: {error}", category=error.failure.category, advice=error.failure.advice) from error
