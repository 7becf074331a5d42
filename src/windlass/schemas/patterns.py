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

__all__ = ["BadPattern", "Pattern", "read_pattern"]

MOST_CHARACTERS = 1_000
MOST_STATES = 5_000
MOST_GROUPS_DEEP = 20
LOOKS_FOR_ONE = 8
"""Looks at a state that cost as much as one rule of a schema."""

_Test = Callable[[str], bool]
_Node = tuple[Any, ...]
_CHAR, _SPLIT, _AT, _END = range(4)
_SPACE = frozenset(
    " \t\n\r\f\v\u00a0\ufeff\u2028\u2029\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)
_BREAKS = frozenset("\n\r\u2028\u2029")
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class BadPattern(ValueError):
    """A pattern that is none, or that asks for what is refused."""


def _digit(c: str) -> bool:
    return "0" <= c <= "9"


def _word(c: str) -> bool:
    return c == "_" or (c.isascii() and c.isalnum())


_CLASSES: dict[str, _Test] = {
    "d": _digit,
    "w": _word,
    "s": _SPACE.__contains__,
    "D": lambda c: not _digit(c),
    "W": lambda c: not _word(c),
    "S": lambda c: c not in _SPACE,
}


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
    edge = (at > 0 and _word(text[at - 1])) != (at < len(text) and _word(text[at]))
    return edge == (where == "b")


@lru_cache(maxsize=512)
def read_pattern(text: str) -> Pattern:
    """The pattern, ready for use; `BadPattern` says why it is refused."""
    if len(text) > MOST_CHARACTERS:
        raise BadPattern(f"it is longer than {MOST_CHARACTERS} characters")
    reader = _Reader(text)
    tree = reader.either(0)
    if reader.left:
        raise BadPattern("there is a `)` without its `(`")
    program: list[list[Any]] = []
    _emit(tree, program)
    program.append([_END])
    return Pattern(program)


def _emit(node: _Node, program: list[list[Any]]) -> None:
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


class _Reader:
    """Reads a pattern from left to right into a tree."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def left(self) -> str:
        return self._text[self._at :]

    def either(self, depth: int) -> _Node:
        if depth > MOST_GROUPS_DEEP:
            raise BadPattern("its groups are nested too deeply")
        branches: list[_Node] = []
        while True:
            parts: list[_Node] = []
            while self.left and self.left[0] not in "|)":
                parts.append(self._counted(self._atom(depth)))
            branches.append(("all", parts))
            if not self._take("|"):
                return branches[0] if len(branches) == 1 else ("or", branches)

    def _take(self, what: str) -> bool:
        if self._text.startswith(what, self._at):
            self._at += len(what)
            return True
        return False

    def _next(self) -> str:
        if not self.left:
            raise BadPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _atom(self, depth: int) -> _Node:
        c = self._next()
        match c:
            case "(":
                self._group_head()
                inner = self.either(depth + 1)
                if not self._take(")"):
                    raise BadPattern("there is a `(` without its `)`")
                return inner
            case "[":
                return ("char", self._set())
            case ".":
                return ("char", lambda c: c not in _BREAKS)
            case "^" | "$":
                return ("at", c)
            case "\\":
                if self._take("b"):
                    return ("at", "b")
                if self._take("B"):
                    return ("at", "B")
                return ("char", self._escape())
            case "*" | "+" | "?":
                raise BadPattern(f"there is nothing for `{c}` to repeat")
        return ("char", c.__eq__)

    def _group_head(self) -> None:
        if not self._take("?") or self._take(":"):
            return
        if self._take("<") and self.left[:1] not in ("=", "!"):
            while self._next() != ">":
                pass
            return
        raise BadPattern("lookaround and flags, `(?…`, are refused: they can take for ever")

    def _counted(self, node: _Node) -> _Node:
        low, high = 1, 1
        if self._take("*"):
            low, high = 0, -1
        elif self._take("+"):
            low, high = 1, -1
        elif self._take("?"):
            low, high = 0, 1
        elif self._take("{"):
            low, high = self._braces()
        else:
            return node
        if node[0] == "at":
            raise BadPattern("an end of the text cannot be repeated")
        self._take("?")  # as few as possible or as many: it is found or it is not
        if self.left[:1] in ("*", "+", "?", "{"):
            raise BadPattern("a repetition cannot be repeated without a group")
        return ("times", node, low, None if high < 0 else high)

    def _braces(self) -> tuple[int, int]:
        inside, closed, _ = self.left.partition("}")
        low, comma, high = inside.partition(",")
        numbers = [part for part in (low, high) if part]
        if not closed or not low or any(not n.isascii() or not n.isdigit() or len(n) > 4 for n in numbers):
            raise BadPattern("`{` is not followed by `}` with one or two small numbers before it")
        self._at += len(inside) + 1
        most = int(high) if high else -1 if comma else int(low)
        if 0 <= most < int(low):
            raise BadPattern(f"`{{{inside}}}` has its numbers the wrong way round")
        return int(low), most

    def _escape(self) -> _Test:
        c = self._next()
        if c in _CLASSES:
            return _CLASSES[c]
        return self._escaped(c).__eq__

    def _escaped(self, c: str) -> str:
        if c in _PLAIN:
            return _PLAIN[c]
        if c in "xu":
            digits = self._digits(2 if c == "x" else 4)
            return chr(int(digits, 16))
        if c.isascii() and c.isalnum():
            raise BadPattern(f"`\\{c}` is refused or not known")
        return c

    def _digits(self, count: int) -> str:
        digits = self.left[:count]
        self._at += count
        if len(digits) < count or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise BadPattern("`\\x` wants two digits, `\\u` four")
        return digits

    def _set(self) -> _Test:
        negated = self._take("^")
        tests: list[_Test] = []
        while not self._take("]"):
            c = self._next()
            if c == "\\":
                c = self._next()
                if c in _CLASSES:
                    tests.append(_CLASSES[c])
                    continue
                c = "\b" if c == "b" else self._escaped(c)
            tests.append(self._range(c))
        return lru_cache(maxsize=1_000)(lambda c: any(test(c) for test in tests) != negated)

    def _range(self, first: str) -> _Test:
        if self.left[:1] != "-" or self.left[1:2] in ("", "]"):
            return first.__eq__
        self._at += 1
        last = self._next()
        if last == "\\":
            last = self._escaped(self._next())
        if last < first:
            raise BadPattern(f"the range {first}-{last} is the wrong way round")
        return lambda c: first <= c <= last
