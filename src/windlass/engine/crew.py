"""The drivers of this process: started here, brought their mail here, ended here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.driver import Driver
from windlass.engine.observer import POLL
from windlass.errors import JournalError, WindlassError
from windlass.ports import Journal, Message

__all__ = ["Crew"]

_log = logging.getLogger("windlass.engine")

LOOK_ROUND = 10
"""Looks at the inbox between looks for executions that somebody else has taken over."""


class Crew:
    """One driver for each execution that goes on in this process."""

    def __init__(
        self, journal: Journal, clock: Clock, name: Callable[[], str], ended: Callable[[str, bool], None]
    ) -> None:
        """`name` is what this process drives under; `ended` hears of each end, and whether it was a good one."""
        self._journal = journal
        self._clock = clock
        self._name = name
        self._ended = ended
        self._drivers: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[State]] = {}
        self._postman: asyncio.Task[None] | None = None

    def __contains__(self, execution: str) -> bool:
        return execution in self._drivers

    def __len__(self) -> int:
        return len(self._drivers)

    def task(self, execution: str) -> asyncio.Task[State] | None:
        """What drives it, for those who wait for its end."""
        return self._tasks.get(execution)

    async def drive(self, driver: Driver, opening: Sequence[ev.Event]) -> asyncio.Task[State]:
        """Drive it in a task of its own. Returns when the opening is on disk, raises if it cannot be."""
        execution = driver.state.id
        loop = asyncio.get_running_loop()
        self._drivers[execution] = driver
        task = self._tasks[execution] = loop.create_task(self._run(driver, opening))
        task.add_done_callback(partial(_note_end, execution))
        if self._postman is None:
            self._postman = loop.create_task(self._deliver_mail())
        await driver.acknowledged
        if task.done():
            task.result()
        return task

    def post(self, execution: str, body: dict[str, Any]) -> None:
        """Give a driver here a message."""
        self._drivers[execution].post(Message(0, execution, self._clock.now(), body))

    async def deliver(self, execution: str, body: dict[str, Any]) -> bool:
        """The same, and returns when what the driver made of it is on disk; False if it stood still before that."""
        driver, task = self._drivers[execution], self._tasks[execution]
        driver.post(Message(0, execution, self._clock.now(), body))
        written = driver.written()
        either: set[asyncio.Future[Any]] = {written, task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not written.done():
            task.result()
        return written.done()

    async def close(self, reason: str = "") -> None:
        """Interrupt what runs and wait until it stands still, for that reason if one is given."""
        for execution in list(self._drivers):
            self.post(execution, {"kind": "interrupt", "by": "the engine closing", "reason": reason})
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        if self._postman is not None:
            self._postman.cancel()
            await asyncio.wait({self._postman})

    async def _run(self, driver: Driver, opening: Sequence[ev.Event]) -> State:
        execution = driver.state.id
        good = False
        try:
            await driver.run(*opening)
            good = True
        finally:
            self._drivers.pop(execution, None)
            self._tasks.pop(execution, None)
            self._ended(execution, good)
        return driver.state

    async def _deliver_mail(self) -> None:
        """Bring other processes' messages to the drivers here."""
        seen = turn = 0
        while True:
            try:
                for message in await self._journal.receive(seen):
                    seen = message.id
                    if message.execution in self._drivers:
                        self._drivers[message.execution].post(message)
                turn += 1
                if turn % LOOK_ROUND == 0:
                    await self._let_go_of_the_lost()
            except JournalError:
                # Somebody may hold the file for a while: the mail waits in it. If the file is lost, the drivers
                # find out themselves, and say so.
                turn += 1
            except Exception:  # whatever it is, it must not end the delivery of everybody's mail
                _log.exception("messages could not be delivered; trying again")
                turn += 1
            await asyncio.sleep(POLL)

    async def _let_go_of_the_lost(self) -> None:
        """Somebody may have taken over what a driver here only waits with: it would wait for ever.

        Made to write something, it finds out that it cannot (`Conflict`), and ends.
        """
        ours = [name for name, driver in self._drivers.items() if driver.acknowledged.done()]
        if not ours:
            return
        running = await self._journal.heads(statuses=[ExecutionStatus.RUNNING])
        kept = {head.id for head in running if head.driver == self._name()}
        for name in ours:
            if name not in kept and name in self._drivers:
                self.post(name, {"kind": "interrupt", "by": "another driver"})


def _note_end(execution: str, task: asyncio.Task[State]) -> None:
    """Log what a driver could not deal with: those who wait for it are told, but there may be none."""
    if not task.cancelled() and (error := task.exception()) is not None:
        told = None if isinstance(error, WindlassError) else error
        _log.warning("the driver of %s stopped: %s", execution, error, exc_info=told)
