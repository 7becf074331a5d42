"""Which paths a pattern like `*.py` or `src/**/*.py` means."""

from __future__ import annotations

import re
from collections.abc import Callable

from windlass.errors import Category, ToolError
from windlass.tools.files.failures import shown

__all__ = ["glob_filter"]


def glob_filter(pattern: str | None) -> Callable[[str], bool]:
    """Whether a path fits: its name, or all of it when the pattern has a / in it. No pattern fits everything."""
    if pattern is None:
        return lambda path: True
    regex = _glob(pattern)
    if "/" in pattern:
        return lambda path: regex.fullmatch(path) is not None
    return lambda path: regex.fullmatch(path.rpartition("/")[2]) is not None


def _glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a name, `**/` is any number of folders, `[a-z]` and `[!a-z]` are sets."""
    regex, rest = "", pattern
    while rest:
        if rest.startswith("**/"):
            regex, rest = regex + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            regex, rest = regex + ".*", rest[2:]
        elif rest[0] == "*":
            regex, rest = regex + "[^/]*", rest[1:]
        elif rest[0] == "?":
            regex, rest = regex + "[^/]", rest[1:]
        elif chosen := re.match(r"\[([!^]?)(\]?[^\]/]*)\]", rest):
            inner = re.sub(r"([\\\[\]&~|])", r"\\\1", chosen[2])
            regex, rest = f"{regex}[{'^/' if chosen[1] else ''}{inner}]", rest[chosen.end() :]
        else:
            regex, rest = regex + re.escape(rest[0]), rest[1:]
    try:
        return re.compile(regex, re.DOTALL)
    except re.error:
        raise ToolError(f"{shown(pattern)} is not a pattern", category=Category.CONFIGURATION) from None
