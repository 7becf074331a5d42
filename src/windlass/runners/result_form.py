"""The JSON Schema of a step's `output`, as the runtimes' own ways of giving data take it.

A runtime is given a looser schema: its validator may refuse keywords that it does not know, or read another draft. The
engine checks the result by the whole schema in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["RESULT_TOOL", "is_closed", "tool_form"]

RESULT_TOOL = "StructuredOutput"
"""The tool with which Claude Code and OpenCode have an agent give data."""
_BOUNDS = frozenset(f"{side}{of}" for side in ("min", "max") for of in ("imum", "Length", "Items", "Properties")) | {
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "uniqueItems",
}
_PLAIN = _BOUNDS | {"type", "required", "enum", "const", "title", "description", "$ref"}
_TYPED = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf"})
_NAMED = frozenset({"properties", "$defs", "definitions"})
_INNER = frozenset({"items", "additionalProperties"})
_NARROWED = {"items": "prefixItems", "additionalProperties": "patternProperties"}
"""Keywords that hold only for what another one leaves: without that one they would refuse more."""


def tool_form(form: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the schema as the input of a tool; None if data of this form cannot be given so."""
    if form is None or form.get("type") != "object":
        return None
    loose = _looser(form)
    for name in ("anyOf", "allOf"):  # the APIs refuse them at the top
        loose.pop(name, None)
    return loose if all(_resolves(loose, ref) for ref in _references(loose)) else None


def is_closed(form: Mapping[str, Any]) -> bool:
    """True if every part of the schema has one type, and every object names all that it may have. Anthropic's API takes
    other objects for closed, too: one of any names would be empty. Its client takes no other parts."""
    return all(isinstance(part, Mapping) and _is_closed_part(part) for part in _parts(form))


def _is_closed_part(part: Mapping[str, Any]) -> bool:
    if not isinstance(part.get("type", ""), str) or not part.keys().isdisjoint(_NARROWED.values()):
        return False
    return part.get("additionalProperties") is False if part.get("type") == "object" else not _TYPED.isdisjoint(part)


def _looser(form: Any) -> Any:
    """The schema without the keywords that not every validator knows. Nothing that fits it before is refused then."""
    if not isinstance(form, Mapping):
        return form
    kept: dict[str, Any] = {}
    for name, value in form.items():
        if _NARROWED.get(name) in form:
            continue
        if name in _PLAIN:
            kept[name] = value
        elif name in _NAMED and isinstance(value, Mapping):
            kept[name] = {key: _looser(part) for key, part in value.items()}
        elif name in _INNER and isinstance(value, Mapping | bool):
            kept[name] = _looser(value)
        elif name in ("anyOf", "allOf") and isinstance(value, list):
            kept[name] = [_looser(part) for part in value]
    if isinstance(one := form.get("oneOf"), list) and "anyOf" not in kept:
        kept["anyOf"] = [_looser(part) for part in one]  # two that were loosened may both fit
    return kept


def _references(form: Mapping[str, Any]) -> Iterator[Any]:
    return (part["$ref"] for part in _parts(form) if isinstance(part, Mapping) and "$ref" in part)


def _parts(form: Any) -> Iterator[Any]:
    """The schema and all schemas in it; `true` and `false` are schemas, and so is a list of `items` of earlier drafts.
    The value of `additionalProperties` is one only if it is a mapping."""
    yield form
    if isinstance(form, Mapping):
        for name, value in form.items():
            if name in _NAMED and isinstance(value, Mapping):
                for part in value.values():
                    yield from _parts(part)
            elif name == "items" or (name == "additionalProperties" and isinstance(value, Mapping)):
                yield from _parts(value)
            elif name in ("anyOf", "allOf", "oneOf") and isinstance(value, list):
                for part in value:
                    yield from _parts(part)


def _resolves(form: Mapping[str, Any], ref: Any) -> bool:
    found: Any = form
    start, *names = str(ref).split("/")
    for name in names:
        name = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return start == "#"
