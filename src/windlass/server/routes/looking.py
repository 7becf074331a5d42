"""What the home holds besides executions: money, tools, roles, figures. Reads only."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as PathOf
from starlette.responses import Response

from windlass.agents.catalogue import Catalogue
from windlass.agents.listing import catalogue_data
from windlass.assembly.tool_catalog import every_tool, tool_data, whole_data
from windlass.engine.gates.view import manner
from windlass.engine.single import tool_named
from windlass.engine.spending import By, as_json, limits_of, look_up, row_json
from windlass.errors import UsageError
from windlass.server.mcp.clean import clean
from windlass.server.routes.shared import answer, problems
from windlass.server.service import Service

__all__ = ["looking_routes"]


def looking_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["looking"])
    engine = service.engine

    @router.get("/budget", responses=problems())
    async def budget(by: By = By.DAY) -> Response:
        """What may be spent, what was, and what is left, today and this month."""
        limits = limits_of(engine.settings.budget)
        return answer(as_json(await look_up(engine.ledger, engine.clock.now(), limits, by)))

    @router.get("/tools", responses=problems())
    async def tools() -> Response:
        """The tools that steps can use: kinds, what they take and return, terms, breakers, uses of composed ones."""
        gates = engine.performer.gates

        def told() -> list[dict[str, Any]]:
            return [tool_data(engine, tool) | manner(gates, tool) for tool in every_tool(engine)]

        return answer(await asyncio.to_thread(lambda: clean(told())))

    @router.get("/tools/{name}", responses=problems(404))
    async def tool(name: Annotated[str, PathOf(max_length=200, description="A tool's name.")]) -> Response:
        """One tool, with its TypeScript declaration for programs; of a composed one also its source."""

        def told() -> dict[str, Any]:
            found = tool_named(engine, name)
            return whole_data(engine, found) | manner(engine.performer.gates, found)

        return answer(await asyncio.to_thread(lambda: clean(told())))

    @router.get("/agents", responses=problems())
    async def agents(
        workdir: Annotated[str | None, Query(max_length=4096, description="Look from here.")] = None,
    ) -> Response:
        """The roles and skills that agents can be given, where they come from, and what is wrong with them."""
        folder = Path(workdir or os.getcwd())
        if "\0" in str(folder) or not folder.is_dir():
            raise UsageError(f"{str(folder)!r} is not a folder")
        return answer(await asyncio.to_thread(lambda: catalogue_data(Catalogue(folder))))

    @router.get("/stats", responses=problems())
    async def stats() -> Response:
        """How many executions there are of each status, and what was spent, by day, model and runtime."""
        headings = ("day", "model", "runtime")
        found = await asyncio.gather(*(engine.ledger.spent(by) for by in headings))
        spent = {
            by: [{by: row.heading, **row_json(row)} for row in rows] for by, rows in zip(headings, found, strict=True)
        }
        return answer({"executions": await engine.counts(), "spent": spent})

    return router
