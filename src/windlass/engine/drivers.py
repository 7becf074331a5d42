"""The drivers of this process: made, started, given their messages and ended here."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.agents.tool import AgentTool
from windlass.engine.commit_writer import head_of
from windlass.engine.driver import Driver, World
from windlass.engine.forecasts import Forecasts
from windlass.engine.observer import Drivers, wait_for_news
from windlass.engine.perform import AttemptRunner
from windlass.errors import Conflict, JournalError, UsageError, WindlassError
from windlass.ports import Head, Journal, Message, Sandbox, Tool
from windlass.version import __version__

if TYPE_CHECKING:
    from windlass.ports.cluster import Cluster
    from windlass.ports.notify import Notifier

__all__ = ["Launcher", "LocalDrivers"]

_log = logging.getLogger("windlass.engine")

TAKEOVER_CHECK = 1.0
"""Seconds between two checks for executions that another process has taken over."""


class LocalDrivers(Drivers):
    """One driver for each execution that goes on in this process."""

    def __init__(self, journal: Journal, clock: Clock, label: str = "") -> None:
        """`label` is part of the drivers' name: the next server finds the executions of the last one by it."""
        super().__init__(journal)
        self.clock = clock
        self._label = label
        self._name = ""
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[State]] = {}
        self._inbox_task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def name(self) -> str:
        """The name under which this process drives. Made when first needed: reading needs none."""
        if not self._name:
            self._name = self.journal.enlist(self._label)
        return self._name

    def __contains__(self, execution: str) -> bool:
        return execution in self._drivers

    def __getitem__(self, execution: str) -> Driver:
        return self._drivers[execution]

    def __len__(self) -> int:
        return len(self._drivers)

    def alive(self, head: Head | State) -> bool:
        """True if the process named as its driver still drives it."""
        # This process lives, but it may no longer drive the execution.
        return head.id in self._drivers if head.driver == self._name else self.journal.alive(head.driver)

    def task(self, execution: str) -> asyncio.Task[State] | None:
        """The task that drives it, if this process does.

        One whose beginning is not on disk yet may find that it came too late, and then it never drives it.
        """
        driver = self._drivers.get(execution)
        return self._tasks.get(execution) if driver is not None and driver.acknowledged.is_set() else None

    def changing(self, execution: str) -> bool:
        """True while a driver here has a beginning that is not on disk yet, or an end that is."""
        driver = self._drivers.get(execution)
        if driver is None:
            return False
        return not driver.acknowledged.is_set() or driver.state.status is not ExecutionStatus.RUNNING

    async def let_go(self, execution: str) -> None:
        """Wait until no driver here is about to have it, nor holds it for a moment after its end."""
        while self.changing(execution):
            driver, task = self._drivers[execution], self._tasks[execution]
            await driver.acknowledged.wait()
            if driver.state.status is not ExecutionStatus.RUNNING:
                await asyncio.wait({task})

    def driven_state(self, execution: str) -> State | None:
        """Its state as the driver here has it, if there is one; do not change it."""
        driver = self._drivers.get(execution)
        return driver.state if driver is not None else None

    def driven_states(self) -> list[State]:
        """The states of all executions that are driven here; do not change them."""
        return [driver.state for driver in self._drivers.values()]

    async def drive(self, driver: Driver, opening: Sequence[ev.Event]) -> asyncio.Task[State]:
        """Drive it in a task of its own. Returns when the opening is on disk, raises if it cannot be."""
        if self._closing:
            raise UsageError("this engine is closed: nothing was done", advice=("open another one: windlass.open(…)",))
        state, execution = driver.state, driver.state.id
        taken_over = state.status is ExecutionStatus.RUNNING and state.driver == self.name
        if execution in self._drivers and not taken_over:
            raise Conflict(f"there is an execution {execution} already, which runs here; nothing was written")
        loop = asyncio.get_running_loop()
        self._drivers[execution] = driver
        task = self._tasks[execution] = loop.create_task(self._run(driver, opening))
        if self._inbox_task is None:
            self._inbox_task = loop.create_task(self._read_inbox())
        await driver.acknowledged.wait()
        if task.done():
            task.result()
        return task

    def post(self, execution: str, body: dict[str, Any]) -> None:
        """Give a driver here a message."""
        self._drivers[execution].post(Message(0, execution, self.clock.now(), body))

    async def deliver(self, execution: str, body: dict[str, Any]) -> bool:
        """Give a driver here a message and wait until its effect is on disk; False if it paused before."""
        driver, task = self._drivers[execution], self._tasks[execution]
        driver.post(Message(0, execution, self.clock.now(), body))
        written = driver.written()
        either: set[asyncio.Future[Any]] = {written, task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not written.done():
            task.result()
        return written.done()

    async def close(self, reason: str = "") -> None:
        """Interrupt all executions here and wait until they have stopped; `reason` is why, if it is given."""
        self._closing = True
        for execution in list(self._drivers):
            self.post(execution, {"kind": "interrupt", "by": "the engine closing", "reason": reason})
        loop = asyncio.get_running_loop()
        # A task of a loop that has ended comes to no end.
        if driving := [task for task in self._tasks.values() if task.get_loop() is loop]:
            await asyncio.wait(driving)
        if self._inbox_task is not None and self._inbox_task.get_loop() is loop:
            self._inbox_task.cancel()
            await asyncio.wait({self._inbox_task})

    async def _run(self, driver: Driver, opening: Sequence[ev.Event]) -> State:
        state = driver.state
        try:
            await driver.run(*opening)
        except Exception as error:  # its waiters get it, but there may be none
            trace = None if isinstance(error, WindlassError) else error
            _log.warning("the driver of %s stopped: %s", state.id, error, exc_info=trace)
            if (task := asyncio.current_task()) is not None:
                task.add_done_callback(_retrieve)
            raise
        finally:
            if self._drivers.get(state.id) is driver:  # and not one that took over here
                del self._drivers[state.id], self._tasks[state.id]
        self.commits.publish(state.id, (), state.seq)
        return state

    async def _read_inbox(self) -> None:
        """Hand other processes' messages to the drivers here."""
        seen, since_check = 0, 0.0
        news = asyncio.Event()
        self.journal.listen(self.name, news.set)
        while True:
            news.clear()
            try:
                for message in await self.journal.receive(seen):
                    seen = message.id
                    if message.execution in self._drivers:
                        self._drivers[message.execution].post(message)
                if since_check >= TAKEOVER_CHECK:
                    since_check = 0.0
                    await self._release_lost()
            except JournalError as error:
                # The file may be locked for a while: the messages wait in it. If the file is lost, the drivers find
                # out themselves, and say so.
                _log.debug("the inbox cannot be read now: %s", error)
            except Exception:  # no error may end the delivery for all executions
                _log.exception("messages could not be delivered; trying again")
            since_check += await wait_for_news(news, self.journal)

    async def _release_lost(self) -> None:
        """Interrupt drivers whose execution another process took over while they only wait: they would wait for ever.

        Made to write something, such a driver finds that it cannot (`Conflict`), and ends.
        """
        ours = [name for name, driver in self._drivers.items() if driver.acknowledged.is_set()]
        if not ours:
            return
        running = await self.journal.heads(statuses=[ExecutionStatus.RUNNING])
        kept = {head.id for head in running if head.driver == self.name}
        for name in ours:
            if name not in kept and name in self._drivers:
                self.post(name, {"kind": "interrupt", "by": "another driver"})


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Asyncio need not complain that nobody waited for a driver whose error was logged."""
    if not task.cancelled():
        task.exception()


def environment_of(sandbox: Sandbox | None) -> dict[str, str]:
    """The versions here that matter for going on with an execution."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = {"quickjs": sandbox.version} if sandbox is not None else {}
    return {"windlass": __version__, "python": python, **code}


def _refuse_services(state: State) -> None:
    """Raise `UsageError` for a plan with services: they live in the process that drives the execution."""
    if services := sorted(state.prepared.services):
        named = f"the service{'s' if len(services) > 1 else ''} {', '.join(services)}"
        raise UsageError(
            f"{named} of plan {state.plan.name} cannot run on workers: steps that need it may be elsewhere",
            advice=(
                "run it on one machine: without the setting `temporal`",
                "or start it outside of the plan, at an address that all workers reach",
            ),
        )


class Launcher:
    """Makes the driver of an execution, and the event with which it begins."""

    def __init__(
        self,
        drivers: LocalDrivers,
        policy: Policy,
        attempt_runner: AttemptRunner,
        agents: AgentTool | None,
        sandbox: Sandbox | None,
        forecasts: Forecasts,
        notifier: Notifier | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.attempt_runner = attempt_runner
        self.policy = policy
        self._drivers = drivers
        self._agents = agents
        self._sandbox = sandbox
        self._forecasts = forecasts
        self._cluster = cluster
        self.world = World(drivers.journal, drivers.clock, policy, drivers.commits.publish, notifier)

    @cached_property
    def environment(self) -> dict[str, str]:
        """The versions here that an execution may depend on."""
        return environment_of(self._sandbox)

    def driver(
        self, state: State, tools: Sequence[Tool] = (), *, hold: bool, created: ev.ExecutionCreated | None = None
    ) -> Driver:
        """Make a driver with `tools` beside those of the engine."""
        if self._agents is not None:
            self._agents.prepare(state)
        attempt_runner = self.attempt_runner
        if tools:
            attempt_runner = msgspec.structs.replace(attempt_runner, tools=attempt_runner.tools.extended(tools))
        return Driver(state, self.world, attempt_runner, hold=hold, created=created)

    def check(self, state: State) -> None:
        """Raise `UsageError` for an execution that the workers of the cluster, if there is one, cannot drive."""
        if self._cluster is not None:
            _refuse_services(state)

    def opening(self, state: State, workdir: str | None = None, *, local: bool = False) -> ev.Event:
        """Make the event that starts a pending execution or resumes another one; with `local`, in this process."""
        now = self._drivers.clock.now()
        name = self._drivers.name if local or self._cluster is None else self._cluster.driver
        if state.status is ExecutionStatus.PENDING and workdir is None:
            return ev.ExecutionStarted(now, name)
        here = self.environment
        return ev.ExecutionResumed(now, name, workdir, here if here != state.environment else {})

    async def launch(
        self,
        state: State,
        opening: Sequence[ev.Event],
        tools: Sequence[Tool] = (),
        *,
        hold: bool,
        created: ev.ExecutionCreated | None = None,
        messages: Sequence[Message] = (),
    ) -> asyncio.Task[State] | None:
        """Drive it here, or hand it over to the workers of a cluster if there is one: then there is no task.

        Returns when the opening is on disk. `messages` are those that its last driver did not read.
        """
        if self._cluster is None:
            driver = self.driver(state, tools, hold=hold, created=created)
            for message in messages:
                driver.catch_up(message)
            return await self.drive(driver, opening)
        batch = [*([created] if created is not None else []), *opening]
        after, before = state.seq - (created is not None), open_questions(state)
        for event in opening:
            state.apply(event)
        self.check(state)  # with the plan that it goes on with
        await self._cluster.connect()  # before anything is written
        old = [one.id for one in messages if one.body.get("kind") in ("pause", "interrupt")]  # answered by this
        changes = changes_of(before, open_questions(state))
        await self._drivers.journal.append(state.id, after, batch, head=head_of(state), consumed=old, questions=changes)
        await self._cluster.start(state.id, hold=hold)
        return None

    async def drive(self, driver: Driver, opening: Sequence[ev.Event]) -> asyncio.Task[State]:
        """Drive it in a task of its own; returns when the opening is on disk."""
        task = await self._drivers.drive(driver, opening)
        self._forecasts.attend(driver, task)
        return task
