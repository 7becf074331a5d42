"""Our side: the scenarios, each checked to have really run, each against the bare rate of the same moment."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path

import windlass
from benchmarks.bare import bare_rate
from windlass import Engine, Plan, tool

__all__ = ["SCENARIOS", "Ratio", "chain", "increment", "layers", "measure"]

ROUNDS = 7


class Ratio(float):
    """Steps per second over bare commits per second."""


@tool
async def increment(x: int) -> int:
    return x + 1


@tool(name="increment_without_effect", effect="none")
async def increment_without_effect(x: int) -> int:
    return x + 1


@tool(name="increment_in_a_thread")
def increment_in_a_thread(x: int) -> int:
    return x + 1


@cache
def chain(length: int, name: str = "increment") -> Plan:
    """Steps in a row, each using the output of the one before."""
    steps = [
        {
            "id": f"s{i}",
            "tool": name,
            "with": {"x": f"{{{{ steps.s{i - 1}.output }}}}" if i else 0},
        }
        for i in range(length)
    ]
    return Plan.model_validate({"name": f"chain of {length}", "steps": steps})


@cache
def layers(nodes: int, width: int) -> Plan:
    """A graph in layers: every node waits for all nodes of the layer before."""
    steps = []
    for i in range(nodes):
        first = i - i % width - width
        needs = [f"s{n}" for n in range(first, first + width)] if first >= 0 else []
        steps.append({"id": f"s{i}", "tool": "increment", "needs": needs, "with": {"x": i}})
    return Plan.model_validate({"name": "layers", "limits": {"parallel": width}, "steps": steps})


async def _once(engine: Engine, plan: Plan, expected: int) -> None:
    """One execution, and proof that it ran: the last step's output."""
    state = await (await engine.start(plan)).wait()
    last = state.steps[plan.steps[-1].id].output
    if state.status != "completed" or last != expected:
        raise SystemExit(f"{plan.name}: {state.status}, last output {last}, expected {expected}")


async def sequential(engine: Engine) -> int:
    await _once(engine, chain(1000), 1000)
    return 1000


async def sequential_in_threads(engine: Engine) -> int:
    await _once(engine, chain(1000, "increment_in_a_thread"), 1000)
    return 1000


async def sequential_without_effect(engine: Engine) -> int:
    await _once(engine, chain(1000, "increment_without_effect"), 1000)
    return 1000


async def concurrent(engine: Engine) -> int:
    plan = chain(10)
    gate = asyncio.Semaphore(50)

    async def one() -> None:
        async with gate:
            await _once(engine, plan, 10)

    await asyncio.gather(*(one() for _ in range(200)))
    return 2000


async def graph(engine: Engine) -> int:
    await _once(engine, layers(1000, 50), 1000)
    return 1000


Scenario = Callable[[Engine], Awaitable[int]]
SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "sequential": (sequential, "1,000 steps in sequence"),
    "looking": (sequential_without_effect, "1,000 steps in sequence, tool without effect"),
    "concurrent": (concurrent, "200 executions × 10 steps, 50 at a time"),
    "graph": (graph, "graph of 1,000 in layers of 50"),
    "threads": (sequential_in_threads, "1,000 steps in sequence, sync tool (in a thread)"),
}


def measure(
    scenario: Scenario,
    folder: Path,
    *,
    bare: Callable[[], float] | None = None,
    rounds: int = ROUNDS,
    journal: str | None = None,
) -> tuple[Ratio, float]:
    """The median ratio of several rounds, and the steps per second of the round it came from.

    The unit is bare SQLite, and the journal the home's own file, unless they are given.
    """
    unit_now = bare or partial(bare_rate, folder / "bare")
    tools = [increment, increment_without_effect, increment_in_a_thread]

    async def run() -> list[tuple[float, float]]:
        found = []
        async with windlass.open(folder / "home", tools=tools, settings={"journal": journal}) as engine:
            await scenario(engine)  # the first round warms caches up, as a long-lived engine has them
            for _ in range(rounds):
                before = unit_now()
                began = time.perf_counter()
                steps = await scenario(engine)
                rate = steps / (time.perf_counter() - began)
                unit = (before + unit_now()) / 2
                found.append((rate / unit, rate))
        return found

    results = sorted(asyncio.run(run()))
    ratio, rate = results[len(results) // 2]
    assert ratio == statistics.median(r for r, _ in results)
    return Ratio(ratio), rate
