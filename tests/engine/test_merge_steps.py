"""K4: the branches of agents are merged in order, each checked; what does not fit stays on its branch and is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import git, repository

from windlass import Plan, Step
from windlass.cli.diff import merge_text
from windlass.core import events as ev
from windlass.core.state import State
from windlass.errors import PlanInvalid
from windlass.plan.load import check_plan, load_text
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def writers() -> ScriptedRunner:
    """Agents whose task is `FILE=CONTENT`; they resolve no conflicts."""

    def turn(request: AgentRequest) -> Turn:
        if request.session is not None:
            return Turn().say("I cannot.").spend(tokens_in=1, tokens_out=1, usd=0.0)
        name, _, content = request.task.partition("=")
        (request.workdir / name).write_text(f"{content}\n")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


def merging(*tasks: str, check: Any = "true", **more: Any) -> Plan:
    fix = agent("fix", foreach=list(tasks), prompt="{{ item }}", workspace="worktree")
    return plan(fix, Step(id="merge", merge="fix", check=check, retry={"max": 0}, **more))


def merged(state: State) -> dict[str, Any]:
    output: dict[str, Any] = state.steps["merge"].output
    return output


def worktrees(folder: Path) -> int:
    return len(git(folder, "worktree", "list").splitlines()) - 1


async def test_k4_of_no_items_nothing_is_merged(project: Project) -> None:
    folder = repository(project)
    before = git(folder, "rev-parse", "main")
    state = await AgentWorld(project, writers()).run(merging())
    assert state.status == "completed", state.steps["merge"].error
    assert (merged(state)["merged"], merged(state)["left"]) == ([], [])
    assert git(folder, "rev-parse", "main") == before


async def test_k4_branches_are_merged_in_order_and_the_checkout_moves(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(merging("a=1", "b=2", "c=3", check="ls ?; echo run >> ../checked; test -e a"))
    assert state.status == "completed", state.steps["merge"].error
    output = merged(state)
    assert [one["step"] for one in output["merged"]] == ["fix[0]", "fix[1]", "fix[2]"]
    assert (output["left"], output["target"], output["stays"]) == ([], "main", "")
    assert [(folder / name).read_text() for name in "abc"] == ["1\n", "2\n", "3\n"]
    assert git(folder, "rev-parse", "main").strip() == output["commit"]
    assert git(folder, "status", "--porcelain", "--untracked-files=no") == ""
    subjects = git(folder, "log", "--merges", "--reverse", "--format=%s").splitlines()
    assert subjects == ["merge fix[0]", "merge fix[1]", "merge fix[2]"]
    assert worktrees(folder) == 3, "the merge's own is gone"
    assert git(folder, "branch", "--list", f"windlass/{state.id}/merge") == ""
    async with world.engine() as engine:
        cleaned = await engine.workspaces(state.id, clean=True)
        shown = await engine.diff(state.id)  # also of worktrees that are gone
        assert [file["path"] for one in shown for file in one["files"]] == ["a", "b", "c"]
    assert [(one["step"], one["work"], one["removed"]) for one in cleaned] == [
        (f"fix[{number}]", "merged", True) for number in range(3)
    ]
    assert worktrees(folder) == 0


async def test_k4_a_conflict_and_a_failed_check_stay_on_their_branches_and_are_named(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    tasks = ("same=one", "same=two", "bad=1", "good=1")
    state = await world.run(merging(*tasks, check="test ! -e bad || { echo bad is here; exit 4; }"))
    error, output = state.steps["merge"].error, merged(state)
    assert state.status == "partial"
    assert error is not None
    assert f"fix[1] stays on windlass/{state.id}/fix.1: conflicts in same" in error.message
    assert "fix[2] stays on" in error.message
    assert "(exit code 4): bad is here" in error.message
    assert [one["step"] for one in output["merged"]] == ["fix[0]", "fix[3]"]
    assert [one["step"] for one in output["left"]] == ["fix[1]", "fix[2]"]
    assert (folder / "same").read_text() == "one\n"
    assert (folder / "good").exists()
    assert not (folder / "bad").exists()
    assert git(folder, "show", f"windlass/{state.id}/fix.1:same") == "two\n"
    assert git(folder, "log", "--format=%s", f"windlass/{state.id}/fix.2").splitlines() == ["fix[2]: bad=1", "first"]
    async with world.engine() as engine:
        found = await engine.workspaces(state.id, clean=True)
    listed = {one["step"]: one["work"] for one in found}
    assert [one["merge"]["state"] for one in found] == ["merged", "left", "left", "merged"]
    assert {listed["fix[1]"], listed["fix[2]"]} == {"a merge that was not ended: 1 file"}
    assert worktrees(folder) == 2


async def test_k4_the_list_of_folders_says_why_work_is_not_merged(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, writers())
    more = {"foreach": ["a=1", "bad=1"], "workspace": "worktree", "check": "test ! -e bad", "tries": 1}
    state = await world.run(plan(agent("fix", prompt="{{ item }}", **more), Step(id="land", merge="fix")))
    async with world.engine() as engine:
        found = await engine.workspaces(state.id)
    assert [merge_text(one["merge"]) for one in found] == [
        "land: not merged: dependency failed: fix",
        "land: not merged: its step failed",
    ]


async def test_k4_the_list_of_folders_names_the_merge_that_took_the_only_branch(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(merging("a=1"))
    async with world.engine() as engine:
        (found,) = await engine.workspaces(state.id)
    assert merge_text(found["merge"]) == "merge: merged"


async def test_k4_the_list_of_folders_takes_no_work_for_merged_that_a_merge_took_before_it_failed(
    project: Project,
) -> None:
    repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(merging("a=1", "b=2", check="test ! -e b || no-such-program-here"))
    async with world.engine() as engine:
        found = await engine.workspaces(state.id)
    why = [merge_text(one["merge"]) for one in found if one["merge"] is not None]
    assert why == ["merge: not merged: merge is failed"] * 2


@pytest.mark.parametrize("pick", [None, "first"])
async def test_k4_d8_a_fork_merges_the_branches_of_the_steps_that_it_keeps(
    project: Project, tmp_path: Path, pick: str | None
) -> None:
    folder, fits = repository(project), tmp_path / "fits"
    agents = writers()
    world = AgentWorld(project, agents)
    fix = agent("fix", foreach=["a=1", "b=2"], prompt="{{ item }}", workspace="worktree", pick=pick, check="true")
    one = agent("one", prompt="c=3", workspace="worktree")
    merges = [
        Step(id=f"merge-{name}", merge=name, check=f"test -e {fits}", retry={"max": 0}) for name in ("fix", "one")
    ]
    state = await world.run(plan(fix, one, *merges, limits={"parallel": 1}))
    assert [state.steps[step.id].status for step in merges] == ["failed", "failed"]
    asked = len(agents.requests)
    fits.touch()
    async with world.engine() as engine:
        again = await engine.fork(state.id)
        ended = await (await engine.resume(again)).wait()
        assert ended.status == "completed", [step.error for step in ended.steps.values()]
        found = await engine.workspaces(again)
    assert len(agents.requests) == asked, "no agent worked again"
    assert [(folder / name).exists() for name in "abc"] == [True, pick is None, True]
    assert {one["work"] for one in found} == {"merged"}


async def test_k4_d8_a_conflict_in_a_fork_stays_on_the_branch_of_the_original(project: Project) -> None:
    repository(project)
    agents = writers()
    world = AgentWorld(project, agents)
    fix = agent("fix", foreach=["same=one", "same=two"], prompt="{{ item }}", workspace="worktree", check="true")
    state = await world.run(plan(fix, Step(id="merge", merge="fix", retry=0)))
    asked = len(agents.requests)
    async with world.engine() as engine:
        ended = await (await engine.resume(await engine.fork(state.id, from_step="merge"))).wait()
    error = ended.steps["merge"].error
    assert error is not None
    assert f"fix[1] stays on windlass/{state.id}/fix.1: conflicts in same" in error.message
    assert len(agents.requests) == asked, "no agent goes on in a folder of another execution"
    kept = [item.agent for item in ended.steps["fix"].children or () if item.agent is not None]
    assert [one.verdict for one in kept] == ["verified", "claimed"], "a check that failed later is not kept"


async def test_k4_a_person_resolves_a_conflict_and_the_retry_takes_it(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    state = await world.run(merging("same=one", "same=two"))
    assert state.status == "partial"
    git(folder, "merge", "-q", "-X", "theirs", "-m", "by hand", f"windlass/{state.id}/fix.1")
    async with world.engine() as engine:
        await engine.retry(state.id, "merge")
        state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed"
    assert len(merged(state)["merged"]) == 2


async def test_k4_changes_in_the_checkout_are_never_overwritten(project: Project) -> None:
    folder = repository(project)
    head = git(folder, "rev-parse", "HEAD")
    project.file("old.txt", "not committed\n")
    world = AgentWorld(project, writers())
    state = await world.run(merging("old.txt=new", "b=2"))
    error, output = state.steps["merge"].error, merged(state)
    assert error is not None
    assert "main where it is" in error.message
    assert "old.txt" in error.message
    assert ((folder / "old.txt").read_text(), git(folder, "rev-parse", "HEAD")) == ("not committed\n", head)
    assert git(folder, "show", f"{output['branch']}:old.txt") == "new\n"
    git(folder, "checkout", "-q", "old.txt")
    async with world.engine() as engine:
        await engine.retry(state.id, "merge")
        state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed"
    assert (folder / "old.txt").read_text() == "new\n"
    assert git(folder, "branch", "--list", f"windlass/{state.id}/merge") == ""


async def test_k4_a_target_that_moves_meanwhile_is_merged_and_checked_again(project: Project) -> None:
    folder = repository(project)
    named = "git -c user.name=t -c user.email=t@example.com"
    commit = f"cd {folder} && test -e moved || {{ touch moved; git add moved; {named} commit -qm moved; }}"
    state = await AgentWorld(project, writers()).run(merging("a=1", check=commit))
    assert state.status == "completed", state.steps["merge"].error
    assert (folder / "a").exists()
    assert git(folder, "log", "--format=%s", "--first-parent").splitlines()[0].startswith("merge main")


async def test_k4_with_a_detached_head_the_result_is_on_a_branch(project: Project) -> None:
    folder = repository(project)
    git(folder, "checkout", "-q", "--detach")
    head = git(folder, "rev-parse", "HEAD")
    state = await AgentWorld(project, writers()).run(merging("a=1"))
    assert state.status == "completed"
    assert (merged(state)["target"], git(folder, "rev-parse", "HEAD")) == ("", head)
    assert git(folder, "show", f"windlass/{state.id}/merge:a") == "1\n"


async def test_k4_a_merge_that_was_cut_off_merges_nothing_twice(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    first = await world.run(merging("a=1", "b=2"))
    commit = merged(first)["commit"]
    later = await world.cut_off(first.id, lambda e: isinstance(e, ev.AttemptStarted) and e.step == "merge")
    state = await later.resume(first.id)
    assert state.status == "completed"
    assert (merged(state)["commit"], len(git(folder, "log", "--merges", "--format=%h").split())) == (commit, 2)


def test_k4_a_merge_names_a_step_with_worktrees() -> None:
    with pytest.raises(PlanInvalid, match="which is not a step of this plan"):
        load_text("steps: [{id: m, merge: nothing}]")
    shared = Plan(steps=(agent("fix"), Step(id="m", merge="fix")))
    assert shared.steps[1].arguments == {"step": "fix", "check": []}
    assert check_plan(shared) == []
    with pytest.raises(ValueError, match="`tries` is for agents"):
        Step(id="m", merge="fix", check="true", tries=2)


async def test_k5_an_execution_that_is_removed_takes_its_folders_and_records_along_and_no_work(
    project: Project,
) -> None:
    folder = repository(project)
    world = AgentWorld(project, writers())
    first = await world.run(merging("a=1", "b=2"))
    other = await world.run(merging("c=1", "same=1", "same=2"))
    stores = project.home / "snapshots"
    assert len(list((stores / other.id).glob("*.git"))) == 3
    async with world.engine() as engine:
        await engine.forget(first.id)
        assert not (stores / first.id).exists()
        assert [one["step"] for one in await engine.workspaces()] == ["fix[0]", "fix[1]", "fix[2]"]
        assert [file["path"] for one in await engine.diff(other.id) for file in one["files"]][:2] == ["c", "same"]
        await engine.forget(other.id)
    branches = git(folder, "branch", "--list", "windlass/*", "--format=%(refname:short)").split()
    assert branches == [f"windlass/{other.id}/fix.2"], "the one that was not merged"
    assert worktrees(folder) == 1
    assert [place.name for place in stores.iterdir() if place.name in (first.id, other.id)] == []
