"""Forecasts: their truth in synthetic worlds, the cost of one, and their part of the engine's computing.

The worlds are those of the tests (`tests/forecast_worlds.py`), more of them and longer.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

__all__ = ["ForecastQuality", "forecast_cost", "forecast_quality", "forecast_share"]

WORLDS, RUNS = 2, 60
STEPS, EARLIER = 1000, 3


class ForecastQuality(NamedTuple):
    """Forecasts at one mark of the way."""

    done: float
    inside: float
    error: float
    error_of_mean: float
    error_of_percent: float


def forecast_quality() -> list[ForecastQuality]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from forecast_worlds import LAWS, MARKS, replay

    rows = [row for law in LAWS for seed in range(1, WORLDS + 1) for row in replay(law, seed, RUNS)]
    found = []
    for mark in MARKS:
        here = [row for row in rows if row.mark == mark]
        inside = sum(row.forecast.low <= row.truth <= row.forecast.high for row in here) / len(here)
        errors = [
            statistics.median(abs(made - row.truth) / row.truth for made, row in zip(forecasts, here, strict=True))
            for forecasts in zip(*((row.forecast.middle, row.by_mean, row.by_percent) for row in here), strict=True)
        ]
        found.append(ForecastQuality(mark, inside, *errors))
    return found


def forecast_cost() -> tuple[float, float]:
    """CPU seconds of one forecast of a graph of 1,000 steps, and of learning its history: medians."""
    import msgspec

    from windlass.core import events as ev
    from windlass.core.forecast.knowledge import learn
    from windlass.core.forecast.outlook import Outlook, Surroundings
    from windlass.core.history import record_of
    from windlass.core.state import State, fold
    from windlass.plan.model import Plan

    chance = Random(1)
    steps: list[dict[str, Any]] = [
        {
            "id": f"s{n}",
            "run": "x",
            "needs": [f"s{m}" for m in {chance.randrange(max(0, n - 20), n) for _ in "ab"} if n],
        }
        if n
        else {"id": "s0", "run": "x"}
        for n in range(STEPS)
    ]
    plan = Plan.model_validate({"name": "graph", "steps": steps, "limits": {"parallel": 8}})

    def begun(number: int) -> State:
        created = ev.ExecutionCreated(0.0, f"r{number}", msgspec.Raw(plan.encoded), {}, "/")
        return fold([created, ev.ExecutionStarted(0.0, "d")], plan)

    records = []
    for number in range(EARLIER):
        state = begun(number)
        for step in plan.steps:
            took = chance.lognormvariate(1.0, 0.5)
            state.apply(ev.AttemptStarted(0.0, step.id, 1, "shell", {}, "none"))
            state.apply(ev.AttemptFinished(took, step.id, 1))
        state.apply(ev.ExecutionFinished(900.0, "completed"))
        records.append(record_of(state))
    learning, making = [], []
    for _ in range(5):
        began = time.thread_time()
        known = learn(plan.name, plan.digest, records)
        learning.append(time.thread_time() - began)
        state = begun(99)
        began = time.thread_time()
        Outlook(state, 0.0, known, Surroundings()).forecast()
        making.append(time.thread_time() - began)
    return statistics.median(making), statistics.median(learning)


async def forecast_share(folder: Path) -> float:
    """The part of the computing of a busy engine that is forecasting: 20 executions at once, for some seconds."""
    import windlass
    from windlass import Plan, Step, tool

    @tool
    async def work() -> int:
        """Do nothing much."""
        return 1

    steps = [Step(id=f"s{n}", tool="work", needs=[f"s{n - 1}"] if n % 10 else []) for n in range(8000)]
    plan = Plan(name="busy", steps=steps)
    folder.mkdir(parents=True, exist_ok=True)
    async with windlass.open(home=folder / "home", tools=[work]) as engine:
        await (await engine.start(plan, workdir=folder)).result()
        began = time.process_time()

        async def one_after_the_other() -> None:
            while time.process_time() - began < 15.0:
                await (await engine.start(plan, workdir=folder)).result()

        await asyncio.gather(*(one_after_the_other() for _ in range(20)))
        assert engine._forecasts.spent_s > 0, "no forecast was made: nothing was measured"
        return engine._forecasts.spent_s / (time.process_time() - began)
