"""Patterns to paths: `*`, `?`, `[…]`, `[!…]` in names, `**` for any number of folders. Links to folders stay closed.

The one globber of Windlass. The standard library's `**` follows links and has no bounds; this one looks at so many
names at most and says when it stopped.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable
from functools import reduce
from itertools import islice
from pathlib import Path

__all__ = ["MAX_LOOKED_AT", "MAX_MATCHES", "Globbed", "glob_filter", "is_pattern", "match_files", "split_pattern"]

MAX_LOOKED_AT = 200_000
"""Names that one pattern may look at."""
MAX_MATCHES = 5_000
"""Files that one pattern may give."""
_MAX_DEPTH = 100
_MAGIC = re.compile(r"[*?\[]")
_States = frozenset[int]
"""Parts of a pattern that the next name of a path may meet."""


class Globbed:
    """The files that a pattern means."""

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


def glob_filter(pattern: str | None) -> Callable[[str], bool]:
    """A test of paths: by their names, or by all of them when the pattern has a / in it. No pattern fits all.

    Raises ValueError for a set that nothing is in, like `[z-a]`.
    """
    if pattern is None:
        return lambda path: True
    glob = _Glob(pattern, hidden=True)
    if any("(?!)" in form.pattern for form in glob.forms):
        raise ValueError(f"{pattern} has an empty set")
    return glob.fits if "/" in pattern else lambda path: glob.fits(path.rpartition("/")[2])


def match_files(pattern: str, base: Path) -> Globbed:
    """The files beneath `base` that a relative pattern means, sorted by path; given with `base` in front.

    Hidden names are matched only by parts that begin with a dot, as in a shell.
    """
    found, matches = Globbed(), set[str]()
    _descend(str(base), _Glob(pattern, hidden=False), frozenset({0}), found, matches, 0)
    found.paths = sorted(matches)
    return found


class _Glob:
    """A pattern as a small automaton that takes one name of a path after the other."""

    def __init__(self, pattern: str, *, hidden: bool) -> None:
        """`hidden`: names that begin with a dot are like all others."""
        self._hidden = hidden
        self._parts: list[str] = []
        for part in pattern.split("/"):
            if part.startswith("**") and part != "**":
                self._parts += ["**", part[1:]]  # `**.py` is `**/*.py`
            elif part not in ("", "."):
                self._parts.append(part)
        if self._parts[-1:] == ["**"]:
            self._parts.append("*")  # all beneath a folder, and not the folder
        self.forms = [re.compile(fnmatch.translate(part.replace("[^", "[!"))) for part in self._parts]

    def fits(self, path: str) -> bool:
        return self.ends(reduce(self.after, path.split("/"), frozenset({0})))

    def ends(self, states: _States) -> bool:
        """Tell if a path that led to these states is one that is meant."""
        return len(self._parts) in states

    def after(self, states: _States, name: str) -> _States:
        """The states behind one more name."""
        reached: set[int] = set()
        shown = self._hidden or not name.startswith(".")
        for state in self._past_empty(states):
            if state == len(self._parts):
                continue
            part = self._parts[state]
            if part == "**":
                if shown:
                    reached.add(state)
            elif (shown or part.startswith(".")) and self.forms[state].match(name):
                reached.add(state + 1)
        return frozenset(reached)

    def _past_empty(self, states: _States) -> set[int]:
        """`**` may stand for no folder at all."""
        reached = set(states)
        for state in states:
            while state < len(self._parts) and self._parts[state] == "**":
                state += 1
                reached.add(state)
        return reached


def _descend(folder: str, glob: _Glob, states: _States, found: Globbed, matches: set[str], depth: int) -> None:
    """Look into each folder once, whatever the number of ways in which the pattern may mean it."""
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
        after = glob.after(states, entry.name)
        if not after:
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < _MAX_DEPTH:
                _descend(entry.path, glob, after, found, matches, depth + 1)
        elif glob.ends(after):
            matches.add(entry.path)
