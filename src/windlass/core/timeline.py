"""Stretches of time of each step: its attempts, split into queue and work, and its waits. Pure.

A `Timeline` folds the events of an execution into its state and, beside it, into stretches. It can be asked at any
event, so that every moment of the past can be shown as it was.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from windlass.core import events as ev
from windlass.core.state import StepState, fold
from windlass.core.transitions import StepStatus

__all__ = ["Stretch", "StretchKind", "Timeline"]

StretchKind: TypeAlias = Literal["queue", "work", "wait", "person"]

_ATTEMPT_ENDS = (ev.AttemptFinished, ev.AttemptFailed, ev.AttemptStopped)


class Stretch(msgspec.Struct, array_like=True, gc=False):
    """A stretch of a step's time."""

    kind: StretchKind
    """`queue` waits for a place, a rate or memory, `wait` for a retry, a quota or a budget, `person` for a person."""
    start: float
    end: float | None
    """None while it lasts."""
    attempt: int
    """The attempt, or the last one before a wait; 0 before the first."""
    outcome: str = ""
    """Of work: `completed`, `failed`, or the reason for which it was stopped. Of a wait: what it waits for."""


class Timeline:
    """The state of an execution, and the stretches of its steps."""

    def __init__(self, created: ev.Event) -> None:
        self.state = fold([created])
        self.stretches: dict[str, list[Stretch]] = {}
        """By step, each in the order of their starts; a question within an attempt lies over its work."""
        self.pauses: list[Stretch] = []
        """Times in which no driver had the execution, by the reason."""
        self.places: dict[str, tuple[int, int]] = {}
        """By step, the sequences of its first and its last event."""
        self._attempts: dict[str, Stretch] = {}
        self._waits: dict[str, Stretch] = {}

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def seq(self) -> int:
        return self.state.seq

    def apply(self, event: ev.Event) -> None:
        """Take one more event into account."""
        state, before = self.state, self.state.updated_at
        state.apply(event)
        if isinstance(event, ev.AttemptStarted):
            self._attempts[event.step] = self._begin(event.step, "work", event.at, event.attempt)
        elif isinstance(event, _ATTEMPT_ENDS):
            self._end_attempt(event)
        elif isinstance(event, ev.ExecutionResumed):
            self._resume(event.at, before)
        elif isinstance(event, ev.ExecutionPaused | ev.ExecutionReopened):
            self.pauses.append(Stretch("wait", event.at, None, 0, state.paused_for))
        elif isinstance(event, ev.ExecutionReplanned):
            self.stretches = {step: found for step, found in self.stretches.items() if step in state.steps}
        step = getattr(event, "step", None)
        if step is not None:
            self.places[step] = (self.places.get(step, (state.seq, state.seq))[0], state.seq)
        found = state.steps.get(step) if step is not None else None
        if found is None or isinstance(event, ev.StepSkipRequested):
            for name in [*self._waits]:
                self._note_wait(name, event.at)
        elif found.status is StepStatus.WAITING or step in self._waits:
            self._note_wait(found.id, event.at)

    def _begin(self, step: str, kind: StretchKind, at: float, attempt: int, outcome: str = "") -> Stretch:
        begun = Stretch(kind, at, None, attempt, outcome)
        self.stretches.setdefault(step, []).append(begun)
        return begun

    def _end_attempt(self, event: ev.AttemptFinished | ev.AttemptFailed | ev.AttemptStopped) -> None:
        begun = self._attempts.pop(event.step, None)
        if begun is None:
            return  # a crash has ended it already
        begun.end = max(begun.start, event.at)
        if isinstance(event, ev.AttemptStopped):
            begun.outcome = event.reason
        else:
            begun.outcome = "completed" if isinstance(event, ev.AttemptFinished) else "failed"
        if event.queued:
            worked_from = min(begun.end, begun.start + event.queued)
            steps = self.stretches[event.step]
            steps.insert(steps.index(begun), Stretch("queue", begun.start, worked_from, begun.attempt))
            begun.start = worked_from

    def _resume(self, at: float, before: float) -> None:
        """The attempts of a driver that died ended with it: with its last event, as far as is known."""
        for begun in self._attempts.values():
            begun.end, begun.outcome = max(begun.start, before), "lost"
        if not self.pauses or self.pauses[-1].end is not None:
            if self._attempts:
                self.pauses.append(Stretch("wait", before, at, 0, "crash"))
        else:
            self.pauses[-1].end = max(self.pauses[-1].start, at)
        self._attempts.clear()

    def _note_wait(self, name: str, at: float) -> None:
        """Begin or end the stretch of a wait, by the step's state."""
        step = self.state.steps.get(name)
        kind, reason = _wait_of(step)
        begun = self._waits.get(name)
        if begun is not None and (begun.kind, begun.outcome) != (kind, reason):
            begun.end = max(begun.start, at)
            del self._waits[name]
            begun = None
        if begun is None and kind is not None and step is not None:
            self._waits[name] = self._begin(name, kind, at, step.attempts, reason)


def _wait_of(step: StepState | None) -> tuple[StretchKind | None, str]:
    if step is None or step.status is not StepStatus.WAITING or step.waiting_for is None:
        return None, ""
    if step.waiting_for == "approval" and not step.asks:
        return None, ""  # it was answered, and waits for its turn
    return ("person" if step.asks else "wait"), step.waiting_for
