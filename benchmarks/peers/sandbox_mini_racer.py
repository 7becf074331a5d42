"""mini-racer from PyPI: V8 in the same process, an isolate for each program.

Its limit of time is the wall's, and is kept by cancelling what runs; its limit of memory is the isolate's own.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

from py_mini_racer import mini_racer  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchmarks.peers.sandboxed import HARNESS, MEMORY, Asked, Engine, host, serve


class MiniRacer:
    async def run(self, asked: Asked) -> Any:
        with mini_racer() as context:
            context.set_hard_memory_limit(MEMORY)
            async with context.wrap_py_function(_host) as function:
                context.eval("globalThis")["host"] = function
                given = f"{json.dumps(asked.source)}, {json.dumps(json.dumps(asked.data))}"
                async with asyncio.timeout(asked.limit):
                    promise = await context.eval_cancelable(f"({HARNESS.strip()})(host, {given})")
                    return json.loads(await promise)

    def processes(self) -> list[int]:
        return []


async def _host(name: str, arguments: str) -> str:
    return json.dumps(host(name, json.loads(arguments)))


@asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    yield MiniRacer()


if __name__ == "__main__":
    serve("mini-racer", version("mini-racer"), opened)
