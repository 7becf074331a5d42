"""A worker: takes turns for executions and performs attempts, as Temporal gives them to it.

Beside that it keeps what Temporal could lose in order: it says "look" to workflows whose execution has a message in
the journal, and starts those that are missing. Nothing is lost with Temporal's own data.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.observer import wait_for_news
from windlass.engine.shared import PREFERRED, DueAttempt
from windlass.errors import Damaged, JournalError, NotFound
from windlass.ids import new_id
from windlass.temporal.cluster import TemporalCluster
from windlass.temporal.publisher import CommitPublisher
from windlass.temporal.workflow import ATTEMPT, TURN, AttemptOrder, ExecutionWorkflow, Order, TurnReply
from windlass.version import __version__

__all__ = ["ClusterWorker"]

_log = logging.getLogger("windlass.engine")

BEAT = 1.0
"""Seconds between heartbeats of an attempt."""
RENEWED = 3.0
"""Seconds between renewals of the worker's line, while its attempts stay the same."""
SETTLED = 0.3
"""Seconds between two renewals, at least."""
RETRIED = 1.0
"""Seconds before the next try, when messages cannot be looked for."""
LOOKED_AGAIN = 5.0
"""Seconds after which a message that was not read is announced again."""
PUBLISHED = 1.0
"""Seconds between looks for events that traces, checkpoint files and forecasts are made from."""
SWEEP = 60.0
"""Seconds between checks that every execution of the cluster has its workflow."""
STICKY = timedelta(seconds=0.5)
"""Time that a workflow task waits for the worker that had the last one. Another one only has to read it again, while
a step of a dead worker waits for it in vain."""


class ClusterWorker:
    def __init__(
        self,
        engine: Engine,
        cluster: TemporalCluster,
        *,
        tags: Sequence[str] = (),
        slots: int = 100,
        drain: float = 30.0,
    ) -> None:
        """`slots` is the most attempts at a time, of each tag and of those without one.

        After a request to end, running attempts have `drain` seconds before they are stopped and handed over.
        """
        self.name = f"{socket.gethostname()}-{os.getpid()}-{new_id()[-4:]}"
        self._engine = engine
        self._cluster = cluster
        self._tags = list(tags)
        self._slots, self._drain = slots, drain
        self._shared = engine.shared(cluster.driver, self.name)
        self._doing: dict[str, dict[str, Any]] = {}
        self._changed, self._leaving = asyncio.Event(), asyncio.Event()

    async def run(self, ending: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Work until `ending` is set and everything here has ended. `ready` is called with the worker's name."""
        client = await self._cluster.client()
        options: dict[str, Any] = {
            "graceful_shutdown_timeout": timedelta(seconds=self._drain + self._engine.attempt_runner.grace + 20),
            "max_heartbeat_throttle_interval": timedelta(seconds=BEAT),
            "default_heartbeat_throttle_interval": timedelta(seconds=BEAT),
            "sticky_queue_schedule_to_start_timeout": STICKY,
            "max_concurrent_activities": self._slots,
            "disable_eager_activity_execution": True,  # it would keep all steps of an execution on one worker
        }
        queue = await self._cluster.queue()
        here = [self.turn, self.attempt]
        workers = [Worker(client, task_queue=queue, workflows=[ExecutionWorkflow], activities=here, **options)]
        queues = [await self._cluster.queue(tag) for tag in self._tags]
        for queue in (*queues, await self._cluster.queue(worker=self.name)):
            workers.append(Worker(client, task_queue=queue, activities=[self.attempt], **options))
        await self._renew()
        publisher = CommitPublisher(self._engine, self._cluster.table, self._cluster.driver, self.name)
        chores = [
            asyncio.create_task(_repeat(self._keep_renewing, 0.0)),
            asyncio.create_task(_repeat(_Inbox(self._engine, self._cluster).watch, RETRIED)),
            asyncio.create_task(_repeat(self._sweep, SWEEP)),
            asyncio.create_task(_repeat(publisher.look, PUBLISHED)),
        ]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            ready(self.name)
            asked = asyncio.create_task(ending.wait())
            await asyncio.wait({asked, *running}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            asyncio.get_running_loop().call_later(self._drain, self._leaving.set)
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            await asyncio.gather(*running)
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)
            await self._cluster.table.leave(self.name)

    @activity.defn(name=TURN)
    async def turn(self, order: Order) -> TurnReply:
        """Load, fold, decide, append."""
        try:
            turn = await self._shared.turn(order.execution, hold=order.hold)
        except (Damaged, NotFound) as error:
            raise ApplicationError(error.message, non_retryable=True) from error
        alive: set[str] = set()
        if any(due.prefers for due in turn.active):
            alive = {line.name for line in await self._cluster.table.lines()}
        active = [await self._order(order.execution, due, alive) for due in turn.active]
        return TurnReply(turn.over, active, turn.wake)

    async def _order(self, execution: str, due: DueAttempt, alive: set[str]) -> AttemptOrder:
        if due.prefers in alive:
            queue = await self._cluster.queue(worker=due.prefers)
            return AttemptOrder(execution, due.step, due.attempt, queue, PREFERRED)
        return AttemptOrder(execution, due.step, due.attempt, await self._cluster.queue(due.tag))

    @activity.defn(name=ATTEMPT)
    async def attempt(self, order: AttemptOrder) -> None:
        """Perform an attempt; its outcome goes into the journal."""
        name = f"{order.execution}/{order.step}/{order.attempt}"
        self._doing[name] = {"execution": order.execution, "step": order.step, "attempt": order.attempt}
        self._changed.set()
        beats = asyncio.create_task(_beat())
        try:
            await self._shared.attempt(order.execution, order.step, order.attempt, self._leaving.wait)
        finally:
            beats.cancel()
            self._doing.pop(name, None)
            self._changed.set()

    async def _keep_renewing(self) -> None:
        """Renew the worker's line when its attempts change, or after a while; not too often."""
        await asyncio.sleep(SETTLED)
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEWED):
                await self._changed.wait()
        self._changed.clear()
        await self._renew()

    async def _renew(self) -> None:
        await self._cluster.table.renew(
            self.name, socket.gethostname(), self._tags, __version__, list(self._doing.values())
        )

    async def _sweep(self) -> None:
        """Start workflows that are missing: whoever began the execution died, or Temporal lost its data."""
        if self.name != min((line.name for line in await self._cluster.table.lines()), default=self.name):
            return  # one worker is enough
        for head in await self._engine.executions([ExecutionStatus.RUNNING]):
            if head.driver == self._cluster.driver:
                await self._cluster.start(head.id, hold=True, look=False)


class _Inbox:
    """Announces messages to the workflows of their executions."""

    def __init__(self, engine: Engine, cluster: TemporalCluster) -> None:
        self._engine, self._cluster = engine, cluster
        self._announced: dict[int, float] = {}
        """Times at which unread messages were announced, by id."""

    async def watch(self) -> None:
        """Look when the journal tells of a message, and after a moment without news."""
        journal, news = self._engine.journal, asyncio.Event()
        end = journal.listen(self._cluster.driver, news.set)
        try:
            while True:
                news.clear()
                await self._look()
                await wait_for_news(news, journal)
        finally:
            end()

    async def _look(self) -> None:
        found = await self._engine.journal.receive()
        now = asyncio.get_running_loop().time()
        known = self._announced
        self._announced = {one.id: known[one.id] for one in found if one.id in known}
        due = {one.execution for one in found if known.get(one.id, now - LOOKED_AGAIN) <= now - LOOKED_AGAIN}
        self._announced |= {one.id: now for one in found if one.execution in due}
        for execution in due:
            await self._cluster.look(execution)


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(BEAT)


async def _repeat(work: Callable[[], Awaitable[None]], every: float) -> None:
    """Do it again and again; an error is logged, and the next time comes."""
    while True:
        try:
            await work()
        except JournalError as error:
            _log.warning("the journal cannot be used now: %s", error)
        except Exception:
            _log.exception("a chore of the worker failed; trying again")
        await asyncio.sleep(every)
