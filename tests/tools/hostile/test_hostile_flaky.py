"""A tool that fails half the time (C3, C4): plans get through, and a breaker does what is shown of it."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from hostile_world import other

import windlass as library
from windlass import Plan, Step, ToolError, tool
from windlass.core.breaker import FAILURES, LONGEST_REST
from windlass.engine.gates.view import breakers, open_breakers
from windlass.journal.gatebook import SqliteGateStore

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Server

    from windlass.testing import FakeClock

AT_ONCE = {"max": 30, "delay": "1ms", "max_delay": "1ms"}


async def test_c4_a_plan_gets_through_a_tool_that_fails_half_the_time_and_the_breaker_keeps_its_rules(
    project: Project, told_time: FakeClock, eventually: Any
) -> None:
    chance, clock = random.Random(20), told_time
    uses: list[tuple[float, bool]] = []
    opened = 0

    @tool(name="flaky", effect="none")
    async def flaky() -> int:
        works = chance.random() < 0.5
        uses.append((clock.now(), works))
        if not works:
            raise ToolError("no answer", category="transient")
        return len(uses)

    names = [f"s{number}" for number in range(60)]
    steps = [Step(id=n, tool="flaky", retry=AT_ONCE, needs=names[i - 1 : i]) for i, n in enumerate(names)]
    async with library.open(tools=[flaky]) as engine:
        running = await engine.start(Plan(steps=steps))
        result = asyncio.ensure_future(running.result())

        async def at_rest() -> bool:
            known = breakers(engine.attempt_runner.gates).get("flaky", {})
            state = await engine.state(running.id)
            waits = any(
                step.waiting_for == "retry" and (step.until or 0) > clock.now() for step in state.steps.values()
            )
            return result.done() or (waits and known.get("circuit") == "open") or (waits and _pass(clock, 0.001))

        while not result.done():
            await eventually(at_rest)
            if result.done():
                break
            opened += 1
            used = len(uses)
            (waiting,) = [s for s in (await engine.state(running.id)).steps.values() if s.waiting_for == "retry"]
            until = max(waiting.until or 0.0, engine.attempt_runner.gates.book.breaker("flaky").until)
            clock.set(until - 0.001)
            assert open_breakers(engine.attempt_runner.gates)["flaky"]["circuit"] == "open"
            assert len(uses) == used, "what is shown as open is not used"
            clock.set(until)
        assert (await result)["status"] == "completed"
        assert breakers(engine.attempt_runner.gates) == {}, "it is closed after it worked"
    rests = _rests(uses)
    assert len(rests) == opened > 0, "it opened exactly when it had failed that often in a row"


def _pass(clock: FakeClock, seconds: float) -> bool:
    """Nothing is in the way but the wait before a retry."""
    clock.advance(seconds)
    return False


def _rests(uses: list[tuple[float, bool]]) -> list[float]:
    """For how long it was left alone, by what was seen of it alone; each time as long as the rules say."""
    found: list[float] = []
    in_a_row = rests = 0
    for (at, works), (after, _) in pairwise(uses):
        in_a_row = 0 if works else in_a_row + 1
        rests = 0 if works else rests
        if in_a_row >= FAILURES:  # and every further one is a probe
            assert after - at >= min(600.0, 30.0 * 2**rests), "it was used while it should have rested"
            found.append(after - at)
            rests += 1
    return found


async def test_c4_what_status_and_the_api_call_open_is_not_used_and_the_waiting_step_says_why(
    project: Project, windlass: Windlass, server: Server, eventually: Any
) -> None:
    uses = 0

    @tool(name="flaky", effect="none")
    async def flaky() -> None:
        nonlocal uses
        uses += 1
        raise ToolError("no \x1b[2Janswer", category="transient")

    async with library.open(tools=[flaky]) as engine:
        running = await engine.start(Plan(steps=[Step(id="a", tool="flaky", retry=AT_ONCE)]))

        async def waits() -> bool:
            step = (await engine.state(running.id)).steps["a"]
            return step.error is not None and "circuit open" in step.error.message

        await eventually(waits)
        assert uses == FAILURES
        book = engine.attempt_runner.gates.book
        opened = book.breaker("flaky")
        opened = msgspec.structs.replace(opened, until=time.time() + LONGEST_REST)
        book.keep_breaker("flaky", opened)  # looking takes a while
        plain, listed = windlass("status", running.id).out, windlass("status").out
        for told in (plain, listed, windlass("tools", "check", code=1).out):
            assert "! flaky: open, next probe at " in told
            assert "; the last failure: no \\u001b[2Janswer" in told, "and it cannot clear the screen"
        assert "flaky: circuit open after 5 failures" in plain, "the step itself says what it waits for"
        step = windlass("status", running.id, "--json").json
        assert (step["steps"][0]["waiting_for"], step["breakers"]["flaky"]["circuit"]) == ("retry", "open")
        shown = server.api.get(f"/api/executions/{running.id}").json["breakers"]
        assert shown == step["breakers"] == server.api.get("/api/health").json["breakers"]
        assert 'windlass_breaker_open{name="flaky"} 1.0' in server.api.get("/metrics").body.decode()
        assert shown == open_breakers(engine.attempt_runner.gates), "the gate itself sees the same"
        assert uses == FAILURES
        await engine.cancel(running.id)
        assert "! flaky" not in windlass("status", running.id).out, "nothing waits for it any more"


async def test_c4_a_half_open_breaker_is_tried_once_by_two_processes_together(project: Project) -> None:
    async with other(project) as one, other(project) as two:
        for number in range(FAILURES):
            assert (await (one, two)[number % 2].use("fail"))["status"] == "failed"
        book = SqliteGateStore(project.home / "gates.db")
        opened = book.breakers()["scripted"]
        # Looking takes a while.
        book.keep_breaker("scripted", msgspec.structs.replace(opened, until=time.time() + LONGEST_REST))
        for process in (one, two):
            process.tell("breakers")  # what one failed at counts for the other, who knows it when he looks
            assert (await process.hear())["scripted"]["circuit"] == "open"
            assert "circuit open" in (await process.use())["error"]
        rested = msgspec.structs.replace(book.breakers()["scripted"], until=1.0)
        book.keep_breaker("scripted", rested)  # its time is over
        one.tell("breakers")
        two.tell("breakers")
        for process in (one, two):
            assert (await process.hear())["scripted"]["circuit"] == "half-open"
        one.tell("use")
        two.tell("use")
        first, second = await asyncio.gather(one.hear(), two.hear())
        probe, other_one = (one, second) if first["event"] == "using" else (two, first)
        assert {first["event"], second["event"]} == {"using", "done"}, "exactly one of them uses it"
        assert "another use is probing it" in other_one["error"]
        assert book.breakers()["scripted"].probing
        probe.tell("end", "works")
        assert (await probe.hear())["output"] == "works"
        assert book.breakers() == {}, "it worked: it is closed for all"
        book.close()
