"""A runtime behind its breakers, and one that nobody knows (A6, C4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from windlass.core.breaker import FAILURES, Breaker
from windlass.engine.agents.runtimes import GuardedRunner, choose
from windlass.engine.gates.memory import MemoryGateStore
from windlass.errors import MODEL_API, Category, Failure, ToolError
from windlass.ports import AgentRequest, AgentResult, Brief
from windlass.testing import FakeClock, ScriptedRunner


class Account(ScriptedRunner):
    """A runtime that is used with one account; it gives these results, or raises these errors."""

    def __init__(self, *script: AgentResult | Exception) -> None:
        super().__init__(name="cli")
        self.script = list(script)
        self.named = "acme"

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return self.named

    async def run(self, request: AgentRequest, host: Any) -> AgentResult:
        self.requests.append(request)
        result = self.script.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class World:
    def __init__(self, *script: AgentResult | Exception) -> None:
        self.clock, self.book = FakeClock(), MemoryGateStore()
        self.runner = Account(*script)
        self.guarded = GuardedRunner(self.runner, self.book, self.clock)

    async def run(self, times: int = 1) -> AgentResult:
        host: Any = None
        request = AgentRequest("x:work:1", "do it", Brief("", "do it"), Path(), Path("scratch"), {})
        results = [await self.guarded.run(request, host) for _ in range(times)]
        return results[-1]


DOWN = AgentResult(failure=Failure(Category.TRANSIENT, "no answer"))
DONE = AgentResult("done")


async def test_c4_a_runtime_that_keeps_failing_rests_and_its_task_is_for_another() -> None:
    world = World(*[DOWN] * FAILURES, DONE, DOWN)
    await world.run(FAILURES)
    refused = (await world.run()).failure
    assert refused is not None
    assert (refused.elsewhere, refused.kind, refused.category) == (True, MODEL_API, Category.TRANSIENT)
    assert len(world.runner.requests) == FAILURES, "it was not used"
    world.clock.advance(20.0)
    resting = world.guarded.resting("acme")
    assert resting is not None
    said = f"circuit open with acme after {FAILURES} failures (last: no answer), retry in 10 s"
    assert resting.detail == said
    assert resting.back_in == pytest.approx(10.0)
    assert world.guarded.resting("another") is None
    world.clock.advance(10.0)
    assert world.guarded.resting("acme") is None
    assert await world.run() == DONE
    assert world.book.breakers() == {}


@pytest.mark.parametrize(
    "answer",
    [
        DONE,
        AgentResult(failure=Failure(Category.RESOURCE, "used up", resets_at=4e9)),
        AgentResult(failure=Failure(Category.RESOURCE, "the budget is used up"), metadata={"budget": True}),
    ],
    ids=["done", "quota", "budget"],
)
async def test_c4_a_runtime_that_answers_between_failures_does_not_rest(answer: AgentResult) -> None:
    world = World(*[DOWN] * (FAILURES - 1), answer, DOWN)
    await world.run(FAILURES + 1)
    assert world.guarded.resting("acme") is None


async def test_c4_a_stopped_run_between_failures_says_nothing_about_the_runtime() -> None:
    world = World(*[DOWN] * (FAILURES - 1), AgentResult("half", interrupted=True), DOWN)
    await world.run(FAILURES + 1)
    assert world.guarded.resting("acme") is not None


@pytest.mark.parametrize("stopped", [AgentResult("half", interrupted=True), RuntimeError("broken")], ids=str)
async def test_c4_after_a_probe_that_found_nothing_out_another_is_made_soon(stopped: AgentResult | Exception) -> None:
    world = World(*[DOWN] * FAILURES, stopped, DONE)
    await world.run(FAILURES)
    world.clock.advance(30.0)
    if isinstance(stopped, Exception):
        with pytest.raises(RuntimeError, match="broken"):
            await world.run()
    else:
        assert await world.run() is stopped
    world.clock.advance(30.0)
    assert await world.run() is DONE


async def test_c4_a_late_success_does_not_close_the_breaker_of_a_runtime_without_an_account() -> None:
    """It began before the breaker opened."""

    class Late(Account):
        async def run(self, request: AgentRequest, host: Any) -> AgentResult:
            world.book.keep_breaker("runtime cli", opened)
            return DONE

    world = World()
    opened = Breaker(FAILURES, 1, world.clock.now() + 30.0, because="no answer")
    late = Late()
    late.named = ""
    world.guarded = GuardedRunner(late, world.book, world.clock)
    assert await world.run() is DONE
    assert world.book.breaker("runtime cli") == opened


async def test_c4_a_breaker_of_the_whole_runtime_from_an_earlier_version_goes_with_the_first_success() -> None:
    world = World(DONE)
    world.book.keep_breaker("runtime cli", Breaker(FAILURES, 1, world.clock.now() + 30.0, because="down"))
    await world.run()
    assert world.book.breakers() == {}


@pytest.mark.parametrize(
    ("named", "hint"), [("open-cod", "did you mean open-code?"), ("zzz", "there are: cli, open-code")]
)
async def test_a6_a_runtime_that_is_not_there_is_refused_with_those_that_are(named: str, hint: str) -> None:
    runners = {name: ScriptedRunner(name=name) for name in ("cli", "open-code")}
    with pytest.raises(ToolError) as refused:
        await choose(runners, named, fallback=True)
    assert refused.value.failure.category is Category.CONFIGURATION
    assert refused.value.failure.message == f"there is no runtime {named!r}; {hint}"
