"""Apply retries, skips and undoing of steps to a state (D10). Called by `State.apply` only.

A settled step that is retried or skipped goes back to `pending`, and with it every step that was skipped because of it,
or that waits or is paused after it; `decide` then judges them anew. Completed steps never change, also where they took
charge of the failure, and running ones go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windlass.core import events as ev
from windlass.core.state_data import StateData
from windlass.core.step import StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.plan.model import Importance

__all__ = ["REDO_EVENTS", "UNDO_EVENTS"]


_REDONE = (StepStatus.FAILED, StepStatus.SKIPPED)
_HELD = (StepStatus.WAITING, StepStatus.PAUSED)


def _reopened(state: StateData, event: ev.ExecutionReopened) -> None:
    state.become(ExecutionStatus.PAUSED, event.at)
    state.paused_for, state.expires_at = "reopened", None
    state.finished_at, state.error, state.lacks = None, None, ()
    state.worked_before = state.worked_s
    skipped = (step for step in state.top_level() if step.status is StepStatus.SKIPPED and not step.by_condition)
    _unsettle(state, [step for step in skipped if not step.skip_by], event.at)


def _retried(state: StateData, event: ev.StepRetried) -> None:
    step = state.steps[event.step]
    step.skip_by = ""
    for agent in state.agents_merged_by(step):
        agent.reopened = 0
    for one in _open_items(step) or [step]:
        one.edits = {**(one.edits or {}), **event.edits} or None
        one.runtime, one.model = event.runtime or one.runtime, event.model or one.model
        one.failures, one.skip_by = None, ""
        one.answers = {digest: answer for digest, answer in (one.answers or {}).items() if answer.allow} or None
        _forget_fallbacks(state, one)
        if one.agent is not None:
            one.agent.progressed()
            if event.fresh or event.edits:
                one.agent.works_on()
            # Somebody may have mended the work: it is checked before the agent goes on, which is no try of its own.
            one.agent.checks, one.agent.checked = -1 if one.agent.claim is not None else 0, None
            one.agent.rounds += 1
            one.agent.unheard = one.agent.unheard or bool(event.edits)
            if event.fresh:
                one.agent.forget_sessions()
    _put_back(state, step, event.at)


def _forget_fallbacks(state: StateData, step: StepState) -> None:
    """A person's retry begins with the runtime that is named, and does not wait for its quota."""
    agent = step.agent
    if agent is not None:
        agent.instead, agent.given_up, agent.gave_up_because = None, (), ""
        state.quotas.pop(agent.runtime, None)


def _skip_requested(state: StateData, event: ev.StepSkipRequested) -> None:
    step = state.steps[event.step]
    step.skip_by = event.by
    items = [item for item in step.children or () if not item.settled]
    for one in items or [step]:
        state.skip(one, event.by)
    if step.settled:
        _put_back(state, step, event.at)


def _open_items(step: StepState) -> list[StepState]:
    """The items of a foreach that have no result."""
    return [item for item in step.children or () if item.status is not StepStatus.COMPLETED]


def _put_back(state: StateData, step: StepState, at: float) -> None:
    """Let the step run again, from waiting, paused or settled."""
    if step.status is StepStatus.WAITING:
        state.requeue(step)
    elif step.status is StepStatus.PAUSED:
        state.ready.pop(step.id, None)
        _let_run(state, step)
    elif step.status not in _REDONE:
        return  # it is pending since the execution was reopened
    elif step.parent is None:
        _unsettle(state, [step], at)
    elif step.parent.settled:
        _unsettle(state, [step.parent], at, only=step)
    else:
        _reset_item(state, step.parent, step)


def _unsettle(state: StateData, steps: Iterable[StepState], at: float, only: StepState | None = None) -> None:
    """Make steps pending again, with all that was skipped because of them or that waits after them.

    Of a foreach: the items without a result.
    """
    queue = list(steps)
    seen = {step.id for step in queue}
    state.retried = True
    for step in queue:
        _reset(state, step)
        state.unsettled += 1
        for after in state.dependents(step):
            skipped = after.status is StepStatus.SKIPPED and not after.skip_by
            if skipped and after.id not in seen:
                seen.add(after.id)
                queue.append(after)
            for one in after.children or (after,):
                if one.status in _HELD and not one.doubtful and one.id not in state.active:
                    _withdraw(state, one)
    for step in queue:
        for after in (step, *state.dependents(step)):
            _count_needs(state, after)
        if step.children is None:
            continue
        step.started_at = at
        for item in [only] if only is not None and only.parent is step else _open_items(step):
            if not step.skip_by:
                _reset_item(state, step, item)
        if step.open_children == 0:
            state.ready[step.id] = step


def _reset(state: StateData, step: StepState) -> None:
    state.move(step, StepStatus.PENDING if step.children is None else StepStatus.RUNNING)
    step.started_at = step.finished_at = None
    step.error = step.skipped_because = None
    step.by_condition = step.undone = False
    if state.broken_by is step:
        critical = (s for s in state.top_level() if s.spec.importance is Importance.CRITICAL)
        state.broken_by = next((s for s in critical if s.status is StepStatus.FAILED), None)


def _withdraw(state: StateData, step: StepState) -> None:
    """Have a step or an item that is about to run wait for its prerequisites again; its question is put anew."""
    state.leave_indexes(step)
    state.move(step, StepStatus.PENDING)
    step.waiting_for = step.until = step.approval = None
    if step.parent is not None:
        state.ready[step.id] = step  # `waits_again` holds it back


def _reset_item(state: StateData, parent: StepState, item: StepState) -> None:
    _reset(state, item)
    parent.open_children += 1
    state.ready.pop(parent.id, None)
    _let_run(state, item)


def _count_needs(state: StateData, step: StepState) -> None:
    """Count the unmet prerequisites of a step anew."""
    state.count_unmet(step)
    if step.status is StepStatus.PENDING:
        if state.may_start(step):
            _let_run(state, step)
        else:
            state.ready.pop(step.id, None)


def _let_run(state: StateData, step: StepState) -> None:
    """One that may take effect only once and was cut off is put to a person first, also after the execution's end."""
    index = state.in_doubt if step.doubtful and not step.skip_by else state.ready
    index[step.id] = step


REDO_EVENTS: dict[type, Callable[[StateData, Any], None]] = {
    ev.ExecutionReopened: _reopened,
    ev.StepRetried: _retried,
    ev.StepSkipRequested: _skip_requested,
}


def _undone(state: StateData, event: ev.StepUndone) -> None:
    """The step and its items are marked; they stay completed, because nothing may run them again."""
    step = state.steps[event.step]
    for one in (step, *(step.children or ())):
        one.undone = True
        if one.agent is not None:
            one.agent.periods.clear()
            one.agent.changed = 0 if one.agent.changed is not None else None


UNDO_EVENTS: dict[type, Callable[[StateData, Any], None]] = {ev.StepUndone: _undone}
