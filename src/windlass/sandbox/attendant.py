"""The engine's side of one worker process: start it, ask it, end it.

One request is under way at a time. A worker that does not answer although its guest's time is used up, says what is no
answer, or ends, is killed with everything in it; who asked learns that it is lost.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from windlass.process import Process, ProcessLost, SpawnError, Supervisor
from windlass.process.pipes import PIPE
from windlass.sandbox import frames

__all__ = ["Attendant", "WorkerLost", "attended", "start"]

READY_WITHIN = 60.0
"""Seconds in which a worker must have loaded everything: on a busy computer it compiles for long, once."""
LOOK = 0.2
"""Seconds after which a worker is looked at that has not answered yet, and between two looks."""
PATIENCE = 20.0
"""Seconds on the wall for each second of computing, after which nobody waits any longer for a worker that computes
nothing at all."""
LONGEST_COMPLAINT = 2000
MOST_RUNS = 128
"""Programs that one worker holds. The one that has waited longest makes room for the next, and is made again later."""
MOST_MEMORY = 512 * 1024 * 1024
"""Bytes that the programs of one worker hold together, with the same consequence."""


class WorkerLost(Exception):
    """The worker is gone. What was in it can be made again elsewhere."""

    def __init__(self, message: str, worker: Attendant | None = None) -> None:
        super().__init__(message)
        self.worker = worker
        """Which one, once it is known."""


class Attendant:
    """One worker, locked in and waiting."""

    def __init__(self, process: Process, layers: tuple[str, ...]) -> None:
        self._process = process
        self.layers = layers
        """What holds it, besides WebAssembly itself."""
        self.busy = False
        """Somebody has the right to ask it: see `pool`."""
        self.runs: dict[int, Callable[[], None]] = {}
        """Programs that are in it, the one that has waited longest first, each with what tells it that it is gone."""
        self._sizes: dict[int, int] = {}
        """Bytes that they hold, as it says itself."""
        self.gone: list[int] = []
        """Programs that are of no more use, and still in it."""
        self._ended = False
        self.idle_since = asyncio.get_running_loop().time()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Nobody has ended it, and its output goes on."""
        return not self._ended and not self._process.stdout.at_eof()

    def hold(self, run: int, tell: Callable[[], None]) -> None:
        """It is in here, and the last one to have been asked for."""
        self.runs.pop(run, None)
        self.runs[run] = tell

    @property
    def crowded(self) -> bool:
        """Whether one has to go. A single one may be as large as it is allowed to be."""
        full = len(self.runs) > MOST_RUNS or sum(self._sizes.values()) > MOST_MEMORY
        return full and len(self.runs) > 1

    def drop(self, run: int) -> None:
        """It is of no more use; the next who asks something takes it away."""
        self._sizes.pop(run, None)
        if self.runs.pop(run, None) is not None and self.alive:
            self.gone.append(run)

    async def ask(self, request: frames.Request, cpu: float) -> frames.Answer:
        """The answer, for which the guest may compute for `cpu` seconds."""
        await self.clear_away()
        return await self._asked(request, cpu)

    async def clear_away(self) -> None:
        while self.gone:
            await self._asked(frames.Close(self.gone.pop()), 1.0)

    async def _asked(self, request: frames.Request, cpu: float) -> frames.Answer:
        try:
            return await self._exchange(request, cpu)
        except (BrokenPipeError, asyncio.IncompleteReadError, ProcessLost) as error:
            await self.end()
            raise WorkerLost("the worker that ran it has ended") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            await self.end()
            raise WorkerLost("the worker that ran it said what makes no sense") from error
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

    def __init__(self, worker: Attendant, cpu: float) -> None:
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
            self._ending = self._loop.create_task(self._worker.end())  # then who reads finds the end of its output
        else:
            self._timer = self._loop.call_later(LOOK, self._look)


async def _answer(process: Process) -> frames.Answer:
    length = int.from_bytes(await process.stdout.readexactly(frames.HEADER))
    if length > frames.LARGEST:
        raise ValueError(f"a frame of {length} bytes")
    return frames.read_answer(await process.stdout.readexactly(length))


async def start(supervisor: Supervisor, cache: Path) -> Attendant:
    """A worker that is locked in. Raises WorkerLost with what it said if it cannot be had."""
    if find_spec("wasmtime") is None:
        raise WorkerLost("the sandbox needs wasmtime, which is not installed: pip install 'windlass[code]'")
    # -P and -E: neither the folder it starts in nor the environment says what is imported.
    argv = [sys.executable, "-P", "-E", "-s", "-m", "windlass.sandbox.worker", str(cache)]
    return await attended(supervisor, argv)


async def attended(supervisor: Supervisor, argv: Sequence[str]) -> Attendant:
    """A process that has said that it is ready."""
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
        raise WorkerLost(f"a worker of the sandbox does not start: {said[-LONGEST_COMPLAINT:] or error!r}") from error
    except BaseException:
        await asyncio.shield(process.stop(0))
        raise
    return Attendant(process, ready.layers)


def _computed(pid: int) -> float | None:
    """Seconds that a process has computed; None where nobody tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
