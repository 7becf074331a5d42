"""Worker processes as the engine sees them: start one, ask it, end it, and keep as many warm as the work needs.

The holder of a `lease` of a worker may ask it; a program that waits for results holds none. Programs stay in the worker
that they began in; new ones go to any free one. Another worker is started when a program has waited for a moment, up to
a limit; an idle one is ended after a while; one that died is forgotten. One request is under way at a time in a worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from windlass.process import Process, ProcessLost, SpawnError, Supervisor
from windlass.process.pipes import PIPE
from windlass.sandbox import frames

__all__ = ["WorkerLost", "WorkerPool", "WorkerProcess", "attended", "start"]


IMPATIENCE = 0.05
"""Seconds that a program waits before another worker is started for it."""
IDLE = 60.0
"""Seconds without anything in it, after which a worker is ended."""


class WorkerPool:
    def __init__(
        self, start: Callable[[], Awaitable[WorkerProcess]], most: int | None = None, idle: float = IDLE
    ) -> None:
        self._start = start
        self._idle = idle
        self._most = most or max(2, min(8, (os.cpu_count() or 1)))
        self.workers: list[WorkerProcess] = []
        self._starting: set[asyncio.Task[Any] | None] = set()
        self._apart_tasks: set[asyncio.Task[None]] = set()
        self._anyone: deque[asyncio.Future[WorkerProcess]] = deque()
        """Waiters that can use any worker."""
        self._pinned: dict[WorkerProcess, deque[asyncio.Future[WorkerProcess]]] = {}
        """Waiters whose program is in this worker."""
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    @asynccontextmanager
    async def lease(self, worker: WorkerProcess | None = None) -> AsyncIterator[WorkerProcess]:
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

    # -- assigning workers -----------------------------------------------------------------------

    async def _get(self, worker: WorkerProcess | None) -> WorkerProcess:
        if self._closed:
            raise WorkerLost("the sandbox is closed")
        if worker is not None and not worker.alive:
            raise WorkerLost("the worker that held it has ended")
        free = self._free() if worker is None else worker if not worker.busy else None
        if free is not None:
            free.busy = True
            return free
        turn: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        if worker is not None:
            self._pinned.setdefault(worker, deque()).append(turn)
        else:
            self._anyone.append(turn)
            self._grow(at_once=not self.workers)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back(turn.result())  # granted in the moment of the cancellation
            raise

    def _free(self) -> WorkerProcess | None:
        for dead in [worker for worker in self.workers if not worker.busy and not worker.alive]:
            self._forget(dead)
        free = [worker for worker in self.workers if not worker.busy]
        return min(free, key=lambda worker: len(worker.runs), default=None)

    def _give_back(self, worker: WorkerProcess) -> None:
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

    async def _clear_away(self, worker: WorkerProcess) -> None:
        with suppress(WorkerLost):  # its programs are gone with it
            async with self.lease(worker):
                await worker.clear_away()

    def _apart(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._apart_tasks.add(task)
        task.add_done_callback(self._apart_tasks.discard)
        return task

    def _forget(self, worker: WorkerProcess) -> None:
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

    # -- starting and ending workers -------------------------------------------------------------

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


READY_WITHIN = 60.0
"""Seconds in which a worker must have loaded everything: on a busy computer it compiles for long, once."""
LOOK = 0.2
"""Seconds after which a worker is looked at that has not answered yet, and between two looks."""
PATIENCE = 20.0
"""Seconds of wall time for each second of computing, after which a worker that computes nothing at all is given up."""
LONGEST_COMPLAINT = 2000
MOST_RUNS = 128
"""Programs that one worker holds. The one that has waited longest makes room for the next, and is made again later."""
MOST_MEMORY = 512 * 1024 * 1024
"""Bytes that the programs of one worker hold together, with the same consequence."""


class WorkerLost(Exception):
    """The worker is gone. Its programs can be replayed in another."""

    def __init__(self, message: str, worker: WorkerProcess | None = None) -> None:
        super().__init__(message)
        self.worker = worker
        """The lost worker, once it is known."""


class WorkerProcess:
    """One worker, locked in and waiting."""

    def __init__(self, process: Process, layers: tuple[str, ...]) -> None:
        self._process = process
        self.layers = layers
        """Active layers of its lockdown, besides WebAssembly itself."""
        self.busy = False
        """It is leased: see `WorkerPool.lease`."""
        self.runs: dict[int, Callable[[], None]] = {}
        """Programs in it, the one that has waited longest first, each with a callback for its removal."""
        self._sizes: dict[int, int] = {}
        """Bytes that they hold, by the worker's own account."""
        self.gone: list[int] = []
        """Dropped programs that are still in it."""
        self._ended = False
        self.idle_since = asyncio.get_running_loop().time()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True until it is ended or its output is closed."""
        return not self._ended and not self._process.stdout.at_eof()

    def hold(self, run: int, tell: Callable[[], None]) -> None:
        """Note that a program is in this worker, as the last one used."""
        self.runs.pop(run, None)
        self.runs[run] = tell

    @property
    def crowded(self) -> bool:
        """True if a program must be removed. A single one may use its whole allowance."""
        full = len(self.runs) > MOST_RUNS or sum(self._sizes.values()) > MOST_MEMORY
        return full and len(self.runs) > 1

    def drop(self, run: int) -> None:
        """Mark a program as unused; the next request removes it."""
        self._sizes.pop(run, None)
        if self.runs.pop(run, None) is not None and self.alive:
            self.gone.append(run)

    async def ask(self, request: frames.Request, cpu: float) -> frames.Answer:
        """Send a request and return its answer, for which the guest may compute for `cpu` seconds."""
        await self.clear_away()
        return await self._asked(request, cpu)

    async def clear_away(self) -> None:
        while self.gone:
            await self._asked(frames.CloseRun(self.gone.pop()), 1.0)

    async def _asked(self, request: frames.Request, cpu: float) -> frames.Answer:
        try:
            return await self._exchange(request, cpu)
        except (BrokenPipeError, asyncio.IncompleteReadError, ProcessLost) as error:
            await self.end()
            raise WorkerLost("the worker that ran it has ended") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            await self.end()
            raise WorkerLost("its worker process sent an invalid message") from error
        except BaseException:  # cancelled in the middle: its answer would be taken for that to the next question
            await asyncio.shield(self.end())
            raise

    async def _exchange(self, request: frames.Request, cpu: float) -> frames.Answer:
        assert self._process.stdin is not None
        watch = _Watch(self, cpu)
        try:
            await self._process.stdin.write(frames.packed(request))
            answer = await _answer(self._process)
        finally:
            watch.over()
        if not frames.fits(answer, request):
            raise ValueError("an answer to another question")
        if isinstance(answer, frames.Turned):
            self._sizes[answer.run] = answer.memory
        return answer

    async def end(self) -> None:
        self._ended = True
        for tell in [*self.runs.values()]:
            tell()
        self.runs.clear()
        try:
            await self._process.stop(0)
        except ProcessLost:
            return  # it is not ours any more, and said so


class _Watch:
    """Kills a worker that computes on after its guest's time. Its own meter comes first: this is for one that broke."""

    def __init__(self, worker: WorkerProcess, cpu: float) -> None:
        self._worker, self._cpu = worker, cpu
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._before: float | None = None
        self._timer = self._loop.call_later(LOOK, self._look)
        self._ending: asyncio.Task[None] | None = None

    def over(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        # Most answers come before the first look, so that only long turns pay for reading the process' clock.
        waited, now = self._loop.time() - self._began, _computed(self._worker.pid)
        if self._before is None:
            self._before = now
        used = waited if now is None or self._before is None else now - self._before
        if used >= self._cpu + LOOK or waited > (self._cpu + LOOK) * PATIENCE:
            self._ending = self._loop.create_task(self._worker.end())  # the reader then finds the end of its output
        else:
            self._timer = self._loop.call_later(LOOK, self._look)


async def _answer(process: Process) -> frames.Answer:
    length = int.from_bytes(await process.stdout.readexactly(frames.HEADER))
    if length > frames.LARGEST:
        raise ValueError(f"a frame of {length} bytes")
    return frames.read_answer(await process.stdout.readexactly(length))


async def start(supervisor: Supervisor, cache: Path) -> WorkerProcess:
    """Start a worker that locks itself in. Raises WorkerLost with its last words if it does not start."""
    if find_spec("wasmtime") is None:
        raise WorkerLost("the sandbox needs wasmtime, which is not installed: pip install 'windlass[code]'")
    # -P and -E: imports depend neither on the working directory nor on the environment.
    argv = [sys.executable, "-P", "-E", "-s", "-m", "windlass.sandbox.worker", str(cache)]
    return await attended(supervisor, argv)


async def attended(supervisor: Supervisor, argv: Sequence[str]) -> WorkerProcess:
    """Start a worker process and wait until it is ready."""
    try:
        process = await supervisor.spawn(argv, cwd="/", env={"LANG": "C.UTF-8"}, stdin=PIPE)
    except (SpawnError, RuntimeError) as error:  # RuntimeError: nothing is started any more
        raise WorkerLost(str(error)) from error
    try:
        async with asyncio.timeout(READY_WITHIN):
            ready = await _answer(process)
        if not isinstance(ready, frames.Ready):
            raise ValueError("its first word is another one")
    except (TimeoutError, ValueError, RecursionError, asyncio.IncompleteReadError, ProcessLost) as error:
        await process.stop(0)
        said = (await process.stderr.read(1 << 16)).decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise WorkerLost(f"a sandbox worker did not start: {said[-LONGEST_COMPLAINT:] or error!r}") from error
    except BaseException:
        await asyncio.shield(process.stop(0))
        raise
    return WorkerProcess(process, ready.layers)


def _computed(pid: int) -> float | None:
    """Return the CPU seconds of a process; None on a platform that does not report them."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
