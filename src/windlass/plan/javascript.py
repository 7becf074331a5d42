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
    \s*+ (?:
      (?P<name> [^\W\d][\w$]*+ | \$[\w$]*+ )
    | (?P<comment> //[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)? )
    | (?P<text> "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? )
    | (?P<number> \.?\d[\w.]*+ )
    | (?P<tricky> [/`()\[\]{}] )
    | (?P<mark> \.\.\. | \?\.(?!\d) | \+\+ | -- | => | [=!]==? | . )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*+\])++/\w*+")
_UNTIL_HOLE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*+", re.DOTALL)
_BEFORE_BODY = frozenset(("if", "while", "for", "with"))
_BEFORE_VALUE = _BEFORE_BODY | frozenset(("return", "throw", "case", "else", "do", "await", "yield", "in", "of", "new"))
_BEFORE_VALUE |= frozenset(("typeof", "instanceof", "delete", "void"))
_OPENING = {")": "(", "]": "[", "}": "{"}


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a program, without its comments. Of a template literal, the holes are code as well."""
    return _Cutter(source).cut()


class _Cutter:
    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[tuple[str, bool]] = []
        """Brackets that wait to be closed, and whether a statement, not an operator, follows the closing one."""
        self._no_pattern_before = 0

    def cut(self) -> Iterator[Token]:
        at, last = 0, ""
        value = False  # what came last ends a value: a slash now divides
        while found := _TOKEN.match(self._source, at):
            kind, at = found.lastgroup or "", found.end()
            if kind == "comment":
                continue
            text, start = found[kind], found.start(kind)
            if kind == "name":
                value = text not in _BEFORE_VALUE or last in (".", "?.")
            elif kind == "mark":
                value = text in ("++", "--")
            elif kind == "text":
                text, value = text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:], True
            elif kind == "number":
                value = True
            else:
                at, kind, text, value = self._tricky(start, text, value, last)
            yield Token(kind, text, start)
            last = "" if kind == "text" else text

    def _tricky(self, at: int, mark: str, value: bool, last: str) -> tuple[int, str, str, bool]:
        """Read a token that begins with an ambiguous character: its end, kind and text, and if it ends a value."""
        if mark == "`" or (mark == "}" and self._open and self._open[-1][0] == "${"):
            return self._literal(at, begins=mark == "`")
        if mark == "/":
            end = None if value else self._pattern_end(at)
            return (end, "pattern", "", True) if end else (at + 1, "mark", mark, False)
        if mark in ("(", "[", "{"):
            self._open.append((mark, mark == "(" and last in _BEFORE_BODY))
            return at + 1, "mark", mark, False
        statement_follows = mark == "}"
        if self._open and self._open[-1][0] == _OPENING[mark]:
            statement_follows |= self._open.pop()[1]
        return at + 1, "mark", mark, not statement_follows

    def _literal(self, at: int, *, begins: bool) -> tuple[int, str, str, bool]:
        """A template literal from its beginning, or from the end of a hole, to its end or the next hole."""
        if not begins:
            self._open.pop()
        found = _UNTIL_HOLE.match(self._source, at + 1)
        assert found is not None  # it matches nothing at all, too
        end = found.end()
        if self._source.startswith("${", end):
            self._open.append(("${", False))
            return end + 2, "mark", "${", False
        return (end + 1, "text", found[0], True) if begins else (end + 1, "mark", "`", True)

    def _pattern_end(self, at: int) -> int | None:
        """Find the end of a regular expression. A line without one is not searched again."""
        if at < self._no_pattern_before:
            return None
        if found := _PATTERN.match(self._source, at):
            return found.end()
        line_end = self._source.find("\n", at)
        self._no_pattern_before = line_end if line_end >= 0 else len(self._source)
        return None
