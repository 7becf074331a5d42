"""What a merge of agents' branches says: of work that is not there, of what is left, and to whom it asks (K4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan
from git_repositories import git, repository

from windlass import Step
from windlass.core import events as ev
from windlass.core.state import State
from windlass.errors import Category, Failure
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def writers() -> ScriptedRunner:
    """Agents whose task is some `FILE=CONTENT`; they resolve no conflicts."""

    def turn(request: AgentRequest) -> Turn:
        if request.session is None:
            for line in request.task.split():
                name, _, content = line.partition("=")
                (request.workdir / name).write_text(f"{content}\n")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


def fix(*tasks: str, **more: Any) -> Step:
    return agent("fix", **{"foreach": list(tasks), "prompt": "{{ item }}", "workspace": "worktree", **more})


def merge(**more: Any) -> Step:
    return Step(id="merge", merge="fix", retry={"max": 0}, **more)


def error_of(state: State) -> Failure:
    error = state.steps["merge"].error
    assert error is not None, state.steps["merge"].output
    return error


async def said(world: AgentWorld, state: State) -> list[str]:
    """What the merge said of each branch, as people are shown it."""
    notes = [event for event in await world.events(state.id) if isinstance(event, ev.OutputWritten)]
    lines = "".join(event.text for event in notes if event.step == "merge").splitlines()
    return [line for line in lines if line.startswith("windlass/")]


async def again(world: AgentWorld, state: State) -> State:
    async with world.engine() as engine:
        await engine.retry(state.id, "merge")
        return await (await engine.resume(state.id)).wait()


# -- no work --------------------------------------------------------------------------------------


async def test_k4_where_no_agent_has_completed_the_merge_says_so(project: Project) -> None:
    repository(project)
    fails = ScriptedRunner([Turn().fail("no")], name="cli")
    state = await AgentWorld(project, fails).run(plan(fix("a=1", importance="optional"), merge()))
    error = error_of(state)
    assert error.message == "step fix has no work to merge: none of its agents has completed in a worktree"
    assert (error.category, error.advice) == (Category.CONFIGURATION, ("give step fix a `workspace: worktree`",))


@pytest.mark.parametrize("only", [None, [0, 1]])
async def test_k4_work_that_was_undone_is_not_merged_and_that_is_said(project: Project, only: Any) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    more = {} if only is None else {"only": only}
    state = await world.run(plan(fix("a=1", "b=2"), merge(check="false", **more)))
    async with world.engine() as engine:
        for item in ("fix[0]", "fix[1]"):
            await engine.undo(state.id, item)
    state = await again(world, state)
    why = (
        "step fix has no work to merge: it was undone"
        if only is None
        else "`only` names fix[0], which has no work to merge: it was undone"
    )
    assert error_of(state).message == why
    assert not (folder / "a").exists()


async def test_k4_an_agent_that_changed_nothing_has_its_branch_merged_too(project: Project) -> None:
    folder = repository(project)
    state = await AgentWorld(project, writers()).run(plan(fix("kept.txt=kept", "b=2"), merge()))
    assert state.status == "completed", state.steps["merge"].error
    assert [one["step"] for one in state.steps["merge"].output["merged"]] == ["fix[0]", "fix[1]"]
    assert (folder / "b").exists()


# -- what is left ---------------------------------------------------------------------------------


async def test_k4_what_is_left_is_named_with_its_files_and_what_to_do_and_told_as_it_happens(
    project: Project,
) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(plan(fix("x=1 y=1", "x=2 y=2", "x=3"), merge()))
    first, second = (f"windlass/{state.id}/fix.{number}" for number in (1, 2))
    error = error_of(state)
    assert [line for line in error.message.splitlines() if line.startswith("fix[")] == [
        f"fix[1] stays on {first}: conflicts in x, y",
        f"fix[2] stays on {second}: conflicts in x",
    ]
    assert error.advice == (f"look at it: git diff {first}", "then retry the step")
    output = state.steps["merge"].output
    assert [one["reason"].splitlines()[0] for one in output["left"]] == ["conflicts in x, y", "conflicts in x"]
    assert (output["target"], output["stays"]) == ("main", "")
    assert (folder / "x").read_text() == "1\n"
    assert await said(world, state) == [
        f"windlass/{state.id}/fix.0: merged",
        f"{first}: conflicts in x, y",
        f"{second}: conflicts in x",
    ]


async def test_k4_a_target_that_cannot_move_is_named_with_the_way_to_take_the_work_over(project: Project) -> None:
    folder = repository(project)
    project.file("old.txt", "not committed\n")
    world = AgentWorld(project, writers())
    state = await world.run(plan(fix("old.txt=new"), merge()))
    error, branch = error_of(state), f"windlass/{state.id}/merge"
    assert await said(world, state) == [f"windlass/{state.id}/fix.0: merged"]
    assert error.message.startswith(f"the merged work stays on {branch}, and main where it is: ")
    assert error.advice == (f"take it over: git merge {branch}", "then retry the step")
    assert git(folder, "show", f"{branch}:old.txt") == "new\n"


# -- asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 200_000])
async def test_k4_a_person_is_shown_the_difference_and_of_a_long_one_where_all_of_it_is(
    project: Project, size: int
) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    async with world.engine() as engine:
        execution = await engine.start(plan(fix(f"long={'x' * size}"), merge(approve="always")), hold=True)
        shown = (await occurred(execution, ev.ApprovalAsked)).input
        branch = f"windlass/{execution.id}/merge"
        assert (shown["target"], shown["branch"]) == ("main", branch)
        assert shown["commit"] == git(folder, "rev-parse", branch).strip()
        where = f"\n… see all of it: git diff main...{branch}\n"
        assert shown["diff"].endswith(where) is (size > 100_000)
        assert len(shown["diff"].removesuffix(where)) <= 100_000
        await engine.approve(execution.id, "merge", allow=False)
        state = await execution.wait()
    assert error_of(state).message.endswith("main where it is: denied by a person")
    assert not (folder / "long").exists()


async def test_k4_nobody_is_asked_where_nothing_would_move(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(plan(fix("a=1"), merge(check="false", approve="always")))
    assert "with it this check fails: false (exit code 1)" in error_of(state).message
    assert not [event for event in await world.events(state.id) if isinstance(event, ev.ApprovalAsked)]
