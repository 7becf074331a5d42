"""The built-in tools, made from the settings: what steps, agents and programs of one engine work with (H2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.clock import SystemClock
from windlass.ports import Health, Tool, health_of
from windlass.process import Supervisor
from windlass.settings import Settings
from windlass.tools.browser import BrowserTools
from windlass.tools.files import file_tools
from windlass.tools.http import http_tools
from windlass.tools.mcp import McpTools, find_servers
from windlass.tools.message import message_tools
from windlass.tools.net import Guard, open_client
from windlass.tools.search import search_tools
from windlass.tools.shell import Shell

__all__ = ["Workbench", "built_in_tools"]


def built_in_tools() -> list[Tool]:
    """Those that need nothing but a working directory."""
    return [Shell(), *file_tools()]


class Workbench:
    """Every tool that is not a program, an agent, or somebody's own. Nothing is started before it is used."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        supervisor: Supervisor,
        env: Mapping[str, str],
        trusted: Callable[[Path], bool],
    ) -> None:
        """`env` is what children get to see; keys and secrets are looked up in the user's own environment by the names
        that the user's settings give."""
        clock = SystemClock()
        now, own, network = clock.now, os.environ, settings.network
        self.tools: list[Tool] = [
            Shell(),
            *file_tools(disk_floor=settings.load.disk_floor),
            *http_tools(network, now),
            *search_tools(settings.search, network, own, now),
            *message_tools(settings.messages, own, now, book=home / "messages.db"),
        ]
        self._browser = BrowserTools(settings.browser, network, supervisor, env)
        self.tools += self._browser.tools()
        guard = Guard(network)
        folder = Path.cwd()
        servers, problems = find_servers(settings.mcp, folder, env=env, environ=own, trusted=trusted)
        self.mcp = McpTools(
            servers,
            supervisor,
            env,
            clock,
            folder=folder,
            environ=own,
            cache=home / "mcp-tools.json" if home.is_dir() else None,
            problems=problems,
            http=lambda server: open_client(guard),
        )

    def more(self) -> Sequence[Tool]:
        """Tools of MCP servers, as far as they are known."""
        return self.mcp()

    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)

    def problems(self) -> list[str]:
        return self.mcp.problems()

    async def check(self) -> dict[str, Health]:
        """How everything is that can be ill, by the name of the tool or server; starts what has to be started."""
        found = {tool.name: await health_of(tool) for tool in self.tools if hasattr(tool, "health")}
        return found | {f"mcp.{name}": health for name, health in (await self.mcp.check()).items()}

    async def close(self) -> None:
        await self.mcp.close()
        await self._browser.close()
        for tool in self.tools:
            close: Any = getattr(tool, "close", None)
            if close is not None:
                await close()
