"""K2: verified work whose files were changed since is stale, for everybody who looks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import git, repository

from windlass import Step
from windlass.cli.text import summary
from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

CHECK = "mkdir -p build && date +%N > build/out && grep -qx 42 answer"


def answers() -> ScriptedRunner:
    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "answer").write_text("42\n")
        return Turn(session="s1").say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


async def verdict(world: AgentWorld, state: State, step: str = "work") -> tuple[str, str]:
    """The verdict as JSON has it, and the line of the summary, as a process sees them that looks now."""
    async with world.engine() as engine:
        stale = await engine.stale(state)
    (view,) = [one for one in snapshot(state, stale=stale)["steps"] if one["id"] == step]
    (line,) = [one for one in summary(state, stale=stale) if one.startswith("  work: ")]
    return view["agent"]["verdict"], line


@pytest.mark.parametrize("in_git", [True, False])
async def test_k2_work_is_stale_when_its_files_change_and_verified_when_it_is_checked_again(
    project: Project, in_git: bool
) -> None:
    if in_git:
        repository(project)
    world = AgentWorld(project, answers())
    state = await world.run(plan(agent(check=CHECK)))
    assert await verdict(world, state) == ("verified", "  work: 1 verified"), "what the check wrote does not count"
    project.file("other", "new\n")
    assert await verdict(world, state) == ("stale", "  work: 1 stale (work)")
    async with world.engine() as engine:
        state = await engine.verify(state.id)
    assert await verdict(world, state) == ("verified", "  work: 1 verified")
    (project.path / "other").unlink()
    assert (await verdict(world, state))[0] == "stale"


async def test_k2_the_summary_says_once_why_work_is_stale_and_how_to_check_it_again(project: Project) -> None:
    world = AgentWorld(project, answers())
    state = await world.run(plan(agent("one", check=CHECK), agent("two", check=CHECK)))
    reason = "  stale: files changed since the checks passed"
    assert not any(line.startswith("  stale: ") for line in summary(state))
    told = summary(state, stale={"one", "two"})
    assert [line for line in told if "stale" in line] == [
        "  work: 2 stale (one, two)",
        f"{reason}; check again: windlass verify {state.id}",
    ]
    assert reason in summary(state, driven=True, stale={"one"}), "the command is refused while it is running"


async def test_k2_files_that_git_ignores_make_no_work_stale(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, answers())
    state = await world.run(plan(agent(check=CHECK)))
    project.file("ignored/new", "new\n")
    assert (await verdict(world, state))[0] == "verified"


async def test_k2_a_later_step_that_changes_files_makes_the_work_before_it_stale(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, answers())
    later = Step(id="later", needs=("work",), run="echo more >> answer")
    state = await world.run(plan(agent(check="true"), later))
    assert (await verdict(world, state))[0] == "stale"


async def test_k2_refuted_work_and_work_whose_folder_is_gone_are_not_stale(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = repository(project)
    world = AgentWorld(project, answers())
    refuted = await world.run(plan(agent(check="false", tries=1)))
    project.file("other", "new\n")
    assert (await verdict(world, refuted))[0] == "refuted"
    state = await world.run(plan(agent(check="true", workspace="worktree")))
    (folder / "answer").unlink()
    git(folder, "merge", "-q", f"windlass/{state.id}/work")
    async with world.engine() as engine:
        await engine.workspaces(state.id, clean=True)
    assert (await verdict(world, state))[0] == "verified"


async def test_k2_the_journal_has_the_hash_of_the_files_that_passed(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, answers())
    state = await world.run(plan(agent(check=CHECK)))
    (checked,) = [event for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert checked.root == str(project.path)
    assert checked.tree.startswith("git:")
