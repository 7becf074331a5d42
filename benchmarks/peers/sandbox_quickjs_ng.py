"""QuickJS-NG from PyPI, in the same process: a context for each program.

A context that has a limit of time refuses to call into Python. So programs that call are measured without one, which is
kind to it; the hostile ones have it, and their calls fail. Its limit holds for one entry into the interpreter, not for
the jobs that promises leave behind: the check between two of them is ours, as whoever uses it would have to write it.
"""

import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

import quickjs  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchmarks.peers.sandboxed import HARNESS, MEMORY, Asked, Engine, host, serve

START = f"""
let outcome = "", failure = "";
const harness = {HARNESS.strip()};
(source, inputs) => {{
  harness(host, source, inputs).then((value) => {{ outcome = value; }}, (error) => {{ failure = String(error); }});
}}
"""


class QuickJS:
    async def run(self, asked: Asked) -> Any:
        context = quickjs.Context()
        context.set_memory_limit(MEMORY)
        context.add_callable("host", _host)
        start = context.eval(START)
        if asked.hostile or "tools." not in asked.source:
            context.set_time_limit(asked.limit)
        deadline = time.process_time() + asked.limit
        start(asked.source, json.dumps(asked.data))
        while context.execute_pending_job():
            if time.process_time() > deadline:
                raise TimeoutError("its jobs take longer than it may")
        if failure := context.eval("failure"):
            raise RuntimeError(failure)
        return json.loads(context.eval("outcome"))

    def processes(self) -> list[int]:
        return []


def _host(name: str, arguments: str) -> str:
    return json.dumps(host(name, json.loads(arguments)))


@asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    yield QuickJS()


if __name__ == "__main__":
    serve("quickjs-ng", version("quickjs-ng"), opened)
