"""Read plan text into plain Python data: strict, bounded, and with the position of each value on request.

- `read` makes a `Document` of a text, YAML or JSON. Both languages become the same few tokens (`yaml_tokens`), and one
  `_Builder` turns tokens into data, so that depth, size, duplicate keys and places are handled once.
- Places are not kept while reading. `Document.locate` reads the text a second time to find them, which only a plan
  with something to say about it pays for.

Every error becomes a `Problem`: one that ends the reading is raised in `PlanInvalid`, the others are
collected in `Document.problems`. The meaning of a plan is checked in `check.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from windlass.errors import PlanInvalid, Problem
from windlass.plan.yaml_tokens import UNQUOTED_TEMPLATE, FilePosition, YamlToken, json_tokens, plain, short, yaml_tokens

__all__ = ["MAX_DEPTH", "Document", "FilePosition", "Path", "plain", "read"]

MAX_DEPTH = 50
"""Deepest nesting of lists and mappings."""
MAX_WEIGHT = 1_000_000
"""Values a document may hold, aliases written out; text counts once more per 100 characters."""

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

_BLOCK = "|"
"""Stands in a path for the first line of a text that is written as a block."""
_KEY_NOT_TEXT = "a key must be text, not a list or a mapping"


class Document:
    """The data of a text, and the problems in it that did not end the reading.

    Parts of the data that an alias repeats are one object: treat the data as read-only.
    """

    def __init__(
        self, data: Any, problems: tuple[Problem, ...], places: Callable[[], dict[Path, FilePosition]]
    ) -> None:
        self.data = data
        self.problems = problems
        self._find_places = places
        self._places: dict[Path, FilePosition] | None = None

    def locate(self, path: Path, inside: FilePosition | None = None) -> FilePosition | None:
        """Find the position of a key or list item, or of the nearest thing around it that has one.

        `inside` is a position within the text that is its value; it can be located in a `|` block only.
        """
        if self._places is None:
            self._places = self._find_places()
        if inside is not None and (block := self._places.get((*path, _BLOCK))):
            return FilePosition(block.line + inside.line - 1, block.column + inside.column - 1)
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path)


def read(text: str, *, file: str = "", as_json: bool = False, longest: Mapping[str, int] | None = None) -> Document:
    """The data of a YAML (or JSON) text. `longest` bounds the lists under top-level keys."""
    tokens = json_tokens if as_json else yaml_tokens

    def build(places: dict[Path, FilePosition] | None) -> _Builder:
        builder = _Builder(file, longest or {}, places)
        for token in tokens(text, builder):
            builder.take(token)
        return builder

    def find_places() -> dict[Path, FilePosition]:
        places: dict[Path, FilePosition] = {}
        build(places)
        return places

    builder = build(None)
    if builder.data is None:
        builder.refuse("the file is empty", hint="a plan needs at least `steps`")
    return Document(builder.data, tuple(builder.problems), find_places)


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("height", "items", "key", "lines", "merges", "most", "path", "token", "weight")

    def __init__(self, token: YamlToken, path: Path, weight: int, most: int | None) -> None:
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
        """The line of each key."""
        self.merges = False


class _Anchored(NamedTuple):
    """A value that an alias may repeat."""

    value: Any
    weight: int
    height: int


class _Builder:
    """Puts tokens together to data, within the limits. Keeps places only when given a dict for them."""

    def __init__(self, file: str, longest: Mapping[str, int], places: dict[Path, FilePosition] | None) -> None:
        self.data: Any = None
        self.problems: list[Problem] = []
        self._file = file
        self._longest = longest
        self._places = places
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._weight = 0

    def complain(self, message: str, place: FilePosition | None = None, *, hint: str = "") -> None:
        line, column = place or (None, None)
        self.problems.append(Problem(message, self._file, line, column, hint=hint))

    def refuse(self, message: str, place: FilePosition | None = None, *, hint: str = "") -> NoReturn:
        self.complain(message, place, hint=hint)
        raise PlanInvalid(self.problems)

    def take(self, token: YamlToken) -> None:
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

    def _open(self, token: YamlToken) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels", token.place)
        path: Path = ()
        most = None
        if self._stack:
            top = self._stack[-1]
            if isinstance(top.items, dict) and top.key is None:
                line, column = top.token.place
                template = token.kind == "{" and token.place == (line, column + 1)
                self.refuse(UNQUOTED_TEMPLATE if template else _KEY_NOT_TEXT, token.place)
            if len(self._stack) == 1 and top.key is not None:
                most = self._longest.get(top.key)
            if self._places is not None:
                path = (*top.path, top.key if top.key is not None else len(top.items))
        self._stack.append(_Open(token, path, self._weight, most))

    def _named(self, token: YamlToken) -> _Anchored:
        named = self._anchors.get(token.value)
        if named is None:
            hint = f"there is no anchor &{token.value} above; text that begins with * needs quotes"
            self.complain(f"the alias *{token.value} has no anchor", token.place, hint=hint)
            return _Anchored(f"*{token.value}", 1, 0)
        if len(self._stack) + named.height > MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels by *{token.value}", token.place)
        return named

    def _finish(self, done: _Anchored, token: YamlToken, anchor: str | None) -> None:
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

    def _key(self, found: Any, top: _Open, token: YamlToken) -> str:
        if isinstance(found, dict | list):
            self.refuse(_KEY_NOT_TEXT, token.place)
        key = found if isinstance(found, str) else json.dumps(found)
        if not isinstance(found, str):
            self.complain(f"the key {key} is not text", token.place, hint=f'write "{key}" in quotes')
        top.merges = top.merges or token.kind == "<<"
        first = top.lines.setdefault(key, token.place.line)
        if key in top.items:
            self.complain(f"the key `{short(key)}` is already on line {first}", token.place)
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

    def _remember(self, path: Path, last: Path, token: YamlToken) -> None:
        if self._places is not None:
            self._places.setdefault(path + last, token.place)
