"""A fork: a new execution of an earlier one's plan that keeps what was completed before some step (D8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.transitions import StepStatus
from windlass.plan.model import Plan
from windlass.plan.prepare import prepare

__all__ = ["fork_events"]


def fork_events(
    origin: State,
    *,
    new_id: str,
    now: float,
    plan: Plan,
    source: ev.Source,
    inputs: Mapping[str, Any],
    workdir: str,
    from_step: str | None,
) -> list[ev.Event]:
    """The journal that the fork begins with.

    Without `from_step`, everything completed is kept and the rest runs again. With it, that step and all that
    waits for it run again, and the rest of what completed is kept.
    """
    graph = prepare(plan).graph
    again: set[str] = set()
    if from_step is not None:
        again = {from_step, *graph.descendants(from_step)}
    events: list[ev.Event] = [
        ev.ExecutionCreated(
            now,
            id=new_id,
            plan=msgspec.Raw(plan.encoded),
            inputs=dict(inputs),
            workdir=workdir,
            source=source,
            origin=ev.Origin("fork", origin.id, from_step),
        )
    ]
    kept: set[str] = set()
    for step_id in graph.order():
        before = origin.steps.get(step_id)
        done = before is not None and before.status is StepStatus.COMPLETED and not before.undone
        # Something that is to run again must not have a kept result built upon it.
        built_on = all(need in kept for need in graph.needs[step_id])
        if before is not None and done and step_id not in again and built_on:
            kept.add(step_id)
            events.append(ev.StepCompleted(now, step_id, before.output))
    return events
