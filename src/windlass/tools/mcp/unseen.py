"""A tool of an MCP server that nobody has asked yet: known by its name alone, until it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Terms, Tool

__all__ = ["Unseen"]


class Unseen:
    """Starts its server on its first use, and is then what that says it is."""

    description = "A tool of an MCP server that was not asked yet."
    schema: dict[str, Any] = {"type": "object"}
    terms = Terms(sensitive=True)  # nobody knows what it does

    def __init__(
        self,
        name: str,
        ensure: Callable[[Iterable[str]], Awaitable[None]],
        find: Callable[[str], Tool | None],
        problems: Callable[[], list[str]],
    ) -> None:
        self.name = name
        self._ensure, self._find, self._problems = ensure, find, problems

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.ONCE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    def circuit(self, arguments: Mapping[str, Any]) -> str:
        return ".".join(self.name.split(".")[:2])

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        await self._ensure([self.name])
        tool = self._find(self.name)
        if tool is None or isinstance(tool, Unseen):
            why = "; ".join(self._problems())
            raise ToolError(
                f"there is no tool {self.name}{f' ({why})' if why else ''}",
                category=Category.CONFIGURATION,
                advice=("windlass tools check starts the MCP servers and lists what they have",),
            )
        if wrong := tool.validate(arguments):
            raise ToolError(f"{self.name}: {'; '.join(wrong)}", category=Category.CONFIGURATION)
        return await tool.execute(arguments, call)
