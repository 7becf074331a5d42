"""What the scripts of the JavaScript engines share: one process that is asked, line by line, to run programs.

It lives here so that no engine is measured by a clock, a program or a host function of its own; ours answers the same
questions. Run inside the peers' environment, therefore standard library only. A request is one line of JSON:

    {"source": "return 1", "data": {}, "times": 20, "at_once": false, "limit": 1.0, "hostile": false}

The answer is `{"each": [seconds of each run], "whole": seconds of all, "value": what every one of them returned}`, or
`{"error": why there is no value}`. The first line that is written says who is there, and as which processes.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

__all__ = ["HARNESS", "MEMORY", "Asked", "Engine", "Opened", "host", "serve"]

MEMORY = 64 * 1024 * 1024
"""Bytes that a program may use, where an engine has such a limit."""

HARNESS = """
(host, source, inputs) => {
  const call = async (name, args) => JSON.parse(await host(name, JSON.stringify(args ?? {})));
  const use = (name) => (args) => call(name, args);
  const tools = { add: use("add"), echo: use("echo"), fails: use("fails"), files: { read: use("files.read") } };
  const lines = [];
  const console = { log: (...said) => { lines.push(said.map(String).join(" ")); } };
  globalThis.queueMicrotask ??= (work) => { Promise.resolve().then(work); };
  const AsyncFunction = (async () => {}).constructor;
  const program = new AsyncFunction("tools", "console", "inputs", source);
  return program(tools, console, JSON.parse(inputs)).then((value) => JSON.stringify(value ?? null));
}
"""
"""How a program is run where the engine brings nothing for it: the same names, values on their way as JSON."""


class Asked(NamedTuple):
    source: str
    data: Any = None
    times: int = 1
    at_once: bool = False
    """All of them at the same time, as far as the engine can."""
    limit: float = 1.0
    """Seconds, of whichever clock the engine has."""
    hostile: bool = False


class Engine(Protocol):
    async def run(self, asked: Asked) -> Any:
        """The value of the program, in a world of its own. Raises if there is none."""
        ...

    def processes(self) -> list[int]:
        """Those that do the work, besides this one."""
        ...


Opened = Callable[[], AbstractAsyncContextManager[Engine]]


def host(name: str, arguments: Any) -> Any:
    """The functions that programs call."""
    if name == "add":
        return arguments["x"] + 1
    if name == "echo":
        return arguments
    raise ValueError("it did not work")


def serve(engine: str, version: str, opened: Opened) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # stdout carries our lines, whatever an engine prints
    asyncio.run(_serve({"engine": engine, "version": version}, opened, answers))


async def _serve(about: dict[str, Any], opened: Opened, answers: Any) -> None:
    async with opened() as engine:
        await engine.run(Asked("return await tools.add({x: 1})"))  # what is loaded late is loaded now
        print(json.dumps({**about, "pids": [os.getpid(), *engine.processes()]}), file=answers)
        async for asked in _requests():
            try:
                answer = await _answered(engine, asked)
            except Exception as error:  # whatever the engine makes of a program that it ended
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps(answer), file=answers)


async def _requests() -> AsyncIterator[Asked]:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield Asked(**json.loads(line))


async def _answered(engine: Engine, asked: Asked) -> dict[str, Any]:
    each: list[float] = []
    values: list[Any] = []

    async def once() -> None:
        began = time.perf_counter()
        values.append(await engine.run(asked))
        each.append(time.perf_counter() - began)

    began = time.perf_counter()
    if asked.at_once:
        await asyncio.gather(*(once() for _ in range(asked.times)))
    else:
        for _ in range(asked.times):
            await once()
    whole = time.perf_counter() - began
    if any(value != values[0] for value in values):
        raise ValueError("not every run came to the same")
    return {"each": each, "whole": whole, "value": values[0]}
