"""The standard workflows (H2): every tool in plans as people write them, with and without faults of the world."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from outcomes import ENDS, OUTCOMES, check
from runner import PLANS, Asked, play, reply, serve, world

import windlass
from windlass import Plan, Step

if TYPE_CHECKING:
    from conftest import Project

RUNS = 500
RUNS_PER_WORLD = 25
ENOUGH = 0.95


def test_h2_every_plan_has_an_outcome_that_it_must_have() -> None:
    assert [plan.stem for plan in PLANS] == sorted(OUTCOMES)
    assert len(PLANS) >= 20


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
async def test_h2_a_workflow_does_what_it_says(plan: Path, project: Project) -> None:
    async with world(project.home) as around:
        result = await play(around, plan, project.path / "work")
        assert result["status"] == ENDS.get(plan.stem, "completed"), said(result)
        check(around, plan.stem, result)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
async def test_h2_a_workflow_with_faults_ends_right_or_says_why(plan: Path, project: Project) -> None:
    async with world(project.home, seed=PLANS.index(plan)) as around:
        result = await play(around, plan, project.path / "work")
        if not completes(plan, result):
            assert said(result), f"{plan.stem} is {result['status']} and does not say why"
            return
        check(around, plan.stem, result)


async def test_h2_a_post_that_broke_off_after_it_took_effect_is_not_done_twice(project: Project) -> None:
    done: list[bytes] = []

    async def cut(asked: Asked, writer: asyncio.StreamWriter) -> None:
        done.append(asked.body)
        if len(done) == 1:
            writer.transport.abort()
        else:
            writer.write(reply("done"))

    async with serve({"*": cut}) as web, windlass.open(project.home, network={"private": ["127.0.0.1"]}) as engine:
        post = Step(id="post", tool="http.post", with_={"url": web.url("/orders"), "json": 1}, retry={"delay": "20ms"})
        execution = await engine.start(Plan(steps=[post]), workdir=project.path, hold=False)
        result = await execution.result()
    assert len(done) == 1, f"it was done {len(done)} times, and called {result['status']}"
    assert result["steps"][0]["waiting_for"] == "outcome", "a person says what became of it"


@pytest.mark.soak
async def test_h2_more_than_95_of_100_workflows_complete_when_one_use_in_ten_fails(project: Project) -> None:
    completed, others, dealt, uses = 0, list[str](), 0, 0
    for begin in range(0, RUNS, RUNS_PER_WORLD):
        async with world(project.path / f"home-{begin}", seed=begin) as around:
            for number in range(begin, begin + RUNS_PER_WORLD):
                plan = PLANS[number % len(PLANS)]
                result = await play(around, plan, project.path / f"work-{number}")
                if completes(plan, result):
                    check(around, plan.stem, result)
                    completed += 1
                else:
                    assert said(result), f"run {number}: {plan.stem} is {result['status']} and does not say why"
                    others.append(f"run {number}, {plan.stem}, {result['status']}: {said(result)}")
            dealt, uses = dealt + around.faults.dealt, uses + around.faults.uses
    told = f"{completed} of {RUNS} completed, with {dealt} faults in {uses} uses\n" + "\n".join(others)
    (project.path.parent / "workflows.txt").write_text(told)
    assert dealt > 0.08 * uses, told
    assert completed > RUNS * ENOUGH, told


def completes(plan: Path, result: dict[str, Any]) -> bool:
    return bool(result["status"] == ENDS.get(plan.stem, "completed"))


def said(result: dict[str, Any]) -> list[str]:
    """What the execution and its steps give as the reason, or ask a person."""
    errors = [result["error"], *(step["error"] for step in result["steps"])]
    questions = [step["question"] for step in result["steps"] if step["question"]]
    return [error["message"] for error in errors if error] + questions
