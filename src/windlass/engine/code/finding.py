"""The tool `code.search`: which tools there are to call from code, with their types, when there are many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.engine.code.caller import Origin, callable_names
from windlass.engine.code.search import search
from windlass.engine.code.typings import declarations
from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Tool

__all__ = ["CodeSearch"]

MOST = 50

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words of what the tool is to do, or a part of its name."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class CodeSearch(Tool):
    name = "code.search"
    description = "Find tools to call from code, and get their TypeScript declarations."
    schema = _SCHEMA
    returns: Mapping[str, Any] = {
        "type": "string",
        "description": "TypeScript declarations of what fits best, the best first.",
    }

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.NONE

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> str:
        found = search(_there(call), arguments["query"], arguments.get("limit", 10))
        return declarations(found) if found else ""


def _there(call: Call) -> list[Tool]:
    """The tools of whoever asks."""
    if isinstance(call.origin, Origin):
        caller = call.origin.caller
        return [tool for name in call.origin.names() if (tool := caller.tool(name)) is not None]
    if call.contact is None:
        raise ToolError("a search needs an execution to search for", category=Category.LOGIC)
    box = call.contact.tools
    return [tool for name in callable_names(box.names()) if (tool := box.get(name)) is not None]
