"""Our sandbox as its benchmark asks it: the same lines as the peers', answered at the port, `WasmSandbox` and its runs.

python -m benchmarks.sandbox_ours CACHE
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.sandboxed import MEMORY, Asked, Engine, host, serve
from windlass import __version__
from windlass.ports import Delivery, GuestCall, GuestError, Program, ProgramLimits
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox

__all__ = ["opened"]

TOOLS = ("add", "echo", "fails", "files.read")


class Ours:
    def __init__(self, sandbox: WasmSandbox) -> None:
        self._sandbox = sandbox

    async def run(self, asked: Asked) -> Any:
        limits = ProgramLimits(memory=MEMORY, cpu=asked.limit)
        run = await self._sandbox.open(Program(asked.source, TOOLS, {"inputs": asked.data}, limits=limits))
        try:
            turn = await run.begin()
            while not turn.done:
                turn = await run.deliver([_delivered(call) for call in turn.calls])
            return turn.value
        finally:
            await run.close()

    def processes(self) -> list[int]:
        return self._sandbox.workers


def _delivered(call: GuestCall) -> Delivery:
    try:
        return Delivery(call.number, 0.0, host(call.tool, call.arguments))
    except ValueError as error:
        return Delivery(call.number, 0.0, error=GuestError(str(error)))


@asynccontextmanager
async def opened(cache: Path) -> AsyncIterator[Engine]:
    async with Supervisor() as supervisor:
        sandbox = WasmSandbox(supervisor, cache)
        try:
            yield Ours(sandbox)
        finally:
            await sandbox.close()


def main(cache: str) -> None:
    serve("windlass", __version__, partial(opened, Path(cache)))


if __name__ == "__main__":
    main(sys.argv[1])
