"""Run again from any step of an earlier execution, keeping what was done before it (D8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Engine, Plan, Step, ToolError, tool
from windlass.errors import NotFound, PlanInvalid

if TYPE_CHECKING:
    from conftest import Project


class Recorder:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

        @tool
        async def say(text: str, call: windlass.Call) -> str:
            self.ran.append(call.step)
            if call.step in self.broken:
                raise ToolError("broken")
            return text

        self.tool = say


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def step(name: str, text: str, **more: Any) -> Step:
    return Step(id=name, tool="say", with_={"text": text}, **more)


PLAN = Plan(
    name="forked",
    inputs={"word": "one", "unused": 1},
    steps=[
        step("a", "a"),
        step("b", "{{ steps.a.output }} {{ inputs.word }}"),
        step("c", "{{ steps.b.output }}!"),
        step("aside", "aside"),
    ],
)


def outputs(result: dict[str, Any]) -> dict[str, Any]:
    return {s["id"]: s["output"] for s in result["steps"]}


async def finished(engine: Engine, plan: Plan = PLAN) -> str:
    execution = await engine.start(plan)
    await execution.wait()
    return execution.id


async def run_fork(engine: Engine, execution: str, **how: Any) -> dict[str, Any]:
    new = await engine.fork(execution, **how)
    assert new != execution
    return await (await engine.resume(new)).result()


async def test_d8_a_fork_runs_that_step_and_what_follows_again_and_nothing_else(
    project: Project, recorder: Recorder
) -> None:
    async with windlass.open(tools=[recorder.tool]) as engine:
        origin = await finished(engine)
        before = project.events(origin)
        recorder.ran.clear()
        result = await run_fork(engine, origin, from_step="b", inputs={"word": "two"})
        assert sorted(recorder.ran) == ["b", "c"]
        assert outputs(result) == {"a": "a", "b": "a two", "c": "a two!", "aside": "aside"}
        assert result["inputs"] == {"word": "two", "unused": 1}
        assert project.events(origin) == before, "the origin stays as it was"
        assert len(await engine.executions()) == 2
        state = await engine.state(result["id"])
        assert state.origin is not None
        assert (state.origin.kind, state.origin.execution, state.origin.step) == ("fork", origin, "b")


async def test_d8_without_a_step_what_is_missing_runs_again(project: Project, recorder: Recorder) -> None:
    async with windlass.open(tools=[recorder.tool]) as engine:
        recorder.broken = {"b"}
        origin = await finished(engine)
        assert (await engine.state(origin)).status == "partial"
        recorder.ran.clear()
        recorder.broken = set()
        result = await run_fork(engine, origin)
    assert sorted(recorder.ran) == ["b", "c"]
    assert result["status"] == "completed"


async def test_d8_nothing_is_kept_that_was_built_on_what_runs_again(project: Project, recorder: Recorder) -> None:
    """`c` had completed without the optional `b`; now that `b` runs again, `c` must see its result."""
    plan = Plan(
        steps=[
            step("b", "new", importance="optional"),
            step("c", "with {{ steps.b.output }}"),
            step("d", "kept"),
        ]
    )
    async with windlass.open(tools=[recorder.tool]) as engine:
        recorder.broken = {"b"}
        origin = await finished(engine, plan)
        recorder.broken = set()
        recorder.ran.clear()
        result = await run_fork(engine, origin)
    assert outputs(result) == {"b": "new", "c": "with new", "d": "kept"}
    assert sorted(recorder.ran) == ["b", "c"]


async def test_d8_a_fork_can_take_another_plan(project: Project, recorder: Recorder) -> None:
    edited = Plan(
        name="forked",
        inputs={"word": "one"},
        steps=[step("a", "never"), step("b", "{{ steps.a.output }} edited"), step("new", "{{ steps.b.output }}?")],
    )
    async with windlass.open(tools=[recorder.tool]) as engine:
        origin = await finished(engine)
        recorder.ran.clear()
        result = await run_fork(engine, origin, from_step="b", plan=edited)
        assert outputs(result) == {"a": "a", "b": "a edited", "new": "a edited?"}
        assert recorder.ran == ["b", "new"]
        again = await run_fork(engine, result["id"], from_step="new")
        assert again["status"] == "completed"


async def test_d8_a_step_that_only_the_new_plan_has_can_be_forked_from(project: Project, recorder: Recorder) -> None:
    edited = PLAN.model_copy(update={"steps": (*PLAN.steps[:2], step("d", "{{ steps.b.output }}!!"))})
    async with windlass.open(tools=[recorder.tool]) as engine:
        origin = await finished(engine)
        recorder.ran.clear()
        result = await run_fork(engine, origin, from_step="d", plan=edited)
    assert recorder.ran == ["d"]
    assert outputs(result)["d"] == "a one!!"


async def test_d8_a_step_that_is_not_there_names_those_that_are(project: Project, recorder: Recorder) -> None:
    async with windlass.open(tools=[recorder.tool]) as engine:
        origin = await finished(engine)
        with pytest.raises(NotFound, match=r"asied.*aside"):
            await engine.fork(origin, from_step="asied")
        shorter = PLAN.model_copy(update={"steps": PLAN.steps[:1]})
        with pytest.raises(NotFound, match="'b'"):
            await engine.fork(origin, from_step="b", plan=shorter)
        with pytest.raises(PlanInvalid, match="wrod"):
            await engine.fork(origin, inputs={"wrod": "x"})
        assert len(await engine.executions()) == 1


async def test_d8_an_item_of_a_fan_out_means_its_whole_step(project: Project, recorder: Recorder) -> None:
    plan = Plan(steps=[step("list", "x"), step("each", "{{ item }}", foreach=["p", "q"], needs=["list"])])
    async with windlass.open(tools=[recorder.tool]) as engine:
        origin = await finished(engine, plan)
        recorder.ran.clear()
        result = await run_fork(engine, origin, from_step="each[1]")
        assert sorted(recorder.ran) == ["each[0]", "each[1]"]
        assert outputs(result)["each"] == ["p", "q"]
        recorder.ran.clear()
        kept = await run_fork(engine, origin)
        assert recorder.ran == []
        assert (kept["status"], outputs(kept)["each"]) == ("completed", ["p", "q"])


@pytest.mark.parametrize("how", ["paused", "cancelled"])
async def test_d8_an_unfinished_execution_can_be_forked_too(project: Project, recorder: Recorder, how: str) -> None:
    plan = PLAN.model_copy(update={"steps": (*PLAN.steps, step("gate", "g", approve="always"))})
    async with windlass.open(tools=[recorder.tool]) as engine:
        execution = await engine.start(plan, hold=False)
        await execution.wait()
        if how == "cancelled":
            await execution.cancel()
        recorder.ran.clear()
        new = await engine.fork(execution.id)
        forked = await engine.resume(new, hold=False)
        assert (await forked.wait()).paused_for == "approval", "an answer is never taken over"
        await forked.approve("gate")
        result = await (await engine.resume(new, hold=False)).result()
    assert recorder.ran == ["gate"]
    assert result["status"] == "completed"
    assert project.state(execution.id).status == how
