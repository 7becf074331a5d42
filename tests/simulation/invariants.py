"""What must hold of every journal, whatever the world did: read event by event, with the real fold beside it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.retry import allowed
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import EXECUTION_MOVES, STEP_MOVES
from windlass.errors import Category
from windlass.testing import Simulation

__all__ = ["CheckedSimulation", "check_journal", "check_performed", "picture"]


class CheckedSimulation(Simulation):
    """A simulation that compares, before every crash, what it loses with what the journal gives back."""

    crashes = 0

    def crash(self, at: Any = "now") -> None:
        if at == "now" and not self._batch and self.journal:
            self.crashes += 1
            assert picture(fold(self.journal)) == picture(self.state)
        super().crash(at)


def picture(state: State) -> dict[str, Any]:
    """Everything in a state, as plain data that can be compared."""
    plain = {
        name: value
        for name, value in vars(state).items()
        if name not in ("prepared", "steps", "timers", "broken_by") and not isinstance(value, dict)
    }
    names = ("ready", "active", "to_judge", "in_doubt", "questions", "to_skip")
    indexes = {name: list(getattr(state, name)) for name in names}
    timers = sorted({timer for timer in state.timers if state.steps[timer[1]].until == timer[0]})
    steps = {name: _step(step) for name, step in state.steps.items()}
    broken_by = state.broken_by.id if state.broken_by else None
    return {**plain, **indexes, "inputs": state.inputs, "timers": timers, "steps": steps, "broken_by": broken_by}


def _step(step: StepState) -> dict[str, Any]:
    return {name: _named(getattr(step, name)) for name in StepState.__slots__ if name != "prepared"}


def _named(value: Any) -> Any:
    """Steps by their names, so that the picture has no circles in it."""
    if isinstance(value, StepState):
        return value.id
    if isinstance(value, list | tuple) and any(isinstance(item, StepState) for item in value):
        return [item.id for item in value]
    return value


def check_journal(history: list[ev.Event]) -> State:
    """Read a journal and hold each event against what went before it. Returns the state at its end."""
    state = fold(history[:1])
    doubtful: set[str] = set()
    attempts: Counter[str] = Counter()
    failures: Counter[tuple[str, Category]] = Counter()
    ordered = ""
    broken = False
    for event in history[1:]:
        before = {name: step.status for name, step in state.steps.items()}
        status = state.status
        flight = dict(state.active)
        state.apply(event)
        assert state.status == status or state.status in EXECUTION_MOVES[status], event
        broken = any(step.status == "failed" and step.spec.importance == "critical" for step in state.top_level())
        for name, step in state.steps.items():
            old = before.get(name, step.status)
            assert step.status == old or step.status in STEP_MOVES[old], (name, event)
        match event:
            case ev.AttemptStarted(step=name):
                attempts[name] += 1
                assert before[name] != "completed", f"{name} ran again after it completed"
                assert name not in doubtful, f"{name} was repeated unasked"
                assert not ordered, f"{name} started although a {ordered} was asked for"
                assert not broken, f"{name} started although a critical step had failed"
                assert event.attempt == attempts[name], "attempts are numbered from 1 without gaps"
                assert not state.waits_again(state.steps[name]), f"{name} began before a step that it needs had settled"
                assert len(state.active) <= state.plan.limits.parallel
                assert len(state.active) == 1 or not any(s.reduced for s in state.active.values()), "not alone"
                for (failed, category), count in failures.items():
                    retries = allowed(category, state.steps[name].spec.retry)
                    assert failed != name or count <= retries, f"{name} was retried too often"
                assert event.reduced == failures[name, Category.RESOURCE]
                if state.steps[name].spec.approve == "always":
                    asked = state.steps[name].approval
                    assert asked is not None, f"{name} ran without approval"
                    assert asked.allow is True
                    assert asked.input == event.input
            case ev.AttemptFailed(step=name, failure=failure):
                failures[name, failure.category] += 1
            case ev.StepRetried(step=name):
                assert before[name] != "completed", f"{name} was retried after it completed"
                # A person's retry gives all of its items a fresh allowance, and asks again whether it may repeat.
                failures = Counter({k: n for k, n in failures.items() if name not in (k[0], k[0].partition("[")[0])})
            case ev.StepSkipped(step=name) if state.steps[name].skip_by:
                assert before[name] != "completed", f"{name} was skipped after it completed"
            case ev.ExecutionReopened():
                ordered = ""
            case ev.ControlRequested(kind=kind):
                ordered = ordered if ordered == "cancel" else kind
            case ev.AttemptStopped(step=name):
                if state.steps[name].effect == "once":
                    doubtful.add(name)
            case ev.ExecutionResumed():
                ordered = ordered if ordered == "cancel" else ""
                doubtful |= {name for name, step in flight.items() if step.effect == "once"}
            case ev.DecisionMade(step=name):
                doubtful.discard(name)
            case ev.ExecutionFinished(status=status) if broken:
                assert status in ("failed", "cancelled"), "a critical failure ends it"
    return state


def check_performed(run: Simulation) -> None:
    """The world saw each attempt at most once, and none of which the journal does not know."""
    performed = [(started.step, started.attempt) for started in run.performed]
    journalled = [(e.step, e.attempt) for e in run.journal if isinstance(e, ev.AttemptStarted)]
    assert len(set(performed)) == len(performed), "an attempt was let loose twice under one number"
    assert set(performed) <= set(journalled), "something ran that was not on disk before"


def check_end(run: Simulation) -> None:
    """It is finished, with every step settled, or it stands before a question that it states."""
    state = run.state
    assert not run.running
    if state.status.finished:
        assert not state.to_skip
        assert state.unsettled == 0
        assert all(step.settled for step in state.steps.values())
        assert state.finished_at is not None
    else:
        assert (state.status, state.paused_for) == ("paused", "decision"), "an approval would have expired by now"
        assert state.questions
        assert all(step.waiting_for == "outcome" and step.question for step in state.questions.values())


def journal_bytes(history: list[ev.Event]) -> bytes:
    return msgspec.json.encode(history)
