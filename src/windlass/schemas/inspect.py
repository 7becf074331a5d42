"""Checks of a schema before the first value: is it valid, supported, bounded, and without circles?"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from windlass.schemas.patterns import BadPattern, read_pattern
from windlass.schemas.rules import NOTHING, library, validator_class
from windlass.schemas.words import found

__all__ = ["cleaned", "faults"]

_MANY_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
"""Rules that look at the same value again, not at a part of it."""
_COUNTS = frozenset({"minContains", "maxContains"})
"""Read by the rule `contains`, and no rules of their own."""
_REFUSED = {
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
    "dependencies": "use dependentRequired or dependentSchemas",
    "$id": "refs are read from the schema's own beginning",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
}
_DIALECTS = "http://json-schema.org/"
"""Address of JSON Schema's own dialects; older ones are read as draft 2020-12. Others could mean anything."""
_Place = tuple[str, ...]


def faults(schema: dict[str, Any]) -> list[str]:
    """Everything wrong with a schema that is plain JSON of a bearable size."""
    checker = library().Draft202012Validator
    wrong = next(checker(checker.META_SCHEMA).iter_errors(schema), None)
    if wrong is not None:
        place = "/".join(map(str, wrong.absolute_path)) or "its top"
        return [f"it is not a valid JSON Schema (draft 2020-12): {found(wrong.instance)} is not allowed at {place}"]
    places = dict(_places(schema, ()))
    return [*_refused(places), *_patterns(places), *_refs(places)]


def cleaned(schema: Any) -> Any:
    """The schema with the rules alone: what nobody checks cannot cost time."""
    if isinstance(schema, bool):
        return {} if schema else NOTHING
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MANY_BY_NAME:
            kept[key] = {name: cleaned(inner) for name, inner in value.items()}
        elif key in _MANY:
            kept[key] = [cleaned(inner) for inner in value]
        elif key in _ONE:
            kept[key] = cleaned(value)
        elif key in _COUNTS or key in validator_class().VALIDATORS:
            kept[key] = value
    return kept


def _places(schema: Any, place: _Place) -> Iterator[tuple[_Place, Any]]:
    """Every schema in the schema, with where it stands."""
    yield place, schema
    if isinstance(schema, bool):
        return
    for key, value in schema.items():
        if key in _MANY_BY_NAME:
            for name, inner in value.items():
                yield from _places(inner, (*place, key, name))
        elif key in _MANY:
            for number, inner in enumerate(value):
                yield from _places(inner, (*place, key, str(number)))
        elif key in _ONE:
            yield from _places(value, (*place, key))


def _refused(places: dict[_Place, Any]) -> Iterator[str]:
    for schema in places.values():
        for word, instead in _REFUSED.items():
            if isinstance(schema, dict) and word in schema and not (word == "$id" and schema is places[()]):
                yield f"`{word}` is not supported: {instead}"
    dialect = places[()].get("$schema", _DIALECTS)
    if not dialect.replace("https:", "http:", 1).startswith(_DIALECTS):
        yield f"its `$schema`, {dialect[:80]!r}, is not supported: use https://json-schema.org/draft/2020-12/schema"


def _patterns(places: dict[_Place, Any]) -> Iterator[str]:
    for schema in places.values():
        if not isinstance(schema, dict):
            continue
        patterns = [*schema.get("patternProperties", {})]
        if "pattern" in schema:
            patterns.append(schema["pattern"])
        for pattern in patterns:
            try:
                read_pattern(pattern)
            except BadPattern as error:
                yield f"the pattern {pattern[:80]!r} cannot be used: {error}"


def _refs(places: dict[_Place, Any]) -> Iterator[str]:
    """Refs that lead nowhere, or out, or round in a circle that no value ends."""
    steps: dict[_Place, set[_Place]] = {}
    sound = True
    for place, schema in places.items():
        if not isinstance(schema, dict):
            continue
        for end in range(len(place) - 1, -1, -1):
            if place[:end] in places:
                if place[end] in _SAME_VALUE:
                    steps.setdefault(place[:end], set()).add(place)
                break
        ref = schema.get("$ref")
        if ref is None:
            continue
        target = _target(ref)
        if target is None:
            sound = False
            yield f"the $ref {ref[:80]!r} points outside the schema; only `#/…` is supported"
        elif target not in places:
            sound = False
            yield f"the $ref {ref[:80]!r} points to no schema"
        else:
            steps.setdefault(place, set()).add(target)
    if sound:
        try:
            graphlib.TopologicalSorter(steps).prepare()
        except graphlib.CycleError as error:
            way = " → ".join("#" + "".join(f"/{part}" for part in place) for place in error.args[1])
            yield f"its $refs form an endless loop: {way[:200]}"


def _target(ref: str) -> _Place | None:
    if ref == "#":
        return ()
    if not ref.startswith("#/"):
        return None
    return tuple(unquote(part).replace("~1", "/").replace("~0", "~") for part in ref[2:].split("/"))
