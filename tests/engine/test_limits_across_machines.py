"""Limits that hold for all machines of a journal: places, rates, breakers, budgets and quotas (C8, E1, J2).

Each engine has a home of its own, as on another machine, and the journal in one PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from test_shared import SharedWorld
from waiting import wait_until_async

import windlass
from windlass import AgentRequest, ToolError
from windlass.core import events as ev
from windlass.core.breaker import FAILURES
from windlass.engine.engine import Engine
from windlass.engine.gates import places
from windlass.errors import Category, Failure
from windlass.ports import Call, Rate
from windlass.testing import ScriptedRunner, Turn


@asynccontextmanager
async def machines(folder: Path, postgres: str, **given: Any) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        homes = (folder / f"home{number}" for number in range(3))
        yield [await stack.enter_async_context(windlass.open(home, journal=postgres, **given)) for home in homes]


class Crowd:
    """A tool that counts how many use it at the same time, and waits until it may go on."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.go_on = asyncio.Event()

    async def enter(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.go_on.wait()
        self.inside -= 1
        return "done"


async def use(engine: Engine, name: str, folder: Path) -> Any:
    runner = engine.attempt_runner
    tool = runner.tools.get(name)
    assert tool is not None
    call = Call(execution="x", step="a", attempt=1, workdir=folder, folder=folder, processes=runner.processes)
    return await runner.gates.use(tool, {}, call, runner.tools)


async def test_c8_places_of_a_tool_are_those_of_all_machines(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SHARED_AGAIN", 0.01)
    crowd = Crowd()

    @windlass.tool(name="crowd")
    async def enter() -> str:
        return await crowd.enter()

    terms = {"crowd": {"concurrent": 2}}
    async with machines(tmp_path, postgres, tools=[enter], settings={"tools": terms}) as engines:
        uses = [asyncio.create_task(use(engine, "crowd", tmp_path)) for engine in engines * 2]
        await wait_until_async(lambda: crowd.inside == 2)
        stopped = asyncio.create_task(use(engines[0], "crowd", tmp_path))
        with psycopg.connect(postgres, autocommit=True) as session:  # everybody asked, and two have a place
            asked = (
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%try_advisory%' AND pid <> pg_backend_pid()"
            )
            await wait_until_async(lambda: session.execute(asked).fetchone() == (3,))
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
            assert session.execute(held).fetchone() == (2,)
            stopped.cancel()
            crowd.go_on.set()
            assert await asyncio.gather(*uses) == ["done"] * 6
            assert crowd.most == 2
            await wait_until_async(lambda: session.execute(held).fetchone() == (0,))


async def test_c8_the_places_of_a_machine_whose_session_ended_are_free_or_taken_again(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SHARED_AGAIN", 0.01)
    async with machines(tmp_path, postgres) as engines:
        one, two = (engine.attempt_runner.gates._shared for engine in engines[:2])
        assert one is not None
        assert two is not None
        first = await one.take("a", 1)
        assert first is not None
        assert await two.take("a", 1) is None
        with psycopg.connect(postgres, autocommit=True) as session:
            end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE query LIKE '%try_advisory%'"
            session.execute(f"{end} AND pid <> pg_backend_pid()".encode())
        assert await one.take("b", 1) is not None  # with a new session, which takes the other place again
        assert await two.take("a", 1) is None
        await one.give_back(first)
        assert await two.take("a", 1) == first


async def test_c8_a_rate_counts_the_uses_of_all_machines(tmp_path: Path, postgres: str) -> None:
    async with machines(tmp_path, postgres) as engines:
        one, two = (engine.attempt_runner.gates.book for engine in engines[:2])
        rate = Rate(2, 3600.0)
        assert [one.take("a", rate, 1000.0), two.take("a", rate, 1000.0)] == [0.0, 0.0]
        assert one.take("a", rate, 1000.0) > 0
        assert two.take("a", rate, 1000.0) > 0


async def test_c8_a_breaker_that_opens_on_one_machine_is_open_on_all(
    tmp_path: Path, postgres: str, long_rest: None
) -> None:
    used = 0

    @windlass.tool(name="broken")
    async def fail() -> str:
        nonlocal used
        used += 1
        raise ToolError("no answer", category=Category.TRANSIENT)

    async with machines(tmp_path, postgres, tools=[fail]) as engines:
        for _ in range(FAILURES):
            with pytest.raises(ToolError, match="no answer"):
                await use(engines[0], "broken", tmp_path)
        assert "broken" in engines[1].attempt_runner.gates.book.breakers()
        with pytest.raises(ToolError, match="broken"):
            await use(engines[1], "broken", tmp_path)
        assert used == FAILURES


@asynccontextmanager
async def shared_agents(folder: Path, postgres: str, turn: Any) -> AsyncIterator[tuple[SharedWorld, ScriptedRunner]]:
    runner = ScriptedRunner(turn, name="cli")
    async with machines(folder, postgres, runners=[runner]) as engines:
        yield SharedWorld(engines, folder), runner


def agent(step: str, **more: Any) -> dict[str, Any]:
    return {"id": step, "agent": "developer", "prompt": f"Do {step}.", "runtime": "cli", **more}


async def test_e1_a_budget_that_one_machine_used_up_holds_the_agents_of_others(tmp_path: Path, postgres: str) -> None:
    def turn(request: AgentRequest) -> Turn:
        return Turn().spend(usd=0.5).say("done")

    async with shared_agents(tmp_path, postgres, turn) as (world, runner):
        id = await world.begin(agent("a"), agent("b", needs=["a"]), budget={"usd": 0.5})
        await world.one.turn(id, hold=True)
        await world.one.attempt(id, "a", 1)
        await world.two.turn(id, hold=True)
        await world.two.attempt(id, "b", 1)
        assert [request.metadata["step"] for request in runner.requests] == ["a"]
        waiting = (await world.events(id, ev.StepWaiting))[-1]
        assert (waiting.step, waiting.reason) == ("b", "budget")


async def test_e1_a_quota_that_one_machine_found_used_up_holds_the_agents_of_others(
    tmp_path: Path, postgres: str
) -> None:
    def turn(request: AgentRequest) -> Turn:
        later = Failure(Category.TRANSIENT, "the quota is used up", resets_at=engine_now() + 3600, elsewhere=False)
        return Turn().fail(later)

    async with shared_agents(tmp_path, postgres, turn) as (world, runner):
        engine_now = world.person.clock.now
        id = await world.begin(agent("a"), agent("b"))
        await world.one.turn(id, hold=True)
        await world.one.attempt(id, "a", 1)
        await world.two.attempt(id, "b", 1)
        assert [request.metadata["step"] for request in runner.requests] == ["a"]
        waiting = {event.step: event.reason for event in await world.events(id, ev.StepWaiting)}
        assert waiting == {"a": "quota", "b": "quota"}
