"""What a call of a program costs through the whole engine: a code step, its gates, the journal, a Python function.

The same step without calls is run in turn, and its time taken off: what is left is the calls. A tool that changes
nothing is not waited for on disk. One that is `repeatable` is: before each call its beginning is on disk, so that
figure is as much the disk's as ours; calls that are made at once share one fsync.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import windlass
from windlass import Engine, Plan, tool

__all__ = ["ThroughTheEngine", "calls_through_the_engine"]

CALLS = 100
ROUNDS = 9


@tool(effect="none")
async def looks(x: int) -> int:
    return x + 1


@tool(effect="repeatable")
async def changes(x: int) -> int:
    return x + 1


class ThroughTheEngine(NamedTuple):
    what: str
    per_call: float
    """Seconds, median."""
    whole: float
    """Seconds of the execution with its 100 calls, median."""


def calls_through_the_engine(folder: Path) -> list[ThroughTheEngine]:
    return asyncio.run(_measured(folder))


def _plan(name: str, code: str) -> Plan:
    return Plan.model_validate({"name": name, "steps": [{"id": "program", "code": code}]})


def _one_by_one(name: str) -> Plan:
    return _plan(name, f"let n = 0; for (let i = 0; i < {CALLS}; i++) n = await tools.{name}({{ x: n }}); return n")


def _at_once(name: str) -> Plan:
    calls = f"Array.from({{ length: {CALLS} }}, () => tools.{name}({{ x: 0 }}))"
    return _plan(name, f"const all = await Promise.all({calls}); return all.reduce((sum, n) => sum + n, 0)")


async def _measured(folder: Path) -> list[ThroughTheEngine]:
    plans = {
        "none, one after the other": _one_by_one("looks"),
        "none, 100 at once": _at_once("looks"),
        "repeatable (fsync), one by one": _one_by_one("changes"),
        "repeatable (fsync), 100 at once": _at_once("changes"),
    }
    alone = _plan("no calls", f"return {CALLS}")
    wholes: dict[str, list[float]] = {what: [] for what in plans}
    added: dict[str, list[float]] = {what: [] for what in plans}
    async with windlass.open(folder / "home", tools=[looks, changes]) as engine:
        for played in range(ROUNDS + 1):
            for what, plan in plans.items():
                without, whole = await _timed(engine, alone), await _timed(engine, plan)
                if played:  # the first round warms up
                    wholes[what].append(whole)
                    added[what].append((whole - without) / CALLS)
    return [ThroughTheEngine(what, statistics.median(added[what]), statistics.median(wholes[what])) for what in plans]


async def _timed(engine: Engine, plan: Plan) -> float:
    began = time.perf_counter()
    state = await (await engine.start(plan)).wait()
    took = time.perf_counter() - began
    step = state.steps["program"]
    if state.status != "completed" or step.output != CALLS:
        raise SystemExit(f"{plan.name}: {state.status}, {step.output}, {step.error}; nothing was measured")
    return took
