"""Deno from PyPI: one warm process beside this one, in it a worker without permissions for each program.

A worker, so that no program waits for a process to start. The limit of time is the wall's, kept by the process
around the worker; that of memory is V8's for the heap, and ends the whole process.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

from deno import find_deno_bin  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchmarks.peers.sandboxed import HARNESS, MEMORY, Asked, Engine, host, serve

LONGEST_LINE = 1 << 28
SCRIPT = Path(__file__).with_suffix(".js")


class Deno:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._runs: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.ensure_future(self._read())

    async def run(self, asked: Asked) -> Any:
        number = next(self._numbers)
        self._runs[number] = asyncio.get_running_loop().create_future()
        inputs = json.dumps(asked.data)
        self._write({"run": number, "source": asked.source, "inputs": inputs, "limit": asked.limit})
        return json.loads(await self._runs[number])

    def processes(self) -> list[int]:
        return [self._process.pid]

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "calls" in message:
                self._write({"run": message["run"], "results": [_result(*call) for call in message["calls"]]})
            elif "error" in message:
                self._runs.pop(message["run"]).set_exception(RuntimeError(message["error"]))
            else:
                self._runs.pop(message["run"]).set_result(message["value"])
        for run in self._runs.values():
            run.set_exception(RuntimeError("its process has ended"))


def _result(number: int, name: str, arguments: str) -> tuple[int, str | None, str | None]:
    try:
        return number, json.dumps(host(name, json.loads(arguments))), None
    except ValueError as error:
        return number, None, str(error)


@asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    flags = ["--quiet", "--no-prompt", "--no-remote", "--no-config", "--unstable-worker-options"]
    heap = f"--v8-flags=--max-old-space-size={MEMORY >> 20}"
    process = await asyncio.create_subprocess_exec(
        find_deno_bin(), "run", *flags, heap, SCRIPT, HARNESS,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE,
    )  # fmt: skip
    try:
        yield Deno(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__":
    serve("deno", version("deno"), opened)
