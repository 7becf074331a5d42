"""A fork: a new execution of an earlier one's plan that keeps what was completed before some step (D8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.scope import scope_of
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import StepStatus
from windlass.plan.model import Plan
from windlass.plan.prepare import prepare
from windlass.plan.template import TemplateProblem

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
    fork = fold(events, plan)
    kept: set[str] = set()
    for step_id in graph.order:
        before = origin.steps.get(step_id)
        # Something that is to run again must not have a kept result built upon it.
        built_on = all(need in kept for need in graph.needs[step_id])
        if before is None or step_id in again or not built_on:
            continue
        more: list[ev.Event] = []
        if _done(before):
            kept.add(step_id)
            more = [ev.StepCompleted(now, step_id, before.output)]
        elif before.children is not None:
            more = _kept_items(fork, fork.steps[step_id], before.children, now)
        for event in more:
            fork.apply(event)
        events += more
    return events


def _done(step: StepState) -> bool:
    return step.status is StepStatus.COMPLETED and not step.undone


def _kept_items(fork: State, step: StepState, before: Sequence[StepState], now: float) -> list[ev.Event]:
    """The items of a foreach that were completed, where the fork has the same item at the same place."""
    try:
        scope = scope_of(fork, step)
        if step.spec.foreach is None or not fork.prepared.condition(step.spec, scope):
            return []
        items = fork.prepared.items(step.spec, scope)
    except TemplateProblem:
        return []  # the step fails with it when its turn comes
    same = [old for old, item in zip(before, items, strict=False) if _done(old) and old.item == item]
    if not same:
        return []
    return [ev.StepExpanded(now, step.id, items), *(ev.StepCompleted(now, old.id, old.output) for old in same)]
