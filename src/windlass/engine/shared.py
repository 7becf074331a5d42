"""Turns and attempts of executions that several processes share: no process drives such an execution for long.

`SharedExecutions.turn` is one turn of a driver: read, fold, `decide`, append; it performs nothing.
`SharedExecutions.attempt` performs one attempt that a turn has started, on whichever machine, and writes its events
itself. Both append with the sequence that they follow. Of two that append at once the second one reads the events of
the first, and tries again if they leave it something to do. So a result that comes too late is refused: an attempt
that was counted as lost is not current any more.

An attempt is performed only after its `attempt.placed` is in the journal, and one that was placed is not performed a
second time: if it has no outcome, its worker was lost, and `decide` has a rule for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from windlass.core import events as ev
from windlass.core.decide import Stop, decide
from windlass.core.questions import QuestionChanges, changes_of, open_questions
from windlass.core.record import folded
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus
from windlass.engine.driver import AttemptEnd, Driver, World
from windlass.engine.perform import AttemptRunner, Outcome
from windlass.errors import Category, Conflict, Failure, UsageError
from windlass.plan.model import Effect
from windlass.ports import Answer, Journal, Ledger, Message, Note, Tool

__all__ = ["DueAttempt", "SharedExecutions", "TurnResult"]

LOOK = 0.25
"""Seconds between an attempt's looks at the journal: requests and answers come from there."""
MOST_STATES = 200
"""States of executions that are kept from one turn to the next."""
PREFERRED = 5.0
"""Seconds that an attempt of an agent waits for the worker of its last one."""
TRIES = 50
"""Appends that others may be faster than, one after the other."""
_RUNNING = ExecutionStatus.RUNNING
_TOLD = (ev.ApprovalAsked, ev.StepWaiting)
"""Events that people may be told of."""


class DueAttempt(NamedTuple):
    """An attempt that was started in the journal and is to be performed."""

    step: str
    attempt: int
    tag: str
    prefers: str = ""
    """The worker that has the conversation of its agent."""


class TurnResult(NamedTuple):
    """The result of a turn."""

    over: bool
    """The execution has ended, is paused, or is driven by somebody else."""
    active: list[DueAttempt]
    wake: float | None
    """Seconds until the next turn, if nothing happens before."""


class SharedExecutions:
    """Takes turns for executions and performs attempts of them, for one worker."""

    def __init__(
        self,
        world: World,
        attempt_runner: AttemptRunner,
        ledger: Ledger,
        load_tools: Callable[[ev.Source], Sequence[Tool]],
        *,
        driver: str,
        worker: str,
    ) -> None:
        """`driver` is the name under which all workers drive, `worker` that of this one."""
        self._world = world
        self._journal: Journal = world.journal
        self._attempt_runner = attempt_runner
        self._ledger = ledger
        self._load_tools = load_tools
        self._driver, self._worker = driver, worker
        # Kept in step with the journal, one of each for an execution: whoever uses one takes it out.
        self._turn_states: dict[str, State] = {}
        self._attempt_states: dict[str, State] = {}

    async def turn(self, execution: str, *, hold: bool) -> TurnResult:
        """Act on messages and time, and write down everything that `decide` wants."""
        for _ in range(TRIES):
            state, _new = await self._state(execution, self._turn_states)
            if self._over(state):
                return TurnResult(True, [], None)
            driver = _TurnDriver(state, self._world, self._runner_for(state), hold=hold)
            messages = [one for one in await self._journal.receive() if one.execution == execution]
            try:
                wake = await driver.take(messages)
            except Conflict:
                continue  # an attempt was faster; the state has events that are not in the journal: it is read anew
            self._keep(state, self._turn_states)
            active = [
                DueAttempt(step.id, step.attempts, step.spec.tag or "", self._preferred(step))
                for step in state.active.values()
                if state.status is _RUNNING
            ]
            return TurnResult(self._over(state), active, wake)
        raise Conflict(f"other processes kept writing to execution {execution}; this one wrote nothing")

    async def attempt(
        self, execution: str, step: str, attempt: int, leaving: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Perform an attempt, unless it has an outcome, was placed before, or is to be stopped.

        When `leaving` returns, the worker is about to end: the attempt is stopped, and its step runs elsewhere.
        """
        kept = self._attempt_states
        for _ in range(TRIES):
            state, new = await self._state(execution, kept)
            found = state.steps.get(step)
            if self._over(state) or found is None or found.id not in state.active or found.attempts != attempt:
                return
            started = _start_of(found, new)
            if started is None:
                kept = {}  # it is further back than the state that was kept: everything is read
                continue
            now = self._world.clock.now()
            first: ev.Event
            if found.worker:
                await self._ledger.abandon(execution, now, step)
                first = ev.AttemptStopped(now, step, attempt, "lost")
            elif (stop := stop_of(state, step, now, self._world)) is not None:
                first = ev.AttemptStopped(now, step, attempt, stop.reason)
            else:
                first = ev.AttemptPlaced(now, step, attempt, self._worker)
            ahead = await _look_ahead(self._world, state, [first], state.seq)
            try:
                await self._journal.append(execution, state.seq, [first], questions=ahead.questions)
            except Conflict:
                continue
            if isinstance(first, ev.AttemptPlaced):
                state.apply(first)
                driver = _AttemptDriver(state, self._world, self._runner_for(state), started, self._worker)
                await driver.perform(leaving)
                self._keep(state, self._attempt_states)
            return
        raise Conflict(f"other processes kept writing to execution {execution}; this one wrote nothing")

    def _preferred(self, step: StepState) -> str:
        """The worker of the agent's last attempt, for a moment: whoever is free then goes on with it."""
        if step.agent is None or step.worker or step.attempt_at is None:
            return ""
        return step.agent.worker if self._world.clock.now() - step.attempt_at < PREFERRED else ""

    def _over(self, state: State) -> bool:
        return state.status is not _RUNNING or state.driver != self._driver

    async def _state(self, execution: str, kept: dict[str, State]) -> tuple[State, list[ev.Event]]:
        """The state as the journal has it now, and the events that were read for it."""
        state = kept.pop(execution, None)
        new = [entry.event for entry in await self._journal.read(execution, state.seq if state is not None else 0)]
        if state is None:
            return folded(execution, new), new
        for event in new:
            state.apply(event)
        return state, new

    def _keep(self, state: State, kept: dict[str, State]) -> None:
        if self._over(state):
            return
        kept[state.id] = state
        if len(kept) > MOST_STATES:
            del kept[next(iter(kept))]

    def _runner_for(self, state: State) -> AttemptRunner:
        """The attempt runner with the tools that the plan brings, as far as this machine has them."""
        try:
            tools = self._load_tools(state.source)
        except UsageError:
            tools = ()  # the step that needs one says so
        runner = self._attempt_runner
        return msgspec.structs.replace(runner, tools=runner.tools.extended(tools)) if tools else runner


def _start_of(step: StepState, events: Sequence[ev.Event]) -> ev.AttemptStarted | None:
    """The start of the step's current attempt among these events."""
    for event in reversed(events):
        if isinstance(event, ev.AttemptStarted) and event.step == step.id and event.attempt == step.attempts:
            return event
    return None


def stop_of(state: State, step: str, now: float, world: World) -> Stop | None:
    """The command that stops this step's attempt, if `decide` gives one now."""
    if state.wanted is None and not state.to_skip and state.broken_by is None and state.prepared.timeout is None:
        return None
    commands = (one for one in decide(state, now, world.policy) if isinstance(one, Stop))
    return next((one for one in commands if one.step.id == step), None)


class _Ahead(NamedTuple):
    """The rest of the commit of some events."""

    questions: QuestionChanges | None = None
    """Changes to the index of open questions."""
    notes: Sequence[Note] = ()
    """Notifications."""


async def _look_ahead(world: World, state: State, events: Sequence[ev.Event], after: int) -> _Ahead:
    """Find what belongs into the commit of these events. The state stays as it is: others may be faster."""
    if not state.questions and not any(isinstance(event, _TOLD) for event in events):
        return _Ahead()
    entries = await world.journal.read(state.id)
    copy = folded(state.id, [entry.event for entry in entries if entry.seq <= after])
    before, watch = open_questions(copy), world.notifier.watch(copy) if world.notifier is not None else None
    for event in events:
        copy.apply(event)
    return _Ahead(changes_of(before, open_questions(copy)), watch(events) if watch is not None else ())


class _TurnDriver(Driver):
    """A driver for one turn. Its attempts run elsewhere."""

    async def take(self, messages: Sequence[Message]) -> float | None:
        """Take the turn; returns the seconds until the next one, if nothing happens before. Raises `Conflict`."""
        self._elsewhere = {step.id: step.attempts for step in self.state.active.values()}
        for message in messages:
            self.post(message)
        now = self._take_in()
        self._decide(now)
        if (left := self._leave()) is not None:
            self._record(left)  # attempts that it stops find that out themselves
        await self._commits.write()
        due = self._next_time()
        return None if due is None else max(0.0, due - self._world.clock.now())

    def _in_flight(self, step: StepState) -> bool:
        return self._elsewhere.get(step.id) == step.attempts

    def _stop(self, command: Stop) -> None:
        """Leave it to the attempt: it asks `decide` itself, and finds the same command."""

    def _started(self, step: StepState, arguments: dict[str, object], now: float) -> ev.AttemptStarted:
        started = super()._started(step, arguments, now)
        if step.prepared.effect is None and self.tools.get(started.tool) is None:
            # Another worker may have the tool. This one does not know if it may be repeated.
            return msgspec.structs.replace(started, effect=Effect.ONCE)
        return started


class _AttemptDriver(Driver):
    """Performs one attempt, and writes its events between those of others."""

    def __init__(
        self, state: State, world: World, attempt_runner: AttemptRunner, started: ev.AttemptStarted, worker: str
    ) -> None:
        super().__init__(state, world, attempt_runner, hold=True)
        self._step, self._number = started.step, started.attempt
        self._worker = worker
        self._waited = max(0.0, state.updated_at - started.at)
        """Seconds that it waited for a worker: that is no time of its work."""
        self._written = state.seq
        self._unwritten: list[ev.Event] = []
        """Events that are neither in the journal nor in the state."""
        self._launches = [(started, state.steps[started.step])]

    async def perform(self, leaving: Callable[[], Awaitable[object]] | None) -> None:
        """Perform it to its end; returns when its outcome is in the journal, or another one is."""
        place = self._attempt_runner.place(self.state.id, self.state.workdir, self.state.plan.limits.memory)
        leaver = asyncio.ensure_future(leaving()) if leaving is not None else None
        try:
            if (missing := self._missing(place.workdir)) is not None:
                self._ended.append(AttemptEnd(self._step, self._number, Outcome.failed(missing)))
            else:
                self._place = place
                self._launch_all()
            while self._is_current():
                await self._something()
                if leaver is not None and leaver.done() and self._step in self._tasks:
                    self._stop(Stop(self.state.steps[self._step], "lost"))
                if not self._ended or self._stopping:
                    await self._look()  # whoever has ended finds the events of others when it writes
                self._take_in()
                witnesses, self._commits.witnesses = self._commits.witnesses, []
                await self._write()
                for witness in witnesses:
                    if not witness.done():
                        witness.set_result(None)
        except _Superseded:
            return
        finally:
            if leaver is not None:
                leaver.cancel()
            await self._let_go()

    def _is_current(self) -> bool:
        step = self.state.steps.get(self._step)
        return (
            step is not None
            and self.state.status is _RUNNING
            and step.id in self.state.active
            and step.attempts == self._number
            and step.worker == self._worker
        )

    def _missing(self, workdir: Path) -> Failure | None:
        """The failure of a step that needs something which this worker does not have."""
        if not workdir.is_dir():
            message = f"the working directory {workdir} does not exist on worker {self._worker}"
            advice = "share it between the workers, or give the step a `tag` of workers that have it"
            return Failure(Category.CONFIGURATION, message, advice=(advice,))
        step = self.state.steps[self._step]
        if step.spec.is_agent and step.kept is not None and not self._attempt_runner.brings_files:
            message = f"the files of step {self._step} are in a store, and worker {self._worker} has no setting `store`"
            return Failure(Category.CONFIGURATION, message, advice=("give all workers the same setting `store`",))
        return None

    def _take_end(self, end: AttemptEnd, now: float) -> None:
        end.queued += round(self._waited, 3)
        super()._take_end(end, now)

    async def _turn_at_end(self, row: int, began: float) -> None:
        self._wake()

    def _next_time(self) -> float | None:
        return self._world.clock.now() + LOOK

    def _record(self, event: ev.Event) -> None:
        """Applied to the state once it is in the journal: the events of others may come before it."""
        self._unwritten.append(event)

    async def _look(self) -> bool:
        """Take in the events of others; True if there were any. Raises `_Superseded` if they end this attempt."""
        entries = await self._world.journal.read(self.state.id, self._written)
        for entry in entries:
            event = entry.event
            self.state.apply(event)
            self._written = entry.seq
            if isinstance(event, ev.ApprovalAnswered):
                answer = self._answers.pop((event.step, event.digest), None)
                if answer is not None and not answer.done():
                    answer.set_result(Answer(event.allow, event.note))
            elif isinstance(event, ev.AgentTold) and (heard := self._listening.pop(event.step, None)) is not None:
                heard.set_result(None)
        if not self._is_current():
            raise _Superseded
        now = self._world.clock.now()
        if self._step in self._tasks and (stop := stop_of(self.state, self._step, now, self._world)) is not None:
            self._stop(stop)
        return bool(entries)

    async def _write(self) -> None:
        """Append what there is, after the events of others. Raises `_Superseded` if the attempt is not current."""
        tries = 0
        while batch := list(self._unwritten):
            ahead = await _look_ahead(self._world, self.state, batch, self._written)
            questions, notes = ahead
            try:
                await self._world.journal.append(self.state.id, self._written, batch, questions=questions, notes=notes)
            except Conflict:
                tries = 0 if await self._look() else tries + 1
                if tries > TRIES:
                    raise
                continue
            del self._unwritten[: len(batch)]
            for event in batch:
                self.state.apply(event)
            self._written += len(batch)
            if notes and self._world.notifier is not None:
                self._world.notifier.committed(notes)


class _Superseded(Exception):
    """The attempt has another end in the journal, or its execution another driver."""
