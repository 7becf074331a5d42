"""What the gates cost one use of a tool, and what an answer from the cache takes: beside the tool alone."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from windlass.engine.gates import Gates
from windlass.journal.gatebook import SqliteGateStore
from windlass.plan.model import Effect
from windlass.ports import Call, Rate, Terms, Tool
from windlass.process import Supervisor
from windlass.tools.built_in import Registry

__all__ = ["GateCost", "gate_costs"]

USES, ROUNDS = 2_000, 7


class GateCost(NamedTuple):
    what: str
    seconds: float
    """What is added to one use."""


class _Nothing(Tool):
    """A tool that does nothing, on the terms under test."""

    name, description = "nothing", ""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def effect(self, arguments: Any) -> Effect:
        return Effect.NONE

    def validate(self, arguments: Any) -> list[str]:
        return []

    async def execute(self, arguments: Any, call: Call) -> Any:
        return {"results": [{"title": "a", "url": "b"}] * 10}


def gate_costs(folder: Path) -> list[GateCost]:
    """Each way in turn, round by round; the median of what is added."""
    return asyncio.run(_measured(folder))


async def _measured(folder: Path) -> list[GateCost]:
    folder.mkdir(parents=True, exist_ok=True)
    book = SqliteGateStore(folder / "gates.db")
    gates = Gates(book, None, folder / "places")
    ways = {
        "no terms": Terms(),
        "timeout, rate and places": Terms(timeout=60.0, rate=Rate(10**9, 1.0), concurrent=4),
        "answer from the cache": Terms(cache=3600.0),
    }
    async with Supervisor() as processes:
        call = Call(execution="e", step="s", attempt=1, workdir=folder, folder=folder, processes=processes)
        costs = []
        for what, terms in ways.items():
            tool = _Nothing(terms)
            box = Registry([tool])

            async def through(tool: _Nothing = tool, box: Registry = box) -> None:
                await gates.use(tool, {"query": "rope"}, call, box)

            async def alone(tool: _Nothing = tool) -> None:
                await tool.execute({"query": "rope"}, call)

            added = [await _each(through) - await _each(alone) for _ in range(ROUNDS)]
            costs.append(GateCost(what, statistics.median(added)))
    gates.book.close()
    return costs


async def _each(use: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    for _ in range(USES):
        await use()
    return (time.perf_counter() - began) / USES
