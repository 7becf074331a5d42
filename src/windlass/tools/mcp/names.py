"""Names that strangers chose, as names of tools here.

`mcp.SERVER.TOOL` is `tools.mcp.server.tool` in a program and stands in plans and settings, so both parts are lower-case
words of letters, digits and `_` that begin with a letter. What differs only in what is lost gets a number, and which
one gets it does not depend on the order in which a server lists its tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["distinct", "plain"]

MOST_CHARACTERS = 64
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STRANGE = re.compile(r"[^a-z0-9]+")
_KEPT = frozenset({"constructor", "prototype", "then"})
"""What every object or promise of JavaScript has: a tool of that name would be taken for it."""


def plain(name: str) -> str:
    """`getWeather`, `get-weather` and `Get Weather` are all `get_weather`."""
    words = _STRANGE.sub("_", _HUMP.sub("_", name[:500]).lower()).strip("_")[:MOST_CHARACTERS].rstrip("_")
    if not words or not words[0].isalpha() or words in _KEPT:
        words = f"t_{words}".rstrip("_")
    return words


def distinct(names: Iterable[str]) -> dict[str, str]:
    """Each name, and what it is called here. A name that is good as it is keeps it, whatever others become."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names), key=lambda name: (plain(name) != name, name)):
        base = plain(name)
        given, number = base, 1
        while given in taken:
            number += 1
            given = f"{base}_{number}"
        found[name] = given
        taken.add(given)
    return found
