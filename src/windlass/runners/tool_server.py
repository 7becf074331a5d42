"""The engine's tools of one attempt, as an MCP server for runtimes that bring tools of their own (K6).

`ToolServer.answer` takes one JSON-RPC message and gives its reply. The transport is the runner's: Claude Code sends the
messages over its control protocol (`claude/wire`), the others over HTTP (`tool_listener`). Each use passes the engine's
own gates through the host, as a use by the `cli` runtime does; the runtime itself asks nobody about it.

`offered` chooses the tools. A runtime reads, writes and runs commands by itself, and everything else can be called from
a program: so `code`, `code.search`, composed tools and the user's own are enough, which cost 400 tokens of prompt
instead of 11,000. Tools that a role names are offered by themselves; the setting `engine_tools = "all"` offers all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from windlass.errors import classify
from windlass.ids import new_id
from windlass.plan.model import CODE, Effect
from windlass.ports import AgentRequest, Host, ToolSpec
from windlass.runners.toolbox import DATA_RULE, BadCall, ModelCall, ModelTools, refused, result_text, use_tool
from windlass.runners.use_log import UseLog
from windlass.runtimes import CLI, Runtime
from windlass.settings import RuntimeSettings
from windlass.version import __version__

__all__ = ["SERVER", "ToolServer", "offered", "tool_server"]

SERVER = "windlass"
"""The server's name, which runtimes put before the names of its tools."""
PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Versions of MCP that are spoken; the first is offered to a client that wants another."""
BEAT = 10.0
"""Seconds between two signs that a use is still under way, which keep a client from giving it up."""
METHOD_NOT_FOUND, BAD_REQUEST = -32601, -32600

Notify = Callable[[dict[str, Any]], Awaitable[None]]


def offered(tools: Mapping[str, bool], named: Sequence[str], runtime: Runtime) -> set[str]:
    """Choose the tools that an agent is told of; True are those that come with Windlass, `named` are its role's."""
    patterns = [pattern.partition("(")[0].strip() for pattern in named]
    native = {tool for kind in runtime.tools for tool in CLI.tools.get(kind, "").split()}

    def wanted(tool: str, built_in: bool) -> bool:
        if any(fnmatchcase(tool, pattern) for pattern in patterns):
            return True
        return not built_in and not tool.startswith("mcp.") if CODE in tools else tool not in native

    return {tool for tool, built_in in tools.items() if wanted(tool, built_in)}


def tool_server(host: Host, request: AgentRequest, settings: RuntimeSettings, runtime: Runtime) -> ToolServer | None:
    """Make the server of an attempt; None if its agent has no tools of the engine."""
    if settings.engine_tools == "none":
        return None
    named = request.permissions.tools or ()
    tools = host.tools(None if settings.engine_tools == "all" else lambda tools: offered(tools, named, runtime))
    return ToolServer(host, request, tools) if tools else None


class ToolServer:
    """The tools of one attempt. Ends with it: `close` cuts off what is under way, and nothing runs afterwards."""

    def __init__(self, host: Host, request: AgentRequest, tools: Sequence[ToolSpec]) -> None:
        self._host, self._given = host, request
        self._tools = ModelTools(tools)
        self._log = UseLog(request.scratch)
        self._running: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}
        self._changing = asyncio.Lock()
        self.known = self._tools.known
        """The engine's names of the tools by those that the agent is told."""
        self.closed = False
        self.adjustments: list[str] = []
        """Uses that were refused, for the result of the attempt."""

    def request(self) -> AgentRequest:
        """The attempt's request, with the rule about the tools' results and with the uses that were cut off before."""
        given = self._given
        system = "\n\n".join(filter(None, (given.brief.system, DATA_RULE)))
        prompt = given.brief.prompt
        if cut_off := [str(one) for one in self._log.cut_off if not one.told]:
            said = "".join(f"\n- {line}" for line in cut_off)
            prompt += f"\n\nWhen the work was stopped, these uses of tools were under way:{said}"
            for line in cut_off:
                self._host.note(line)
        return replace(given, brief=replace(given.brief, system=system, prompt=prompt))

    def name(self, tool: str, prefix: str) -> str:
        """The engine's name of a tool that a runtime names with this prefix; another runtime's tool keeps its name."""
        return self.known.get(tool.removeprefix(prefix), tool) if tool.startswith(prefix) else tool

    async def close(self, *, answered: bool = True) -> None:
        """End every use that is under way. `answered`: the model has answered, and so it was told of those before."""
        self.closed = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if answered:
            with suppress(OSError):  # they are then told of once more
                await self._log.told()

    # -- the protocol ----------------------------------------------------------------------------------

    async def answer(self, message: Mapping[str, Any], notify: Notify, session: str = "") -> dict[str, Any] | None:
        """Give the reply to a message, or None for one that wants none. `session` tells clients apart."""
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        params = params if isinstance(params, Mapping) else {}
        if id is None or not isinstance(method, str):
            if method == "notifications/cancelled":
                self._cancel(session, params.get("requestId"))
            return None
        match method:
            case "initialize":
                result = _introduction(params.get("protocolVersion"))
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": [_described(tool) for tool in self._tools.specs]}
            case "tools/call":
                key = (session, json.dumps(id))
                if self.closed or key in self._running:
                    why = "the attempt of this agent has ended" if self.closed else "this call is under way already"
                    return _error(id, BAD_REQUEST, f"{why}: nothing was done")
                result = await self._call(key, params, notify)
            case _:
                return _error(id, METHOD_NOT_FOUND, f"{SERVER} has no method {method!r}")
        return {"jsonrpc": "2.0", "id": id, "result": result}

    def _cancel(self, session: str, id: Any) -> None:
        if (task := self._running.get((session, json.dumps(id)))) is not None:
            task.cancel()

    async def _call(self, key: tuple[str, str], params: Mapping[str, Any], notify: Notify) -> dict[str, Any]:
        name = str(params.get("name"))
        task = self._running[key] = asyncio.ensure_future(self._use(name, params.get("arguments")))
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        beat = asyncio.ensure_future(_beat(token, name, notify)) if token is not None else None
        try:
            await asyncio.wait({task})
        finally:  # also when the client has gone: nobody would see what comes of it
            task.cancel()
            if beat is not None:
                beat.cancel()
            await asyncio.wait({task, *([beat] if beat is not None else [])})
            del self._running[key]
        if task.cancelled():
            return _content("it was called off", failed=True)
        if (error := task.exception()) is not None:  # nobody could be asked, or the use could not be written down
            self._host.note(f"{name}: {error}")
            return _content(f"{name} failed, and nothing was done: {classify(error).message}", failed=True)
        return task.result()

    # -- a use -----------------------------------------------------------------------------------------

    async def _use(self, name: str, arguments: Any) -> dict[str, Any]:
        use = new_id()
        meant = self._tools.read(ModelCall(use, name, arguments if isinstance(arguments, dict) else None, use))
        if isinstance(meant, BadCall):
            return _content(meant.message, failed=True)
        tool, given = meant
        if self._host.effect(tool, given) is Effect.NONE:
            return await self._pass_on(tool, given, use)
        async with self._changing:  # two edits of one file in one reply are meant one after the other
            return await self._pass_on(tool, given, self._log.take_over(tool, given) or use)

    async def _pass_on(self, tool: str, arguments: dict[str, Any], use: str) -> dict[str, Any]:
        begun = False

        async def begin(effect: Effect) -> None:
            nonlocal begun
            if begun := effect is not Effect.NONE:
                await self._log.begin(use, tool, arguments, effect)

        returned = await use_tool(self._host, tool, arguments, use, begin)
        if begun:
            await self._log.end(use)
        if (adjustment := refused(tool, returned)) is not None:
            self.adjustments.append(adjustment)
        call = ModelCall(use, tool, arguments, use)
        return _content(result_text(tool, call, returned), failed=returned.failure is not None)


async def _beat(token: Any, tool: str, notify: Notify) -> None:
    beats = 0
    while True:
        await asyncio.sleep(BEAT)
        beats += 1
        told = {"progressToken": token, "progress": beats, "message": f"{tool} is under way"}
        await notify({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})


def _introduction(wanted: Any) -> dict[str, Any]:
    return {
        "protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": __version__},
    }


def _described(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.schema)}


def _content(text: str, *, failed: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _error(id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
