"""K2: a check that is a program goes on over a crash where it was, looks anew at each claim, and is not verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, plan
from code_worlds import Notes
from git_repositories import repository

from windlass import Step
from windlass.assembly.agents import policy_of
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.tool import CodeTool
from windlass.errors import UsageError
from windlass.ports import AgentRequest, Sandbox
from windlass.settings import load_settings
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECK = """
const {content} = await tools.files.read({path: "answer"});
await tools.pay({text: "for " + content});
await tools.look({text: "after"});
if (content !== "42") throw new Error("it is " + content);
"""


def world_of(project: Project, sandbox: Sandbox, notes: Notes, *answers: str, name: str = "answer") -> AgentWorld:
    """An agent that writes one answer after another, and tools for the program that checks them."""
    left = list(answers)

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / name).write_text(left.pop(0))
        return Turn(session="s1").say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    programs = CodeTool(ProgramDeps(sandbox, SystemClock()), policy_of(load_settings(project.home)))
    return AgentWorld(project, ScriptedRunner(turn, name="cli"), tools=[*notes.tools, programs])


async def test_k2_a_check_that_was_cut_off_repeats_no_call_that_was_recorded(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Notes()
    world = world_of(project, sandbox, notes, "42")
    state = await world.run(plan(agent(check={"code": CHECK})))
    assert (state.status, notes.done) == ("completed", ["for 42", "after"])
    cut = await world.cut_off(
        state.id, lambda event: isinstance(event, ev.CallFinished) and event.output == "paid for 42"
    )
    state = await cut.resume(state.id)
    assert (state.status, notes.done) == ("completed", ["for 42", "after", "after"])


async def test_k2_each_try_and_each_retry_of_a_person_is_checked_anew(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = world_of(project, sandbox, notes, "40", "41", "43", "44")
    state = await world.run(plan(agent(check={"code": CHECK}, tries=2)))
    assert state.status == "failed"
    for mended in ("still 41", "42"):
        project.file("answer", mended)
        async with world.engine() as engine:
            await engine.retry(state.id, "work")
            state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed"
    paid = [text for text in notes.done if text != "after"]
    assert paid == ["for 40", "for 41", "for still 41", "for 43", "for 44", "for 42"]


PAY = 'await tools.pay({text: (await tools.files.read({path: "tests/run.sh"})).content});'


async def test_k2_a_program_looks_at_the_original_tests_and_then_at_the_agents_own(
    project: Project, sandbox: Sandbox
) -> None:
    repository(project)
    project.file("tests/run.sh", "true")
    notes = Notes()
    world = world_of(project, sandbox, notes, "false", "test 1", name="tests/run.sh")
    state = await world.run(plan(agent(check=[{"code": PAY}, "sh tests/run.sh"])))
    assert state.status == "completed", state.error
    assert notes.done == ["true", "false", "true", "test 1"]


async def test_k2_each_branch_of_a_merge_is_checked_by_a_program_of_its_own(
    project: Project, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    repository(project)
    notes = Notes()
    world = world_of(project, sandbox, notes, "42", "42")
    fix = agent("fix", foreach=["a", "b"], prompt="{{ item }}", workspace="worktree")
    merge = Step(id="merge", merge="fix", check={"code": 'await tools.pay({text: "checked"});', "timeout": "1m"})
    state = await world.run(plan(fix, merge))
    assert notes.done == ["checked"] * 2, state.steps["merge"].error


async def test_k2_verify_checks_the_steps_whose_checks_are_no_programs(project: Project, sandbox: Sandbox) -> None:
    world = world_of(project, sandbox, Notes(), "42", "42")
    by_command = agent("shown", check="grep 42 answer", needs=["work"])
    state = await world.run(plan(agent(check={"code": CHECK}), by_command))
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="check 1 of step work is a program") as refused:
            await engine.verify(state.id)
    assert f"windlass status {state.id}" in refused.value.advice[-1]
    checked = [event.step for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert checked == ["work", "shown", "shown"]
