"""A running server: its parts, its start and its end.

It drives what is started through it. When it stops, what runs is interrupted with the reason `restart`; when it begins,
it goes on with that, and with what a server of this home left running when it was killed. What people paused, and what
other processes drive or left behind, is not touched (unless it is set to resume orphans).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.core import events as ev
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.timelines import Timelines
from windlass.errors import Damaged, NotFound, UsageError, WindlassError
from windlass.journal.stores import HomeStores
from windlass.ports import Head
from windlass.ports.triggers import TriggerStore
from windlass.redact import Redactor
from windlass.server.access import Access
from windlass.server.answer_redactor import AnswerRedactor
from windlass.server.feed import Feed
from windlass.server.idempotency import IdempotencyKeys
from windlass.server.metrics import Metrics
from windlass.server.summaries import SummaryCache
from windlass.settings.variables import with_mcp_variables

if TYPE_CHECKING:
    from windlass.engine.schedule import PlanTrouble

__all__ = ["LABEL", "ServerLock", "Service"]

LABEL = "server"
"""In the names of the drivers that are servers."""
RESTART = "restart"
"""Reason of the pause of executions that a server was driving when it stopped."""
REST = 9.0
"""Factor by which the search for damage rests longer than it works: it takes a tenth of the loop's time."""
MOST_CHECKED = 10_000
"""The newest executions, searched for damage after a start; `windlass doctor --deep` reads all."""
TICK_EVERY = 15.0
"""Seconds between looks at the triggers of scheduled plans."""
TEND_EVERY = 30.0
"""Seconds between looks for expired pauses."""

_log = logging.getLogger("windlass.server")


class Service:
    def __init__(
        self,
        engine: Engine,
        *,
        access: Access | None = None,
        feed: Feed | None = None,
        resume_orphans: bool = False,
    ) -> None:
        """The engine is the server's own: it is closed with it."""
        self.engine = engine
        self.access = access or Access(engine.home, engine.clock.now)
        self.redactor = Redactor(with_mcp_variables(engine.settings), {"server token": self.access.token})
        """Hides secrets in all that leaves the server."""
        self.answer_redactor = AnswerRedactor(self.redactor)
        self.feed = feed or Feed(engine, redactor=self.redactor)
        self.keys = IdempotencyKeys(HomeStores(engine.home, engine.settings.journal).requests())
        self.triggers: TriggerStore = HomeStores(engine.home, engine.settings.journal).triggers()
        self.tick_soon = asyncio.Event()
        """Set when a webhook has received something, or when an execution of a trigger has ended: others may wait."""
        self._of_triggers = set[str]()
        """Executions that were started by a trigger and are driven here."""
        self.metrics = Metrics()
        self.timelines = Timelines(engine.journal)
        self.summaries = SummaryCache(engine, self.timelines)
        self.started_at = engine.clock.now()
        self.stopping = asyncio.Event()
        """Set when the server is to stop: no request waits any longer."""
        self.waiting = 0
        """Requests that wait for an execution."""
        self.trouble = ""
        """Error of the last look after executions, if it failed."""
        self._resume_orphans = resume_orphans
        self._taken_up = asyncio.Event()
        """Set once everything that was left is resumed: until then, a paused execution may be about to run."""
        engine.commits.subscribe(self._committed)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.engine.close, RESTART)
            stack.push_async_callback(self.keys.close)
            stack.push_async_callback(self.feed.close)
            await self.feed.start()
            if self.engine.notifier is not None:
                self.engine.notifier.start()  # processes that ended may have left some
            tending = asyncio.create_task(self._tend(), name="windlass-tend")
            stack.push_async_callback(_ended, tending)
            looking = asyncio.create_task(self._look_for_damage(), name="windlass-look-for-damage")
            stack.push_async_callback(_ended, looking)
            stack.push_async_callback(self.triggers.close)
            ticking = asyncio.create_task(self._tick(self.triggers), name="windlass-triggers")
            stack.push_async_callback(_ended, ticking)
            yield
            self.stopping.set()

    def stop_soon(self) -> None:
        """Answer requests that wait for an execution with its current state."""
        self.stopping.set()

    async def wait(self, execution: str, seconds: float) -> None:
        """Wait until it ends or pauses, for so many seconds at most, and no longer than the server runs."""
        if seconds <= 0:
            return
        standing = asyncio.ensure_future(self._stands_still(execution))
        stopping = asyncio.ensure_future(self.stopping.wait())
        self.waiting += 1
        try:
            await asyncio.wait({standing, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if standing.done() and (error := standing.exception()) is not None and not isinstance(error, WindlassError):
                raise error  # a WindlassError of its driver is told by where it stands
        finally:
            self.waiting -= 1
            for task in (standing, stopping):
                task.cancel()
            await asyncio.wait({standing, stopping})

    async def _stands_still(self, execution: str) -> None:
        await self._taken_up.wait()
        await self.engine.wait(execution)

    def _committed(self, execution: str, events: Sequence[ev.Event], _seq: int) -> None:
        self.metrics.committed(self.engine.driven_state(execution), events)
        for event in events:
            if isinstance(event, ev.ExecutionFinished):
                fields = {"execution": execution, "status": event.status}
                if event.error is not None:
                    fields["error"] = event.error.message
                bad = event.status in ("failed", "partial")
                _log.log(logging.WARNING if bad else logging.INFO, "execution ended", extra={"fields": fields})
                if execution in self._of_triggers:
                    self._of_triggers.discard(execution)
                    self.tick_soon.set()

    # -- taking up what was left -------------------------------------------------------------------

    async def _tend(self) -> None:
        while True:
            try:
                await self._look_round()
                self.trouble = ""
            except Exception as error:  # whatever it is: the next look may succeed, and nothing else would make one
                self.trouble = error.message if isinstance(error, WindlassError) else f"{type(error).__name__}: {error}"
                _log.exception("could not look after executions; will try again")
            await asyncio.sleep(TEND_EVERY)

    async def _look_round(self) -> None:
        if not self._taken_up.is_set():
            for head in await self._left():
                await self._take_up(head, "resumed after a restart")
            self._taken_up.set()
        for execution, what in await self.engine.sweep():
            if what == "resume":
                await self._take_up(await self.engine.find(execution), "resumed: its pause expired")
        await self.keys.forget_old(self.engine.clock.now())

    async def _tick(self, store: TriggerStore) -> None:
        """Start scheduled plans by their triggers, as `windlass schedule tick` does."""
        await self._taken_up.wait()
        told: list[PlanTrouble] = []
        while True:
            try:
                if await store.plans():
                    from windlass.server.scheduled import tick_once  # few homes have scheduled plans

                    self._of_triggers = {one for one in self._of_triggers if self.engine.driven_state(one) is not None}
                    await tick_once(self.engine, store, told, self._of_triggers)
            except Exception:  # whatever it is: the next tick may succeed, and nothing else would make one
                _log.exception("could not look at the triggers; will try again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.tick_soon.wait(), TICK_EVERY)
            self.tick_soon.clear()  # before the look: what comes during it makes another one

    async def _look_for_damage(self) -> None:
        """Read the newest executions once, so that lists and `/api/health` know the damaged ones among them."""
        if loss := await self.engine.journal_loss():
            _log.error("%s", loss)
        await self._taken_up.wait()
        for head in await self.engine.executions(limit=MOST_CHECKED):
            began = time.monotonic()
            try:
                await self.engine.record(head.id)
            except Damaged as damage:
                fields = {"execution": head.id, "plan": head.name, "seq": damage.seq}
                _log.error("%s", damage.message, extra={"fields": {**fields, "advice": list(damage.advice)}})
            except NotFound:
                continue
            await asyncio.sleep(REST * (time.monotonic() - began))

    async def _left(self) -> list[Head]:
        """Executions that this server resumes, the oldest first."""
        paused = await self.engine.executions([ExecutionStatus.PAUSED])
        orphans = await self.engine.orphans()
        mine = [head for head in paused if head.detail == RESTART]
        mine += [head for head in orphans if self._resume_orphans or f"-{LABEL}-" in head.driver]
        return sorted(mine, key=lambda head: head.id)

    async def _take_up(self, head: Head, why: str) -> None:
        fields = {"execution": head.id, "plan": head.name}
        try:
            # The plan as it was: a file that was edited meanwhile is for a person to accept.
            await self.engine.resume(head.id, keep_plan=True)
        except WindlassError as error:
            advice = list(error.advice)
            _log.warning(
                "%s cannot be resumed: %s", head.id, error.message, extra={"fields": {**fields, "advice": advice}}
            )
        except Exception:  # one that breaks in a way nobody foresaw must not keep the others from going on
            _log.exception("%s cannot be resumed", head.id, extra={"fields": fields})
        else:
            _log.info(why, extra={"fields": fields})


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s ended early", task.get_name(), exc_info=error)


class ServerLock:
    """One server for a home: holds a lock on a file that says who and where it is.

    The kernel lets go of it when the process dies. POSIX record locks are used because a forked child does not inherit
    them; for that, this process must not open the file a second time.
    """

    def __init__(self, home: Path) -> None:
        """Take it, or raise and say who has it."""
        self._file = home / "server.lock"
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = os.open(self._file, flags, 0o600)
        except OSError as error:
            raise self._useless(error.strerror) from error
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise self._useless("it is not a regular file")
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            told = _read(self._descriptor)
            os.close(self._descriptor)
            where = f" at {told['address']}" if told.get("address") else ""
            raise UsageError(
                f"another server (pid {told.get('pid', 'unknown')}) is running for the home {home}{where}",
                advice=("use that one, or stop it first", "serve another home: windlass --home DIR serve"),
            ) from error

    def _useless(self, why: str | None) -> UsageError:
        return UsageError(
            f"{self._file} cannot be opened: {why}", advice=(f"look at it, and remove it: ls -ld {self._file}",)
        )

    def announce(self, address: str) -> None:
        """Say where the server is."""
        self._write({"pid": os.getpid(), "address": address})

    def release(self) -> None:
        self._write({})
        os.close(self._descriptor)

    def _write(self, told: dict[str, object]) -> None:
        body = json.dumps(told).encode()
        os.pwrite(self._descriptor, body, 0)
        os.ftruncate(self._descriptor, len(body))


def _read(descriptor: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}  # it is just starting, and has not said yet
    return found if isinstance(found, dict) else {}
