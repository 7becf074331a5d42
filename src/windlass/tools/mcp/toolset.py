"""All tools of all MCP servers that the user has named: made by the assembly, asked by the registry.

A server that was asked before need not be started to know its tools: its answer is on the shelf. A server is started
when one of its tools is used (`line`), or when nobody knows its tools yet (`discover`, `ensure`).

The shelf is one JSON file, each server's tools by the digest of its definition: after a change of it the server is
asked again. Its content passes the same checks as a server's answer. A file that is spoilt is as good as none.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from windlass.clock import Clock
from windlass.errors import Category, Failure, ToolError
from windlass.ports import Health, Tool
from windlass.process import Process, Supervisor
from windlass.process.pipes import PIPE
from windlass.tools.mcp.connection import MOST_TOOLS, Transport
from windlass.tools.mcp.described import Described, describe, distinct
from windlass.tools.mcp.line import McpLine
from windlass.tools.mcp.servers import McpServer, Unreadable, read_json
from windlass.tools.mcp.tool import McpTool, UnlistedTool
from windlass.tools.mcp.wire import HttpClients, OverHttp, Wire

__all__ = ["McpTools", "ToolListCache"]

AT_ONCE = 4
"""Servers that are started at the same time."""
IDLE = 300.0
"""Seconds that a server is kept running unused."""
MOST_PROBLEMS = 20
"""Problems reported of one server."""


class McpTools:
    def __init__(
        self,
        servers: Iterable[McpServer],
        supervisor: Supervisor,
        env: Mapping[str, str],
        clock: Clock,
        *,
        folder: Path,
        environ: Mapping[str, str] | None = None,
        cache: Path | None = None,
        problems: Sequence[str] = (),
        http: HttpClients | None = None,
        idle: float = IDLE,
    ) -> None:
        """`env` is what every child may see, `environ` the user's own, from which each server gets what it is allowed
        besides; servers run in `folder`. `cache` is the file of the shelf, `problems` what was wrong with where the
        servers are named, `http` makes the clients for servers at an address.
        """
        self._servers = {server.name: server for server in servers}
        self._supervisor, self._env, self._folder, self._http = supervisor, dict(env), folder, http
        self._environ = env if environ is None else environ
        self._idle = idle
        self._shelf = ToolListCache(cache, clock)
        self._found = list(problems)
        self._problems: dict[str, list[str]] = {}
        self._failures: dict[str, Failure] = {}
        """Failures of servers to list their tools when last asked."""
        self._lines: dict[str, McpLine] = {}
        self._tools: dict[str, list[McpTool]] = {}
        self._all: tuple[Tool, ...] = ()
        for server in self._servers.values():
            if (kept := self._shelf.tools(server.digest)) is not None:
                self._set(server, kept)

    def __call__(self) -> Sequence[Tool]:
        """The tools that are known so far."""
        return self._all

    def find(self, name: str) -> Tool | None:
        """The tool of that name: a known one, or one that a server may have which nobody has asked yet."""
        known = next((tool for tool in self._all if tool.name == name), None)
        kind, _, rest = name.partition(".")
        server = rest.partition(".")[0]
        if known is not None or kind != "mcp" or server not in self._servers or server in self._tools:
            return known
        return UnlistedTool(name, self.ensure, self.find, self._failures.get)

    def servers(self) -> list[McpServer]:
        return list(self._servers.values())

    def problems(self) -> list[str]:
        return [*self._found, *(problem for each in self._problems.values() for problem in each)]

    def running(self) -> list[str]:
        """Servers that are connected to."""
        return sorted(name for name, line in self._lines.items() if line.running)

    async def discover(self, timeout: float) -> None:
        """Find out tools that are not known yet, server by server; one that does not answer in time is a problem."""
        await self._ask([name for name in self._servers if name not in self._tools], timeout)

    async def ensure(self, names: Iterable[str]) -> None:
        """Have the tools of these names, or patterns like `mcp.github.*`, if their servers have them.

        Each server has the time that its settings give it to start."""
        known = {tool.name for tool in self._all}
        wanted = {name.split(".")[1] for name in names if name.startswith("mcp.") and name not in known}
        await self._ask([name for name in self._servers if name in wanted], None)

    async def check(self) -> dict[str, Health]:
        """The health of each server, by its name; starts those that do not run."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> Health:
            async with turn:
                try:
                    version = await self._line(name).check()
                except ToolError as error:
                    return Health(False, str(error), next(iter(error.failure.advice), ""))
            return Health(True, f"{len(self._tools.get(name, ()))} tools, MCP {version}")

        found = await asyncio.gather(*(one(name) for name in self._servers))
        return dict(zip(self._servers, found, strict=True))

    async def close(self) -> None:
        """End every server, and wait for its end."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))

    # -- finding out -----------------------------------------------------------------------------------

    async def _ask(self, names: list[str], timeout: float | None) -> None:
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with turn:
                try:
                    await self._line(name).use("listing its tools", _nothing_more)
                except ToolError as error:
                    self._miss(name, error.failure)

        asking = {asyncio.create_task(one(name)): name for name in names}
        if not asking:
            return
        try:
            _, late = await asyncio.wait(asking, timeout=timeout)
            for task in late:
                told = f"MCP server {asking[task]} did not list its tools within {timeout:g} s"
                self._miss(asking[task], Failure(Category.TRANSIENT, told))
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    def _miss(self, name: str, failure: Failure) -> None:
        self._failures[name] = failure
        self._problems[name] = [failure.message]

    def _line(self, name: str) -> McpLine:
        if name not in self._lines:
            server = self._servers[name]

            def tell(raws: list[dict[str, Any]]) -> None:
                self._learn(server, raws)

            redactor = server.redactor(self._environ)
            self._lines[name] = McpLine(server, lambda: self._way(server), redactor, tell, self._idle)
        return self._lines[name]

    def _way(self, server: McpServer) -> Transport:
        if server.told.url is not None:
            return OverHttp(server, server.all_headers(self._environ), self._http)

        async def spawn() -> Process:
            env = server.environment(self._env, self._environ)
            return await self._supervisor.spawn(server.command, cwd=str(self._folder), env=env, stdin=PIPE)

        return Wire(spawn)

    def _learn(self, server: McpServer, raws: list[dict[str, Any]]) -> None:
        """Take over the tools that the server itself lists."""
        described: dict[str, Described] = {}
        problems: list[str] = []
        if len(raws) > MOST_TOOLS:
            problems.append(f"MCP server {server.name} has more than {MOST_TOOLS:,} tools; the rest is left out")
        for raw in raws[:MOST_TOOLS]:
            tool, wrong = describe(raw)
            problems += [f"MCP server {server.name}: {one}" for one in wrong]
            if tool is not None:
                described.setdefault(tool.original, tool)
        tools = list(described.values())
        if trouble := self._shelf.keep(server.digest, tools):
            problems.append(f"MCP server {server.name}: {trouble}")
        self._problems[server.name] = problems[:MOST_PROBLEMS]
        self._failures.pop(server.name, None)
        self._set(server, tools)

    def _set(self, server: McpServer, tools: list[Described]) -> None:
        called = distinct(tool.original for tool in tools)
        line = self._line(server.name)
        line.described = {tool.original: tool for tool in tools}
        self._tools[server.name] = [McpTool(f"mcp.{server.name}.{called[tool.original]}", tool, line) for tool in tools]
        self._all = tuple(tool for name in self._servers for tool in self._tools.get(name, ()))


async def _nothing_more(client: object) -> None:
    """Do nothing: connecting lists the tools already."""


GOOD_FOR = 7 * 86400.0
"""Seconds after which a server is asked again what tools it has; every use of it asks, too."""
MOST_KEPT = 200
"""Servers that are remembered."""


class ToolListCache:
    def __init__(self, file: Path | None, clock: Clock) -> None:
        """Without a file, nothing is remembered."""
        self._file, self._clock = file, clock
        self._at_first: dict[str, Any] | None = None

    def tools(self, digest: str) -> list[Described] | None:
        """None when it is not known, or was found out too long ago."""
        if self._at_first is None:
            self._at_first = self._read()
        kept = self._at_first.get(digest)
        if not isinstance(kept, dict) or not isinstance(kept.get("tools"), list):
            return None
        seen = kept.get("seen")
        if not isinstance(seen, int | float) or not 0 <= self._clock.now() - seen < GOOD_FOR:
            return None
        return [found for raw in kept["tools"] if (found := describe(raw)[0]) is not None]

    def keep(self, digest: str, tools: list[Described]) -> str:
        """Empty, or why it could not be kept: then it is found out anew next time."""
        if self._file is None:
            return ""
        # Two processes may do this at once: then one of them finds out again what the other has found.
        kept = self._read()
        kept[digest] = {"seen": self._clock.now(), "tools": [tool.stored() for tool in tools]}
        newest = sorted(kept.items(), key=_seen, reverse=True)[:MOST_KEPT]
        try:
            _replace(self._file, json.dumps(dict(newest)))
        except OSError as error:
            return f"{self._file}: its list of tools cannot be cached: {(error.strerror or 'unknown').lower()}"
        return ""

    def _read(self) -> dict[str, Any]:
        try:
            return (read_json(self._file) or {}) if self._file is not None else {}
        except Unreadable:
            return {}


def _seen(entry: tuple[str, Any]) -> float:
    seen = entry[1].get("seen") if isinstance(entry[1], dict) else None
    return float(seen) if isinstance(seen, int | float) else 0.0


def _replace(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # readable for its owner alone
    try:
        with open(fd, "w", encoding="utf-8") as new:
            new.write(text)
        os.replace(name, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
