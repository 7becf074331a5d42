"""Patterns to paths: `*`, `?`, `[…]`, `[!…]` in names, `**` for any number of folders, `{a,b}` for one of several
texts. Links to folders stay closed.

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

__all__ = [
    "MAX_LOOKED_AT",
    "MAX_MATCHES",
    "Globbed",
    "glob_filter",
    "is_pattern",
    "match_files",
    "split_pattern",
    "without_braces",
]

MAX_LOOKED_AT = 200_000
"""Names that one pattern may look at."""
MAX_MATCHES = 5_000
"""Files that one pattern may give."""
_MAX_DEPTH = 100
_MAX_ALTERNATIVES = 100
"""Patterns that one with braces may stand for."""
_WILDCARD = re.compile(r"[*?\[]")
_INNERMOST_BRACES = re.compile(r"\{([^{},]*+(?:,[^{},]*+)++)\}")
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
    return bool(_WILDCARD.search(text) or _INNERMOST_BRACES.search(text))


def split_pattern(pattern: str) -> tuple[str, str]:
    """The folders before the first wildcard, and the rest."""
    wildcard = _WILDCARD.search(pattern)
    before = pattern[: wildcard.start()] if wildcard else pattern
    if _INNERMOST_BRACES.search(pattern):
        before = before.partition("{")[0]
    fixed, slash, _ = before.rpartition("/")
    return fixed or slash, pattern[len(fixed + slash) :]


def glob_filter(pattern: str | None) -> Callable[[str], bool]:
    """A test of paths: by their names, or by all of them when the pattern has a / in it. No pattern fits all.

    Raises ValueError for a set that nothing is in, like `[z-a]`, and for braces that stand for too much.
    """
    if pattern is None:
        return lambda path: True
    glob = _Glob(pattern, hidden=True)
    if any(form and "(?!)" in form.pattern for form in glob.forms):
        raise ValueError(f"{pattern} has an empty set")
    return glob.fits if "/" in pattern else lambda path: glob.fits(path.rpartition("/")[2])


def match_files(pattern: str, base: Path) -> Globbed:
    """The files beneath `base` that a relative pattern means, sorted by path; given with `base` in front.

    Hidden names are matched only by parts that begin with a dot, as in a shell. Raises ValueError for braces that
    stand for too much.
    """
    found, matches, glob = Globbed(), set[str](), _Glob(pattern, hidden=False)
    _descend(str(base), glob, glob.start, found, matches, 0)
    found.paths = sorted(matches)
    return found


class _Glob:
    """A pattern as a small automaton that takes one name of a path after the other."""

    def __init__(self, pattern: str, *, hidden: bool) -> None:
        """`hidden`: names that begin with a dot are like all others."""
        self._hidden = hidden
        self._parts: list[str] = []
        """Of each pattern without braces that this one stands for, and an empty one behind."""
        starts: list[int] = []
        for alternative in without_braces(pattern):
            starts.append(len(self._parts))
            self._parts += [*_parts(alternative), ""]
        self.start: _States = frozenset(starts)
        self.forms = [re.compile(fnmatch.translate(part.replace("[^", "[!"))) if part else None for part in self._parts]

    def fits(self, path: str) -> bool:
        return self.ends(reduce(self.after, path.split("/"), self.start))

    def ends(self, states: _States) -> bool:
        """Tell if a path that led to these states is one that is meant."""
        return any(not self._parts[state] for state in states)

    def after(self, states: _States, name: str) -> _States:
        """The states behind one more name."""
        reached: set[int] = set()
        shown = self._hidden or not name.startswith(".")
        for state in self._past_empty(states):
            part, form = self._parts[state], self.forms[state]
            if part == "**":
                if shown:
                    reached.add(state)
            elif form and (shown or part.startswith(".")) and form.match(name):
                reached.add(state + 1)
        return frozenset(reached)

    def _past_empty(self, states: _States) -> set[int]:
        """`**` may stand for no folder at all."""
        reached = set(states)
        for state in states:
            while self._parts[state] == "**":
                state += 1
                reached.add(state)
        return reached


def _parts(pattern: str) -> list[str]:
    """The parts of a pattern without braces, one for each name of a path but for `**`."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part.startswith("**") and part != "**":
            parts += ["**", part[1:]]  # `**.py` is `**/*.py`
        elif part not in ("", "."):
            parts.append(part)
    if parts[-1:] == ["**"]:
        parts.append("*")  # all beneath a folder, and not the folder
    return parts


def without_braces(pattern: str) -> list[str]:
    """The patterns that one with braces stands for. Braces without a comma, or without an end, are text.

    Raises ValueError for too many.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ValueError(f"its braces stand for more than {_MAX_ALTERNATIVES} patterns")
        text = waiting.pop()
        if (found := _INNERMOST_BRACES.search(text)) is None:
            done.append(text)
        else:
            before, after = text[: found.start()], text[found.end() :]
            waiting += [f"{before}{choice}{after}" for choice in found[1].split(",")]
    return done


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
