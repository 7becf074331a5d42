"""Which tools a program may call: names, and patterns in which `*` stands for anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["granted_tools", "is_pattern"]


def is_pattern(grant: str) -> bool:
    return "*" in grant


def granted_tools(grants: Sequence[str] | None, names: Iterable[str]) -> tuple[str, ...]:
    """Of these tools the ones that are granted, in their order. None grants all of them."""
    if grants is None:
        return tuple(names)
    form = re.compile("|".join(map(_form, grants)))
    return tuple(name for name in names if grants and form.fullmatch(name))


def _form(grant: str) -> str:
    # Atomic groups: each `*` takes the first place where what follows it fits, so no pattern takes long to fail.
    first, *rest = map(re.escape, grant.split("*"))
    if not rest:
        return first
    *between, last = rest
    return first + "".join(f"(?>.*?{part})" for part in between if part) + f".*{last}"
