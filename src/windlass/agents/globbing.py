"""Patterns to paths: `*`, `?`, `[…]` in names, `**` for any number of folders. Links to folders are not entered.

Hidden names are matched only by patterns that begin with a dot, as in a shell. The standard library's `**` follows
links and knows no bounds; this one looks at so many names at most and says when it stopped.
"""

from __future__ import annotations

import fnmatch
import os
import re
from itertools import islice
from pathlib import Path

__all__ = ["MAX_LOOKED_AT", "MAX_MATCHES", "Globbed", "is_pattern", "match_files", "split_pattern"]

MAX_LOOKED_AT = 200_000
"""Names that one pattern may look at."""
MAX_MATCHES = 5_000
"""Files that one pattern may give."""
_MAX_DEPTH = 100
_MAGIC = re.compile(r"[*?\[]")


class Globbed:
    """What came of a pattern."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.stopped = False
        """There was more than may be looked at."""
        self.looked_at = 0


def is_pattern(text: str) -> bool:
    return _MAGIC.search(text) is not None


def split_pattern(pattern: str) -> tuple[str, str]:
    """The folders before the first wildcard, and the rest."""
    parts = pattern.split("/")
    count = next(i for i, part in enumerate(parts) if is_pattern(part))
    fixed = "/".join(parts[:count])
    return fixed or ("/" if count else ""), "/".join(parts[count:])


def match_files(pattern: str, base: Path) -> Globbed:
    """The files beneath `base` that a relative pattern means, sorted by path; given with `base` in front."""
    found = Globbed()
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    forms = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
    dotted = [part.startswith(".") for part in parts]
    matches: set[str] = set()
    _descend(str(base), forms, dotted, frozenset({0}), found, matches, 0)
    found.paths = sorted(matches)
    return found


def _descend(
    folder: str,
    forms: list[re.Pattern[str] | None],
    dotted: list[bool],
    states: frozenset[int],
    found: Globbed,
    matches: set[str],
    depth: int,
) -> None:
    """`states` are the parts of the pattern that the next name may meet: each folder is looked into once."""
    states = _past_empty(states, forms)
    last = len(forms)
    try:
        with os.scandir(folder) as listing:
            entries = list(islice(listing, MAX_LOOKED_AT + 1))
    except OSError:
        return  # what cannot be looked into matches nothing
    for entry in entries:
        found.looked_at += 1
        if found.looked_at > MAX_LOOKED_AT or len(matches) >= MAX_MATCHES:
            found.stopped = True
            return
        name = entry.name
        hidden = name.startswith(".")
        after: set[int] = set()
        for state in states:
            form = forms[state] if state < last else None
            if state < last and form is None:
                if not hidden:
                    after.add(state)
            elif form is not None and (not hidden or dotted[state]) and form.match(name):
                after.add(state + 1)
        if not after:
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < _MAX_DEPTH:
                _descend(entry.path, forms, dotted, frozenset(after), found, matches, depth + 1)
        elif last in after or (last - 1 in after and forms[last - 1] is None):
            matches.add(entry.path)


def _past_empty(states: frozenset[int], forms: list[re.Pattern[str] | None]) -> frozenset[int]:
    """`**` may stand for no folder at all."""
    reached = set(states)
    for state in sorted(states):
        while state < len(forms) and forms[state] is None:
            state += 1
            reached.add(state)
    return frozenset(reached)
