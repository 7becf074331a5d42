"""Another process of the same home: uses a tool when it is told to, and ends the use when it is told how.

It reads lines and answers in lines of JSON. `use` begins a plan of one step, `end WORD` ends the oldest use under way:
with `fail` it has failed for a reason of its own. `spans` tells from when to when each use was, by the machine's clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import windlass
from windlass import Plan, Step, ToolError, tool
from windlass.engine.gates.view import open_breakers


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


async def main() -> None:
    ends: asyncio.Queue[str] = asyncio.Queue()
    spans: list[tuple[float, float]] = []

    @tool(name="scripted", effect="none")
    async def scripted() -> str:
        say("using")
        begun = time.monotonic()
        how = await ends.get()
        spans.append((begun, time.monotonic()))
        if how == "fail":
            raise ToolError("no answer", category="transient")
        return how

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    running: set[asyncio.Task[None]] = set()
    async with windlass.open(tools=[scripted], grace=0.2) as engine:

        async def use() -> None:
            plan = Plan(steps=[Step(id="a", tool="scripted", retry={"max": 0})])
            (step,) = (await (await engine.start(plan)).result())["steps"]
            say("done", status=step["status"], output=step["output"], error=(step["error"] or {}).get("message"))

        say("ready")
        while line := (await lines.readline()).decode().split():
            if line[0] == "use":
                running.add(asyncio.create_task(use()))
            elif line[0] == "end":
                ends.put_nowait(line[1])
            elif line[0] == "spans":
                say("spans", all=spans)
            elif line[0] == "breakers":
                say("breakers", **open_breakers(engine.attempt_runner.gates))


asyncio.run(main())
