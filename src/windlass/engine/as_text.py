"""Numbers, true and false from a lone template, as text where a tool takes nothing but text (B5).

`content: "{{ steps.sum.output }}"` keeps the type of the value, and a tool that writes text refuses a number. Only
values from a template are converted: a number in the plan itself stays a mistake that `plan check` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, repeat, zip_longest
from typing import Any

from windlass.plan.template import as_text

__all__ = ["nulls_for_text", "with_texts"]

_MOST_LEVELS = 32
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def with_texts(schema: Mapping[str, Any], written: Any, given: Any) -> Any:
    """The arguments, with scalars from templates turned into text where the schema takes only text.

    `written` are the plan's arguments, with its templates; `given` the same with them filled in.
    """
    return _converted(_Schema(schema), schema, written, given, 0)


def nulls_for_text(schema: Mapping[str, Any], written: Any, given: Any) -> list[str]:
    """Complaints about top-level arguments that need text and got null from their template."""
    root = _Schema(schema)
    found = []
    for name, value in given.items() if isinstance(given, dict) else ():
        source = written.get(name) if isinstance(written, dict) else ""
        if value is None and _is_template(source) and root.types(root.inside(schema, name)) == {"string"}:
            found.append(f"`{name}` needs text, and {source} is null")
    return found


class _Schema:
    """A JSON Schema with its references. It may be a stranger's: each part of it is looked at once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._choices: dict[int, list[Mapping[str, Any]]] = {}
        self._types: dict[int, set[str]] = {}

    def choices(self, schema: Any) -> list[Mapping[str, Any]]:
        """The schema without references and alternatives: each of those that it may be."""
        known = self._choices.get(id(schema))
        if known is None:
            known = self._choices[id(schema)] = list(self._alternatives(schema))
        return known

    def _alternatives(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        seen: set[int] = set()
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            if not isinstance(one, Mapping) or id(one) in seen:
                continue
            seen.add(id(one))
            parts = next((one[word] for word in _ALTERNATIVES if isinstance(one.get(word), list)), None)
            if isinstance(ref := one.get("$ref"), str):
                waiting.append(self._target(ref))
            elif parts is not None:
                waiting += reversed(parts)
            else:
                yield one

    def types(self, schema: Any) -> set[str]:
        """The types that it takes."""
        known = self._types.get(id(schema))
        if known is None:
            known = self._types[id(schema)] = self._types_of(schema)
        return known

    def _types_of(self, schema: Any) -> set[str]:
        found: set[str] = set()
        for one in self.choices(schema):
            kind = one.get("type")
            if kind is None:
                found |= {"string"} if all(isinstance(v, str) for v in one.get("enum", [0])) else {"anything"}
            else:
                found |= set(kind) if isinstance(kind, list) else {str(kind)}
        return found

    def inside(self, schema: Any, name: str | None) -> Any:
        """The schema of one property, or of the items where there is no name."""
        for one in self.choices(schema):
            if name is None:
                if "items" in one:
                    return one["items"]
            elif name in (known := one.get("properties") or {}):
                return known[name]
            elif isinstance(more := one.get("additionalProperties"), Mapping):
                return more
        return None

    def _target(self, ref: str) -> Any:
        at: Any = self._root if ref.startswith("#") else None
        for part in ref.removeprefix("#").strip("/").split("/"):
            at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, Mapping) and part else at
        return at


def _converted(root: _Schema, schema: Any, written: Any, given: Any, depth: int) -> Any:
    if depth > _MOST_LEVELS or schema is None:
        return given
    if isinstance(given, bool | int | float):
        only_text = root.types(schema) <= {"string", "null"} and "string" in root.types(schema)
        return as_text(given) if only_text and (written is ... or _is_template(written)) else given
    # The inside of a list or an object that a template gave comes from that template altogether.
    whole = written is ... or isinstance(written, str)
    if isinstance(given, dict):
        parts = written if isinstance(written, Mapping) else {}
        return {
            name: _converted(root, root.inside(schema, name), ... if whole else parts.get(name), value, depth + 1)
            for name, value in given.items()
        }
    if isinstance(given, list):
        items: Iterable[Any] = repeat(...) if whole else written if isinstance(written, list | tuple) else ()
        inner = root.inside(schema, None)
        pairs = zip_longest(given, islice(items, len(given)))
        return [_converted(root, inner, item, value, depth + 1) for value, item in pairs]
    return given


def _is_template(written: Any) -> bool:
    return isinstance(written, str) and "{{" in written
