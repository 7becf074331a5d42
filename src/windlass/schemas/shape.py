"""Size and depth of a JSON value, measured without recursion: a value that is too large or too deep is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["MOST_LEVELS", "NotPlain", "Shape"]

MOST_LEVELS = 64
"""Of a value; a check of a deeper one could need more stack than there is."""
MOST_PARTS = 2_000_000
_MOST_BITS = 10_000
"""Of a whole number: Python refuses to print longer ones."""


class NotPlain(ValueError):
    """A value that is no JSON, or too much of it."""


class Shape:
    """The weight of a value and of each list and mapping in it. A text weighs a sixteenth of its length."""

    def __init__(self, value: Any, most_levels: int = MOST_LEVELS) -> None:
        self.exact = True
        """Its lists and mappings are Python's own, as JSON gives them."""
        self._weights: dict[int, int] = {}
        found: list[Any] = []
        left = [(value, 1)]
        seen = 0
        while left:
            part, level = left.pop()
            seen += 1
            if seen > MOST_PARTS:
                raise NotPlain("it is too large to be checked")
            inner = _inside(part)
            if inner is None:
                continue
            if level > most_levels:
                raise NotPlain(f"it is nested more than {most_levels} levels deep")
            self.exact = self.exact and isinstance(part, list | dict)
            found.append((part, inner))
            left += [(each, level + 1) for each in inner]
        for part, inner in reversed(found):
            self._weights[id(part)] = 1 + sum(self.weight(each) for each in inner)
        self.total = self.weight(value)

    def weight(self, part: Any) -> int:
        if isinstance(part, str):
            return 1 + len(part) // 16
        return self._weights.get(id(part), 1)


def _inside(part: Any) -> list[Any] | None:
    """Items of a list or a mapping, the names in it too; None for a value that holds nothing."""
    match part:
        case str() | bool() | None:
            return None
        case int():
            if part.bit_length() > _MOST_BITS:
                raise NotPlain("it has a number in it that is too long")
            return None
        case float():
            if not math.isfinite(part):
                raise NotPlain("it has a number in it that JSON does not know (not finite)")
            return None
        case list() | tuple():
            return list(part)
        case Mapping():
            for name in part:
                if not isinstance(name, str):
                    raise NotPlain(f"it has the name {name!r:.40} in it, which is not text")
            return [*part, *part.values()]
    raise NotPlain(f"it has something in it that is not plain data: {type(part).__name__}")
