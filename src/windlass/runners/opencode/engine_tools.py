"""The engine's tools of one turn, as an MCP server that OpenCode is connected to before the prompt, until its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from windlass.runners.opencode import failures
from windlass.runners.opencode.server import OpenCodeServer, Stopped, answered
from windlass.runners.tool_listener import ToolAccess, ToolListener
from windlass.runners.tool_server import SERVER, ToolServer

__all__ = ["EngineTools", "connection"]

LONGEST_USE = 2**31 - 1
"""Milliseconds that a use of the engine's tools may take: the longest that its timers can count, 24 days."""


def connection(access: ToolAccess) -> dict[str, Any]:
    """The settings by which OpenCode reaches the engine's tools."""
    headers = {"Authorization": f"Bearer {access.token}"}
    return {"type": "remote", "url": access.url, "headers": headers, "oauth": False, "timeout": LONGEST_USE}


class EngineTools:
    """The tools of one turn on a server that other turns share.

    OpenCode has MCP servers for all sessions of a folder. So each turn has one with a name of its own, and the rules of
    its session allow that one alone: `windlass`, and `windlass2` for a second attempt at the same time.
    """

    def __init__(self, server: OpenCodeServer, tools: ToolServer, listener: ToolListener) -> None:
        self._server, self._tools, self._listener = server, tools, listener
        self._name = self._directory = ""
        self._access: ToolAccess | None = None

    @property
    def adjustments(self) -> list[str]:
        return self._tools.adjustments

    def engine_name(self, tool: str) -> str:
        return self._tools.name(tool, f"{self._name}_")

    def choose_name(self, directory: str) -> str:
        """Take a name that no other turn in this folder has."""
        taken = {name for folder, name in self._server.offered if folder == directory}
        names = (f"{SERVER}{number}" if number > 1 else SERVER for number in count(1))
        self._directory, self._name = directory, next(name for name in names if name not in taken)
        self._server.offered.add((directory, self._name))
        return self._name

    async def connect(self) -> None:
        """Tell OpenCode of the tools. Its answer comes when it has listed them."""
        self._access = await self._listener.open(self._tools)
        body = {"name": self._name, "config": connection(self._access)}
        answer = await self._server.call("POST", "/mcp", directory=self._directory, body=body)
        found = answered(answer).get(self._name)
        status = found if isinstance(found, Mapping) else {}
        if status.get("status") != "connected":
            why = status.get("error") or status.get("status") or "no reason given"
            raise Stopped(failures.cut_off(f"it could not reach the engine's tools: {why}"))

    async def close(self, *, answered: bool) -> None:
        """End what is under way, and the attempt's token with it. `answered`: the model has answered."""
        import httpx2

        if self._access is not None:
            self._listener.shut(self._access)
            self._access = None
            await self._tools.close(answered=answered)
            with suppress(httpx2.HTTPError):  # without its token it can do nothing with them in any case
                await self._server.call("POST", f"/mcp/{self._name}/disconnect", directory=self._directory)
        self._server.offered.discard((self._directory, self._name))
