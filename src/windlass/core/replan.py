"""The plan of a standing execution is exchanged for another one (D5). Called by `State.apply` only."""

from __future__ import annotations

import heapq

from windlass.core import events as ev
from windlass.core.state_data import StateData
from windlass.core.step import StepState
from windlass.core.transitions import StepStatus
from windlass.plan.model import Plan
from windlass.plan.prepare import prepare

__all__ = ["replan"]


def replan(state: StateData, event: ev.ExecutionReplanned) -> None:
    """Take the new plan. Completed and running steps keep their state; failed ones may try again."""
    old = state.steps
    agents = {id(step.agent): step.agent for step in old.values() if step.agent is not None}
    state.prepared = prepare(Plan.decode(bytes(event.plan)))
    state.source, state.scope = event.source, {}
    state.inputs = {name: state.inputs.get(name, default) for name, default in state.plan.inputs.items()}
    state.steps, state.ready, state.active = {}, {}, {}
    state.to_judge, state.in_doubt, state.questions, state.timers = {}, {}, {}, []
    state.completed, state.broken_by = 0, None
    state.unmet = [0] * len(state.prepared.graph.groups)
    for spec in state.plan.steps:
        kept = old.get(spec.id)
        if kept is None or kept.status in (StepStatus.PENDING, StepStatus.FAILED, StepStatus.SKIPPED):
            fresh = StepState(spec.id, state.prepared.steps[spec.id])
            state.steps[spec.id] = fresh if kept is None else _begun_anew(fresh, kept)
            continue
        for step in (kept, *(kept.children or ())):
            if step.waiting_for == "approval" and step.asks and step.spec != spec:
                # The plan changed the step: the question is withdrawn, and put anew.
                state.move(step, StepStatus.PENDING)
                step.waiting_for = step.until = step.approval = None
            step.prepared = state.prepared.steps[spec.id]
            state.steps[step.id] = step
    for step in list(state.steps.values()):
        _index_again(state, step)
    for step in state.steps.values():
        agents.pop(id(step.agent), None)
    # The spending of steps that begin anew, or were removed, still counts.
    state.spent_before = sum((agent.cost for agent in agents.values()), state.spent_before)
    state.unsettled = sum(not step.settled for step in state.top_level())


def _begun_anew(fresh: StepState, before: StepState) -> StepState:
    """Give a step that begins anew what a person said of it, its number of attempts, and the doubt about the last."""
    fresh.attempts, fresh.doubtful, fresh.effect = before.attempts, before.doubtful, before.effect
    fresh.skip_by, fresh.edits = before.skip_by, before.edits
    fresh.runtime, fresh.model = before.runtime, before.model
    return fresh


def _index_again(state: StateData, step: StepState) -> None:
    """Put a step that came over from the old plan where it belongs."""
    if step.parent is None:
        state.count_unmet(step)
        state.completed += step.status is StepStatus.COMPLETED
        began = step.status in (StepStatus.PAUSED, StepStatus.WAITING) and step.waiting_for != "outcome"
        if began and not state.may_start(step):
            # The new plan wants something else done first: it has not begun, but keeps its counts.
            fresh = StepState(step.id, step.prepared, failures=step.failures)
            step = state.steps[step.id] = _begun_anew(fresh, step)
    if step.status is StepStatus.RUNNING:
        if step.children is None:
            state.active[step.id] = step
        elif step.open_children == 0:
            state.ready[step.id] = step
    elif step.until is not None or step.asks:
        if step.until is not None:
            heapq.heappush(state.timers, (step.until, step.id))
        if step.asks:
            state.questions[step.id] = step
    elif not step.settled and (step.parent is not None or state.may_start(step)):
        index = state.in_doubt if step.doubtful and not step.skip_by else state.ready
        index[step.id] = step
