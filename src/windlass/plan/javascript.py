"""JavaScript cut into tokens: just well enough to tell names from comments, texts and patterns.

Nothing is understood and nothing is refused. A text or comment that never ends goes on to the end of its line or of
the source, so any text at all comes apart, in time that grows with its length alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Token", "tokens"]


class Token(NamedTuple):
    kind: str
    """`name`, `number`, `text`, `pattern`, or `mark` for everything else."""
    text: str
    """As it stands; of a `text` what is between the quotes, escapes as they are written."""
    start: int


_TOKEN = re.compile(
    r"""
      (?P<nothing> \s++ | //[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)? )
    | "(?P<double> (?:[^"\\\n]|\\.)*+ )"?
    | '(?P<single> (?:[^'\\\n]|\\.)*+ )'?
    | (?P<name> [^\W\d][\w$]*+ | \$[\w$]*+ )
    | (?P<number> \.?\d[\w.]*+ )
    | (?P<mark> \.\.\. | \?\.(?!\d) | \+\+ | -- | => | [=!]==? | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*+\])++/\w*+")
_UNTIL_HOLE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*+", re.DOTALL)
_BEFORE_BODY = frozenset(("if", "while", "for", "with"))
_BEFORE_VALUE = _BEFORE_BODY | frozenset(("return", "throw", "case", "else", "do", "await", "yield", "in", "of", "new"))
_BEFORE_VALUE |= frozenset(("typeof", "instanceof", "delete", "void"))
_AFTER_VALUE = frozenset((")", "]", "++", "--"))
_OPENING = {")": "(", "]": "[", "}": "{"}


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a program, without its comments. Of a template literal, the holes are code as well."""
    return _Cutter(source).cut()


class _Cutter:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[tuple[str, bool]] = []
        """Brackets that wait to be closed, and whether a statement, not an operator, follows the closing one."""
        self._value = False
        """What came last ends a value: a slash now divides."""
        self._last = ""
        self._no_pattern_before = 0

    def cut(self) -> Iterator[Token]:
        at = 0
        while at < len(self._source):
            at, token = self._next(at)
            if token is not None:
                self._value = self._ends_value(token)
                self._last = token.text if token.kind in ("name", "mark") else ""
                yield token

    def _next(self, at: int) -> tuple[int, Token | None]:
        found = _TOKEN.match(self._source, at)
        assert found is not None  # its last alternative takes any character
        kind = found.lastgroup or ""
        if kind == "nothing":
            return found.end(), None
        if kind in ("double", "single"):
            return found.end(), Token("text", found[kind], at)
        mark = found[0]
        if mark == "/" and not self._value and (end := self._pattern_end(at)):
            return end, Token("pattern", "", at)
        if mark == "`" or (mark == "}" and self._open and self._open[-1][0] == "${"):
            return self._literal(at, begins=mark == "`")
        return found.end(), Token(kind, mark, at)

    def _pattern_end(self, at: int) -> int | None:
        """Where a regular expression ends. A line on which one did not end is not searched again."""
        if at < self._no_pattern_before:
            return None
        if found := _PATTERN.match(self._source, at):
            return found.end()
        line_end = self._source.find("\n", at)
        self._no_pattern_before = line_end if line_end >= 0 else len(self._source)
        return None

    def _literal(self, at: int, *, begins: bool) -> tuple[int, Token]:
        """A template literal from its beginning, or from the end of a hole, to its end or the next hole."""
        if not begins:
            self._open.pop()
        found = _UNTIL_HOLE.match(self._source, at + 1)
        assert found is not None  # it matches nothing at all, too
        end = found.end()
        if self._source.startswith("${", end):
            self._open.append(("${", False))
            return end + 2, Token("mark", "${", at)
        return end + 1, Token("text", found[0], at) if begins else Token("mark", "`", at)

    def _ends_value(self, token: Token) -> bool:
        if token.kind == "name":
            return token.text not in _BEFORE_VALUE or self._last in (".", "?.")
        if token.kind != "mark":
            return True
        mark = token.text
        if mark in ("(", "[", "{"):
            self._open.append((mark, mark == "(" and self._last in _BEFORE_BODY))
        elif mark in _OPENING and self._open and self._open[-1][0] == _OPENING[mark]:
            statement_follows = self._open.pop()[1]
            return mark in _AFTER_VALUE and not statement_follows
        return mark in _AFTER_VALUE or mark == "`"
