"""The local driver: carries out the commands of `decide` for one execution, and writes down the results.

    decide → append (one commit) → launch → wait → take in events → decide …

Journal, act, journal: an attempt is launched only after its `attempt.started` is on disk, and nothing that
follows from an outcome happens before the outcome is. An outcome and the next attempt's start share a commit.
Attempts without effect are the exception: one may follow another before both are on disk (`CommitWriter` says when).
If the journal refuses (`Conflict`: another process took over; or the disk is full), everything in flight is
stopped, nothing more is written, and the next driver finds a true journal.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.decide import Launch, Policy, Record, Stop, decide
from windlass.core.resources import Resources
from windlass.core.standing import pause_event
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus
from windlass.engine.commit_writer import CommitWriter
from windlass.engine.contact import AttemptContext, AttemptOutput
from windlass.engine.inbox import to_events
from windlass.engine.perform import AttemptRunner, Outcome
from windlass.errors import Category, Failure, classify
from windlass.plan.model import Effect
from windlass.ports import Answer, CurrentAttempt, Journal, Message, Meter, Toolbox, current_attempt

if TYPE_CHECKING:
    from windlass.engine.services import KeptServices
    from windlass.ports.notify import Notifier

__all__ = ["AttemptEnd", "Driver", "World"]

OUTPUT_FLUSH = 0.1
"""Seconds that output may wait for company before it is written."""
MOST_IN_A_ROW = 5
"""Attempts that one task performs in a row: then everything else on the loop has its turn."""
SHORT_ATTEMPT = 0.0025
"""Seconds up to which an attempt may be followed by another one in its task."""
LONGEST_NAP = 5.0
"""Timers are looked at again at least this often, so that a sleeping computer's clock is noticed."""
_RUNNING, _NONE = ExecutionStatus.RUNNING, Effect.NONE
ABANDON_AFTER = 5.0
"""Seconds past the grace period after which a tool that ignores its cancellation is left behind."""


class World(msgspec.Struct, frozen=True):
    """Services that all drivers of an engine share."""

    journal: Journal
    clock: Clock
    policy: Policy
    committed: Callable[[str, list[ev.Event], int], None]
    """Called after each commit with the execution's id, its new events, and the sequence of the last of them."""
    notifier: Notifier | None = None


class AttemptEnd(msgspec.Struct):
    """The end of an attempt, before it is written."""

    step: str
    attempt: int
    outcome: Outcome | None
    """None when it was stopped before it came to an end."""
    used: Resources | None = None
    queued: float = 0.0


_Start = tuple[ev.AttemptStarted, StepState]


class Driver:
    """Drives one execution in this process."""

    def __init__(
        self,
        state: State,
        world: World,
        attempt_runner: AttemptRunner,
        *,
        hold: bool,
        created: ev.ExecutionCreated | None = None,
    ) -> None:
        """`created` is the first event when it is not in the journal yet (the state has it already)."""
        self.state = state
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._context = contextvars.copy_context()
        """Every attempt begins in a copy of it, unaffected by earlier ones."""
        self.acknowledged = asyncio.Event()
        """Set when the first commit is on disk."""
        self._world = world
        self._attempt_runner = attempt_runner
        self._hold = hold
        """Stay while only a person can go on, instead of pausing the execution."""
        self._commits = CommitWriter(
            state,
            world.journal,
            world.notifier,
            created=created,
            only_looks=attempt_runner.only_looks,
            on_disk=self._on_disk,
            wake=self._wake,
        )
        self._launches: list[_Start] = []
        """Attempts that are launched once their starts, which are in the batch, are on disk."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, Stop] = {}
        self._ended: list[AttemptEnd] = []
        self._heard: list[ev.Event] = []
        """Events from attempts since the last turn, in order."""
        self._answers: dict[tuple[str, str], asyncio.Future[Answer]] = {}
        """Agents that wait for a person's answer, by step and digest."""
        self._listening: dict[str, asyncio.Future[None]] = {}
        """Agents that wait for a person's message, by step."""
        self._deaf: set[str] = set()
        """Steps whose agent is done, while its attempt is still ending: it would never get a message."""
        self._mail: list[Message] = []
        self._caught_up: set[int] = set()
        """Messages that were taken care of at the start, should they be delivered once more."""
        self._decided_at = 0.0
        self._trouble: BaseException | None = None
        """The error of a turn at an attempt's end."""
        self._over = False
        """`run` has ended: nothing more is launched."""
        self._waker: asyncio.Future[None] | None = None
        self._woken = False
        """Something happened during a commit: the next wait returns at once."""
        self._flush_timer: asyncio.TimerHandle | None = None
        self._services: KeptServices | None = None
        """The services of the plan, if it has some."""

    @property
    def tools(self) -> Toolbox:
        """The tools of its steps."""
        return self._attempt_runner.tools

    async def run(self, *opening: ev.Event) -> None:
        """Go on until the execution is finished or paused."""
        for event in opening:
            self._record(event)
        self._place = self._attempt_runner.place(self.state.id, self.state.workdir, self.state.plan.limits.memory)
        if self.state.prepared.services:
            from windlass.engine.services import KeptServices  # few plans have some

            grace, asks = self._attempt_runner.grace, self._world.policy.asks
            self._services = KeptServices(self.state, self._perform, self._note, grace, asks)
        now = self._world.clock.now()
        try:
            while True:
                if self._turn(now):
                    await self._commits.write()
                self._launch_all()
                if self.state.status is not _RUNNING:
                    return
                if (left := self._leave()) is not None:
                    self._record(left)
                    now = left.at
                    continue
                await self._something()
                if (trouble := self._trouble or self._commits.failed) is not None:
                    raise trouble
                now = self._take_in()
        finally:
            self._over = True
            self._commits.close()
            self.acknowledged.set()  # also if it ended before a first commit: the task says why
            await self._let_go()

    def _leave(self) -> ev.Event | None:
        """The event that pauses the execution when only a person can go on and nobody is here to answer."""
        state = self.state
        if state.active and not state.questions:
            return None  # an attempt is at work
        return pause_event(state, self._world.clock.now(), self._world.policy, hold=self._hold)

    def _turn(self, now: float) -> bool:
        """Decide. Returns False if the attempts that start may be launched before everything is written."""
        self._decide(now)
        if self._launches and self._launches[0][0].effect == _NONE and self._commits.may_overlap():
            self._commits.write_soon()
            return False
        return True

    async def _turn_at_end(self, row: int, began: float) -> _Start | None:
        """One turn of `run`, in the task of the only attempt, which has ended. Returns the attempt to go on with.

        Nothing else can happen in this turn of the loop, and to wake `run` would cost two switches of tasks for every
        step of a chain. `run` waits meanwhile, and is woken if there is something to do but to wait for an attempt.
        """
        waker, self._waker = self._waker, None
        following: _Start | None = None
        try:
            now = self._take_in()
            if self._turn(now):
                await self._commits.write()
            if row < MOST_IN_A_ROW and len(self._launches) == 1 and now - began < SHORT_ATTEMPT and not self._over:
                following = self._go_on()
            self._launch_all()
        except Exception as error:
            self._trouble = error
        finally:
            self._waker = waker
        state = self.state
        if following is not None and not (self._woken or state.timers or state.questions):
            return following  # there is nothing else to wait for
        waits = self._trouble is None and state.status is _RUNNING and not state.timers
        if not waits or self._woken or self._leave() is not None:
            self._wake()
        return following

    def post(self, message: Message) -> None:
        """Hand in a message for this execution; it is acted on in the next turn."""
        if message.id not in self._caught_up:
            self._mail.append(message)
            self._wake()

    def catch_up(self, message: Message) -> None:
        """Take a message that the last driver did not read before it died. A resume answers an old pause."""
        if message.body.get("kind") in ("pause", "interrupt"):
            self.answered(message)
        else:
            self._caught_up.add(message.id)
            self._mail.append(message)

    def answered(self, message: Message) -> None:
        """A message that is taken care of: it is gone with the first commit."""
        self._caught_up.add(message.id)
        self._commits.consumed.append(message.id)

    # -- deciding and writing --------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        self._decided_at = now
        recorded = True
        while recorded:
            recorded = False
            if self._services is not None and not self.state.status.finished:  # nothing comes after the end
                for step in self._services.release():
                    text = "the service is ended: the steps that need it have ended\n"
                    self._record(ev.OutputWritten(now, step.id, step.attempts, "note", text))
            for command in decide(self.state, now, self._world.policy):
                if isinstance(command, Launch):
                    started = self._started(command.step, command.arguments, now)
                    self._record(started)
                    self._launches.append((started, command.step))
                elif isinstance(command, Record):
                    event = command.event
                    if type(event) is ev.ApprovalAsked:
                        event = self._attempt_runner.grounded(event, self.state.steps[event.step], self.state.workdir)
                    self._record(event)
                    recorded = True  # it may have made something else possible
                elif self._in_flight(command.step):
                    self._stop(command)
                else:
                    # It was to start in this very turn, and a later decision stopped it: it never starts.
                    self._launches = [launch for launch in self._launches if launch[1] is not command.step]
                    self._record(ev.AttemptStopped(now, command.step.id, command.step.attempts, command.reason))
                    recorded = True

    def _in_flight(self, step: StepState) -> bool:
        """True if the step's attempt was launched in an earlier turn."""
        return step.id in self._tasks

    def _started(self, step: StepState, arguments: dict[str, object], now: float) -> ev.AttemptStarted:
        effect = self._attempt_runner.effect(step, arguments)
        reduced = step.failures.get(Category.RESOURCE, 0) if step.failures else 0
        return ev.AttemptStarted(now, step.id, step.attempts + 1, step.prepared.tool, arguments, effect, reduced)

    def _record(self, event: ev.Event) -> None:
        self.state.apply(event)
        self._commits.batch.append(event)
        if self._answers and isinstance(event, ev.ApprovalAnswered):
            waiting = self._answers.pop((event.step, event.digest), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(Answer(event.allow, event.note))

    def _on_disk(self, events: list[ev.Event], seq: int) -> None:
        """Tell everybody who waits for these events that they are written."""
        if not self.acknowledged.is_set():
            self.acknowledged.set()
        self._world.committed(self.state.id, events, seq)
        if self._listening:
            for event in events:
                if isinstance(event, ev.AgentTold) and (waiting := self._listening.pop(event.step, None)) is not None:
                    waiting.set_result(None)

    # -- attempts --------------------------------------------------------------------------------

    def _launch_all(self) -> None:
        if not self._launches or self._over:
            return
        launches, self._launches = self._launches, []
        for started, step in launches:
            # Made directly and with a name: `create_task` would think one up for each.
            attempt, context = self._attempt(started, step), self._context.copy()
            self._tasks[step.id] = asyncio.Task(attempt, loop=self._loop, name=step.id, context=context)

    def _go_on(self) -> _Start | None:
        """Let this task perform the one attempt that starts, unless its last one left something behind in it."""
        task = asyncio.current_task()
        if task is None or task.cancelling() or contextvars.copy_context() != self._context:
            return None
        following = self._launches.pop()
        task.set_name(following[1].id)
        self._tasks[following[1].id] = task
        return following

    async def _attempt(self, started: ev.AttemptStarted, step: StepState) -> None:
        """Perform an attempt, and those of a chain that follow it at once: a task for each costs as much as a step."""
        row = 0
        following: _Start | None = (started, step)
        while following is not None:
            started, step = following
            row, began = row + 1, self._world.clock.now()
            outcome: Outcome | None = None
            meter = Meter()
            token = current_attempt.set(CurrentAttempt(self.state.id, started.step, started.attempt))  # for log lines
            try:
                performing = self._perform(started, step, meter)
                outcome = await (performing if self._services is None else self._services.around(step, performing))
            except Exception as error:  # an attempt that breaks in a way nobody foresaw has failed
                outcome = Outcome.failed(classify(error))
            finally:
                # On cancellation too: an attempt's end is always noticed.
                queued = round(meter.queued, 3) if meter.queued else 0.0
                self._ended.append(AttemptEnd(started.step, started.attempt, outcome, meter.used, queued))
                idle = self._waker is not None and not self._waker.done()
                alone = outcome is not None and idle and len(self._tasks) == 1
                if not alone:
                    self._wake()
            if not alone:
                return
            current_attempt.reset(token)
            following = await self._turn_at_end(row, began)

    def _perform(self, started: ev.AttemptStarted, step: StepState, meter: Meter) -> Coroutine[Any, Any, Outcome]:
        contact = AttemptContext(self, step, self._attempt_runner.tools, self._attempt_runner.gates)
        contact.services = self._services
        output = AttemptOutput(self, started)
        return self._attempt_runner.perform(started, step, self._place, output, contact, meter)

    def _note(self, step: StepState, text: str) -> None:
        """Write a line about a service to the output of its step."""
        self._heard.append(ev.OutputWritten(self._world.clock.now(), step.id, step.attempts, "note", text))
        self._wake()

    def _stop(self, command: Stop) -> None:
        step = command.step.id
        if step in self._stopping:
            return
        self._stopping[step] = command
        task, attempt = self._tasks[step], command.step.attempts
        # A task that is cancelled before its first turn never gets to say that it has ended.
        task.add_done_callback(lambda _task: self._leave_behind(step, attempt))
        task.cancel()
        self._loop.call_later(self._attempt_runner.grace + ABANDON_AFTER, self._leave_behind, step, attempt)

    def _leave_behind(self, step: str, attempt: int) -> None:
        """Count an attempt as ended if its tool ignores the stop: it must not keep the execution from pausing."""
        current = self.state.steps.get(step)
        said = any(end.step == step for end in self._ended)
        if step in self._stopping and not said and current is not None and current.attempts == attempt:
            self._ended.append(AttemptEnd(step, attempt, None))
            self._wake()

    def show(self, started: ev.AttemptStarted, stream: str, text: str) -> None:
        """Show output of an attempt. Calls from other threads are passed on to the loop."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.show, started, stream, str(text))
        elif plain := str(text).encode("utf-8", "replace").decode():
            now = self._world.clock.now()
            self.hear(ev.OutputWritten(now, started.step, started.attempt, stream, plain), soon=False)

    def hear(self, event: ev.Event, *, soon: bool = True, within: str = "") -> None:
        """Queue an attempt's event; unless `soon`, batch it for up to 0.1 s.

        `within` is the step of the attempt, where the event is about another one.
        """
        by = within or getattr(event, "step", "")
        if by not in self._tasks and (self._services is None or by not in self._services):
            return
        self._heard.append(event)
        if soon:
            self._wake()
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(OUTPUT_FLUSH, self._wake)

    def written(self) -> asyncio.Future[None]:
        """Done when everything heard so far is on disk."""
        witness: asyncio.Future[None] = self._loop.create_future()
        self._commits.witnesses.append(witness)
        return witness

    def asked(self, step: str, digest: str) -> asyncio.Future[Answer]:
        """A person's answer to a request of this step's agent, when it comes."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answers[step, digest] = answer
        return answer

    async def history(self, execution: str = "") -> list[ev.Event]:
        written = self.written()
        self._wake()  # nothing else may happen in the meantime
        await written
        return [entry.event for entry in await self._world.journal.read(execution or self.state.id)]

    def message(self, step: str) -> asyncio.Future[None]:
        """Done when the next message of a person to this step's agent is on disk."""
        if step not in self._listening:
            self._listening[step] = self._loop.create_future()
        return self._listening[step]

    def close(self, step: str) -> None:
        """This step's agent takes no more messages: its attempt is about to end."""
        self._deaf.add(step)

    def question(
        self, step: StepState, digest: str, tool: str, input: Any, basis: Mapping[str, str], text: str, workdir: str
    ) -> ev.ApprovalAsked:
        now = self._world.clock.now()
        expires_at = now + (step.spec.approve_within or self._world.policy.approval_expiry)
        return ev.ApprovalAsked(
            now, step.id, digest, tool, input, expires_at, step.attempts, text, dict(basis), workdir
        )

    async def _let_go(self) -> None:
        """Leave nothing running: on a clean end there is nothing, after an error there may be."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for task in self._tasks.values():
            task.cancel()
        await self._commits.settled()
        if self._tasks:
            limit = self._attempt_runner.grace + ABANDON_AFTER
            await asyncio.wait(self._tasks.values(), timeout=limit)
        if self._services is not None:
            await self._services.close()

    # -- waiting ---------------------------------------------------------------------------------

    async def _something(self) -> None:
        """Wait for an attempt's end, a message, something to write, or a time."""
        if self._ended or self._mail or self._commits.witnesses or self._woken:
            self._woken = False
            return
        self._waker = self._loop.create_future()
        timer = None
        due = self._next_time()
        if due is not None:
            nap = min(max(0.0, due - self._world.clock.now()), LONGEST_NAP)
            timer = self._loop.call_later(nap, self._wake)
        try:
            await self._waker
        finally:
            self._waker = None
            if timer is not None:
                timer.cancel()

    def _next_time(self) -> float | None:
        # Steps that were due at the last decision wait for room or for an attempt's end: a timer for them would
        # fire at once, again and again.
        state = self.state
        due = state.next_timer(self._decided_at)
        left = state.time_left(self._decided_at)
        if left is not None and left > 0:
            end = self._decided_at + left
            due = end if due is None else min(due, end)
        return due

    def _wake(self) -> None:
        if self._waker is None:
            self._woken = True
        elif not self._waker.done():
            self._waker.set_result(None)

    # -- taking in -------------------------------------------------------------------------------

    def _take_in(self) -> float:
        """Record everything that has happened; returns the time of that."""
        now = self._world.clock.now()
        if self._heard:
            self._take_heard()
        if self._ended:
            ended, self._ended = self._ended, []
            for end in ended:
                self._take_end(end, now)
        if self._mail:
            mail, self._mail = self._mail, []
            for message in mail:
                self._commits.consumed.append(message.id)
                if message.body.get("kind") == "say" and message.body.get("step") in self._deaf:
                    continue  # whoever sent it asks again, and finds the step settled
                for event in to_events(self.state, message, now):
                    self._record(event)
        return now

    def _take_heard(self) -> None:
        """Join neighbouring pieces of the same stream into one event; of a step's usage only the last report counts."""
        heard, self._heard = self._heard, []
        self._flush_timer = None
        for _, together in groupby(heard, key=_what_it_adds_to):
            first, *more = together
            if isinstance(first, ev.OutputWritten) and more:
                text = "".join([first.text, *(piece.text for piece in more if isinstance(piece, ev.OutputWritten))])
                self._record(msgspec.structs.replace(first, text=text))
            elif isinstance(first, ev.UsageReported):
                self._record(more[-1] if more else first)
            else:
                for event in (first, *more):
                    self._record(event)

    def _take_end(self, end: AttemptEnd, now: float) -> None:
        step = self.state.steps[end.step]
        if step.attempts != end.attempt:
            return  # it was left behind before, and what is kept here is about another attempt of the step
        self._tasks.pop(end.step, None)
        if self._deaf:
            self._deaf.discard(end.step)
        stop = self._stopping.pop(end.step, None) if self._stopping else None
        if step.id not in self.state.active:
            return  # it was left behind before; its late end changes nothing
        outcome = end.outcome
        if outcome is not None and outcome.failure is None and outcome.held is None and not outcome.outdated:
            self._record(ev.AttemptFinished(now, end.step, end.attempt, outcome.value, end.used, end.queued))
        elif outcome is None and stop is not None:
            self._record(ev.AttemptStopped(now, end.step, end.attempt, stop.reason, end.used, queued=end.queued))
        elif outcome is None:
            failure = Failure(Category.LOGIC, "the tool cancelled itself", end.step)
            self._record(ev.AttemptFailed(now, end.step, end.attempt, failure, None, end.used, end.queued))
        elif outcome.held is not None:
            reason = outcome.held.reason
            self._record(ev.AttemptStopped(now, end.step, end.attempt, reason, end.used, queued=end.queued))
            if (waiting := outcome.held.waiting(now, end.step)) is not None:
                self._record(waiting)
        elif outcome.outdated:
            changed = outcome.outdated
            self._record(ev.AttemptStopped(now, end.step, end.attempt, "changed", end.used, changed))
        elif outcome.cut_off and step.effect == Effect.ONCE:
            # It may have taken effect before it was ended: that is for a person to find out, not to be repeated.
            self._record(ev.AttemptStopped(now, end.step, end.attempt, "timeout", end.used, queued=end.queued))
        elif outcome.failure is not None:
            failure = outcome.failure.located(end.step)
            failed = ev.AttemptFailed(now, end.step, end.attempt, failure, outcome.value, end.used, end.queued)
            self._record(failed)


def _what_it_adds_to(event: ev.Event) -> tuple[Any, ...]:
    """The same for neighbours that become one."""
    if isinstance(event, ev.OutputWritten):
        return "output", event.step, event.attempt, event.stream
    return ("usage", event.step) if isinstance(event, ev.UsageReported) else ()
