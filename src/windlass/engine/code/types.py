"""One JSON Schema as a TypeScript type, cut off with `any` where it gets too deep or too large."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

__all__ = ["Typing", "key"]

MOST_PARTS = 1_500
"""Schemas in a schema that are looked at."""
MOST_LITERALS = 30
LONGEST_LITERAL = 100
LONGEST_NOTE = 160
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def key(name: str) -> str:
    """The name of a property, in quotes where it needs them."""
    return name if _IDENTIFIER.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


class Typing:
    def __init__(self, schema: Any, depth: int, told: bool) -> None:
        self._schema = schema
        self._depth = depth
        self._told = told
        """Whether properties keep their descriptions."""
        self._left = MOST_PARTS
        self._refs: list[str] = []
        """Refs that are being followed: one that comes up again is a recursive type."""

    def text(self) -> str:
        return self._type(self._schema, 0)

    def _type(self, schema: Any, depth: int) -> str:
        self._left -= 1
        if schema is False:
            return "never"
        if not isinstance(schema, Mapping) or self._left < 0 or depth > self._depth:
            return "any"
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"], depth)
        if "const" in schema:
            return _union([_literal(schema["const"])])
        if isinstance(schema.get("enum"), list):
            return self._enum(schema["enum"])
        parts = self._own(schema, depth)
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list) and schema[word]:
                parts.append(_union([self._type(inner, depth + 1) for inner in schema[word]]))
        if isinstance(schema.get("allOf"), list):
            parts += [self._type(inner, depth + 1) for inner in schema["allOf"]]
        whole = _intersection(parts)
        return _union([whole, "null"]) if schema.get("nullable") is True else whole

    def _referred(self, ref: str, depth: int) -> str:
        if ref in self._refs or len(self._refs) > 20 or not ref.startswith("#/"):
            return "any"
        target: Any = self._schema
        for part in ref[2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isascii() and name.isdigit() and len(name) < 6:
                target = target[int(name)] if int(name) < len(target) else None
            else:
                target = target.get(name) if isinstance(target, Mapping) else None
        self._refs.append(ref)
        try:
            return self._type(target, depth)
        finally:
            self._refs.pop()

    def _enum(self, values: list[Any]) -> str:
        literals = [_literal(value) for value in values[: MOST_LITERALS + 1]]
        if len(literals) <= MOST_LITERALS and "any" not in literals:
            return _union(literals) if literals else "never"
        return "string" if all(isinstance(value, str) for value in values) else "any"

    def _own(self, schema: Mapping[str, Any], depth: int) -> list[str]:
        """The type that the schema itself names, or that its rules are about."""
        kinds = schema.get("type")
        if isinstance(kinds, str):
            kinds = [kinds]
        if not isinstance(kinds, list):
            if any(word in schema for word in ("properties", "additionalProperties", "required")):
                kinds = ["object"]
            elif any(word in schema for word in ("items", "prefixItems")):
                kinds = ["array"]
            else:
                return []
        return [_union([self._kind(kind, schema, depth) for kind in kinds[:10]])]

    def _kind(self, kind: Any, schema: Mapping[str, Any], depth: int) -> str:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case str():
                return _SIMPLE.get(kind, "any")
        return "any"

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        items, prefix = schema.get("items", True), schema.get("prefixItems")
        if not isinstance(prefix, list) or not prefix:
            return f"{_grouped(self._type(items, depth + 1))}[]"
        least = schema.get("minItems", 0)
        places = [
            _grouped(self._type(inner, depth + 1)) + ("" if isinstance(least, int) and number < least else "?")
            for number, inner in enumerate(prefix)
        ]
        if items is not False and schema.get("maxItems") != len(prefix):
            places.append(f"...{_grouped(self._type(items, depth + 1))}[]")
        return f"[{', '.join(places)}]"

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if not isinstance(properties, Mapping) or not properties:
            if more is False:
                return "{}"
            return f"{{ [key: string]: {self._type(more, depth + 1) if isinstance(more, Mapping) else 'any'} }}"
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        fields = []
        for name, inner in properties.items():
            if self._left < 0:
                more = True
                break
            mark = "" if name in required else "?"
            fields.append(f"{self._note(inner)}{key(str(name))}{mark}: {self._type(inner, depth + 1)}")
        if more is not None and more is not False:
            # A narrower type would have to hold for the named properties as well.
            fields.append("[key: string]: any")
        return "{ " + "; ".join(fields) + " }"

    def _note(self, schema: Any) -> str:
        text = schema.get("description") if self._told and isinstance(schema, Mapping) else None
        if not isinstance(text, str):
            return ""
        line = " ".join("".join(c if c.isprintable() else " " for c in text[: LONGEST_NOTE * 2]).split())
        line = line if len(line) <= LONGEST_NOTE else line[:LONGEST_NOTE] + "…"
        harmless = line.replace("*/", "*\\/")
        return f"/** {harmless} */ " if harmless else ""


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() if len(value) <= LONGEST_LITERAL:
            return _quoted(value)
        case int() if abs(value) < 2**53:
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case str():
            return "string"
        case int() | float():
            return "number"
    return "any"


def _union(types: list[str]) -> str:
    different = list(dict.fromkeys(types))
    if "any" in different:
        return "any"
    return " | ".join(different)


def _intersection(types: list[str]) -> str:
    different = [each for each in dict.fromkeys(types) if each != "any"]
    if not different:
        return "any"
    return different[0] if len(different) == 1 else " & ".join(_grouped(each) for each in different)


def _grouped(text: str) -> str:
    """In brackets, if it could be read as several types."""
    return f"({text})" if " | " in text or " & " in text else text
