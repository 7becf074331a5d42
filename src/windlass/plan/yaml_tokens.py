"""Plan text, YAML or JSON, cut into the few tokens that both languages have in common.

- `plain` is the YAML 1.2 core schema for one unquoted word: `no`, `on` and dates stay text.
- YAML comes from PyYAML's parse events, which need no tree of nodes: a plan of 10,000 steps costs little more than its
  data. The standard library vouches for the syntax of JSON.

Problems are reported to a `Complaints`; `yamlread` builds data from the tokens.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, Protocol

import yaml

__all__ = ["UNQUOTED_TEMPLATE", "FilePosition", "YamlToken", "json_tokens", "plain", "short", "yaml_tokens"]

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
UNQUOTED_TEMPLATE = "a value that begins with {{ must be in quotes"
_BLOCK_INDENT = re.compile(r"(?:[ ]*+\r?\n)*([ ]*+)")  # a possessive group sets the other wrong in Python before 3.11.4
_SYNTAX_HINTS = (
    ("mapping values are not allowed", "text with `: ` in it must be in quotes"),
    ("cannot start any token", "indent with spaces; text that begins with @, ` or % needs quotes"),
    ("scanning an alias", "text that begins with * must be in quotes"),
    ("scanning an anchor", "text that begins with & must be in quotes"),
    ("end of stream", "this bracket or quote is never closed"),
    ("parsing a flow", "this bracket or quote is never closed"),
    ("parsing a block", "compare the indentation of this line with the lines around it"),
)


class FilePosition(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class Complaints(Protocol):
    """Collects the problems of a text."""

    def complain(self, message: str, place: FilePosition | None = None, *, hint: str = "") -> None:
        """Note a problem that does not end the reading."""

    def refuse(self, message: str, place: FilePosition | None = None, *, hint: str = "") -> NoReturn:
        """End the reading with a problem."""


class YamlToken(NamedTuple):
    """One piece of a document, in either language."""

    kind: str
    """`{`, `}`, `[`, `]`, `value`, `*` for an alias, or `<<` for a merge key."""
    value: Any
    """The value, or the alias's name."""
    place: FilePosition
    anchor: str | None = None
    block: FilePosition | None = None
    """Start of the first line of a text that is written as a `|` block."""


def yaml_tokens(text: str, complaints: Complaints) -> Iterator[YamlToken]:
    if forbidden := _FORBIDDEN.search(text):
        place = _place_at(text, forbidden.start())
        complaints.refuse(f"the character {forbidden[0]!r} is not allowed in YAML", place)
    documents = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            place = FilePosition(event.start_mark.line + 1, event.start_mark.column + 1)
            match event:
                case yaml.ScalarEvent():
                    kind = "<<" if event.value == "<<" and event.implicit[0] else "value"
                    block = _block_place(event, text) if event.style == "|" else None
                    yield YamlToken(kind, _yaml_scalar(event, complaints, place), place, event.anchor, block)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    kind, tag = ("{", "map") if isinstance(event, yaml.MappingStartEvent) else ("[", "seq")
                    if event.tag not in (None, "!", _CORE + tag):
                        _complain_of_tag(event.tag, complaints, place)
                    yield YamlToken(kind, None, place, event.anchor)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    yield YamlToken("}", None, place)
                case yaml.AliasEvent():
                    yield YamlToken("*", event.anchor, place)
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        hint = "one file holds one plan: remove this `---` and what follows"
                        complaints.refuse("the file holds several documents", place, hint=hint)
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, text, complaints)
    except yaml.YAMLError as error:
        complaints.refuse(f"not valid YAML: {error}")


def _block_place(event: Any, text: str) -> FilePosition:
    """Find the start of a `|` block's text: the line after its mark, at the block's indentation."""
    begins = text.find("\n", event.start_mark.index) + 1
    in_file, in_value = _BLOCK_INDENT.match(text, begins), _BLOCK_INDENT.match(event.value)
    indent = len(in_file[1]) - len(in_value[1]) if begins and in_file and in_value else 0
    return FilePosition(event.start_mark.line + 2, max(indent, 0) + 1)


def _yaml_scalar(event: yaml.ScalarEvent, complaints: Complaints, place: FilePosition) -> Any:
    tag: str | None = event.tag
    if tag in ("!", _CORE + "str") or (tag is None and not event.implicit[0]):
        return _whole(event.value, complaints, place)
    name = tag.removeprefix(_CORE) if tag is not None else None
    if tag is not None and name not in _CORE_TYPES:
        _complain_of_tag(tag, complaints, place)
        return event.value
    value = _number_or_word(event.value, complaints, place)
    if name is None:
        return value
    fits = isinstance(value, _CORE_TYPES[name]) and isinstance(value, bool) == (name == "bool")
    if not fits:
        complaints.complain(f"{short(event.value)!r} does not fit its tag !!{name}", place)
    return float(value) if fits and name == "float" else value


def _number_or_word(text: str, complaints: Complaints, place: FilePosition) -> Any:
    try:
        return plain(text)
    except ValueError as error:
        complaints.complain(str(error), place, hint="put it in quotes if it is meant as text")
        return 0


def _whole(text: str, complaints: Complaints, place: FilePosition) -> str:
    """Text that can be written again: an escape may name half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        complaints.complain("this escape is not a valid character (a lone surrogate)", place)
        return "?"
    return text


def _complain_of_tag(tag: str, complaints: Complaints, place: FilePosition) -> None:
    shown = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
    complaints.complain(f"the tag {short(shown)} is not available in plans", place, hint="remove the tag")


def _refuse_syntax(error: yaml.MarkedYAMLError, text: str, complaints: Complaints) -> NoReturn:
    said = f"{error.context or ''} {error.problem or ''}".strip()
    hint = next((hint for words, hint in _SYNTAX_HINTS if words in said), "")
    mark = error.problem_mark
    # An unclosed bracket or quote is noticed at the end of the file, but fixed where it opens.
    if error.context_mark is not None and "never closed" in hint:
        mark = error.context_mark
    if mark is None:
        complaints.refuse(f"not valid YAML: {said}", hint=hint)
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    if re.search(r"(^|[:\-])\s*\{\{", line):
        hint = UNQUOTED_TEMPLATE
    complaints.refuse(f"not valid YAML: {said}", FilePosition(mark.line + 1, mark.column + 1), hint=hint)


def json_tokens(text: str, complaints: Complaints) -> Iterator[YamlToken]:
    # The standard library checks the syntax; cutting valid JSON into tokens is then easy. Where it
    # runs out of stack, the builder refuses the depth itself, and knows the line.
    if not text.strip():
        return
    with contextlib.suppress(RecursionError):
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except json.JSONDecodeError as error:
            complaints.refuse(f"not valid JSON: {error.msg}", FilePosition(error.lineno, error.colno))
    line, line_start = 1, 0
    for found in _JSON_TOKEN.finditer(text):
        word, place = found[0], FilePosition(line, found.start() - line_start + 1)
        if word == "\n":
            line, line_start = line + 1, found.end()
        elif word in "{}[]":
            yield YamlToken(word, None, place)
        elif word[0] == '"':
            value = json.loads(word) if "\\" in word else word[1:-1]
            yield YamlToken("value", _whole(value, complaints, place), place)
        else:
            value = _number_or_word(word, complaints, place)
            if isinstance(value, str):
                complaints.complain(f"{short(value)} is not a JSON value", place)
            yield YamlToken("value", value, place)


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
        raise ValueError(f"{short(text)} is not a number that a plan can hold")
    return text


def _integer(text: str, base: int) -> int:
    # Few readers of JSON hold longer numbers exactly, and Python refuses to read very long ones at all.
    number = int(text, base) if len(text) <= 70 else None
    if number is None or not -(2**63) <= number < 2**64:
        raise ValueError(f"{short(text)} needs more than the 64 bits that a whole number may have")
    return number


def _place_at(text: str, index: int) -> FilePosition:
    return FilePosition(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}…"
