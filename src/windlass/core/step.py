"""State of one step of an execution. Changed by `State.apply` only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.core.agent import AgentState
from windlass.core.events import FilesKept
from windlass.core.program import ProgramLog
from windlass.core.resources import Resources, summed
from windlass.core.transitions import StepStatus
from windlass.errors import Category, Failure
from windlass.plan.model import Effect, Step
from windlass.plan.prepare import PreparedStep

__all__ = ["Approval", "StepState"]

_WAITING = StepStatus.WAITING


class Approval(msgspec.Struct):
    """The question put to a person about one step, and the answer."""

    digest: str
    tool: str
    input: Any
    asked_at: float
    expires_at: float
    attempt: int
    """The attempt that asks; 0 if the question comes before an attempt."""
    question: str
    """The question's text, if it is more than "may this be done?"."""
    basis: Mapping[str, str]
    """Everything else that decides the effect, with its hash."""
    workdir: str
    """The folder that paths in the input start from, if it is not the execution's working directory."""
    seq: int
    """The place of the question in the execution's journal."""
    allow: bool | None = None
    by: str = ""
    note: str = ""
    untold: bool = False
    """The answer came after that attempt had been stopped: the next one has to be given it."""


class StepState(msgspec.Struct, eq=False):
    """One step of one execution."""

    id: str
    prepared: PreparedStep
    status: StepStatus = StepStatus.PENDING
    upstream_failed: bool = False
    """A prerequisite settled without completing: `decide` checks if this one may run."""
    attempts: int = 0
    """Attempts ever started, across every restart."""
    failures: dict[Category, int] | None = None
    """Failed attempts by category, across every restart."""
    attempt_at: float | None = None
    """Start of the current attempt."""
    worker: str = ""
    """The worker that performs the current attempt, where several share the execution."""
    kept: FilesKept | None = None
    """Its files in the store that several machines share, as its last attempt left them."""
    input: Any = None
    output: Any = None
    error: Failure | None = None
    skipped_because: str | None = None
    by_condition: bool = False
    """Skipped because a `when` was false, not because something failed."""
    started_at: float | None = None
    finished_at: float | None = None
    waiting_for: str | None = None
    """`retry`, `approval`, `outcome`, `quota` or `budget`."""
    waiting_since: float | None = None
    until: float | None = None
    question: str = ""
    gives_up_at: float | None = None
    """The end of its wait for a model API that fails."""
    scope: str = ""
    """The limit without room, while it waits for budget."""
    unit: str = "usd"
    """Unit of that limit: `usd` or `tokens`."""
    needed: float | None = None
    """The value of that limit at which it could go on."""
    approval: Approval | None = None
    """The last question."""
    changes: tuple[str, ...] = ()
    """Changes since a person allowed it, so that it is asked anew."""
    answers: dict[str, Approval] | None = None
    """Answered requests, by digest: the same is not asked twice."""
    agent: AgentState | None = None
    programs: ProgramLog | None = None
    """Record of its programs, if it has any."""
    used: Resources | None = None
    """Machine resources used by all its attempts, as far as known."""
    effect: str = Effect.REPEATABLE
    reduced: int = 0
    last_output: str = ""
    """The last line of its output, or the end of one that is not finished."""
    open_line: str = ""
    """The stream of that line, while it is not finished."""
    stalled: tuple[int, str, str] | None = None
    """The running attempt that waits for a place or for the model API: its number, `place` or `model`, the words."""
    doubtful: bool = False
    """Its last attempt may take effect only once and was cut off: its outcome is still unknown."""
    edits: dict[str, Any] | None = None
    """Arguments that a person gave it in place of the plan's."""
    runtime: str = ""
    """The runtime that a person chose for its agent."""
    model: str = ""
    """The model that a person chose for its agent."""
    skip_by: str = ""
    """The person that skipped it. Once it is skipped, dependents run with a null output."""
    queued: float = 0.0
    """Seconds that its attempts waited for a place, a rate, memory or a breaker before their work began."""
    waited: float = 0.0
    """Seconds that it waited for a retry, a person, a quota or a budget."""
    person: float = 0.0
    """Of these: for a person, or while its execution was paused."""
    counted_at: float | None = None
    """The time up to which `person` has its part of the current wait; None is the beginning of that wait."""
    worked: float = 0.0
    """Seconds that its attempts worked; one that a crash cut off counts with none."""
    off_work: float = 0.0
    """Seconds that the current attempt waited for a person."""
    undone: bool = False
    """Its changes were undone by a person after its end."""
    parent: StepState | None = None
    index: int | None = None
    item: Any = None
    children: list[StepState] | None = None
    picked: str = ""
    """The item that is the result, where the step takes one (`pick`)."""
    open_children: int = 0

    @property
    def spec(self) -> Step:
        """The step as the plan has it."""
        return self.prepared.spec

    @property
    def settled(self) -> bool:
        return self.status.settled

    def ended(self, at: float, used: Resources | None, queued: float) -> None:
        """The current attempt has ended, and took this much of the machine and of the time."""
        if used is not None:
            self.used = summed((self.used, used))
        if self.attempt_at is None:
            return
        off_work = self.off_work
        if self.status is _WAITING and self.waiting_since is not None:
            off_work += at - self.waiting_since  # stopped while it waited for a person
        if queued:
            self.queued += queued
        worked = at - self.attempt_at - queued - off_work
        if worked > 0.0:
            self.worked += worked

    @property
    def asks(self) -> bool:
        """True if it waits for a person's answer. Budget that others hold comes free by itself: then `until` is set."""
        match self.waiting_for:
            case "approval":
                return self.approval is not None and self.approval.allow is None
            case "budget":
                return self.until is None
            case _:
                return self.waiting_for == "outcome"

    @property
    def asks_in_attempt(self) -> bool:
        """True if the agent of a step with an attempt in flight waits for a person's answer, which ends that wait."""
        return self.waiting_for == "approval"
