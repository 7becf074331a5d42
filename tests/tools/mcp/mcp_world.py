"""MCP servers around a test: started for real, used as the engine uses them, and gone when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forks import shared_zygote
from waiting import PATIENCE

import windlass
from windlass import Plan, Step
from windlass.clock import SystemClock
from windlass.ports import Call, Tool
from windlass.process import Supervisor
from windlass.settings import McpServerSettings
from windlass.tools.mcp import McpServer, McpTools

__all__ = ["SERVERS", "World", "forked_python", "installed", "odd", "raw", "run", "started", "world"]

HERE = Path(__file__).parent
SERVERS = HERE.parents[2] / ".venv" / "mcp-servers"
"""What `make dev` installs of other people's servers."""


def installed(*parts: str) -> str:
    """The path of a server that somebody else wrote."""
    path = SERVERS.joinpath(*parts)
    assert path.exists(), f"{path} is missing: make dev"
    return str(path)


def raw(behaviour: str, *, timeout: float = PATIENCE, name: str = "") -> McpServer:
    args = (str(HERE / "raw_server.py"), behaviour)
    return McpServer(name or behaviour, McpServerSettings(command=sys.executable, args=args, timeout=timeout))


def odd(*, fresh: bool = False, **more: Any) -> McpServer:
    """The odd server: a fork of a process that has its packages, unless a test is about its process."""
    args = (str(HERE / "odd_server.py"),)
    told = {"timeout": PATIENCE, **more}
    command = sys.executable if fresh else str(forked_python())
    return McpServer("odd", McpServerSettings(command=command, args=args, **told))


def forked_python() -> Path:
    return shared_zygote().folder / "forked-python"


def started(folder: Path) -> list[int]:
    """The processes of servers of ours that were started there, in their order."""
    file = folder / "started"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@dataclass
class World:
    tools: McpTools
    folder: Path
    processes: Supervisor
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Tool:
        (found,) = [tool for tool in self.tools() if tool.name == name]
        return found

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools()]

    async def use(self, tool: str, *, env: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """As one attempt of a step, without the gates before it; `env` is the environment of its children."""
        call = Call(
            execution="e",
            step="s",
            attempt=1,
            workdir=self.folder,
            folder=self.folder / "home" / "executions" / "e",
            processes=self.processes,
            env=env or {},
            output=lambda stream, text: self.notes.append(text),
        )
        return await self[tool].execute(arguments, call)


@asynccontextmanager
async def world(
    folder: Path, *servers: McpServer, environ: Mapping[str, str] | None = None, discover: bool = True, **options: Any
) -> AsyncIterator[World]:
    """`environ` is what the user has besides what every process gets to see."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    async with Supervisor() as supervisor:
        mine = {**env, **(environ or {})}
        tools = McpTools(servers, supervisor, env, SystemClock(), folder=folder, environ=mine, **options)
        try:
            if discover:
                await tools.discover(PATIENCE)
            yield World(tools, folder, supervisor)
        finally:
            await tools.close()


async def run(tool: Tool, arguments: dict[str, Any] | None = None, **step: Any) -> dict[str, Any]:
    """The one step of a plan that uses the tool, in an engine, as it ended."""
    plan = Plan(steps=[Step(id="a", tool=tool.name, with_=arguments or {}, retry={"max": 0}, **step)])
    async with windlass.open(tools=[tool], grace=0.2) as engine:
        return (await (await engine.start(plan)).result())["steps"][0]
