"""What a model is told of the tools that it can call from code: TypeScript declarations of `tools`.

Names, descriptions and schemas may come from anybody. So nothing of them is copied as it is: descriptions cannot end
their comment, names and values are quoted, and a schema that is too deep, too large or malformed becomes `any`. What a
declaration leaves out is checked all the same when the tool is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.engine.code.types import Typing, key
from windlass.ports import Tool

__all__ = ["declarations"]

MOST_CHARACTERS = 4_000
"""Of one tool's declaration."""
MOST_DESCRIPTION = 1_500
_DETAIL = ((8, True), (4, True), (4, False), (2, False), (1, False), (0, False))
"""How deep, and whether properties keep their descriptions: less and less, until it is short enough."""
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
