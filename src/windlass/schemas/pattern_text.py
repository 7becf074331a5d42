"""Reads the text of a regular expression, from left to right, into a tree; refuses what cannot be matched in time.

A tree is made of `("char", test)`, `("at", where)`, `("all", parts)`, `("or", branches)` and
`("times", part, low, high)`, where no `high` is no end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ["BadPattern", "Node", "Reader", "is_word"]

MOST_GROUPS_DEEP = 20

Test = Callable[[str], bool]
Node = tuple[Any, ...]
_SPACE = frozenset(
    " \t\n\r\f\v\u00a0\ufeff\u2028\u2029\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)
_BREAKS = frozenset("\n\r\u2028\u2029")
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class BadPattern(ValueError):
    """A pattern that is none, or that asks for what is refused."""


def _digit(c: str) -> bool:
    return "0" <= c <= "9"


def is_word(c: str) -> bool:
    return c == "_" or (c.isascii() and c.isalnum())


_CLASSES: dict[str, Test] = {
    "d": _digit,
    "w": is_word,
    "s": _SPACE.__contains__,
    "D": lambda c: not _digit(c),
    "W": lambda c: not is_word(c),
    "S": lambda c: c not in _SPACE,
}


class Reader:
    """Reads a pattern from left to right into a tree."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def left(self) -> str:
        return self._text[self._at :]

    def either(self, depth: int) -> Node:
        if depth > MOST_GROUPS_DEEP:
            raise BadPattern("its groups are nested too deeply")
        branches: list[Node] = []
        while True:
            parts: list[Node] = []
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

    def _atom(self, depth: int) -> Node:
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

    def _counted(self, node: Node) -> Node:
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

    def _escape(self) -> Test:
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

    def _set(self) -> Test:
        negated = self._take("^")
        tests: list[Test] = []
        while not self._take("]"):
            c = self._next()
            if c == "\\":
                c = self._next()
                if c in _CLASSES:
                    tests.append(_CLASSES[c])
                    continue
                c = "\b" if c == "b" else self._escaped(c)
            tests.append(self._range(c))
        test = lru_cache(maxsize=1_000)(lambda c: any(test(c) for test in tests) != negated)
        test.negated = negated  # type: ignore[attr-defined]  # who lets case be must know: see `tools.files.match`
        return test

    def _range(self, first: str) -> Test:
        if self.left[:1] != "-" or self.left[1:2] in ("", "]"):
            return first.__eq__
        self._at += 1
        last = self._next()
        if last == "\\":
            last = self._escaped(self._next())
        if last < first:
            raise BadPattern(f"the range {first}-{last} is the wrong way round")
        return lambda c: first <= c <= last
