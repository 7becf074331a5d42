"""Whoever joins while several processes write, at any moment and with any `after`, has every event once (I3)."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from stream_worlds import Host, chain, hosted, journal, listen, places, quick
from waiting import PATIENCE, wait_until_async

import windlass

if TYPE_CHECKING:
    from conftest import Project

    from windlass import Engine

WRITER = """
import asyncio, windlass
from windlass import Call, Plan, Step, tool

@tool
async def quick(call: Call) -> str:
    return call.step

async def main():
    steps = [Step(id=f"s{n}", tool="quick", needs=[f"s{n - 1}"] if n else []) for n in range(150)]
    async with windlass.open(tools=[quick]) as engine:
        for execution in [await engine.start(Plan(steps=steps)) for _ in range(2)]:
            await execution.wait()

asyncio.run(main())
"""


class Joined:
    """A client that keeps all it gets."""

    def __init__(self, execution: str | None, after: int) -> None:
        self.execution, self.after = execution, after
        self.got: list[dict[str, Any]] = []
        self.heard = asyncio.Event()

    async def listen(self, host: Host) -> None:
        path = "/api/stream" if self.execution is None else f"/api/executions/{self.execution}/stream"
        async with listen(host.url(f"{path}?after={self.after}")) as connection:
            while True:
                message = json.loads(await connection.recv())
                self.heard.set()
                if message["type"] != "heartbeat":
                    self.got.append(message)

    def has(self, count: int) -> bool:
        return len(self.got) >= count

    async def expected(self, engine: Engine) -> list[tuple[int, str, int]]:
        everything = await journal(engine, self.execution)
        which = 0 if self.execution is None else 2
        return [place for place in everything if place[which] > self.after]


@pytest.mark.parametrize("seed", range(3))
async def test_i3_every_client_has_exactly_the_rest_whenever_it_joins(project: Project, seed: int) -> None:
    chance = random.Random(seed)
    joined: list[Joined] = []
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(windlass.open(tools=[quick]))
        # A small ring, so that many are behind it when they come, and pass over into it while it moves.
        host = await stack.enter_async_context(hosted(engine, most_events=200))
        ours = await engine.start(chain(150))
        writers = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, cwd=project.path, env=project.env)
            for _ in range(2)
        ]
        writing = asyncio.gather(*(writer.wait() for writer in writers), ours.wait())
        tasks: list[asyncio.Task[None]] = []
        while len(joined) < 12 or (not writing.done() and len(joined) < 60):
            places_now = await journal(engine)
            position, execution, seq = chance.choice(places_now)
            one = Joined(execution, seq - 1) if len(joined) % 2 else Joined(None, position - 1)
            joined.append(one)
            tasks.append(asyncio.create_task(one.listen(host)))
            await asyncio.wait_for(one.heard.wait(), PATIENCE)
        assert (await writing)[:2] == [0, 0]
        for one, task in zip(joined, tasks, strict=True):
            expected = await one.expected(engine)
            await wait_until_async(partial(one.has, len(expected)), "it has all")
            task.cancel()
            assert places(one.got) == expected
        await asyncio.wait(tasks)
