"""Detect that an execution can only go on after a person's answer or a quota's return, and pause it. Pure.

`standing_still` gives the reason, `pause_event` the event that a driver writes if no person can answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus

__all__ = ["pause_event", "standing_still"]

_DEFAULT = Policy()


def pause_event(state: State, now: float, policy: Policy, *, hold: bool) -> ev.Event | None:
    """The event that pauses the execution; None if something can go on, or somebody is there to answer (`hold`)."""
    still = standing_still(state, policy)
    if still is None or (hold and still != "quota") or state.wanted is not None:
        return None
    if state.active:  # agents in the middle of a question: they are stopped first, and ask it again when they go on
        return ev.ControlRequested(now, "pause", "windlass", now=True, reason=still)
    return policy.paused(now, still)


def standing_still(state: State, policy: Policy = _DEFAULT) -> str | None:
    """`approval`, `decision`, `budget` or `quota` when nothing can go on before a person answers, else None."""
    if state.status is not ExecutionStatus.RUNNING or state.to_judge or state.in_doubt or state.to_skip:
        return None
    if state.ready and state.can_start():
        return None
    if any(not step.asks_in_attempt for step in state.active.values()):
        return None
    waiting = (step for step in _timed(state) if step.status is StepStatus.WAITING and not step.asks)
    timed = {step.waiting_for for step in waiting if not state.waits_again(step)}
    # The reservation of an agent that waits for a person comes free only after the answer.
    stuck = {"quota", "budget"} if state.active else {"quota"}
    if timed - stuck or ("quota" in timed and policy.wait_for_quota):
        return None
    waits = {step.waiting_for for step in state.questions.values()}
    for reason, said in (("outcome", "decision"), ("budget", "budget"), ("approval", "approval")):
        if reason in waits:
            return said
    return "quota" if "quota" in timed else None


def _timed(state: State) -> Iterator[StepState]:
    return (state.steps[step_id] for _until, step_id in state.timers if step_id in state.steps)
