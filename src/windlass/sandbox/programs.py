"""Programs as the engine uses them: `ports.Sandbox` on a pool of workers.

A run keeps everything that was handed in to it. Its worker may die, or be needed for others while the run waits: then
the program is replayed in another worker with the same results, which leads to the same calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windlass.ports import Delivery, Health, Program, ProgramError, ProgramTurn
from windlass.process import Supervisor
from windlass.sandbox import frames
from windlass.sandbox.messages import HALF, Nonsense, delivering, opening, portions, result_of, said, value_of, whole
from windlass.sandbox.quickjs import VERSION
from windlass.sandbox.workers import IDLE, WorkerLost, WorkerPool, WorkerProcess, start

__all__ = ["Run", "WasmSandbox"]

CHECK_CPU = 2.0
TRIES = 2
"""New workers that may die in one turn before the program gets the blame."""
LONGEST_MESSAGE = 16 * 1024
_NONE_YET: Any = object()


class WasmSandbox:
    """Runs programs in a pool of worker processes. Close it after use."""

    version = VERSION

    def __init__(self, supervisor: Supervisor, cache: Path, most: int | None = None, idle: float = IDLE) -> None:
        self._pool = WorkerPool(lambda: start(supervisor, cache), most, idle)
        self._numbers = itertools.count(1)

    async def open(self, program: Program) -> Run:
        try:
            await self._pool.ready()
        except WorkerLost as error:
            raise ProgramError("lost", str(error)) from error
        return Run(self._pool, next(self._numbers), program)

    async def check(self, source: str) -> str | None:
        if not whole(source):
            return HALF
        try:
            async with self._pool.lease() as worker:
                answer = await worker.ask(frames.Check(source, "program.js"), CHECK_CPU)
        except WorkerLost as error:
            raise ProgramError("lost", str(error)) from error
        return answer.problem if isinstance(answer, frames.SyntaxChecked) else "the sandbox could not look at it"

    async def health(self) -> Health:
        try:
            async with self._pool.lease() as worker:
                layers = ", ".join(("WebAssembly", *worker.layers))
        except WorkerLost as error:
            return Health(False, str(error), "pip install 'windlass[code]'")
        return Health(True, f"programs are held by {layers}")

    async def close(self) -> None:
        await self._pool.close()

    @property
    def workers(self) -> list[int]:
        """Process ids of the current workers."""
        return [worker.pid for worker in self._pool.workers]


class Run:
    """One run of one program, in whichever worker of a pool."""

    def __init__(self, pool: WorkerPool, number: int, program: Program) -> None:
        self._pool = pool
        self._number = number
        self._program = program
        self._worker: WorkerProcess | None = None
        self._turning = False
        self._park_then = False
        """It was let go of in the middle of a turn, which leads to where the next one goes on."""
        self._handed_in: list[bytes] = []
        """JSON of each result, in their order."""
        self._begun = False
        self._issued = 0
        self._logged = 0
        self._failed: list[int] = []
        self._result = _NONE_YET

    async def begin(self) -> ProgramTurn:
        return await self._turn(())

    async def deliver(self, results: Sequence[Delivery]) -> ProgramTurn:
        self._failed += [result.number for result in results if result.error is not None]
        return await self._turn([result_of(result) for result in results])

    def park(self) -> None:
        if self._turning:
            self._park_then = True
        elif self._worker is not None:
            self._worker.drop(self._number)
            self._worker = None

    async def close(self) -> None:
        self.park()

    async def _turn(self, results: Sequence[bytes]) -> ProgramTurn:
        self._turning, self._park_then = True, False
        try:
            return await self._tried(results)
        except BaseException:
            self._park_then = True
            raise
        finally:
            self._turning = False
            if self._park_then:
                self.park()

    async def _tried(self, results: Sequence[bytes]) -> ProgramTurn:
        # Workers from before may have died while idle: only new ones count.
        before, lost = set(self._pool.workers), 0
        while True:
            own = self._worker
            try:
                return await self._in(own, results)
            except WorkerLost as error:
                self._worker = None
                if own is None and error.worker not in before:
                    lost += 1
                before.discard(error.worker)
                if lost == TRIES:
                    raise ProgramError("lost", str(error)) from error

    async def _in(self, worker: WorkerProcess | None, results: Sequence[bytes]) -> ProgramTurn:
        async with self._pool.lease(worker) as leased:
            leased.hold(self._number, self._let_go)
            try:
                # It may have had to make room while it waited for its turn.
                answer = None if self._worker is leased else await self._make(leased)
                if answer is None or (results and isinstance(answer, frames.Turned)):
                    answer = await leased.ask(delivering(self._number, results), self._program.limits.cpu)
                turn = self._understood(answer, len(results))
            except Nonsense as error:
                await leased.end()
                raise WorkerLost("its worker process sent an invalid message", leased) from error
            except WorkerLost as error:
                error.worker = leased
                raise
            except BaseException:
                leased.drop(self._number)
                raise
            self._worker = leased
        self._handed_in += results
        return turn

    async def _make(self, worker: WorkerProcess) -> frames.Answer:
        """Replay the program in a worker, up to the point where it lost its last one."""
        answer = await worker.ask(opening(self._number, self._program), self._program.limits.cpu)
        if not self._begun:
            return answer
        issued = self._made_again(answer, 0)
        for results in portions(self._handed_in):
            answer = await worker.ask(delivering(self._number, results), self._program.limits.cpu)
            issued = self._made_again(answer, issued)
        if issued != self._issued:
            raise _diverged()
        return answer

    def _made_again(self, answer: frames.Answer, issued: int) -> int:
        """Return the number of calls that the replayed program has made so far."""
        match answer:
            case frames.Turned():
                return issued + len(said(answer, self._program, issued).calls)
            case frames.Broke(trouble="cpu"):  # time is the one thing that is not the same again
                raise self._ended(answer)
            case _:
                raise _diverged()

    def _let_go(self) -> None:
        self._worker = None

    def _ended(self, broke: frames.Broke) -> ProgramError:
        call = broke.call if broke.call in self._failed else None
        log = broke.log[: self._program.limits.log]
        return ProgramError(broke.trouble, broke.message[:LONGEST_MESSAGE], call=call, log=log)

    def _understood(self, answer: frames.Answer, delivered: int) -> ProgramTurn:
        """Read an answer into a turn. State changes only once all of it is valid: the turn may have to be replayed."""
        if not isinstance(answer, frames.Turned):
            assert isinstance(answer, frames.Broke), "see frames.fits"
            raise self._ended(answer)
        calls, log = said(answer, self._program, self._issued)
        result = self._result if answer.result is None else value_of(answer.result)
        self._begun = True
        self._issued += len(calls)
        self._result = result
        self._logged += len(log.encode())
        if self._logged > self._program.limits.log:  # the prelude counts characters, of which some have several bytes
            raise ProgramError("log", f"more than {self._program.limits.log} bytes logged")
        cpu = min(max(0.0, answer.cpu), 2 * self._program.limits.cpu)
        memory = min(max(0, answer.memory), self._program.limits.memory)
        if self._issued > len(self._handed_in) + delivered:
            return ProgramTurn(calls, log, cpu=cpu, memory=memory)
        if result is _NONE_YET:
            # QuickJS drops what follows from a promise for which it has no room.
            if self._program.limits.memory - answer.memory < frames.ROOM_FOR_AN_ERROR:
                most = self._program.limits.memory >> 20
                raise ProgramError("memory", f"it needs more than {most} MiB of memory")
            raise ProgramError("stalled", "it waits for something that never comes: none of its calls is open")
        if answer.unhandled > 0:
            call = self._failed[-1] if self._failed else None
            raise ProgramError("unhandled", "a promise was rejected, and nothing awaited it", call=call)
        return ProgramTurn(calls, log, True, result, cpu, memory)


def _diverged() -> ProgramError:
    return ProgramError("diverged", "made again from the same results, the program did not come to the same")
