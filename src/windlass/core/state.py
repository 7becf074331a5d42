"""State of an execution: the fold of its journal.

`fold(entries)` starts from `execution.created` and applies each event; `State.apply` is the same for one
more event. Both are pure in what they read (events only) and deterministic. `StateData` has the fields, the
indexes and the moves. Nothing here starts, waits or writes anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from windlass.core import events as ev
from windlass.core.agent import AgentState
from windlass.core.agent_fold import AGENT_EVENTS
from windlass.core.program_fold import PROGRAM_EVENTS
from windlass.core.redo_fold import REDO_EVENTS, UNDO_EVENTS
from windlass.core.replan import replan
from windlass.core.state_data import StateData
from windlass.core.step import Approval, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.errors import MODEL_API, Category, Failure
from windlass.plan.model import Effect, Plan
from windlass.plan.prepare import prepare

__all__ = ["Approval", "State", "StepState", "fold"]

_PENDING, _RUNNING, _WAITING, _PAUSED, _COMPLETED, _FAILED, _SKIPPED = StepStatus


class State(StateData):
    """An execution's state. Change it with `apply` only."""

    def apply(self, event: ev.Event) -> None:
        """Take one more event into account."""
        self.seq += 1
        self._at = event.at
        _APPLY[type(event)](self, event)
        if self.questions or self.held_since is not None:
            self.count_held(event.at)
        self.updated_at = event.at

    # -- one method an event -------------------------------------------------------------------

    def _started(self, event: ev.ExecutionStarted) -> None:
        self.become(ExecutionStatus.RUNNING, event.at)
        self.driver = event.driver
        self.started_at = event.at
        self.paused_for = ""

    def _resumed(self, event: ev.ExecutionResumed) -> None:
        self._count_absence(event.at)
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
            self.count_cut_off(step)
        self.in_doubt.update(self.active)
        self.active.clear()
        for step in [s for s in self.steps.values() if s.waiting_for == "retry"]:
            self._shorten_wait(step, event.at)
        self.look_for_room()  # there may be some by now: another day, another limit in the settings

    def _count_absence(self, at: float) -> None:
        """Count the time without a driver as waiting for a person: somebody had to resume it."""
        self.held_since = None
        for step in self.steps.values():
            if step.status is _WAITING:
                self.count_wait(step, self.updated_at)
                step.person += max(0.0, at - self.updated_at)
                step.counted_at = at

    def _shorten_wait(self, step: StepState, at: float) -> None:
        """A clock that was set back must not make a backoff longer than it was meant to be."""
        if step.until is None or step.waiting_since is None:
            return
        meant = step.until - step.waiting_since
        if step.until - at > meant:
            step.waiting_since, step.until = at, at + meant
            heapq.heappush(self.timers, (step.until, step.id))

    def _paused(self, event: ev.ExecutionPaused) -> None:
        for step in self.steps.values():
            if step.status is _WAITING:
                self.count_wait(step, event.at)
        self.become(ExecutionStatus.PAUSED, event.at)
        self.wanted = None
        self.paused_for = event.reason
        self.expires_at, self.on_expiry = event.expires_at, event.on_expiry

    def _finished(self, event: ev.ExecutionFinished) -> None:
        self.become(ExecutionStatus(event.status), event.at)
        self.wanted = None
        self.finished_at = event.at
        self.error, self.lacks = event.error, event.lacks
        self.scope = {}  # it refers back to this state, and no template is filled in any more

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
            step.reduced, step.worker = event.reduced, ""
            step.off_work, step.doubtful = 0.0, False

    def _attempt_placed(self, event: ev.AttemptPlaced) -> None:
        self.steps[event.step].worker = event.worker

    def _attempt_finished(self, event: ev.AttemptFinished) -> None:
        step = self.steps[event.step]
        step.output = event.output
        if step.error is not None:
            step.error = None
        step.ended(event.at, event.used, event.queued)
        self.settle(step, _COMPLETED, event.at)
        if step.parent is not None and step.parent.spec.pick is not None:
            self.pick(step.parent, step)

    def _attempt_failed(self, event: ev.AttemptFailed) -> None:
        step = self.steps[event.step]
        self.leave_indexes(step)
        step.error = event.failure
        step.output = event.output
        step.ended(event.at, event.used, event.queued)
        step.waiting_for = step.until = None
        if event.failure.kind == MODEL_API:
            step.agent = step.agent or AgentState(role=step.spec.agent or "")
            step.agent.api_failed(event.at)
        else:
            step.failures = dict(step.failures or {})
            step.failures[event.failure.category] = step.failures.get(event.failure.category, 0) + 1
        if step.programs is not None:
            step.programs.forget_failures()
        self.to_judge[step.id] = step

    def _attempt_stopped(self, event: ev.AttemptStopped) -> None:
        step = self.steps[event.step]
        if event.reason != "lost":
            step.ended(event.at, event.used, event.queued)
        elif step.id in self.active:
            self.count_cut_off(step)  # one worker of several died
            if step.agent is not None and step.agent.attempt == step.attempts:
                step.agent.worker = ""
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
        self.requeue(step)
        self.put_begun_first()

    def _step_waiting(self, event: ev.StepWaiting) -> None:
        step = self.steps[event.step]
        self.wait(step, event.at, event.reason, event.until, event.question)
        step.scope, step.unit, step.needed = event.scope, event.unit, event.needed
        step.gives_up_at = event.gives_up_at
        if event.reason == "quota" and event.until is not None:
            self.quotas[event.account or event.runtime] = event.until

    def _step_completed(self, event: ev.StepCompleted) -> None:
        step = self.steps[event.step]
        step.output = event.output
        step.started_at = step.started_at or event.at
        self.settle(step, _COMPLETED, event.at)

    def _step_failed(self, event: ev.StepFailed) -> None:
        step = self.steps[event.step]
        if step.children is not None:
            step.output = event.output
        self.fail(step, event.failure, event.at)

    def _step_skipped(self, event: ev.StepSkipped) -> None:
        step = self.steps[event.step]
        step.skipped_because = event.because
        if step.skip_by and step.children is not None:
            step.output = [child.output if child.status is _COMPLETED else None for child in step.children]
        step.by_condition = event.condition
        self.settle(step, _SKIPPED, event.at)

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
            event.attempt,
            event.question,
            event.basis,
            event.workdir,
            self.seq,
        )
        step.changes = ()
        if not event.attempt:
            step.input = event.input
        self.wait(step, event.at, "approval", event.expires_at, event.question)
        if event.attempt:
            self.active[step.id] = step  # its attempt goes on as soon as there is an answer

    def _approval_answered(self, event: ev.ApprovalAnswered) -> None:
        step = self.steps[event.step]
        asked = step.approval
        if asked is None or asked.digest != event.digest:
            return
        if step.status is _WAITING:
            self.count_wait(step, event.at)
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
                    self.look_for_room()  # it goes on, so its reservation will come free
            else:
                asked.untold = asked.attempt > 0
                self.ready[step.id] = step

    def _answer_refused(self, event: ev.AnswerRefused) -> None:
        self.refused.append(event)

    def _decision_made(self, event: ev.DecisionMade) -> None:
        step = self.steps[event.step]
        self.questions.pop(step.id, None)
        self.count_wait(step, event.at)
        step.doubtful = False
        if event.choice == "done":
            step.output = event.output
            self.settle(step, _COMPLETED, event.at)
        elif event.choice == "again":
            step.waiting_for = None
            if step.parent is not None or self.may_start(step):
                self.ready[step.id] = step
            else:  # a prerequisite is tried again
                self.move(step, _PENDING)
        else:
            message = "its outcome is unknown, and it was decided not to repeat it"
            self.fail(step, Failure(Category.LOGIC, message, step.id), event.at)

    def _output_written(self, event: ev.OutputWritten) -> None:
        step, text = self.steps[event.step], event.text
        waits_for = event.stream.removeprefix("wait.")
        step.stalled = (event.attempt, waits_for, text.strip()) if waits_for != event.stream else None
        if step.open_line == event.stream:
            text = step.last_output + text
        step.open_line = "" if text.endswith("\n") else event.stream
        last = text.rstrip("\n").rsplit("\n", 1)[-1]
        if last.strip():
            step.last_output = last[-500:] if step.open_line else last[:500]


_APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.ExecutionStarted: State._started,
    ev.ExecutionResumed: State._resumed,
    ev.ExecutionReplanned: replan,
    ev.ExecutionPaused: State._paused,
    ev.ExecutionFinished: State._finished,
    ev.ControlRequested: State._control,
    ev.AttemptStarted: State._attempt_started,
    ev.AttemptPlaced: State._attempt_placed,
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
    state = State(created, prepare(plan or Plan.decode(bytes(created.plan))))
    for event in feed:
        state.apply(event)
    return state
