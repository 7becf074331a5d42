"""Retrying and skipping steps through the engine, whoever drives; and requests that lose a race (D10, D8, C1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Engine, Plan, Retry, Step, ToolError, tool
from windlass.core import events as ev
from windlass.errors import UsageError

if TYPE_CHECKING:
    from conftest import Project


class World:
    """A tool that fails until it is mended, and one that waits to be let go."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.ran: list[str] = []
        self.began = asyncio.Event()
        self.go = asyncio.Event()

        @tool
        async def work(call: Call, word: str = "") -> str:
            self.ran.append(call.step)
            if call.step in self.broken:
                raise ToolError("broken", category="logic")
            return word or call.step

        @tool
        async def hang(call: Call) -> None:
            self.began.set()
            await self.go.wait()

        self.tools = [work, hang]

    def open(self, **settings: Any) -> Engine:
        return windlass.open(tools=self.tools, **settings)


async def test_d10_an_execution_handle_retries_with_edits_and_skips_and_the_same_execution_goes_on(
    project: Project,
) -> None:
    world = World()
    world.broken = {"a", "each[1]"}
    plan = Plan(
        steps=[
            Step(id="a", tool="work"),
            Step(id="each", tool="work", foreach=[1, 2, 3]),
            Step(id="z", tool="work", needs=["a", "each"]),
        ]
    )
    async with world.open() as engine:
        execution = await engine.start(plan)
        result = await execution.result()
        assert result["status"] == "failed"
        assert any(f"windlass retry {execution.id} a" in line for line in result["error"]["advice"])
        world.broken.clear()
        await execution.retry("a", edits={"word": "edited"})
        assert (await execution.result())["status"] == "partial"
        await execution.skip("each[1]")
        result = await execution.result()
        steps = {step["id"]: step for step in result["steps"]}
        assert (result["id"], result["status"]) == (execution.id, "completed")
        assert (steps["a"]["output"], steps["a"]["attempts"]) == ("edited", 2)
        assert steps["each"]["output"] == ["each[0]", None, "each[2]"]
        with pytest.raises(UsageError, match="completed"):
            await engine.retry(execution.id, "a")
    assert sorted(world.ran) == ["a", "a", "each[0]", "each[1]", "each[2]", "z"]


async def test_d10_edits_that_the_step_cannot_have_are_refused_before_anything_is_written(project: Project) -> None:
    world = World()
    world.broken = {"a"}
    async with world.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="work")]))
        seq = (await execution.wait()).seq
        same = {"word": {1: "a", "1": "b"}}
        for how in (
            {"edits": {"wrod": "x"}},
            {"edits": same},
            {"runtime": "claude-code"},
            {"model": "m"},
            {"runtime": "nonsense"},
        ):
            with pytest.raises(UsageError):
                await engine.retry(execution.id, "a", **how)
        assert (await engine.state(execution.id)).seq == seq


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another engine"])
async def test_d10_a_running_step_is_skipped_by_whoever_asks(project: Project, elsewhere: bool) -> None:
    world = World()
    plan = Plan(steps=[Step(id="a", tool="hang"), Step(id="b", tool="work", needs=["a"])])
    async with world.open() as engine, world.open() as other:
        execution = await engine.start(plan)
        await world.began.wait()
        await (other if elsewhere else engine).skip(execution.id, "a", by="ann")
        state = await execution.wait()
    assert (state.status, state.steps["a"].skipped_because) == ("completed", "skipped by ann")


async def test_d10_of_two_retries_at_once_with_other_arguments_the_second_is_refused(project: Project) -> None:
    world = World()
    world.broken = {"a"}
    async with world.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="work"), Step(id="hang", tool="hang")]))
        async for event in execution.events():
            if isinstance(event, ev.StepFailed):
                break
        world.broken = set()
        retries = [engine.retry(execution.id, "a", edits={"word": word}) for word in ("one", "two")]
        came = await asyncio.gather(*retries, return_exceptions=True)
        world.go.set()
        state = await execution.wait()
    (refused,) = [one for one in came if isinstance(one, Exception)]
    assert isinstance(refused, UsageError)
    assert state.steps["a"].output == ("two" if refused is came[0] else "one")


async def test_d2_of_two_decisions_at_once_the_second_is_refused(project: Project) -> None:
    @tool(effect="once")
    async def pay() -> None:
        await asyncio.Event().wait()

    async with windlass.open(tools=[pay]) as engine:
        execution = await engine.start(Plan(steps=[Step(id="pay", tool="pay", timeout="10ms")]), hold=True)
        async for event in execution.events():
            if isinstance(event, ev.StepWaiting):
                break
        decisions = [engine.settle(execution.id, "pay", "fail"), engine.settle(execution.id, "pay", "done")]
        came = await asyncio.gather(*decisions, return_exceptions=True)
        state = await execution.wait()
    (refused,) = [one for one in came if one is not None]
    assert isinstance(refused, UsageError)
    assert state.steps["pay"].status == ("completed" if refused is came[0] else "failed")


async def test_d8_a_fork_of_a_partly_failed_foreach_runs_the_failed_items_only(project: Project) -> None:
    world = World()
    world.broken = {"each[1]"}
    async with world.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="each", tool="work", foreach=[1, 2, 3])]))
        assert (await execution.wait()).status == "failed"
        world.broken.clear()
        world.ran.clear()
        state = await (await engine.resume(await engine.fork(execution.id))).wait()
    assert (state.status, world.ran) == ("completed", ["each[1]"])
    assert state.steps["each"].output == ["each[0]", "each[1]", "each[2]"]


async def test_c3_a_permission_failure_that_no_refresh_can_mend_is_not_tried_again(project: Project) -> None:
    tries: list[int] = []

    @tool
    async def locked(call: Call) -> None:
        tries.append(call.attempt)
        raise ToolError("not yours", category="permission")

    async with windlass.open(tools=[locked]) as engine:
        plan = Plan(steps=[Step(id="a", tool="locked", retry=Retry(delay="10ms"))])
        assert (await (await engine.start(plan)).wait()).status == "failed"
    assert tries == [1]


async def test_c1_time_in_the_queue_is_not_work(project: Project) -> None:
    world = World()
    async with world.open(load={"attempts": 1}) as engine:
        first = await engine.start(Plan(steps=[Step(id="a", tool="hang")]))
        await world.began.wait()
        second = await engine.start(Plan(steps=[Step(id="b", tool="work")]))
        async for event in second.events():
            if isinstance(event, ev.OutputWritten):  # it says that it waits
                break
        world.go.set()
        await first.wait()
        (step,) = (await second.result())["steps"]
    assert 0 < step["queued_s"] <= step["duration_s"]
    assert step["worked_s"] == pytest.approx(step["duration_s"] - step["queued_s"], abs=0.002)


async def test_d3_requests_of_two_engines_that_race_for_one_execution_all_come_through(project: Project) -> None:
    world = World()
    names = [f"s{n}" for n in range(12)]
    plan = Plan(steps=[Step(id=name, tool="work", approve="always") for name in names])
    async with world.open() as one, world.open() as other:
        execution = await one.start(plan, hold=False)
        assert (await execution.wait()).status == "paused"
        await asyncio.gather(
            *(engine.approve(execution.id, name) for name, engine in zip(names, [one, other] * 6, strict=True))
        )
        state = await (await one.resume(execution.id)).wait()
    assert state.status == "completed"
