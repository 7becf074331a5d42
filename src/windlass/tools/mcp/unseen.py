"""A tool of an MCP server that nobody has asked yet: known by its name alone, until it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from windlass.errors import ApprovalOutdated, Category, Failure, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Terms, Tool

__all__ = ["Unseen"]


class Unseen(Tool):
    """Starts its server on its first use, and is then what that says it is."""

    description = "A tool of an MCP server that was not asked yet."
    schema: dict[str, Any] = {"type": "object"}
    terms = Terms(sensitive=True)  # nobody knows what it does

    def __init__(
        self,
        name: str,
        ensure: Callable[[Iterable[str]], Awaitable[None]],
        find: Callable[[str], Tool | None],
        failure: Callable[[str], Failure | None],
    ) -> None:
        """`failure` is why the server of that name did not tell its tools when it was last asked, if it did not."""
        self.name = name
        self._server = name.split(".")[1]
        self._ensure, self._find, self._failure = ensure, find, failure

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.ONCE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    def circuit(self, arguments: Mapping[str, Any]) -> str:
        return f"mcp.{self._server}"

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        await self._ensure([self.name])
        tool = self._find(self.name)
        if tool is None or isinstance(tool, Unseen):
            # What keeps a server from starting may pass: its own category decides about retries and the breaker.
            raise ToolError.of(self._failure(self._server) or self._missing())
        if call.approved is not None:
            raise ApprovalOutdated([f"its server has said what the tool {self.name} is, which was not known before"])
        if wrong := tool.validate(arguments):
            raise ToolError(f"{self.name}: {'; '.join(wrong)}", category=Category.CONFIGURATION)
        return await tool.execute(arguments, call)

    def _missing(self) -> Failure:
        return Failure(
            Category.CONFIGURATION,
            f"MCP server {self._server} has no tool {self.name}",
            advice=(f"windlass tools lists what it has: mcp.{self._server}.*",),
        )
