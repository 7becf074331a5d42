"""Programs as the engine uses them: `ports.Sandbox` on a pool of workers.

A run keeps everything that was handed in to it. Its worker may die, or be needed for others while the run waits: then
the program is made again in another worker from what was handed in, which leads to the same calls, and nobody notices.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.ports import Delivery, GuestCall, Health, Program, ProgramError, Turn
from windlass.process import Supervisor
from windlass.sandbox import frames
from windlass.sandbox.attendant import Attendant, WorkerLost, start
from windlass.sandbox.pool import Pool

__all__ = ["WasmSandbox"]

DEEPEST = 70
"""Levels that a value of a program may have here; the program's own side allows fewer."""
CHECK_CPU = 2.0
TRIES = 2
"""Workers that a turn may take with it into the grave before it is called its fault."""

_encode = msgspec.json.Encoder().encode
_values: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _State(msgspec.Struct):
    calls: list[tuple[int, str, Any]]
    log: str


_states: msgspec.json.Decoder[_State] = msgspec.json.Decoder(_State)


class WasmSandbox:
    """Where programs run. Close it."""

    def __init__(self, supervisor: Supervisor, cache: Path, most: int | None = None) -> None:
        self._pool = Pool(lambda: start(supervisor, cache), most)
        self._numbers = itertools.count(1)

    async def open(self, program: Program) -> _Run:
        return _Run(self._pool, next(self._numbers), program)

    async def check(self, source: str) -> str | None:
        try:
            async with self._pool.lease() as worker:
                answer = await worker.ask(frames.Check(source, "program.js"), CHECK_CPU)
        except WorkerLost as error:
            raise ProgramError("lost", str(error)) from error
        return answer.problem if isinstance(answer, frames.Checked) else "the sandbox could not look at it"

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
        """The processes that there are now."""
        return [worker.pid for worker in self._pool.workers]


class _Run:
    """One run of one program."""

    def __init__(self, pool: Pool, number: int, program: Program) -> None:
        self._pool = pool
        self._number = number
        self._program = program
        self._worker: Attendant | None = None
        self._handed_in: list[bytes] = []
        """JSON of each result, in their order."""
        self._begun = False
        self._issued = 0
        self._failed: list[int] = []
        self._result: bytes | None = None

    async def begin(self) -> Turn:
        return await self._turn(())

    async def deliver(self, results: Sequence[Delivery]) -> Turn:
        self._failed += [result.number for result in results if result.error is not None]
        return await self._turn([_encode(_plain(result)) for result in results])

    def park(self) -> None:
        if self._worker is not None:
            self._worker.drop(self._number)
            self._worker = None

    async def close(self) -> None:
        self.park()

    async def _turn(self, results: Sequence[bytes]) -> Turn:
        for last in range(TRIES, 0, -1):
            try:
                return await self._try(results)
            except WorkerLost as error:
                if last == 1:
                    raise ProgramError("lost", str(error)) from error
            except BaseException:
                self.park()
                raise
        raise AssertionError("unreachable")

    async def _try(self, results: Sequence[bytes]) -> Turn:
        try:
            return await self._in(self._worker, results)
        except WorkerLost:
            if self._worker is None:
                raise
            self._worker = None  # it died while the program waited in it, or just now: elsewhere, then
            return await self._in(None, results)

    async def _in(self, worker: Attendant | None, results: Sequence[bytes]) -> Turn:
        async with self._pool.lease(worker) as leased:
            if worker is None:
                answer = await self._make(leased)
            leased.runs.pop(self._number, None)
            leased.runs[self._number] = self._let_go  # the last to have waited
            if worker is not None or results:
                answer = await leased.ask(self._delivering(results), self._program.limits.cpu)
            turn = self._understood(answer, len(results))
            self._worker = leased
        self._handed_in += results
        return turn

    async def _make(self, worker: Attendant) -> frames.Answer:
        """The program in a worker, as far as it was when it was let go of."""
        answer = await worker.ask(self._opening(), self._program.limits.cpu)
        if self._handed_in and isinstance(answer, frames.Turned):
            answer = await worker.ask(self._delivering(self._handed_in), self._program.limits.cpu)
        if self._begun and not isinstance(answer, frames.Turned):
            raise ProgramError("diverged", "made again from the same results, the program did not come to the same")
        return answer

    def _let_go(self) -> None:
        self._worker = None

    def _opening(self) -> frames.Open:
        program, limits = self._program, self._program.limits
        setup = {
            "limits": {"calls": limits.calls, "output": limits.output, "log": limits.log},
            "now": int(program.now * 1000),
            "seed": _seed(program.seed),
            "data": program.data or {},
            "tools": program.tools,
        }
        return frames.Open(
            self._number, program.source, program.name, _encode(setup), limits.memory, limits.cpu, limits.output
        )

    def _delivering(self, results: Sequence[bytes]) -> frames.Deliver:
        return frames.Deliver(self._number, b"[" + b",".join(results) + b"]", len(results))

    def _understood(self, answer: frames.Answer, delivered: int) -> Turn:
        if isinstance(answer, frames.Broke):
            raise ProgramError(answer.trouble, answer.message, call=answer.call or None)
        if not isinstance(answer, frames.Turned) or answer.run != self._number:
            raise ProgramError("lost", "the worker that ran it said what makes no sense")
        state = _read(_states, answer.state)
        fresh = [GuestCall(*call) for call in state.calls]
        if [call.number for call in fresh] != list(range(self._issued + 1, self._issued + len(fresh) + 1)):
            raise ProgramError("lost", "the worker that ran it counts in a way of its own")
        self._issued += len(fresh)
        self._begun = True
        self._result = answer.result if answer.result is not None else self._result
        open_calls = self._issued - len(self._handed_in) - delivered
        if open_calls > 0:
            return Turn(tuple(fresh), state.log, cpu=answer.cpu)
        if self._result is None:
            raise ProgramError("stalled", "it waits for something that never comes: none of its calls is open")
        if answer.unhandled > 0:
            call = self._failed[-1] if self._failed else None
            raise ProgramError("unhandled", "a promise was rejected, and nothing awaited it", call=call)
        return Turn(tuple(fresh), state.log, True, _read(_values, self._result), answer.cpu)


def _read(decoder: msgspec.json.Decoder[Any], raw: bytes) -> Any:
    try:
        value = decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProgramError("marshal", "its values cannot be read") from error
    if not _flat(value.calls if isinstance(value, _State) else value):
        raise ProgramError("marshal", f"its values are nested more than {DEEPEST} levels deep")
    return value


def _flat(value: Any) -> bool:
    """Whether it has a bottom within reach. Level by level: this must not be what runs out of stack."""
    level = [value]
    for _ in range(DEEPEST):
        inner = [one for one in level if isinstance(one, dict | list | tuple)]
        if not inner:
            return True
        level = [below for one in inner for below in (one.values() if isinstance(one, dict) else one)]
    return False


def _plain(result: Delivery) -> list[Any]:
    error = None if result.error is None else [result.error.message, result.error.category]
    return [result.number, int(result.at * 1000), result.value, error]


def _seed(text: str) -> list[int]:
    raw = hashlib.blake2s(text.encode(), digest_size=16).digest()
    return [int.from_bytes(raw[at : at + 4], signed=True) for at in range(0, 16, 4)]
