"""Errors of a JSON Schema validator in plain words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

__all__ = ["Part", "found", "hint", "in_words"]

Part: TypeAlias = Literal["argument", "key"]
"""The word for an entry of the whole value."""

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "a mapping",
}
_SENTENCES = {
    "minimum": "must be at least {0}",
    "maximum": "must be at most {0}",
    "exclusiveMinimum": "must be more than {0}",
    "exclusiveMaximum": "must be less than {0}",
    "multipleOf": "must be a multiple of {0}",
    "minLength": "must have at least {0} characters",
    "maxLength": "must have at most {0} characters",
    "minItems": "must have at least {0} entries",
    "maxItems": "must have at most {0} entries",
    "minProperties": "must have at least {0} names",
    "maxProperties": "must have at most {0} names",
    "uniqueItems": "must not have the same entry twice",
    "contains": "lacks a required entry",
    "minContains": "lacks a required entry",
    "maxContains": "has too many entries of a kind",
    "pattern": "must look like {0}",
}


def in_words(error: Any, part: Part = "argument", nested: int = 0) -> Iterator[str]:
    """One of jsonschema's errors as sentences with the place in front; made one by one, as there may be many."""
    path = _path(error.absolute_path)
    where = f"{path!r}: " if path else ""
    rule, value = error.validator, error.validator_value
    match rule:
        case "type":
            yield f"{where}expected {_kinds(value)}, found {found(error.instance)}"
        case "required":
            yield f"{where}{error.message!r} is missing" if path else f"{part} {error.message!r} is missing"
        case "additionalProperties" if error.message:
            known = error.schema.get("properties", {})
            whole = f"{path}.{error.message}" if path else error.message
            what = "is not known here" if path or part == "key" else "is not an argument"
            yield f"{whole!r} {what}; {hint(error.message, known)}"
        case "enum":
            yield f"{where}expected one of {_some(value)}, found {found(error.instance)}"
        case "const":
            yield f"{where}expected {found(value)}, found {found(error.instance)}"
        case "anyOf" | "oneOf":
            yield from _branches(error, where, part, nested)
        case "dependentRequired":
            yield f"{where}{error.message!r} is missing, which the other entries require"
        case _ if rule in _SENTENCES:
            yield f"{where}{_SENTENCES[rule].format(_brief(value))}, found {found(error.instance)}"
        case _:
            yield f"{where}{found(error.instance)} is not allowed here"


def _branches(error: Any, where: str, part: Part, nested: int) -> Iterator[str]:
    """Of several forms, speak of the one that was meant, if that can be seen."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    if not branches:
        yield f"{where}matches more than one of the allowed forms, found {found(error.instance)}"
        return
    meant: list[list[Any]] = []
    kinds: list[str] = []
    for inner_errors in branches.values():
        first = next((e for e in inner_errors if e.validator == "type" and not e.path), None)
        if first is None:
            meant.append(inner_errors)
        else:
            kinds += [first.validator_value] if isinstance(first.validator_value, str) else first.validator_value
    if not meant:
        yield f"{where}expected {_kinds(list(dict.fromkeys(kinds)))}, found {found(error.instance)}"
    elif len(meant) == 1:
        for inner in meant[0]:
            yield from in_words(inner, part, nested)
    else:
        each = [] if nested else [next(in_words(inner[0], part, nested + 1)) for inner in meant[:3]]
        closer = f" ({'; or '.join(each)})" if each else ""
        yield f"{where}matches none of the {len(branches)} allowed forms{closer}"


def hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    # Looking for likeness takes long with long names, and nobody mistypes those.
    near = difflib.get_close_matches(name, [k for k in names[:500] if len(k) <= 100], 1) if len(name) <= 100 else []
    if near:
        return f"did you mean {near[0]!r}?"
    return "there are: " + ", ".join(names[:20]) if names else "there are none"


def found(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case str():
            return f"the text {_brief(value)}"
        case int() | float():
            return f"the number {_brief(value)}"
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
    return "a mapping" if value else "an empty mapping"


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return repr(value[:40] + "…" if len(value) > 40 else value)
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"


def _kinds(value: Any) -> str:
    return " or ".join(_KINDS.get(kind, str(kind)) for kind in ([value] if isinstance(value, str) else value))


def _some(values: list[Any]) -> str:
    shown = ", ".join(_brief(v) if isinstance(v, str) else found(v) for v in values[:10])
    return f"{shown} …" if len(values) > 10 else shown


def _path(parts: Iterable[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in parts)
    return text.removeprefix(".")
