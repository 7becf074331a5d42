"""The tools about programs: run one, look up the tools that it can call, and use one tool by its name (G1, G2, G3).

Each starts an execution of a plan of one step, so it is durable, gated and on record like any other.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from windlass.assembly.tool_catalog import callable_tools, fitting
from windlass.engine.code.tool import WHAT_CODE_IS
from windlass.engine.code.typings import declarations
from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.engine.single import plan_of_program, plan_of_tool
from windlass.server.mcp.answers import told
from windlass.server.mcp.call import CallResult, ExecutionCalls, Wait, Workdir
from windlass.server.mcp.clean import clean

__all__ = ["TOLD_OF_CODE", "ProgramTools"]

MOST_FOUND = 50
TOLD_OF_CODE = f"""\
{WHAT_CODE_IS}
Find the tools that it can call, with their types, by code_search first. It is durable: it continues when this call or \
the client ends, and engine_status follows it. The result is the step's output, what it logged is the step's log."""
"""Clients cut descriptions off after some 2,000 characters: types would not fit."""


class ProgramTools:
    def __init__(self, calls: ExecutionCalls) -> None:
        self._calls = calls

    @told
    async def code(
        self,
        ctx: Context[Any, Any],
        source: Annotated[str, Field(description="The body of an async JavaScript function.")],
        args: Annotated[dict[str, Any] | None, Field(description="Values that the program reads as `args`.")] = None,
        grants: Annotated[
            list[str] | None,
            Field(description="The only tools that it may call; names and patterns like files.*; all if unset."),
        ] = None,
        limits: Annotated[
            dict[str, Any] | None,
            Field(description='What it may use: memory ("64MB"), cpu ("5s"), wall ("10m"), calls, output, log.'),
        ] = None,
        workdir: Workdir = None,
        wait_s: Wait = 60.0,
    ) -> CallResult:
        async def sourced(engine: Engine, folder: str | None) -> LoadedPlan:
            return LoadedPlan(plan_of_program(source, args, grants, limits))

        return await self._calls.begin(ctx, sourced, {}, workdir, wait_s)

    @told
    async def code_search(
        self,
        query: Annotated[str, Field(description="Words that describe the tool, or part of its name; empty for all.")],
        limit: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 10,
    ) -> str:
        """Find tools to call from code, composed ones included, and get their TypeScript declarations."""
        engine = await self._calls.engines(False)
        found = fitting(engine, query, limit)
        if not found:
            return "no tool matches; there are: " + ", ".join(tool.name for tool in callable_tools(engine))
        return str(clean(declarations(found)))

    @told
    async def engine_tool(
        self,
        ctx: Context[Any, Any],
        name: Annotated[str, Field(description="The tool: files.read, shell, or a composed one; see code_search.")],
        args: Annotated[dict[str, Any] | None, Field(description="Its arguments.")] = None,
        workdir: Workdir = None,
        wait_s: Wait = 60.0,
    ) -> CallResult:
        """Use one tool of the engine by its name, composed ones included, as a durable execution of one step.

        The result is the step's output.
        """

        async def sourced(engine: Engine, folder: str | None) -> LoadedPlan:
            return LoadedPlan(plan_of_tool(engine, name, args or {}))

        return await self._calls.begin(ctx, sourced, {}, workdir, wait_s)
