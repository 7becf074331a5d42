"""The data of an execution's state: its fields, the indexes of its steps, and the moves that keep both right.

The indexes make `decide` cost the same for 100 steps and for 10,000: ready, running and waiting steps. `core/state.py`
applies events to it; the folds of agents, programs, retries and undoing do so with the moves here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any

from windlass.core import events as ev
from windlass.core.agent import AgentState, Cost
from windlass.core.step import StepState
from windlass.core.transitions import NOT_STARTED, ExecutionStatus, StepStatus, check_execution_move, check_step_move
from windlass.errors import Failure
from windlass.plan.model import Budget, Importance, Plan
from windlass.plan.prepare import Prepared

__all__ = ["StateData"]

_PENDING, _RUNNING, _WAITING, _PAUSED, _COMPLETED, _FAILED, _SKIPPED = StepStatus


class StateData:
    """Everything known of an execution. Changed by events only."""

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
        self.seq = 1
        """The place of the last event in the journal."""
        self.driver = ""
        self.paused_for = "" if created.start else NOT_STARTED
        self.expires_at: float | None = None
        self.on_expiry = "cancel"
        self.error: Failure | None = None
        self.lacks: tuple[str, ...] = ()
        self.wanted: ev.ControlRequested | None = None
        """A person's request that the driver has not carried out yet."""
        self.broken_by: StepState | None = None
        """The critical step that failed."""
        self.retried = False
        """A settled step was made pending again: steps after it may have begun."""
        self.worked_s = 0.0
        """Running time before the current stretch, pauses left out."""
        self.worked_before = 0.0
        """Running time before a person reopened it: its time limit counts from there."""
        self.running_since: float | None = None
        self.stopped_at: float | None = None
        """The time of its last pause or of its end."""
        self.held_s = 0.0
        """Of its running time: only a person could go on."""
        self.held_since: float | None = None
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
        self.unmet: list[int] = []
        """Unsettled prerequisites of each group of steps that wait for the same ones (`Graph.groups`)."""
        self.unsettled = len(prepared.steps)
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
            step = self.steps[name] = StepState(name, prepared)
            if not needs[name]:
                self.ready[name] = step
        self.unmet = [len(needs[group[0]]) for group in self.prepared.graph.groups]

    def may_start(self, step: StepState) -> bool:
        """True if all prerequisites of a step of the plan are settled."""
        return not self.unmet[self.prepared.graph.group_of[step.id]]

    def waits_again(self, step: StepState) -> bool:
        """True for a step or an item that could go on, while a person has a prerequisite of it tried again."""
        return not self.may_start(step.parent or step)

    def count_unmet(self, step: StepState) -> None:
        """Count the unsettled prerequisites of a step of the plan anew."""
        graph = self.prepared.graph
        unmet = sum(not self.steps[need].settled for need in graph.needs[step.id])
        self.unmet[graph.group_of[step.id]] = unmet

    def dependents(self, step: StepState) -> list[StepState]:
        """The steps that wait for a step of the plan."""
        return [self.steps[name] for name in self.prepared.graph.dependents[step.id]]

    @property
    def cost(self) -> Cost:
        """Cost of all agents of this execution."""
        return sum((s.agent.cost for s in self.steps.values() if s.agent is not None), self.spent_before)

    def top_level(self) -> Iterator[StepState]:
        """The plan's own steps, without the items of foreach, each after those it depends on (B3)."""
        return map(self.steps.__getitem__, self.prepared.graph.order)

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

    # -- moves ---------------------------------------------------------------------------------

    def move(self, step: StepState, new: StepStatus) -> None:
        old = step.status
        # The moves of nearly every step by identity: to look one up in the table is three calls into Python.
        if not ((old is _PENDING and new is _RUNNING) or (old is _RUNNING and new is _COMPLETED)):
            check_step_move(step.id, old, new)
            if old is _WAITING and step.waiting_since is not None:
                self.count_wait(step, self._at)
                step.waited += max(0.0, self._at - step.waiting_since)
                step.waiting_since = step.counted_at = None
        step.status = new

    def become(self, status: ExecutionStatus, at: float) -> None:
        check_execution_move(self.status, status)
        self.status = status
        if status is ExecutionStatus.RUNNING:
            self.running_since = at
        elif self.running_since is not None:
            self.worked_s += max(0.0, at - self.running_since)
            self.running_since = None
        if status is not ExecutionStatus.RUNNING:
            self.stopped_at = at

    def pick(self, step: StepState, item: StepState) -> None:
        """An item of the step has completed: the first is the result, and all others are skipped."""
        step.picked = step.picked or item.id
        for other in step.children or ():
            if not other.settled:
                self.skip(other, step.picked)

    def skip(self, step: StepState, by: str) -> None:
        """Skip a step that is not settled; stop it first if it runs."""
        step.skip_by = by
        if step.id in self.active:
            self.to_skip[step.id] = step
        elif step.status is _WAITING:
            self.requeue(step)

    def agents_merged_by(self, step: StepState) -> list[AgentState]:
        """The agents whose branches a step merges."""
        merged = self.steps.get(step.spec.merge or "")
        owners = (merged, *(merged.children or ())) if merged is not None else ()
        return [one.agent for one in owners if one.agent is not None]

    def count_cut_off(self, step: StepState) -> None:
        """The attempt of a step died: what its agent used since the last report is not known."""
        agent = step.agent
        if agent is not None:
            agent.cut_off += agent.attempt == step.attempts
            agent.lost = step.attempts
        for reopened in self.agents_merged_by(step):
            if reopened.reopening:
                reopened.cut_off += 1
                reopened.lost = reopened.attempt

    def count_wait(self, step: StepState, until: float) -> None:
        """Count a step's wait up to now for a person, if it is one for a person or for its paused execution."""
        since = step.waiting_since if step.counted_at is None else step.counted_at
        if since is not None and (step.asks or self.status is ExecutionStatus.PAUSED):
            step.person += max(0.0, until - since)
        step.counted_at = until

    def count_held(self, at: float) -> None:
        """Count the running time in which only a person can go on. Called after events while there are questions."""
        if self.held_since is not None:
            self.held_s += max(0.0, at - self.held_since)
        self.held_since = at if self._only_questions() else None

    def _only_questions(self) -> bool:
        questions = self.questions
        if self.status is not ExecutionStatus.RUNNING or not questions or any(s not in questions for s in self.active):
            return False
        if self.to_judge or self.in_doubt or self.can_start():
            return False
        return not any(step not in questions and self._holds(until, step) for until, step in self.timers)

    def can_start(self) -> bool:
        """True if a step that is ready waits for nothing but room."""
        return any(not self.waits_again(step) for step in self.ready.values())

    def leave_indexes(self, step: StepState) -> None:
        key = step.id
        self.ready.pop(key, None)
        self.active.pop(key, None)
        if self.to_judge or self.in_doubt or self.questions or self.to_skip:
            for rare in (self.to_judge, self.in_doubt, self.questions, self.to_skip):
                rare.pop(key, None)

    def settle(self, step: StepState, status: StepStatus, at: float) -> None:
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
        else:
            for waiting in self.dependents(step):
                waiting.upstream_failed = True
        graph, unmet = self.prepared.graph, self.unmet
        names: tuple[str, ...] = ()
        met = 0
        for group in graph.feeds[step.id]:
            unmet[group] = left = unmet[group] - 1
            if not left:
                names = graph.groups[group]
                met += 1
        if met > 1:  # in the plan's order
            names = tuple(name for name in graph.dependents[step.id] if not unmet[graph.group_of[name]])
        for name in names:
            waiting = self.steps[name]
            if waiting.status is _PENDING:
                self.ready[name] = waiting

    def wait(self, step: StepState, at: float, reason: str, until: float | None, question: str = "") -> None:
        self.leave_indexes(step)
        self.move(step, _WAITING)
        step.waiting_since = at
        step.waiting_for, step.until, step.question = reason, until, question
        if until is not None:
            heapq.heappush(self.timers, (until, step.id))
        if step.asks:
            self.questions[step.id] = step

    def look_for_room(self) -> None:
        """Let steps that wait for budget ask for it again."""
        for step in [s for s in self.steps.values() if s.waiting_for == "budget"]:
            self.requeue(step)

    def requeue(self, step: StepState) -> None:
        """Mark the step paused and ready for another attempt."""
        self.leave_indexes(step)
        self.move(step, _PAUSED)
        step.waiting_for = step.until = None
        self.ready[step.id] = step

    def put_begun_first(self) -> None:
        """Have steps that were stopped go on before others begin: their work is half paid for."""
        begun = {name: step for name, step in self.ready.items() if step.attempts}
        if len(begun) < len(self.ready):
            self.ready = {**begun, **self.ready}

    def fail(self, step: StepState, failure: Failure, at: float) -> None:
        step.error = failure
        self.settle(step, _FAILED, at)
        if step.parent is None and step.spec.importance is Importance.CRITICAL and self.broken_by is None:
            self.broken_by = step
