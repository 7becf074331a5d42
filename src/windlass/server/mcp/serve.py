"""An MCP server of the tools: over stdio for one client, or at an endpoint for many (`endpoint.py`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import MethodType
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.request_state import RequestStateSecurity
from mcp_types import CallToolResult, EmptyResult, InputRequiredResult, SetLevelRequestParams, ToolAnnotations
from pydantic import ValidationError

from windlass.engine.engine import Engine
from windlass.errors import UsageError
from windlass.plan.schema import nearest
from windlass.redact import Redactor
from windlass.server.answer_redactor import AnswerRedactor
from windlass.server.mcp.answers import failed
from windlass.server.mcp.call import Engines, ExecutionCalls
from windlass.server.mcp.driving import Driving
from windlass.server.mcp.tools import TOLD_OF_CODE, ProgramTools, Tools
from windlass.version import __version__

__all__ = ["mcp_server"]

ANSWERED_WITHIN = 86_400.0
"""Seconds that a person at a client may take to answer; the question's own expiry holds besides."""

INSTRUCTIONS = (
    "Windlass runs tasks and plans durably: they continue when you disconnect. engine_execute gives an execution's id "
    "at once; engine_status with wait_s follows it. Questions of steps are for a person: show them the exact input, "
    "and pass on their answer with engine_approve. Tell the user of every warning in a result. For many calls of "
    "tools, write a program: code_search gives the types of the tools, code runs it, engine_tool uses a single one."
)

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def _described(function: Callable[..., Awaitable[Any]], annotations: ToolAnnotations, description: str = "") -> Tool:
    """The name, description and schemas of a tool, from its signature. It cannot be called: see `_callable`."""
    return Tool.from_function(MethodType(function, object()), description=description or None, annotations=annotations)


# Made once, for every server of the process: the library takes a fifth of a second for all of them.
EXECUTION_TOOLS = (
    _described(Tools.engine_execute, ACTS),
    _described(Tools.engine_status, READS),
    _described(Tools.engine_transcript, READS),
    _described(Tools.engine_say, ACTS),
    _described(Tools.engine_diff, READS),
    _described(Tools.engine_undo, ACTS),
    _described(Tools.engine_workspaces, ACTS),
    _described(Tools.engine_budget, READS),
    _described(Tools.engine_history, READS),
    _described(Tools.engine_estimate, READS),
    _described(Tools.engine_context, ACTS),
    _described(Tools.engine_interrupt, STOPS),
    _described(Tools.engine_resume, ACTS),
)
APPROVAL_TOOLS = (_described(Tools.engine_approve, ACTS),)
PROGRAM_TOOLS = (
    _described(ProgramTools.code, ACTS, TOLD_OF_CODE),
    _described(ProgramTools.code_search, READS),
    _described(ProgramTools.engine_tool, ACTS),
)


def mcp_server(
    engines: Engines,
    driving: Driving,
    *,
    approvals: bool = True,
    stopping: asyncio.Event | None = None,
    redactor: Redactor | None = None,
) -> MCPServer[Any]:
    """The server. Without `approvals`, clients are not given `engine_approve`: people answer elsewhere.

    Once `stopping` is set, calls that wait get what there is. A `redactor` hides secrets in the answers; if
    unset, those of the environment and of the engine's settings are hidden.
    """
    answers = AnswerRedactor(redactor)

    async def known(make: bool) -> Engine:
        engine = await engines(make)
        answers.know(engine.settings)
        return engine

    calls = ExecutionCalls(known, driving, answers, stopping)
    described = EXECUTION_TOOLS + APPROVAL_TOOLS if approvals else EXECUTION_TOOLS
    return _made([*_callable(described, Tools(calls)), *_callable(PROGRAM_TOOLS, ProgramTools(calls))], answers)


def _callable(described: Iterable[Tool], of: Tools | ProgramTools) -> Iterator[Tool]:
    """The tools with the functions of one server."""
    for tool in described:
        yield tool.model_copy(update={"fn": getattr(of, tool.name)})


class _CheckedServer(MCPServer[Any]):
    """Refuses arguments that a tool does not have, and values that do not fit, in words of ours."""

    redactor: AnswerRedactor

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        tool = self._tool_manager.get_tool(name)
        known = tool.parameters["properties"] if tool is not None else arguments
        if strange := [given for given in arguments if given not in known]:
            near = nearest(strange[0], known)
            hint = f"; did you mean {near!r}?" if near else ""
            return _refused(f"{name} has no argument {strange[0]!r}{hint}", known, self.redactor)
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.__cause__.errors()]
            return _refused("; ".join(f"{where}: {message}" for where, message in found[:5]), known, self.redactor)


def _refused(message: str, known: Iterable[str], redactor: AnswerRedactor) -> CallToolResult:
    return failed(UsageError(message, advice=(f"its arguments: {', '.join(known)}",)).failure, [], redactor)


def _made(tools: list[Tool], redactor: AnswerRedactor) -> MCPServer[Any]:
    """The library sets up the logging of the whole process when a server is made; that is for the program to do."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    server = _CheckedServer(
        "windlass",
        title="Windlass",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=tools,
        request_state_security=RequestStateSecurity.ephemeral(ttl=ANSWERED_WITHIN),
        log_level="WARNING",
    )
    server.redactor = redactor
    root.handlers[:] = handlers
    root.setLevel(level)
    # Servers that send log messages must say so, and let a client of the older protocol choose their level. The library
    # wants this added to its inner server, and gives no other way to that.
    server._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)
    return server


async def _set_level(ctx: Any, params: SetLevelRequestParams) -> EmptyResult:
    """Accept the level and ignore it: only warnings are ever sent."""
    return EmptyResult()
