"""A plan before it runs: its graph, the time and cost to expect, and every approval that it will ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windlass.cli.forecast_text import estimate_lines
from windlass.cli.forecast_text import names as named
from windlass.cli.plan_text import plan_lines
from windlass.cli.session import out, print_json
from windlass.core.forecast.value import Forecast
from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.plan.prepare import prepare

__all__ = ["dry_run", "expected", "show_plan"]


async def expected(engine: Engine, loaded: LoadedPlan, inputs: Mapping[str, Any] | None = None) -> Forecast:
    """The time and cost of a plan, with the tools that it brings along."""
    return await engine.estimate(loaded.plan, engine.attempt_runner.tools.extended(loaded.tools), inputs)


def asking(engine: Engine, loaded: LoadedPlan) -> list[str]:
    """The steps that will ask a person."""
    policy = engine.agents.policy if engine.agents is not None else None
    return [name for name, step in prepare(loaded.plan).steps.items() if policy is not None and policy.asks(step)]


def show_plan(engine: Engine, loaded: LoadedPlan, found: Forecast, write: Callable[[str], None]) -> None:
    write(f"the plan: {loaded.plan.name}")
    for line in plan_lines(loaded.plan):
        write(f"  {line}")
    if found.left is None:
        write(f"time: unknown, because these steps have not run here yet ({named(found.unknown)})")
    for line in estimate_lines(found):
        write(line)
    if names := asking(engine, loaded):
        write(f"will ask before: {', '.join(names)}")


async def dry_run(engine: Engine, loaded: LoadedPlan, inputs: Mapping[str, Any], *, as_json: bool) -> int:
    """Print what would run; the plan, its inputs and its prerequisites have been checked."""
    await engine.check_programs(loaded.plan)
    found = await expected(engine, loaded, inputs)
    if as_json:
        steps = [step.id for step in loaded.plan.steps]
        print_json(
            {"name": loaded.plan.name, "steps": steps, "asks": asking(engine, loaded), "estimate": found.as_estimate()}
        )
    else:
        show_plan(engine, loaded, found, out)
        out("nothing ran: this was a dry run")
    return 0
