"""The text of a program, looked at without running it: which steps and inputs it plainly reads, which tools it calls.

`steps.log`, `steps?.log`, `steps["log"]` and `const {log} = steps` count; a name that is computed does not, nor what
stands in comments and texts. A plan is checked by it, and a code step waits for the steps that its program reads.
`granted_tools` are those that it may call: by name, or by patterns in which `*` stands for anything.

JavaScript is cut into tokens just well enough to tell names from comments, texts and patterns. Nothing is understood
and nothing is refused. A text or comment that never ends goes on to the end of its line or of the source, so any text
at all comes apart, in time that grows with its length alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "MAX_SOURCE",
    "Token",
    "granted_tools",
    "is_pattern",
    "program_calls",
    "program_reads",
    "source_problem",
    "steps_read",
    "tokens",
]


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
# A possessive group with a look-ahead goes wrong in Python before 3.11.5.
_UNTIL_HOLE = re.compile(r"[^`\\$]*+(?:(?:\\.|\$(?!\{))[^`\\$]*+)*", re.DOTALL)
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


MAX_SOURCE = 256 * 1024
"""Bytes that the text of a program may have."""

_ROOTS = ("steps", "inputs")
_TOOLS = ("tools",)
_DECLARES = frozenset(("const", "let", "var", "function", "class"))
_HAVE_CONDITION = frozenset(("if", "while", "for", "switch", "with"))
_DEEPEST_PARAMETER = 10
"""Nested brackets that are searched around a parameter."""
_OF_EVERY_OBJECT = frozenset(("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable")) | frozenset(
    ("__proto__", "toLocaleString", "toString", "valueOf")
)
_HYPHENS = re.compile(r"(?:-\w+)+")


class ReadName(NamedTuple):
    """One place where a program reads a step or an input."""

    root: str
    """`steps` or `inputs`."""
    name: str
    fields: tuple[str, ...]
    """The members of it that are read: `output` and `lines` in `steps.log.output.lines`."""
    line: int
    column: int
    """Position in the program, counted from 1."""
    sure: bool
    """False where the program also defines the root's name itself."""
    rest: str
    """`-b` in `steps.a-b`, which subtracts: probably a name with a hyphen was meant."""

    @property
    def field(self) -> str | None:
        """The field that is read: `output` in `steps.log.output`."""
        return self.fields[0] if self.fields else None


class ToolCall(NamedTuple):
    """One place where a program calls a tool."""

    path: tuple[str, ...]
    """`files` and `read` in `tools.files.read()`."""
    line: int
    column: int


def source_problem(source: str) -> str | None:
    """Return why a text cannot be a program (empty or too long), or None."""
    if not source.strip():
        return "is empty"
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE:
        most = MAX_SOURCE // 1024
        return f"is {-(-size // 1024)} KiB long, and a program may have {most} KiB: pass data with `with`"
    return None


def steps_read(source: str) -> list[ReadName]:
    """Every place where a program plainly reads a step."""
    return [read for read in program_reads(source) if read.root == "steps"]


@lru_cache(maxsize=256)
def program_reads(source: str) -> tuple[ReadName, ...]:
    """Every place where a program plainly reads a step or an input, in the program's order."""
    if not any(root in source for root in _ROOTS):
        return ()
    return tuple(_ProgramReader(source, _ROOTS).reads())


def program_calls(source: str) -> list[ToolCall]:
    """Every place where a program plainly calls a tool, without those that it looks at before, or calls in a `try`: it
    may ask if they are there."""
    return list(_ProgramReader(source, _TOOLS).calls()) if "tools" in source else []


class _ProgramReader:
    def __init__(self, source: str, names: Sequence[str]) -> None:
        self._source = source
        self._tokens: Sequence[Token] = list(tokens(source))
        self._lines = [0, *(found.end() for found in re.finditer("\n", source))]
        """Offsets of the lines."""
        roots = [at for at, token in enumerate(self._tokens) if token.kind == "name" and token.text in names]
        self._roots = [at for at in roots if self._mark(at - 1) not in (".", "?.")]
        self._closing: dict[int, int] = {}
        self._around: dict[int, int] = {}
        whole = [at for at in self._roots if self._mark(at + 1) not in (".", "?.", "[")]
        if whole:  # only what is made of a root as a whole asks for the brackets around it
            self._closing, self._around = _brackets(self._tokens)
        self._own = {self._tokens[at].text for at in whole if self._is_declared(at)}

    def reads(self) -> Iterator[ReadName]:
        for start, at, name, after in sorted(self._members()):
            root = self._tokens[at].text
            sure = root not in self._own and name not in _OF_EVERY_OBJECT
            yield ReadName(root, name, self._fields(after), *self._place(start), sure, self._rest(after))

    def calls(self) -> Iterator[ToolCall]:
        called: list[ToolCall] = []
        looked_at: set[tuple[str, ...]] = set()
        handled = self._try_blocks()
        for at in self._roots:
            path, after = self._path(at + 1)
            may_be_missing = any(self._mark(place) == "?." for place in range(at + 1, after))
            may_be_missing = may_be_missing or any(at in block for block in handled)
            if path and self._mark(after) == "(" and not may_be_missing:
                called.append(ToolCall(path, *self._place(self._tokens[at].start)))
            else:
                looked_at.add(path)
        if not self._own:
            asked_for = (one for one in called if not any(one.path[: len(path)] == path for path in looked_at))
            yield from asked_for

    def _try_blocks(self) -> list[range]:
        """The places within the blocks of `try`."""
        words = (at for at, token in enumerate(self._tokens) if token.kind == "name" and token.text == "try")
        starts = [at + 1 for at in words if self._mark(at + 1) == "{"]
        closing = _brackets(self._tokens)[0] if starts else {}
        return [range(start, closing.get(start, len(self._tokens))) for start in starts]

    def _place(self, start: int) -> tuple[int, int]:
        """The line and column of an offset, counted from 1."""
        from bisect import bisect_right  # most plans have no programs

        line = bisect_right(self._lines, start)
        return line, start - self._lines[line - 1] + 1

    def _fields(self, at: int) -> tuple[str, ...]:
        """The members that are read at a place (0: none), up to one that every object has."""
        path, _after = self._path(at) if at else ((), 0)
        own = next((place for place, name in enumerate(path) if name in _OF_EVERY_OBJECT), len(path))
        return path[:own]

    def _path(self, at: int) -> tuple[tuple[str, ...], int]:
        """The members `.a.b["c"]` at a place, and the place after them."""
        path: list[str] = []
        while (found := self._member(at))[0] is not None:
            path.append(found[0])
            at = found[1]
        return tuple(path), at

    def _members(self) -> Iterator[tuple[int, int, str, int]]:
        """Yield each member that is read: its offset, the root's token, its name, and the token after it (0: none)."""
        for at in self._roots:
            name, after = self._member(at + 1)
            if name is not None:
                yield self._tokens[at].start, at, name, after
            elif after == 0 and self._mark(at - 1) == "=" and self._mark(at - 2) == "}":
                keys = (self._tokens[key] for key in self._keys(at - 2))
                yield from ((key.start, at, key.text, 0) for key in keys)

    def _member(self, at: int) -> tuple[str | None, int]:
        """The name in `.name`, `?.name`, `["name"]` at a place, and the place after it. 0: this is no member at all."""
        mark = self._mark(at)
        if mark in (".", "?.") and self._kind(at + 1) == "name":
            return self._tokens[at + 1].text, at + 2
        at += mark == "?."
        if self._mark(at) != "[":
            return None, 0
        if self._kind(at + 1) == "text" and self._mark(at + 2) == "]" and "\\" not in self._tokens[at + 1].text:
            return self._tokens[at + 1].text, at + 3
        return None, at

    def _keys(self, closing: int) -> Iterator[int]:
        """Yield the names that the pattern `{a, b: c}` destructures."""
        at = self._around.get(closing, closing)
        while (at := at + 1) < closing:
            if self._kind(at) in ("name", "text") and self._mark(at - 1) in ("{", ","):
                yield at
            at = self._closing.get(at, at)  # what stands in further brackets are members of members

    def _is_declared(self, at: int) -> bool:
        """Return True if a root's name is redefined here: by a variable, a parameter or destructuring."""
        if self._word(at - 1) in _DECLARES or self._mark(at + 1) in ("=", "=>"):
            return True
        opening = self._around.get(at)
        for _ in range(_DEEPEST_PARAMETER):
            closing = self._closing.get(opening) if opening is not None else None
            if opening is None or closing is None or self._mark(at + 1) not in (",", ")", "}", "]"):
                return False
            follows = self._mark(closing + 1)
            if self._mark(opening) == "(":  # `(steps) =>` and `f(steps) {` have parameters, `f(steps)` has arguments
                return follows == "=>" or (follows == "{" and self._word(opening - 1) not in _HAVE_CONDITION)
            if follows == "=":
                return True
            at, opening = closing, self._around.get(opening)
        return False

    def _rest(self, after: int) -> str:
        """Return the text after `steps.name` if it looks like the rest of a hyphenated name."""
        name = self._tokens[after - 1]
        found = _HYPHENS.match(self._source, name.start + len(name.text)) if after and name.kind == "name" else None
        return found[0] if found else ""

    def _kind(self, at: int) -> str:
        return self._tokens[at].kind if 0 <= at < len(self._tokens) else ""

    def _mark(self, at: int) -> str:
        return self._tokens[at].text if self._kind(at) == "mark" else ""

    def _word(self, at: int) -> str:
        return self._tokens[at].text if self._kind(at) == "name" else ""


def _brackets(found: Sequence[Token]) -> tuple[dict[int, int], dict[int, int]]:
    """Map each bracket to its closing one, and each token to the bracket around it (a closing one: to its opener)."""
    closing: dict[int, int] = {}
    around: dict[int, int] = {}
    stack: list[int] = []
    for at, token in enumerate(found):
        if stack:
            around[at] = stack[-1]
        if token.kind != "mark":
            continue
        if token.text in ("(", "[", "{"):
            stack.append(at)
        elif token.text in (")", "]", "}") and stack:
            closing[stack.pop()] = at
    return closing, around


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
