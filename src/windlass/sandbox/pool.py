"""Warm workers: as many as the work needs, and no more.

Who has a `lease` of a worker may ask it; a program that waits for results holds none. Programs stay in the worker that
they began in; new ones go to whichever is free. Another worker is started when somebody has waited for a moment, up to
the most that there may be; one that had nothing to do for a while is ended; one that died is forgotten.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from windlass.sandbox.attendant import Attendant, WorkerLost

__all__ = ["Pool"]

IMPATIENCE = 0.05
"""Seconds that somebody waits before another worker is started for them."""
IDLE = 60.0
"""Seconds without anything in it, after which a worker is ended."""


class Pool:
    def __init__(self, start: Callable[[], Awaitable[Attendant]], most: int | None = None, idle: float = IDLE) -> None:
        self._start = start
        self._idle = idle
        self._most = most or max(2, min(8, (os.cpu_count() or 1)))
        self.workers: list[Attendant] = []
        self._starting: set[asyncio.Task[Any] | None] = set()
        self._apart_tasks: set[asyncio.Task[None]] = set()
        self._anyone: deque[asyncio.Future[Attendant]] = deque()
        """Those who can use any worker."""
        self._pinned: dict[Attendant, deque[asyncio.Future[Attendant]]] = {}
        """Those whose program is in this one."""
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    @asynccontextmanager
    async def lease(self, worker: Attendant | None = None) -> AsyncIterator[Attendant]:
        """The right to ask a worker: this one, or any. WorkerLost if this one is gone, or none can be had."""
        leased = await self._get(worker)
        try:
            yield leased
        finally:
            self._give_back(leased)

    async def ready(self) -> None:
        """Returns when there is a worker, free or not. The first one has to load everything, which takes a while."""
        if not self.workers:
            async with self.lease():
                return

    async def close(self) -> None:
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for task in filter(None, self._starting):
            task.cancel()
        self._refuse(WorkerLost("the sandbox is closed"))
        workers, self.workers = self.workers, []
        await asyncio.gather(*(worker.end() for worker in workers))
        if self._apart_tasks:
            await asyncio.wait(self._apart_tasks)

    # -- who gets which --------------------------------------------------------------------------

    async def _get(self, worker: Attendant | None) -> Attendant:
        if self._closed:
            raise WorkerLost("the sandbox is closed")
        if worker is not None and not worker.alive:
            raise WorkerLost("the worker that held it has ended")
        free = self._free() if worker is None else worker if not worker.busy else None
        if free is not None:
            free.busy = True
            return free
        turn: asyncio.Future[Attendant] = asyncio.get_running_loop().create_future()
        if worker is not None:
            self._pinned.setdefault(worker, deque()).append(turn)
        else:
            self._anyone.append(turn)
            self._grow(at_once=not self.workers)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back(turn.result())  # it came in the very moment that nobody wanted it any more
            raise

    def _free(self) -> Attendant | None:
        for dead in [worker for worker in self.workers if not worker.busy and not worker.alive]:
            self._forget(dead)
        free = [worker for worker in self.workers if not worker.busy]
        return min(free, key=lambda worker: len(worker.runs), default=None)

    def _give_back(self, worker: Attendant) -> None:
        worker.busy = False
        worker.idle_since = asyncio.get_running_loop().time()
        if not worker.alive:
            self._forget(worker)
            return
        while worker.crowded:
            run, tell = next(iter(worker.runs.items()))
            worker.drop(run)
            tell()
        for waiting in (self._pinned.get(worker), self._anyone):
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    worker.busy = True
                    turn.set_result(worker)
                    return
        self._pinned.pop(worker, None)
        if worker.gone:
            self._apart(self._clear_away(worker))
        self._look_later()

    async def _clear_away(self, worker: Attendant) -> None:
        with suppress(WorkerLost):  # with it, everything that was in it is gone
            async with self.lease(worker):
                await worker.clear_away()

    def _apart(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._apart_tasks.add(task)
        task.add_done_callback(self._apart_tasks.discard)
        return task

    def _forget(self, worker: Attendant) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            self._apart(worker.end())  # those whose programs were in it are told
        for turn in self._pinned.pop(worker, ()):
            if not turn.done():
                turn.set_exception(WorkerLost("the worker that held it has ended"))
        if self._anyone:
            self._grow(at_once=True)

    def _refuse(self, error: WorkerLost) -> None:
        for waiting in (self._anyone, *self._pinned.values()):
            for turn in waiting:
                if not turn.done():
                    turn.set_exception(error)
            waiting.clear()

    # -- how many there are ----------------------------------------------------------------------

    def _grow(self, *, at_once: bool) -> None:
        if at_once:
            self._start_another()
        else:
            asyncio.get_running_loop().call_later(IMPATIENCE, self._start_another)

    def _start_another(self) -> None:
        wanted = any(not turn.done() for turn in self._anyone)
        if wanted and not self._closed and len(self.workers) + len(self._starting) < self._most:
            self._starting.add(self._apart(self._started()))

    async def _started(self) -> None:
        try:
            worker = await self._start()
        except WorkerLost as error:
            if not self.workers:
                self._refuse(error)
            return
        finally:
            self._starting.discard(asyncio.current_task())
        self.workers.append(worker)
        worker.busy = True
        self._give_back(worker)

    def _look_later(self) -> None:
        if self._reaper is None and not self._closed:
            self._reaper = asyncio.get_running_loop().call_later(self._idle, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        loop = asyncio.get_running_loop()
        for worker in list(self.workers):
            if not worker.busy and not worker.runs and loop.time() - worker.idle_since >= self._idle:
                self.workers.remove(worker)
                self._apart(worker.end())
        if self.workers:
            self._look_later()
