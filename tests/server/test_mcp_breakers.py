"""Breakers under MCP (C4): who asks for an execution that is not finished is told which are not closed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mcp_clients import hosted, shown

from windlass import Plan, Step
from windlass.core.breaker import LONGEST_REST, Breaker

if TYPE_CHECKING:
    from conftest import Project

SECRET = "ghp_" + "a1b2c3d4e5f6" * 3


async def test_c4_an_open_breaker_is_a_warning_while_the_execution_goes_on(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        book = server.engine.attempt_runner.gates.book
        book.keep_breaker("search", Breaker(5, 1, time.time() + LONGEST_REST, because=f"no answer to {SECRET}"))
        running = await server.engine.start(Plan(steps=[Step(id="a", run="true", approve="always")]))
        (warning,) = shown(await mcp.call_tool("engine_status", {"execution": running.id}))["warnings"]
        assert warning.startswith("a breaker is not closed: search: open, next probe at ")
        assert warning.endswith("the last failure: no answer to [github token]")
        await server.engine.cancel(running.id)
        assert shown(await mcp.call_tool("engine_status", {"execution": running.id}))["warnings"] == []
