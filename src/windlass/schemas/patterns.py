"""Regular expressions of JSON Schema, matched in a time that grows with the text and never explodes.

A schema may come from anywhere, and one `(a+)+$` keeps Python's `re` busy for years while it holds the interpreter.
So patterns are not given to `re`: they are read here into a small automaton, all of whose states move along the text
together. Each character costs at most one look at each state, and what it costs is charged to `spend`.

What such an automaton cannot do is refused when the pattern is read: lookaround, backreferences, flags, and
`\\p{…}`. `^` and `$` are the two ends of the text, `\\d` and `\\w` are ASCII, as JavaScript has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from windlass.schemas.pattern_text import BadPattern, Node, Reader, is_word

__all__ = ["BadPattern", "Pattern", "read_pattern"]

MOST_CHARACTERS = 1_000
MOST_STATES = 5_000
LOOKS_FOR_ONE = 8
"""Looks at a state that cost as much as one rule of a schema."""

_CHAR, _SPLIT, _AT, _END = range(4)


class Pattern:
    def __init__(self, program: list[list[Any]]) -> None:
        self._program = program
        """States by number: the first is where it begins, the last is where it has been found."""
        self._only_at_the_start = program[0] == [_AT, "^"]

    def found_in(self, text: str, spend: Callable[[int], None]) -> bool:
        """Whether it fits anywhere in the text."""
        states: list[int] = []
        last, work = len(self._program) - 1, 0
        for at in range(len(text) + 1):
            if at and not states and self._only_at_the_start:
                return False
            reached = self._reach([*states, 0], text, at)
            work += 1 + len(reached)
            if work >= 1_000 or at == len(text):
                spend(work // LOOKS_FOR_ONE)
                work = 0
            if last in reached:
                return True
            if at < len(text):
                c = text[at]
                states = [s + 1 for s in reached if self._program[s][0] == _CHAR and self._program[s][1](c)]
        return False

    def _reach(self, states: list[int], text: str, at: int) -> set[int]:
        """These states and all that can be come to from them without taking a character."""
        seen: set[int] = set()
        while states:
            state = states.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, *more = self._program[state]
            if kind == _SPLIT:
                states += more
            elif kind == _AT and _holds(more[0], text, at):
                states.append(state + 1)
        return seen


def _holds(where: str, text: str, at: int) -> bool:
    if where == "^":
        return at == 0
    if where == "$":
        return at == len(text)
    edge = (at > 0 and is_word(text[at - 1])) != (at < len(text) and is_word(text[at]))
    return edge == (where == "b")


@lru_cache(maxsize=512)
def read_pattern(text: str) -> Pattern:
    """The pattern, ready for use; `BadPattern` says why it is refused."""
    if len(text) > MOST_CHARACTERS:
        raise BadPattern(f"it is longer than {MOST_CHARACTERS} characters")
    reader = Reader(text)
    tree = reader.either(0)
    if reader.left:
        raise BadPattern("there is a `)` without its `(`")
    program: list[list[Any]] = []
    _emit(tree, program)
    program.append([_END])
    return Pattern(program)


def _emit(node: Node, program: list[list[Any]]) -> None:
    """Write out the states of a part of a pattern; each leads to the one behind it, if nothing else is said."""
    if len(program) > MOST_STATES:
        raise BadPattern("its repetitions are too many; use maxLength or maxItems for lengths")
    match node:
        case ("char", test):
            program.append([_CHAR, test])
        case ("at", where):
            program.append([_AT, where])
        case ("all", parts):
            for part in parts:
                _emit(part, program)
        case ("or", branches):
            ends = []
            for branch in branches[:-1]:
                split = [_SPLIT, len(program) + 1]
                program.append(split)
                _emit(branch, program)
                ends.append([_SPLIT])
                program.append(ends[-1])
                split.append(len(program))
            _emit(branches[-1], program)
            for end in ends:
                end.append(len(program))
        case ("times", part, low, high):
            for _ in range(low):
                _emit(part, program)
            skips = []
            for _ in range(1 if high is None else high - low):
                skips.append([_SPLIT, len(program) + 1])
                program.append(skips[-1])
                _emit(part, program)
            if high is None:
                program.append([_SPLIT, skips[0][1] - 1])
            for skip in skips:
                skip.append(len(program))
