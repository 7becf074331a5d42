"""Search for tools by words, and the tool `code.search`: for the writer of a program where there are many tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.engine.code.caller import ProgramOrigin, callable_names
from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Tool

__all__ = ["CodeSearch", "search"]


IN_NAME, IN_DESCRIPTION, IN_ARGUMENTS, BEGINS_NAME = 9, 3, 1, 2
LONGEST_TEXT = 10_000
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_SMALL = frozenset(["a", "an", "and", "for", "from", "in", "of", "or", "the", "to", "with"])
"""Words that say nothing about a tool."""


def search(tools: Iterable[Tool], query: str, limit: int = 10) -> list[Tool]:
    """The tools that the words fit, the best first. A word counts most in a name, then in the description."""
    wanted = _words(query) - _SMALL
    exact = query.strip().casefold()
    ranked = []
    for tool in tools:
        is_it = tool.name.casefold() == exact
        score = _score(tool, wanted)
        if is_it or score:
            ranked.append((not is_it, -score, tool.name, tool))
    ranked.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in ranked[: max(limit, 0)]]


def _score(tool: Tool, wanted: set[str]) -> int:
    properties = tool.schema.get("properties")
    arguments = " ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
    name = _words(tool.name)
    places = ((name, IN_NAME), (_words(tool.description), IN_DESCRIPTION), (_words(arguments), IN_ARGUMENTS))
    found = sum(worth for words, worth in places for word in wanted if word in words)
    begun = [word for word in wanted - name if len(word) >= 3 and any(part.startswith(word) for part in name)]
    return found + BEGINS_NAME * len(begun)


def _words(text: str) -> set[str]:
    """`listRepos`, `list_repos` and `list.repo` are the same two words."""
    return {_singular(word) for word in _WORD.findall(_HUMPS.sub(" ", text[:LONGEST_TEXT]).casefold())}


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


MOST = 50

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words that describe the tool, or part of its name."},
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
        from windlass.engine.code.typings import declarations  # only agents and programs search

        return declarations(found) if found else ""


def _there(call: Call) -> list[Tool]:
    """The tools of the caller."""
    if isinstance(call.origin, ProgramOrigin):
        caller = call.origin.caller
        return [tool for name in call.origin.names() if (tool := caller.tool(name)) is not None]
    if call.contact is None:
        raise ToolError("a search runs only inside an execution", category=Category.LOGIC)
    box = call.contact.tools
    return [tool for name in callable_names(box.names()) if (tool := box.get(name)) is not None]
