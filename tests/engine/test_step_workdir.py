"""`workdir`: a command or an agent works in the folder that its step names (B5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import repository

from windlass import Step
from windlass.errors import Category
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def writer() -> ScriptedRunner:
    """An agent that writes `made` where it works."""

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "made").write_text("x\n")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


async def test_b5_a_command_works_in_the_folder_that_its_step_names(project: Project) -> None:
    for name in ("a", "b"):
        project.file(f"sub/{name}/here", "")
    each = Step(id="each", foreach=["a", "b"], workdir="sub/{{ item }}", run="ls; echo {{ item | quote }}")
    gone = Step(id="gone", workdir="missing", run="true", importance="optional", retry=0)
    state = await AgentWorld(project, writer()).run(plan(each, gone))
    assert [item["stdout"] for item in state.steps["each"].output] == ["here\na\n", "here\nb\n"]
    error = state.steps["gone"].error
    assert error is not None
    assert (error.category, "missing does not exist" in error.message) == (Category.CONFIGURATION, True)


async def test_b5_an_agent_and_its_checks_work_in_the_folder_that_its_step_names(project: Project) -> None:
    project.file("sub/here", "")
    runner = writer()
    world = AgentWorld(project, runner)
    work = agent("work", workdir="{{ inputs.folder }}", check="test -e here && test -e made")
    state = await world.run(plan(work, inputs={"folder": "sub"}))
    assert state.status == "completed", state.steps["work"].error
    assert [request.workdir for request in runner.requests] == [Path(project.path) / "sub"]
    async with world.engine() as engine:
        checked = (await engine.verify(state.id)).steps["work"].agent
    assert checked is not None
    assert (checked.verdict, checked.checks) == ("verified", 1)


@pytest.mark.parametrize("workdir", ["missing", "../missing"])
async def test_b5_an_agent_is_not_asked_to_work_in_a_folder_that_is_not_there(project: Project, workdir: str) -> None:
    runner = writer()
    state = await AgentWorld(project, runner).run(plan(agent("work", workdir=workdir, retry=0)))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, runner.requests) == (Category.CONFIGURATION, [])
    assert "`workdir`: the folder" in error.message


async def test_k4_a_worktree_has_the_same_folder_and_a_later_agent_may_work_in_it(project: Project) -> None:
    project.file("sub/here", "")
    folder = repository(project)
    runner = writer()
    first = agent("first", workdir="sub", workspace="worktree", check="test -e here")
    second = agent("second", workdir="{{ steps.first.workdir }}", needs=("first",))
    third = Step(id="third", workdir="{{ steps.first.workdir }}", run="ls")
    state = await AgentWorld(project, runner).run(plan(first, second, third))
    assert state.status == "completed", [step.error for step in state.steps.values()]
    one, two = (request.workdir for request in runner.requests)
    assert one == two
    assert (one.name, one.is_relative_to(folder)) == ("sub", False)
    assert state.steps["third"].output["stdout"].split() == ["here", "made"]
    assert not (folder / "sub" / "made").exists()
