"""TypeScript declarations of the tools that a model can call from code, made from their JSON Schemas.

Names, descriptions and schemas may come from anybody. So nothing of them is copied as it is: descriptions cannot end
their comment, names and values are quoted, and a schema that is too deep, too large or malformed becomes `any`. Parts
left out of a declaration are still checked when the tool is called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from windlass.ports import Tool

__all__ = ["Typing", "declarations", "key"]


MOST_CHARACTERS = 4_000
"""Of one tool's declaration."""
MOST_DESCRIPTION = 1_500
_DETAIL = ((8, True), (4, True), (4, False), (2, False), (1, False), (0, False))
"""Depth, and if properties keep their descriptions: less and less, until it is short enough."""
_COMBINED = ("$ref", "anyOf", "oneOf", "allOf", "minProperties")


class _Group:
    """Tools with the same beginning of their names."""

    def __init__(self) -> None:
        self.tool: Tool | None = None
        self.members: dict[str, _Group] = {}


def declarations(tools: Iterable[Tool]) -> str:
    top = _Group()
    for tool in sorted(tools, key=lambda tool: tool.name):
        group = top
        for part in tool.name.split("."):
            group = group.members.setdefault(part, _Group())
        group.tool = tool
    return f"declare const tools: {_members(top, 0)};\n"


def _members(group: _Group, level: int) -> str:
    indent = "  " * (level + 1)
    lines = []
    for name, member in group.members.items():
        kinds = []
        if member.tool is not None:
            comment = _comment(member.tool.description, indent)
            lines.append(comment)
            kinds.append(_signature(member.tool, MOST_CHARACTERS - len(comment) - len(indent) - len(key(name)) - 20))
        if member.members:
            kinds.append(_members(member, level + 1))
        if len(kinds) == 2:
            kinds[0] = f"({kinds[0]})"
        lines.append(f"{indent}{key(name)}: {' & '.join(kinds)};\n")
    return "{\n" + "".join(lines) + "  " * level + "}"


def _comment(text: str, indent: str) -> str:
    """A text that nothing in it can end early."""
    harmless = text[:MOST_DESCRIPTION].replace("*/", "*\\/")
    lines = [
        "".join(c if c.isprintable() else " " for c in line).strip()
        for line in re.split("[\r\n\u2028\u2029]+", harmless)
    ]
    lines = [line for line in lines if line][:40]
    if len(lines) < 2:
        return f"{indent}/** {lines[0]} */\n" if lines else ""
    return f"{indent}/**\n" + "".join(f"{indent} * {line}\n" for line in lines) + f"{indent} */\n"


def _signature(tool: Tool, most: int) -> str:
    schema, returns = tool.schema, tool.returns
    optional = "?" if _needs_nothing(schema) else ""
    for depth, told in _DETAIL:
        arguments = Typing(schema, depth, told).text()
        result = Typing(returns, depth, told).text() if isinstance(returns, Mapping) else "any"
        text = f"(args{optional}: {arguments}) => Promise<{result}>"
        if len(text) <= most:
            return text
    return f"(args{optional}: any) => Promise<any>"


def _needs_nothing(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not schema.get("required") and not any(word in schema for word in _COMBINED)


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
        """True if properties keep their descriptions."""
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
