"""A worker process: reads requests from stdin, runs programs, writes answers to stdout, and can do nothing else.

    python -m windlass.sandbox.worker CACHE

Everything it needs is loaded first; then it locks itself in and says `Ready`. It holds any number of programs that wait
for results, and runs one at a time. It trusts the engine, which trusts it in nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from windlass.sandbox import frames
from windlass.sandbox.lockdown import lock_down
from windlass.sandbox.machine import Machine, load
from windlass.sandbox.session import CpuMeter, Ended, GuestSession, problem_of

__all__ = ["main"]

CHECK_MEMORY = 64 * 1024 * 1024
CHECK_CPU = 2.0


class Worker:
    def __init__(self, machine: Machine, meter: CpuMeter) -> None:
        self._machine, self._meter = machine, meter
        self._sessions: dict[int, GuestSession] = {}

    def answer(self, request: frames.Request) -> frames.Answer:
        match request:
            case frames.OpenRun(run):
                session = GuestSession(self._machine, self._meter, request)
                self._sessions[run] = session
                return self._turn(run, session)
            case frames.Deliver(run):
                known = self._sessions.get(run)
                if known is None:
                    return frames.Broke(run, "lost", "it is not here any more")
                return self._turn(run, known, request)
            case frames.CloseRun(run):
                gone = self._sessions.pop(run, None)
                if gone is not None:
                    gone.close()
                return frames.RunClosed(run)
            case frames.Check(source, name):
                return frames.SyntaxChecked(
                    problem_of(self._machine, self._meter, source, name, CHECK_MEMORY, CHECK_CPU)
                )

    def _turn(self, run: int, session: GuestSession, results: frames.Deliver | None = None) -> frames.Answer:
        try:
            return session.begin() if results is None else session.deliver(results)
        except Ended as ended:
            self._sessions.pop(run).close()
            return ended.told(run)


def serve(worker: Worker, source: int, sink: int) -> None:
    """Answer requests until the engine closes its end."""
    while (header := _exactly(source, frames.HEADER)) is not None:
        body = _exactly(source, int.from_bytes(header))
        if body is None:
            return
        _all_of(sink, frames.packed(worker.answer(frames.read_request(body))))


def _exactly(source: int, length: int) -> bytes | None:
    """Read exactly `length` bytes; None at the end of the input."""
    pieces: list[bytes] = []
    while length:
        piece = os.read(source, min(length, 1 << 20))
        if not piece:
            return None
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _all_of(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def main(cache: str) -> None:
    engine, module = load(Path(cache))
    worker = Worker(Machine(engine, module), CpuMeter(engine))
    # Nothing can be loaded after the lockdown: run one program of every kind first.
    for source in ("return 1", "throw 1", "throw new Error('x')", "}", "tools.a({}); return {}"):
        opened = frames.OpenRun(0, source, "warm.js", WARM, 8 << 20, 5.0, 1 << 10)
        frames.packed(worker.answer(opened))
        worker.answer(frames.read_request(frames.packed(frames.CloseRun(0))[frames.HEADER :]))
    layers = lock_down()
    _all_of(1, frames.packed(frames.Ready(layers)))
    serve(worker, 0, 1)


WARM = b'{"limits":{"calls":9,"output":999,"log":999},"now":0,"seed":[1,2,3,4],"data":{},"tools":["a"]}'

if __name__ == "__main__":
    main(sys.argv[1])
