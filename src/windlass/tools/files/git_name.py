"""Names of files as diffs write them: with a time behind them, in quotes, with git's `a/` and `b/` before them."""

from __future__ import annotations

import re

__all__ = ["is_nothing", "name_in", "names_of_git"]

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_PLAIN = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def is_nothing(text: str) -> bool:
    """Whether it stands for a file that is not there."""
    return _bare(text) == "/dev/null"


def name_in(text: str, strip: int) -> str:
    """The name, without so many folders at its beginning; as it is when it has no more than these."""
    name = _bare(text)
    for _ in range(strip):
        name = name.partition("/")[2] or name
    return name


def names_of_git(text: str, strip: int | None) -> tuple[str | None, str | None]:
    """The two names in `diff --git a/x b/x`. They are the same, or the lines below say what they are."""
    strip = 1 if strip is None else strip
    if text.startswith('"'):
        first, _, second = text[1:].partition('" ')
        return name_in(f'"{first}"', strip), name_in(second, strip)
    middle = len(text) // 2
    if text[middle : middle + 1] == " " and name_in(text[:middle], 1) == name_in(text[middle + 1 :], 1):
        return name_in(text[:middle], strip), name_in(text[middle + 1 :], strip)
    first, _, second = text.partition(" ")
    return name_in(first, strip), name_in(second, strip)


def _bare(text: str) -> str:
    """Without the time that `diff -u` puts behind a tab, and without git's quotes."""
    if not text.startswith('"'):
        return text.partition("\t")[0].rstrip()
    quoted = text[1:].rpartition('"')[0].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_unescaped, quoted).decode("utf-8", "backslashreplace")


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return _PLAIN.get(code, code)
