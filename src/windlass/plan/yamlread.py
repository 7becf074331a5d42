"""Plan text to plain Python data: strict, bounded, and able to say where each value stands.

- `read` makes a `Document` of a text, YAML or JSON.
- `plain` is the YAML 1.2 core schema for one unquoted word: `no`, `on` and dates stay text.
- Both languages become the same few tokens, and one `_Builder` turns tokens into data, so that depth,
  size, duplicate keys and places are handled once. YAML comes from PyYAML's parse events, which need no
  tree of nodes: a plan of 10,000 steps costs little more than its data.
- Places are not kept while reading. `Document.locate` reads the text a second time to find them, which
  only a plan with something to say about it pays for.

Everything wrong ends in a `Problem`: what ends the reading is raised in `PlanInvalid`, the rest is
collected in `Document.problems`. Nothing here knows what a plan means; `check.py` does.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import yaml

from windlass.errors import PlanInvalid, Problem

__all__ = ["MAX_DEPTH", "MAX_WEIGHT", "Document", "Path", "Place", "plain", "read"]

MAX_DEPTH = 50
"""How deep lists and mappings may stand in each other."""
MAX_WEIGHT = 1_000_000
"""Values a document may hold, aliases written out; text counts once more per 100 characters."""

Path = tuple[str | int, ...]
"""Where a value stands: the keys and indexes that lead to it."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"
_CORE_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_FORBIDDEN = re.compile(  # what YAML itself does not allow
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_JSON_TOKEN = re.compile(r'\n|[{}\[\]]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s{}\[\]:,"]+')
_UNQUOTED_TEMPLATE = "a value that begins with {{ must stand in quotes"
_BLOCK = "|"
"""Stands in a path for the first line of a text that is written as a block."""
_BLOCK_INDENT = re.compile(r"(?:[ ]*+\r?\n)*+([ ]*+)")
_KEY_NOT_TEXT = "a key must be text, not a list or a mapping"
_SYNTAX_HINTS = (
    ("mapping values are not allowed", "text that holds `: ` must stand in quotes"),
    ("cannot start any token", "indent with spaces; text that begins with @, ` or % needs quotes"),
    ("scanning an alias", "text that begins with * must stand in quotes"),
    ("scanning an anchor", "text that begins with & must stand in quotes"),
    ("end of stream", "what opens here is never closed"),
    ("parsing a flow", "what opens here is never closed"),
    ("parsing a block", "compare the indentation of this line with the lines around it"),
)


class Place(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class Document:
    """What a text says: its data, and what is wrong with it that did not end the reading.

    Parts of the data that an alias repeats are one object: treat the data as read-only.
    """

    def __init__(self, data: Any, problems: tuple[Problem, ...], places: Callable[[], dict[Path, Place]]) -> None:
        self.data = data
        self.problems = problems
        self._find_places = places
        self._places: dict[Path, Place] | None = None

    def locate(self, path: Path, inside: Place | None = None) -> Place | None:
        """Where a key or list item stands, or the nearest thing around it that has a place.

        `inside` is a place in the text that is its value: where that is in the file can be told of a `|` block alone.
        """
        if self._places is None:
            self._places = self._find_places()
        if inside is not None and (block := self._places.get((*path, _BLOCK))):
            return Place(block.line + inside.line - 1, block.column + inside.column - 1)
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path)


def read(text: str, *, file: str = "", as_json: bool = False, longest: Mapping[str, int] | None = None) -> Document:
    """The data of a YAML (or JSON) text. `longest` bounds the lists under top-level keys."""
    tokens = _json_tokens if as_json else _yaml_tokens

    def build(places: dict[Path, Place] | None) -> _Builder:
        builder = _Builder(file, longest or {}, places)
        for token in tokens(text, builder):
            builder.take(token)
        return builder

    def find_places() -> dict[Path, Place]:
        places: dict[Path, Place] = {}
        build(places)
        return places

    builder = build(None)
    if builder.data is None:
        builder.refuse("the file is empty", hint="a plan needs at least `steps`")
    return Document(builder.data, tuple(builder.problems), find_places)


def plain(text: str) -> Any:
    """An unquoted word as the YAML 1.2 core schema reads it. ValueError: a number nothing can hold."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text, 10)
    if _OTHER_BASE.fullmatch(text):
        return _integer(text, 0)
    number = float(text) if _FLOAT.fullmatch(text) else None
    if number is not None and math.isfinite(number):
        return number
    if number is not None or _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{_short(text)} is not a number that a plan can hold")
    return text


def _integer(text: str, base: int) -> int:
    # Few readers of JSON hold longer numbers exactly, and Python refuses to read very long ones at all.
    number = int(text, base) if len(text) <= 70 else None
    if number is None or not -(2**63) <= number < 2**64:
        raise ValueError(f"{_short(text)} needs more than the 64 bits that a whole number may have")
    return number


class _Token(NamedTuple):
    """One piece of a document, in either language."""

    kind: str
    """`{`, `}`, `[`, `]`, `value`, `*` for an alias, or `<<` for a merge key."""
    value: Any
    """The value, or the alias's name."""
    place: Place
    anchor: str | None = None
    block: Place | None = None
    """Where the first line of a text begins that is written line by line, as a `|` block."""


def _yaml_tokens(text: str, builder: _Builder) -> Iterator[_Token]:
    if forbidden := _FORBIDDEN.search(text):
        place = _place_at(text, forbidden.start())
        builder.refuse(f"the character {forbidden[0]!r} may not stand in YAML", place)
    documents = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
            match event:
                case yaml.ScalarEvent():
                    kind = "<<" if event.value == "<<" and event.implicit[0] else "value"
                    block = _block_place(event, text) if event.style == "|" else None
                    yield _Token(kind, _yaml_scalar(event, builder, place), place, event.anchor, block)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    kind, tag = ("{", "map") if isinstance(event, yaml.MappingStartEvent) else ("[", "seq")
                    if event.tag not in (None, "!", _CORE + tag):
                        _complain_of_tag(event.tag, builder, place)
                    yield _Token(kind, None, place, event.anchor)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    yield _Token("}", None, place)
                case yaml.AliasEvent():
                    yield _Token("*", event.anchor, place)
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        hint = "one file holds one plan: remove this `---` and what follows"
                        builder.refuse("the file holds several documents", place, hint=hint)
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, text, builder)
    except yaml.YAMLError as error:
        builder.refuse(f"not valid YAML: {error}")


def _block_place(event: Any, text: str) -> Place:
    """Where the text of a `|` block begins: on the line after its mark, less what its first words are indented by."""
    begins = text.find("\n", event.start_mark.index) + 1
    in_file, in_value = _BLOCK_INDENT.match(text, begins), _BLOCK_INDENT.match(event.value)
    indent = len(in_file[1]) - len(in_value[1]) if begins and in_file and in_value else 0
    return Place(event.start_mark.line + 2, max(indent, 0) + 1)


def _yaml_scalar(event: yaml.ScalarEvent, builder: _Builder, place: Place) -> Any:
    tag: str | None = event.tag
    if tag in ("!", _CORE + "str") or (tag is None and not event.implicit[0]):
        return _whole(event.value, builder, place)
    name = tag.removeprefix(_CORE) if tag is not None else None
    if tag is not None and name not in _CORE_TYPES:
        _complain_of_tag(tag, builder, place)
        return event.value
    value = _number_or_word(event.value, builder, place)
    if name is None:
        return value
    fits = isinstance(value, _CORE_TYPES[name]) and isinstance(value, bool) == (name == "bool")
    if not fits:
        builder.complain(f"{_short(event.value)!r} does not fit its tag !!{name}", place)
    return float(value) if fits and name == "float" else value


def _number_or_word(text: str, builder: _Builder, place: Place) -> Any:
    try:
        return plain(text)
    except ValueError as error:
        builder.complain(str(error), place, hint="put it in quotes if it is meant as text")
        return 0


def _whole(text: str, builder: _Builder, place: Place) -> str:
    """Text that can be written again: an escape may name half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        builder.complain("an escape here names half of a character (a lone surrogate)", place)
        return "?"
    return text


def _complain_of_tag(tag: str, builder: _Builder, place: Place) -> None:
    shown = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
    builder.complain(f"the tag {_short(shown)} is not available in plans", place, hint="remove the tag")


def _refuse_syntax(error: yaml.MarkedYAMLError, text: str, builder: _Builder) -> NoReturn:
    said = f"{error.context or ''} {error.problem or ''}".strip()
    hint = next((hint for words, hint in _SYNTAX_HINTS if words in said), "")
    mark = error.problem_mark
    # What is never closed is noticed at the end of the file, and mended where it opens.
    if error.context_mark is not None and "never closed" in hint:
        mark = error.context_mark
    if mark is None:
        builder.refuse(f"not valid YAML: {said}", hint=hint)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if re.search(r"(^|[:\-])\s*\{\{", line):
        hint = _UNQUOTED_TEMPLATE
    builder.refuse(f"not valid YAML: {said}", Place(mark.line + 1, mark.column + 1), hint=hint)


def _json_tokens(text: str, builder: _Builder) -> Iterator[_Token]:
    # The standard library vouches for the syntax; cutting valid JSON into tokens is then easy. Where it
    # runs out of stack, the builder comes to refuse the depth itself, and knows the line.
    if not text.strip():
        return
    with contextlib.suppress(RecursionError):
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except json.JSONDecodeError as error:
            builder.refuse(f"not valid JSON: {error.msg}", Place(error.lineno, error.colno))
    line, line_start = 1, 0
    for found in _JSON_TOKEN.finditer(text):
        word, place = found[0], Place(line, found.start() - line_start + 1)
        if word == "\n":
            line, line_start = line + 1, found.end()
        elif word in "{}[]":
            yield _Token(word, None, place)
        elif word[0] == '"':
            value = json.loads(word) if "\\" in word else word[1:-1]
            yield _Token("value", _whole(value, builder, place), place)
        else:
            value = _number_or_word(word, builder, place)
            if isinstance(value, str):
                builder.complain(f"{_short(value)} is not a JSON value", place)
            yield _Token("value", value, place)


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("height", "items", "key", "lines", "merges", "most", "path", "token", "weight")

    def __init__(self, token: _Token, path: Path, weight: int, most: int | None) -> None:
        self.items: dict[str, Any] | list[Any] = {} if token.kind == "{" else []
        self.token = token
        self.path = path
        self.weight = weight
        """The builder's weight when it opened."""
        self.most = most
        """Items it may have."""
        self.height = 1
        """Levels from here down to the deepest value."""
        self.key: str | None = None
        """The key that waits for its value."""
        self.lines: dict[str, int] = {}
        """On which line each key stands."""
        self.merges = False


class _Anchored(NamedTuple):
    """What an alias may repeat."""

    value: Any
    weight: int
    height: int


class _Builder:
    """Puts tokens together to data, within the limits. Keeps places only when given a dict for them."""

    def __init__(self, file: str, longest: Mapping[str, int], places: dict[Path, Place] | None) -> None:
        self.data: Any = None
        self.problems: list[Problem] = []
        self._file = file
        self._longest = longest
        self._places = places
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._weight = 0

    def complain(self, message: str, place: Place | None = None, *, hint: str = "") -> None:
        line, column = place or (None, None)
        self.problems.append(Problem(message, self._file, line, column, hint=hint))

    def refuse(self, message: str, place: Place | None = None, *, hint: str = "") -> NoReturn:
        self.complain(message, place, hint=hint)
        raise PlanInvalid(self.problems)

    def take(self, token: _Token) -> None:
        match token.kind:
            case "value" | "<<":
                weight = 1 + len(token.value) // 100 if isinstance(token.value, str) else 1
                self._finish(_Anchored(token.value, weight, 0), token, token.anchor)
            case "{" | "[":
                self._open(token)
            case "}" | "]":
                done = self._stack.pop()
                value = self._merged(done) if done.merges else done.items
                inner = self._weight - done.weight
                self._weight = done.weight
                self._finish(_Anchored(value, inner + 1, done.height), done.token, done.token.anchor)
            case "*":
                self._finish(self._named(token), token, None)

    def _open(self, token: _Token) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels", token.place)
        path: Path = ()
        most = None
        if self._stack:
            top = self._stack[-1]
            if isinstance(top.items, dict) and top.key is None:
                line, column = top.token.place
                template = token.kind == "{" and token.place == (line, column + 1)
                self.refuse(_UNQUOTED_TEMPLATE if template else _KEY_NOT_TEXT, token.place)
            if len(self._stack) == 1 and top.key is not None:
                most = self._longest.get(top.key)
            if self._places is not None:
                path = (*top.path, top.key if top.key is not None else len(top.items))
        self._stack.append(_Open(token, path, self._weight, most))

    def _named(self, token: _Token) -> _Anchored:
        named = self._anchors.get(token.value)
        if named is None:
            hint = f"nothing above is marked &{token.value}; text that begins with * needs quotes"
            self.complain(f"the alias *{token.value} names nothing", token.place, hint=hint)
            return _Anchored(f"*{token.value}", 1, 0)
        if len(self._stack) + named.height > MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels by *{token.value}", token.place)
        return named

    def _finish(self, done: _Anchored, token: _Token, anchor: str | None) -> None:
        """Put a finished value where it belongs: a list's next item, a mapping's key, a key's value."""
        if anchor is not None:
            self._anchors[anchor] = done
        self._weight += done.weight
        if self._weight > MAX_WEIGHT:
            self.refuse(f"more than {MAX_WEIGHT:,} values, with aliases written out", token.place)
        if not self._stack:
            self.data = done.value
            self._remember((), (), token)
            return
        top = self._stack[-1]
        top.height = max(top.height, done.height + 1)
        if isinstance(top.items, list):
            if top.most is not None and len(top.items) >= top.most:
                key = self._stack[0].key
                self.refuse(f"a plan may have at most {top.most:,} {key}", token.place)
            self._remember(top.path, (len(top.items),), token)
            top.items.append(done.value)
        elif top.key is None:
            top.key = self._key(done.value, top, token)
            self._remember(top.path, (top.key,), token)
        else:
            if token.block is not None and self._places is not None:
                self._places.setdefault((*top.path, top.key, _BLOCK), token.block)
            top.items[top.key] = done.value
            top.key = None

    def _key(self, found: Any, top: _Open, token: _Token) -> str:
        if isinstance(found, dict | list):
            self.refuse(_KEY_NOT_TEXT, token.place)
        key = found if isinstance(found, str) else json.dumps(found)
        if not isinstance(found, str):
            self.complain(f"the key {key} is not text", token.place, hint=f'write "{key}" in quotes')
        top.merges = top.merges or token.kind == "<<"
        first = top.lines.setdefault(key, token.place.line)
        if key in top.items:
            self.complain(f"the key `{_short(key)}` stands on line {first} already", token.place)
        return key

    def _merged(self, done: _Open) -> dict[str, Any]:
        """A mapping with what its `<<` names beneath it: its own keys win, then the earlier source."""
        own = dict(done.items)
        sources = own.pop("<<")
        merged: dict[str, Any] = {}
        for source in reversed(sources if isinstance(sources, list) else [sources]):
            if not isinstance(source, dict):
                self.complain("`<<` merges mappings only", done.token.place)
                continue
            merged.update(source)
        return {**merged, **own}

    def _remember(self, path: Path, last: Path, token: _Token) -> None:
        if self._places is not None:
            self._places.setdefault(path + last, token.place)


def _place_at(text: str, index: int) -> Place:
    return Place(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}…"
