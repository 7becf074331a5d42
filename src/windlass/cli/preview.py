"""A plan before it runs: its graph, the time and cost to expect, and the approvals that it will or may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from windlass.cli.forecast_text import estimate_lines
from windlass.cli.forecast_text import names as named
from windlass.cli.plan_text import plan_lines
from windlass.cli.session import out, print_json
from windlass.core.forecast.value import Forecast
from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.plan.conditions import foresee, items_before
from windlass.plan.prepare import prepare

__all__ = ["dry_run", "expected", "show_plan"]


async def expected(engine: Engine, loaded: LoadedPlan, inputs: Mapping[str, Any] | None = None) -> Forecast:
    """The time and cost of a plan, with the tools that it brings along."""
    return await engine.estimate(loaded.plan, engine.attempt_runner.tools.extended(loaded.tools), inputs)


class QuestionsAhead(NamedTuple):
    """The steps of a plan that ask a person. Those that the inputs skip ask nothing."""

    sure: list[str]
    possible: list[str]
    """Results of other steps decide whether these run."""


def questions_of(engine: Engine, loaded: LoadedPlan, inputs: Mapping[str, Any]) -> QuestionsAhead:
    found = QuestionsAhead([], [])
    if engine.agents is None:
        return found
    prepared, bound = prepare(loaded.plan), {**loaded.plan.inputs, **inputs}
    foreseen = foresee(prepared, bound)
    for name, step in prepared.steps.items():
        idle = step.spec.foreach is not None and items_before(prepared, step.spec, bound) == 0
        if not idle and name not in foreseen.skipped and engine.agents.policy.asks(step):
            (found.possible if name in foreseen.undecided else found.sure).append(name)
    return found


def show_plan(
    engine: Engine, loaded: LoadedPlan, found: Forecast, write: Callable[[str], None], inputs: Mapping[str, Any]
) -> None:
    write(f"the plan: {loaded.plan.name}")
    for line in plan_lines(loaded.plan):
        write(f"  {line}")
    if found.left is None:
        write(f"time: unknown, because these steps have not run here yet ({named(found.unknown)})")
    for line in estimate_lines(found):
        write(line)
    asked = questions_of(engine, loaded, inputs)
    if asked.sure:
        write(f"will ask before: {', '.join(asked.sure)}")
    if asked.possible:
        write(f"may ask before, if results of other steps let them run: {', '.join(asked.possible)}")


async def dry_run(engine: Engine, loaded: LoadedPlan, inputs: Mapping[str, Any], *, as_json: bool) -> int:
    """Print what would run; the plan, its inputs and its prerequisites have been checked."""
    await engine.check_programs(loaded)
    found = await expected(engine, loaded, inputs)
    if as_json:
        steps = [step.id for step in loaded.plan.steps]
        asked = questions_of(engine, loaded, inputs)
        told = {"asks": [*asked.sure, *asked.possible], "may_ask": asked.possible, "estimate": found.as_estimate()}
        print_json({"name": loaded.plan.name, "steps": steps, **told})
    else:
        show_plan(engine, loaded, found, out, inputs)
        out("nothing ran: this was a dry run")
    return 0
