"""What a composed tool can be called.

`reports.weekly` is `tools.reports.weekly` in a program and `reports.weekly.js` on disk, so a name must be good for
both, on every file system: lower case, no word that JavaScript or Windows keeps for itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from windlass.errors import UsageError

__all__ = ["check_free", "check_name", "clash", "name_fault", "taken"]

MOST_PARTS = 5
MOST_CHARACTERS = 64
_PART = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_WORDS = """
arguments await break case catch class const constructor continue debugger default delete do else enum eval export
extends false finally for function if implements import in instanceof interface let new null package private protected
prototype public return static super switch then this throw true try typeof undefined var void while with yield
"""
_JAVASCRIPT = frozenset(_WORDS.split())
"""Words of the language, and names that every object or promise has: `then` would make a group of tools a promise."""
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))])
_LOOKS = "a name is made of lower-case words with digits and _, joined by dots, like `count_words` or `reports.weekly`"


def name_fault(name: object) -> str | None:
    """Why it cannot be a name at all."""
    if not isinstance(name, str):
        return "it is not text"
    if len(name) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS} characters"
    parts = name.split(".")
    if len(parts) > MOST_PARTS:
        return f"it has more than {MOST_PARTS} parts"
    for part in parts:
        if not _PART.fullmatch(part):
            return f"{part!r} is not a word of lower-case letters, digits and _"
        if part in _JAVASCRIPT:
            return f"`{part}` is a word that JavaScript keeps for itself"
        if part in _DEVICES:
            return f"`{part}` is a word that Windows keeps for itself"
    return None


def check_name(name: object) -> None:
    if fault := name_fault(name):
        raise UsageError(f"{name!r:.100} cannot be the name of a composed tool: {fault}", advice=(_LOOKS,))


def taken(name: str, reserved: Collection[str]) -> str | None:
    """The tool of the engine's own whose name or namespace this would be in."""
    first = name.split(".")[0]
    return next((other for other in sorted(reserved) if other.split(".")[0] == first), None)


def check_free(name: str, reserved: Collection[str]) -> None:
    if other := taken(name, reserved):
        first = name.split(".")[0]
        what = f"there is a tool of that name already: {other}" if other == name else f"`{first}` belongs to `{other}`"
        raise UsageError(f"a composed tool cannot be named {name!r}: {what}", advice=("choose another first word",))


def clash(name: str, others: Iterable[str]) -> str | None:
    """Another composed tool that could not be called beside it: `reports` is a tool or a group of tools, not both."""
    for other in sorted(others):
        if name.startswith(f"{other}.") or other.startswith(f"{name}."):
            return other
    return None
