"""What could not go on is refused before anything is written, with every reason (D5, D10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Execution, Plan, Step, tool
from windlass.errors import CannotResume, PlanInvalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

    from windlass import Engine


@tool
def once_more(word: str = "") -> str:
    raise ValueError(f"no {word}")


FAILS = Plan(
    steps=[Step(id="a", run="true"), Step(id="b", tool="once_more", needs=["a"]), Step(id="c", run="true", needs=["b"])]
)


async def failed_in_b(engine: Engine) -> str:
    execution = await engine.start(FAILS)
    assert (await execution.wait()).status == "partial"
    return execution.id


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "retry", "step": "a"}, "step a of .* is completed, and a completed step never runs again"),
        ({"kind": "skip", "step": "a"}, "step a of .* is completed and cannot be skipped"),
        ({"kind": "retry", "step": "b", "edits": {"wrod": "x"}}, "wrod"),
        ({"kind": "retry", "step": "x"}, "x"),
    ],
)
async def test_d10_a_request_that_makes_no_sense_is_refused_by_the_check_alone(
    project: Project, asked: dict[str, Any], said: str
) -> None:
    async with windlass.open(tools=[once_more]) as engine:
        execution = await failed_in_b(engine)
        before = len(project.events(execution))
        with pytest.raises(UsageError, match=said):
            await engine.check_redo(execution, [asked])
        await engine.check_redo(execution, [{"kind": "retry", "step": "b", "edits": {"word": "x"}}])
        assert len(project.events(execution)) == before


async def test_d10_without_its_tool_a_retry_is_refused_and_the_advice_is_what_was_asked_for(project: Project) -> None:
    async with windlass.open(tools=[once_more]) as engine:
        execution = await failed_in_b(engine)
    async with windlass.open() as engine:
        with pytest.raises(CannotResume, match="once_more"):
            await engine.check_redo(execution, [{"kind": "retry", "step": "b"}, {"kind": "skip", "step": "c"}])
        with pytest.raises(CannotResume, match="once_more"):
            await engine.fork(execution, from_step="b", to_start=True)
        assert len(await engine.executions()) == 1


async def paused_with_a_file(project: Project) -> tuple[str, Path]:
    file = project.path / project.plan(
        "steps: [{id: a, run: 'true'}, {id: b, run: 'true', needs: [a], approve: always}]"
    )
    async with windlass.open() as engine:
        execution: Execution = await engine.start(file, hold=False)
        assert (await execution.wait()).status == "paused"
    return execution.id, file


async def test_d5_a_changed_plan_is_a_reason_unless_it_is_accepted_and_sound_or_the_old_one_kept(
    project: Project,
) -> None:
    execution, file = await paused_with_a_file(project)
    async with windlass.open() as engine:
        assert (await engine.check(execution)).status == "paused", "nothing is against it"
        file.write_text(file.read_text() + "\n# changed\n")
        with pytest.raises(CannotResume, match="has changed"):
            await engine.check(execution)
        skip = [{"kind": "skip", "step": "b"}]
        with pytest.raises(CannotResume, match="has changed") as refused:
            await engine.check_redo(execution, skip)
        assert any(f"windlass skip {execution} b" in advice for advice in refused.value.advice)
        await engine.check_redo(execution, skip, keep_plan=True)
        await engine.check_redo(execution, skip, accept_changes=True)
        file.write_text("steps: [{id: a}]")
        with pytest.raises(PlanInvalid):
            await engine.check_redo(execution, skip, accept_changes=True)


async def test_d5_one_that_runs_elsewhere_is_not_taken_over_by_a_check(project: Project) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> None:
        began.set()
        await go.wait()

    async with windlass.open(tools=[hold]) as one, windlass.open(tools=[hold]) as other:
        execution = await one.start(Plan(steps=[Step(id="a", tool="hold")]))
        await began.wait()
        for engine, said in ((one, "is running already"), (other, "is running in another process")):
            with pytest.raises(UsageError, match=said):
                await engine.check(execution.id)
        with pytest.raises(UsageError, match="it cannot take up a changed plan now"):
            await other.check_redo(execution.id, [{"kind": "skip", "step": "a"}], accept_changes=True)
        go.set()
        await execution.wait()
