"""State of an execution: the fold of its journal.

`fold(entries)` starts from `execution.created` and applies each event; `State.apply` is the same for one
more event. Both are pure in what they read (events only) and deterministic. The state also keeps the
indexes that make `decide` cost the same for 100 steps and for 10,000: ready, running and waiting steps.
Nothing here starts, waits or writes anything.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from windlass.core import events as ev
from windlass.core.agent import Cost
from windlass.core.agent_fold import AGENT_EVENTS
from windlass.core.program_fold import PROGRAM_EVENTS
from windlass.core.redo_fold import REDO_EVENTS
from windlass.core.replan import replan
from windlass.core.step import Approval, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus, check_execution_move, check_step_move
from windlass.core.undo_fold import UNDO_EVENTS
from windlass.errors import Category, Failure
from windlass.plan.model import Budget, Effect, Importance, Plan
from windlass.plan.prepare import Prepared, prepare

__all__ = ["Approval", "State", "StepState", "fold"]

_PENDING, _RUNNING, _WAITING, _PAUSED, _COMPLETED, _FAILED, _SKIPPED = StepStatus


class State:
    """An execution's whole standing. Change it with `apply` only."""

    def __init__(self, created: ev.ExecutionCreated, prepared: Prepared) -> None:
        self.id = created.id
        self.prepared = prepared
        self.inputs = created.inputs
        self.workdir = created.workdir
        self.source = created.source
        self.origin = created.origin
        self.on_overrun = created.on_overrun
        self.environment = created.environment
        self.created_at = created.at
        self.updated_at = created.at
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.status = ExecutionStatus.PENDING
        self.seq = 0
        self.driver = ""
        self.paused_for = ""
        self.expires_at: float | None = None
        self.on_expiry = "cancel"
        self.error: Failure | None = None
        self.lacks: tuple[str, ...] = ()
        self.wanted: ev.ControlRequested | None = None
        """A person's request that the driver has not carried out yet."""
        self.broken_by: StepState | None = None
        """The critical step that failed."""
        self.worked_s = 0.0
        """Running time before the current stretch, pauses left out."""
        self.worked_before = 0.0
        """Running time before a person reopened it: its time limit counts from there."""
        self.running_since: float | None = None
        self.steps: dict[str, StepState] = {}
        self.ready: dict[str, StepState] = {}
        """Steps with all prerequisites settled, in the order they became so."""
        self.active: dict[str, StepState] = {}
        """Steps with an attempt in flight."""
        self.to_judge: dict[str, StepState] = {}
        """Steps with a failed last attempt, before the verdict: retry or not."""
        self.in_doubt: dict[str, StepState] = {}
        """Steps with a last attempt that was cut off, so that its outcome is unknown."""
        self.to_skip: dict[str, StepState] = {}
        """Steps with an attempt in flight that a person does without."""
        self.questions: dict[str, StepState] = {}
        """Steps that wait for a person."""
        self.timers: list[tuple[float, str]] = []
        """A heap of when waiting steps are due; may hold stale entries."""
        self.quotas: dict[str, float] = {}
        """Used-up quotas, with the time each comes back: by the provider's account, or by runtime if unknown."""
        self.allowed: dict[str, Budget] = {}
        """Limits that a person has set since, by scope; a step's own as `step:ID`."""
        self.overruns: dict[tuple[str, str], ev.BudgetWarned] = {}
        """Limits that are passed, by scope and unit; a step's own as `step:ID`."""
        self.spent_before = Cost()
        """By agents of steps that a changed plan made begin anew."""
        self.refused: list[ev.AnswerRefused] = []
        """Answers that came from inside an attempt."""
        self.scope: dict[str, Any] = {}
        """Names for its templates; made at the first use (see `scope_of`)."""
        self.unsettled = 0
        self.completed = 0
        self.expanded_items = 0
        self._at = created.at
        """The time of the event that is being applied."""
        self._lay_out()

    @property
    def plan(self) -> Plan:
        return self.prepared.plan

    @property
    def phase(self) -> str:
        """initialise, execute, finalise or done (C1)."""
        if self.status.finished:
            return "done"
        if self.started_at is None:
            return "initialise"
        return "execute" if self.unsettled else "finalise"

    def _lay_out(self) -> None:
        needs = self.prepared.graph.needs
        for name, prepared in self.prepared.steps.items():
            unmet = len(needs[name])
            step = self.steps[name] = StepState(name, prepared, unmet=unmet)
            if not unmet:
                self.ready[name] = step
        self.unsettled = len(self.steps)

    def dependents(self, step: StepState) -> list[StepState]:
        """The steps that wait for a step of the plan."""
        return [self.steps[name] for name in self.prepared.graph.dependents[step.id]]

    @property
    def cost(self) -> Cost:
        """Cost of all agents of this execution."""
        return sum((s.agent.cost for s in self.steps.values() if s.agent is not None), self.spent_before)

    def top_level(self) -> Iterator[StepState]:
        """The plan's own steps, without the items of foreach, each after those it depends on (B3)."""
        return (self.steps[step_id] for step_id in self.prepared.graph.order)

    def next_timer(self, after: float = -math.inf) -> float | None:
        """The next time that a step waits for. Steps due by `after` wait for room, not for a time."""
        while self.timers and not self._holds(*self.timers[0]):
            heapq.heappop(self.timers)
        if not self.timers or self.timers[0][0] > after:
            return self.timers[0][0] if self.timers else None
        return min((until for until, step in self.timers if until > after and self._holds(until, step)), default=None)

    def _holds(self, until: float, step_id: str) -> bool:
        """True if a timer is not stale."""
        step = self.steps.get(step_id)
        return step is not None and step.status is _WAITING and step.until == until

    def due(self, now: float) -> list[StepState]:
        """Waiting steps that are due, earliest first."""
        if not self.timers or self.timers[0][0] > now:
            return []
        timers = sorted({timer for timer in self.timers if timer[0] <= now})
        return [self.steps[step_id] for until, step_id in timers if self._holds(until, step_id)]

    def worked(self, now: float) -> float:
        """Seconds it has been running, pauses left out."""
        return self.worked_s + (now - self.running_since if self.running_since is not None else 0.0)

    def time_left(self, now: float) -> float | None:
        """Seconds until its time limit is reached; None without one."""
        limit = self.prepared.timeout
        return None if limit is None else limit - (self.worked(now) - self.worked_before)

    def apply(self, event: ev.Event) -> None:
        """Take one more event into account."""
        self.seq += 1
        self._at = event.at
        _APPLY[type(event)](self, event)
        self.updated_at = event.at

    # -- moves ---------------------------------------------------------------------------------

    def move(self, step: StepState, new: StepStatus) -> None:
        old = step.status
        # The moves of nearly every step by identity: to look one up in the table is three calls into Python.
        if not ((old is _PENDING and new is _RUNNING) or (old is _RUNNING and new is _COMPLETED)):
            check_step_move(step.id, old, new)
            if old is _WAITING and step.waiting_since is not None:
                step.waited += max(0.0, self._at - step.waiting_since)
                step.waiting_since = None
        step.status = new

    def become(self, status: ExecutionStatus, at: float) -> None:
        check_execution_move(self.status, status)
        self.status = status
        if status is ExecutionStatus.RUNNING:
            self.running_since = at
        elif self.running_since is not None:
            self.worked_s += max(0.0, at - self.running_since)
            self.running_since = None

    def leave_indexes(self, step: StepState) -> None:
        key = step.id
        self.ready.pop(key, None)
        self.active.pop(key, None)
        if self.to_judge or self.in_doubt or self.questions or self.to_skip:
            for rare in (self.to_judge, self.in_doubt, self.questions, self.to_skip):
                rare.pop(key, None)

    def _settle(self, step: StepState, status: StepStatus, at: float) -> None:
        self.leave_indexes(step)
        self.move(step, status)
        step.finished_at = at
        if step.waiting_for is not None:
            step.waiting_for = step.until = None
        if step.parent is not None:
            step.parent.open_children -= 1
            if step.parent.open_children == 0:
                self.ready[step.parent.id] = step.parent
            return
        self.unsettled -= 1
        if status is _COMPLETED:
            self.completed += 1
        clouds = status is not _COMPLETED
        steps = self.steps
        for name in self.prepared.graph.dependents[step.id]:
            waiting = steps[name]
            if clouds:
                waiting.clouded = True
            unmet = waiting.unmet = waiting.unmet - 1
            if not unmet and waiting.status is _PENDING:
                self.ready[name] = waiting

    def _wait(self, step: StepState, at: float, reason: str, until: float | None, question: str = "") -> None:
        self.leave_indexes(step)
        self.move(step, _WAITING)
        step.waiting_since = at
        step.waiting_for, step.until, step.question = reason, until, question
        if until is not None:
            heapq.heappush(self.timers, (until, step.id))
        if step.asks:
            self.questions[step.id] = step

    # -- one method an event -------------------------------------------------------------------

    def _started(self, event: ev.ExecutionStarted) -> None:
        self.become(ExecutionStatus.RUNNING, event.at)
        self.driver = event.driver
        self.started_at = event.at

    def _resumed(self, event: ev.ExecutionResumed) -> None:
        if self.status is not ExecutionStatus.RUNNING:
            self.become(ExecutionStatus.RUNNING, event.at)
        else:
            # The last driver died: how long it worked is known only up to its last event.
            self.worked_s += max(0.0, self.updated_at - (self.running_since or self.updated_at))
            self.running_since = event.at
        self.started_at = self.started_at or event.at
        self.driver = event.driver
        self.workdir = event.workdir or self.workdir
        self.environment = event.environment or self.environment
        self.scope = {}
        self.paused_for, self.expires_at = "", None
        if self.wanted is not None and self.wanted.kind != "cancel":
            self.wanted = None
        for step in self.active.values():
            step.doubtful = step.effect == Effect.ONCE
            if step.agent is not None and step.agent.attempt == step.attempts:
                step.agent.cut_off += 1
        self.in_doubt.update(self.active)
        self.active.clear()
        self.to_skip.clear()
        for step in [s for s in self.steps.values() if s.waiting_for == "retry"]:
            self._shorten_wait(step, event.at)
        self._look_for_room()  # there may be some by now: another day, another limit in the settings

    def _look_for_room(self) -> None:
        """Let steps that wait for budget ask for it again."""
        for step in [s for s in self.steps.values() if s.waiting_for == "budget"]:
            self.set_aside(step)

    def _shorten_wait(self, step: StepState, at: float) -> None:
        """A clock that was set back must not make a backoff longer than it was meant to be."""
        if step.until is None or step.waiting_since is None:
            return
        meant = step.until - step.waiting_since
        if step.until - at > meant:
            step.waiting_since, step.until = at, at + meant
            heapq.heappush(self.timers, (step.until, step.id))

    def _paused(self, event: ev.ExecutionPaused) -> None:
        self.become(ExecutionStatus.PAUSED, event.at)
        self.wanted = None
        self.paused_for = event.reason
        self.expires_at, self.on_expiry = event.expires_at, event.on_expiry

    def _finished(self, event: ev.ExecutionFinished) -> None:
        self.become(ExecutionStatus(event.status), event.at)
        self.wanted = None
        self.finished_at = event.at
        self.error, self.lacks = event.error, event.lacks

    def _control(self, event: ev.ControlRequested) -> None:
        # A pause asked for after a cancel does not take the cancel back.
        if self.wanted is None or self.wanted.kind != "cancel":
            self.wanted = event

    def _attempt_started(self, event: ev.AttemptStarted) -> None:
        step = self.steps[event.step]
        self.leave_indexes(step)
        self.move(step, _RUNNING)
        self.active[step.id] = step
        step.attempts = event.attempt
        step.attempt_at = event.at
        step.started_at = step.started_at or event.at
        step.input, step.effect = event.input, event.effect
        if event.attempt > 1 or event.reduced or step.waiting_for is not None:
            step.waiting_for = step.until = None
            step.reduced = event.reduced
            step.off_work, step.doubtful = 0.0, False

    def _attempt_finished(self, event: ev.AttemptFinished) -> None:
        step = self.steps[event.step]
        step.output = event.output
        if step.error is not None:
            step.error = None
        step.ended(event.at, event.used, event.queued)
        self._settle(step, _COMPLETED, event.at)

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        step = self.steps[event.step]
        self.leave_indexes(step)
        step.error = event.failure
        step.output = event.output
        step.ended(event.at, event.used, event.queued)
        step.waiting_for = step.until = None
        step.failures = dict(step.failures or {})
        step.failures[event.failure.category] = step.failures.get(event.failure.category, 0) + 1
        if step.programs is not None:
            step.programs.forget_failures()
        self.to_judge[step.id] = step

    def _attempt_stopped(self, event: ev.AttemptStopped) -> None:
        step = self.steps[event.step]
        if event.reason != "lost":
            step.ended(event.at, event.used, event.queued)
        self.leave_indexes(step)
        if event.reason == "changed":
            step.changes = event.changes
            step.answers = {digest: answer for digest, answer in (step.answers or {}).items() if answer.attempt}
        step.doubtful = step.effect == Effect.ONCE and event.reason != "changed"
        if step.doubtful and event.reason in ("paused", "lost", "timeout", "critical"):
            self.in_doubt[step.id] = step
            return
        if step.asks_in_attempt and not step.skip_by:
            self.questions[step.id] = step  # it stays open, and the next attempt has its answer
            return
        self.set_aside(step)

    def set_aside(self, step: StepState) -> None:
        """It has no attempt any more, and may have another one."""
        self.leave_indexes(step)
        self.move(step, _PAUSED)
        step.waiting_for = step.until = None
        self.ready[step.id] = step

    def _step_waiting(self, event: ev.StepWaiting) -> None:
        step = self.steps[event.step]
        self._wait(step, event.at, event.reason, event.until, event.question)
        step.doubtful = step.doubtful or event.reason == "outcome"
        step.scope, step.unit, step.needed = event.scope, event.unit, event.needed
        if event.reason == "quota" and event.until is not None:
            self.quotas[event.account or event.runtime] = event.until

    def _step_completed(self, event: ev.StepCompleted) -> None:
        step = self.steps[event.step]
        step.output = event.output
        step.started_at = step.started_at or event.at
        self._settle(step, _COMPLETED, event.at)

    def _step_failed(self, event: ev.StepFailed) -> None:
        step = self.steps[event.step]
        if step.children is not None:
            step.output = event.output
        self._fail(step, event.failure, event.at)

    def _fail(self, step: StepState, failure: Failure, at: float) -> None:
        step.error = failure
        self._settle(step, _FAILED, at)
        if step.parent is None and step.spec.importance is Importance.CRITICAL and self.broken_by is None:
            self.broken_by = step

    def _step_skipped(self, event: ev.StepSkipped) -> None:
        step = self.steps[event.step]
        step.skipped_because = event.because
        if step.skip_by and step.children is not None:
            step.output = [child.output if child.status is _COMPLETED else None for child in step.children]
        step.by_condition = event.condition
        self._settle(step, _SKIPPED, event.at)

    def _step_expanded(self, event: ev.StepExpanded) -> None:
        parent = self.steps[event.step]
        self.leave_indexes(parent)
        self.move(parent, _RUNNING)
        parent.started_at = event.at
        parent.children = []
        parent.open_children = len(event.items)
        self.expanded_items += len(event.items)
        for index, item in enumerate(event.items):
            child_id = f"{parent.id}[{index}]"
            child = StepState(child_id, parent.prepared, parent=parent, index=index, item=item)
            parent.children.append(child)
            self.steps[child_id] = child
            self.ready[child_id] = child
        if not event.items:
            self.ready[parent.id] = parent

    def _approval_asked(self, event: ev.ApprovalAsked) -> None:
        step = self.steps[event.step]
        step.approval = Approval(
            event.digest,
            event.tool,
            event.input,
            event.at,
            event.expires_at,
            attempt=event.attempt,
            question=event.question,
            basis=event.basis,
            seq=self.seq,
        )
        step.changes = ()
        if not event.attempt:
            step.input = event.input
        self._wait(step, event.at, "approval", event.expires_at, event.question)
        if event.attempt:
            self.active[step.id] = step  # its attempt goes on as soon as there is an answer

    def _approval_answered(self, event: ev.ApprovalAnswered) -> None:
        step = self.steps[event.step]
        asked = step.approval
        if asked is None or asked.digest != event.digest:
            return
        asked.allow, asked.by, asked.note = event.allow, event.by, event.note
        step.answers = {**(step.answers or {}), asked.digest: asked}
        if step.status is _WAITING:
            self.questions.pop(step.id, None)
            step.until = None
            if step.id in self.active:
                step.waiting_for = None
                step.off_work += event.at - (step.waiting_since or event.at)
                self.move(step, _RUNNING)
                if any(s.waiting_for == "budget" and s.until is not None for s in self.steps.values()):
                    self._look_for_room()  # it goes on, so its reservation will come free
            else:
                asked.untold = asked.attempt > 0
                self.ready[step.id] = step

    def _answer_refused(self, event: ev.AnswerRefused) -> None:
        self.refused.append(event)

    def _decision_made(self, event: ev.DecisionMade) -> None:
        step = self.steps[event.step]
        self.questions.pop(step.id, None)
        step.doubtful = False
        if event.choice == "done":
            step.output = event.output
            self._settle(step, _COMPLETED, event.at)
        elif event.choice == "again":
            step.waiting_for = None
            self.ready[step.id] = step
        else:
            message = "its outcome is unknown, and it was decided not to repeat it"
            self._fail(step, Failure(Category.LOGIC, message, step.id), event.at)

    def _output_written(self, event: ev.OutputWritten) -> None:
        lines = event.text.rstrip("\n").rsplit("\n", 1)
        if lines[-1].strip():
            self.steps[event.step].last_output = lines[-1][:500]


_APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.ExecutionStarted: State._started,
    ev.ExecutionResumed: State._resumed,
    ev.ExecutionReplanned: replan,
    ev.ExecutionPaused: State._paused,
    ev.ExecutionFinished: State._finished,
    ev.ControlRequested: State._control,
    ev.AttemptStarted: State._attempt_started,
    ev.AttemptFinished: State._attempt_finished,
    ev.AttemptFailed: State._attempt_failed,
    ev.AttemptStopped: State._attempt_stopped,
    ev.StepWaiting: State._step_waiting,
    ev.StepCompleted: State._step_completed,
    ev.StepFailed: State._step_failed,
    ev.StepSkipped: State._step_skipped,
    ev.StepExpanded: State._step_expanded,
    ev.ApprovalAsked: State._approval_asked,
    ev.ApprovalAnswered: State._approval_answered,
    ev.AnswerRefused: State._answer_refused,
    ev.DecisionMade: State._decision_made,
    ev.OutputWritten: State._output_written,
    **AGENT_EVENTS,
    **PROGRAM_EVENTS,
    **REDO_EVENTS,
    **UNDO_EVENTS,
}


def fold(history: Iterable[ev.Event], plan: Plan | None = None) -> State:
    """The state that a journal amounts to. `plan` saves decoding it again when the caller has it."""
    feed = iter(history)
    created = next(feed)
    if not isinstance(created, ev.ExecutionCreated):
        raise ValueError("a journal begins with execution.created")
    state = State(created, prepare(plan or Plan.model_validate_json(bytes(created.plan))))
    state.seq = 1
    for event in feed:
        state.apply(event)
    return state
