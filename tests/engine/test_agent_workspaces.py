"""K4: an agent has a worktree or a copy of its own, apart from the checkout; its work is on a branch."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan
from code_worlds import plain_call
from git_repositories import git, repository

from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.core.agent import AgentState
from windlass.core.state import State
from windlass.core.transitions import StepStatus
from windlass.engine.agents.workspace import AgentFolder
from windlass.errors import PlanInvalid, ToolError, UsageError
from windlass.ports import AgentRequest
from windlass.removal import remove_tree
from windlass.testing import ScriptedRunner, Turn
from windlass.workspaces.worktrees import place_of

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def works(*turns: Callable[[Path, str], object]) -> ScriptedRunner:
    """An agent that does one thing in each of its turns, in its working directory; the last again and again."""
    left = list(turns)

    def turn(request: AgentRequest) -> Turn:
        (left.pop(0) if len(left) > 1 else left[0])(request.workdir, request.task)
        return Turn(session="s1").say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


def writes(name: str = "new.txt", text: str = "new\n") -> Callable[[Path, str], object]:
    return lambda folder, task: (folder / name).write_text(text)


def tip(folder: Path, state: State, step: str = "work") -> str:
    return git(folder, "rev-parse", f"windlass/{state.id}/{step}").strip()


async def test_k4_an_agent_works_in_a_worktree_and_its_work_is_on_a_branch(project: Project) -> None:
    folder = repository(project)
    head, status = git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain")
    world = AgentWorld(project, works(writes()))
    state = await world.run(plan(agent(workspace="worktree", check="test -e new.txt && pwd > /dev/null")))
    assert state.status == "completed"
    who = state.steps["work"].agent
    assert who is not None
    assert who.workspace is not None
    place = Path(who.workspace.path)
    assert place == place_of(state.id, "work")
    assert (who.workspace.branch, who.commit) == (f"windlass/{state.id}/work", tip(folder, state))
    assert git(folder, "show", f"{who.commit}:new.txt") == "new\n"
    assert git(folder, "log", "-1", "--format=%s", who.commit) == "work: do work\n"
    assert not (folder / "new.txt").exists()
    assert (git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain")) == (head, status)
    assert not list(place.glob(".windlass-canary*"))
    assert not list(project.home.rglob("*.bundle")), "no other machine takes it over"
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert (found["root"], [file["path"] for file in found["files"]]) == (str(place), ["new.txt"])
        verified = await engine.verify(state.id)
        assert verified.steps["work"].agent is not None
        assert verified.steps["work"].agent.verdict == "verified"
    events = await world.events(state.id)
    assert [event.ready for event in events if isinstance(event, ev.WorkspaceOpened)] == [False, True]


async def test_k4_each_item_of_a_foreach_has_a_worktree_of_its_own(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, works(lambda where, task: (where / f"{task}.txt").write_text(task)))
    step = agent(foreach=["a", "b", "c"], prompt="{{ item }}", workspace="worktree")
    state = await world.run(plan(step))
    assert state.status == "completed"
    for number, item in enumerate("abc"):
        listed = git(folder, "ls-tree", "--name-only", f"windlass/{state.id}/work.{number}").splitlines()
        assert [name for name in listed if name in ("a.txt", "b.txt", "c.txt")] == [f"{item}.txt"]


async def test_k4_work_in_a_subfolder_and_files_that_git_does_not_track(project: Project) -> None:
    folder = repository(project)
    project.file(".env", "KEY=1\n")
    project.file("ignored/lib/built.o", "built\n")
    project.file("ignored/other.o", "other\n")
    choice = {"kind": "worktree", "files": ["{.env,.env.local}", "ignored/lib"]}
    world = AgentWorld(project, works(writes()))
    state = await world.run(plan(agent(workspace=choice, check="grep KEY .env && test -e ignored/lib/built.o")))
    assert state.status == "completed", state.error
    names = git(folder, "diff", "--name-only", "HEAD", tip(folder, state)).splitlines()
    assert names == ["new.txt"], "what was brought along is no part of the work"
    assert not (place_of(state.id, "work") / "ignored" / "other.o").exists()
    missing = await world.run(plan(agent(workspace={"kind": "worktree", "files": ["nothing*"]})))
    assert missing.steps["work"].error is not None
    assert "nothing matches nothing*" in missing.steps["work"].error.message
    too_many = await world.run(plan(agent(workspace={"kind": "worktree", "files": ["{a,b}" * 7]})))
    assert too_many.steps["work"].error is not None
    assert "stand for more than 100 patterns" in too_many.steps["work"].error.message


async def test_k4_files_that_the_user_ignores_everywhere_are_not_committed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(project)
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("*.swp")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project.file("ignored/lib", "lib\n")
    world = AgentWorld(project, works(lambda where, task: [writes(name)(where, task) for name in ("a.swp", "new.txt")]))
    state = await world.run(plan(agent(workspace={"kind": "worktree", "files": ["ignored/lib"]})))
    assert git(folder, "diff", "--name-only", "HEAD", tip(folder, state)).split() == ["new.txt"]
    async with world.engine() as engine:
        (listed,) = await engine.workspaces(state.id)
    assert listed["work"] == "1 commit not merged", "as `windlass diff` has it"


async def test_k4_work_that_a_remote_has_is_merged_also_in_one_of_our_name(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, works(writes("new.txt")))
    state = await world.run(plan(agent(workspace="worktree")))
    git(folder, "update-ref", "refs/remotes/windlass/main", tip(folder, state))
    async with world.engine() as engine:
        (listed,) = await engine.workspaces(state.id)
    assert listed["work"] == "merged"


async def test_k4_an_agent_that_commits_or_leaves_its_branch_loses_nothing(project: Project) -> None:
    folder = repository(project)

    def commits(where: Path, task: str) -> None:
        git(where, "checkout", "-q", "-b", f"own-{task.replace(' ', '-')}")
        (where / "one.txt").write_text("1")
        git(where, "add", "-A")
        git(where, "commit", "-qm", "by the agent")
        (where / "two.txt").write_text("2")

    state = await AgentWorld(project, works(commits)).run(plan(agent(workspace="worktree")))
    assert state.status == "completed"
    names = git(folder, "diff", "--name-only", "HEAD", tip(folder, state)).splitlines()
    assert names == ["one.txt", "two.txt"]


@pytest.mark.parametrize("made", ["empty", "with a commit", "committed by the agent"])
async def test_k4_a_repository_that_an_agent_makes_in_its_worktree_is_not_lost(project: Project, made: str) -> None:
    folder = repository(project)

    def makes(where: Path, task: str) -> None:
        git(where, "init", "-q", "lib")
        (where / "lib/work.txt").write_text("precious\n")
        if made != "empty":
            git(where / "lib", "add", "-A")
            git(where / "lib", "commit", "-qm", "lib")
        if made == "committed by the agent":
            git(where, "add", "-A")
            git(where, "commit", "-qm", "by the agent")

    world = AgentWorld(project, works(makes))
    state = await world.run(plan(agent(workspace="worktree", check="test -e lib/work.txt")))
    place, error = place_of(state.id, "work"), state.steps["work"].error
    assert error is not None
    assert (error.category, "the folder lib in it is a repository of its own" in error.message) == (
        "configuration",
        True,
    )
    if made == "committed by the agent":
        git(folder, "merge", "-q", f"windlass/{state.id}/work")
    async with world.engine() as engine:
        (listed,) = await engine.workspaces(state.id, clean=True)
        assert listed["work"] == "has a repository of its own in lib"
        assert (place / "lib/work.txt").read_text() == "precious\n"
        advised = error.advice[0].partition(": ")[2]
        await asyncio.to_thread(subprocess.run, ["sh", "-c", advised], check=True)
        await engine.retry(state.id, "work")
        state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed", state.error
    assert git(folder, "show", f"{tip(folder, state)}:lib/work.txt") == "precious\n"


@pytest.mark.parametrize("kept", ["ignored", "submodule"])
async def test_k4_a_repository_that_is_ignored_or_a_submodule_does_not_fail_the_step(
    project: Project, kept: str
) -> None:
    folder = repository(project)

    def makes(where: Path, task: str) -> None:
        git(where, "init", "-q", "lib")
        git(where / "lib", "commit", "-q", "--allow-empty", "-m", "lib")
        if kept == "ignored":
            (where / ".gitignore").write_text("lib/\n")
        else:
            (where / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')

    state = await AgentWorld(project, works(makes)).run(plan(agent(workspace="worktree")))
    assert state.status == "completed", state.error
    assert ("160000 commit" in git(folder, "ls-tree", tip(folder, state))) == (kept == "submodule")


async def test_k4_a_dirty_tree_a_detached_head_and_a_merge_in_progress(project: Project) -> None:
    folder = repository(project)
    git(folder, "checkout", "-q", "-b", "other")
    project.file("kept.txt", "other\n")
    git(folder, "commit", "-qam", "other")
    git(folder, "checkout", "-q", "--detach", "main")
    project.file("kept.txt", "mine\n")
    git(folder, "commit", "-qam", "mine")
    with pytest.raises(Exception, match="merge"):
        git(folder, "merge", "other")
    before = git(folder, "status", "--porcelain")
    world = AgentWorld(project, works(writes()))
    state = await world.run(plan(agent(workspace="worktree")))
    assert state.status == "completed"
    assert git(folder, "show", f"{tip(folder, state)}:kept.txt") == "mine\n"
    assert git(folder, "status", "--porcelain") == before
    said = [event.text for event in await world.events(state.id) if isinstance(event, ev.OutputWritten)]
    assert any("1 changed files" in text and "not in the worktree" in text for text in said)
    assert any("a merge or rebase goes on" in text for text in said)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: os.rename(folder / ".git", folder / "gone"), "is in no git repository"),
        (lambda folder: git(folder, "checkout", "-q", "--orphan", "empty"), "has no commit yet"),
        (lambda folder: (folder / ".gitattributes").write_text("*.bin filter=lfs diff=lfs -text\n"), "uses Git LFS"),
        (lambda folder: (folder / ".gitmodules").write_text('[submodule "a"]\n\tpath = a\n'), "has submodules"),
        (lambda folder: git(folder, "branch", "windlass"), "'refs/heads/windlass' exists"),
    ],
)
async def test_k4_where_there_is_no_worktree_it_says_why(
    project: Project, spoil: Callable[[Path], object], why: str
) -> None:
    folder = repository(project)
    spoil(folder)
    if (folder / ".git").exists() and why != "has no commit yet":
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "spoiled", "--allow-empty")
    runner = works(writes())
    state = await AgentWorld(project, runner).run(plan(agent(workspace="worktree", retry={"max": 0})))
    error = state.steps["work"].error
    assert error is not None
    assert why in error.message
    assert runner.requests == []
    assert any("workspace: copy" in advice for advice in error.advice)
    assert any("git branch -m windlass" in advice for advice in error.advice) == ("refs/heads" in why)


async def test_k4_a_folder_that_cannot_be_made_fails_the_step(project: Project, data: Path) -> None:
    data.write_text("no folder")
    runner = works(writes())
    state = await AgentWorld(project, runner).run(plan(agent(workspace="copy", retry={"max": 0})))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, error.message.startswith("the copy cannot be made: ")) == ("resource", True)
    assert runner.requests == []


async def test_j2_an_agent_does_not_begin_anew_on_a_worker_where_its_copy_is_gone(
    project: Project, tmp_path: Path
) -> None:
    place = place_of("e", "s")
    known = ev.WorkspaceOpened(1.0, "s", 1, "copy", str(place), ready=True)
    step: Any = SimpleNamespace(agent=AgentState(workspace=known, attempt=1), worker="two", status=StepStatus.RUNNING)
    contact: Any = SimpleNamespace(step=step, files=None, tell=lambda event: None)
    folder = AgentFolder({"kind": "copy"}, plain_call(tmp_path), contact, SystemClock())
    with pytest.raises(ToolError, match=f"the copy of step s, {place}, is not on worker two"):
        await folder.enter()
    assert not place.exists()


async def test_k4_a_copy_needs_no_git(project: Project) -> None:
    project.file("kept.txt", "kept\n")
    project.file("sub/deep.txt", "deep\n")
    world = AgentWorld(project, works(writes("kept.txt", "changed\n")))
    state = await world.run(plan(agent(workspace="copy", check="grep -x changed kept.txt && test -e sub/deep.txt")))
    assert state.status == "completed"
    assert (project.path / "kept.txt").read_text() == "kept\n"
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert [(file["path"], file["change"]) for file in found["files"]] == [("kept.txt", "changed")]
        assert not (place_of(state.id, "work") / ".windlass").exists()


async def test_k4_a_copy_leaves_out_the_folder_of_copies(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(project.path / ".local" / "share"))
    project.file("kept.txt", "kept\n")
    state = await AgentWorld(project, works(writes("kept.txt", "changed\n"))).run(plan(agent(workspace="copy")))
    assert state.status == "completed", state.steps["work"].error
    assert not (place_of(state.id, "work") / ".local" / "share" / "windlass" / "workspaces").exists()


def nothing(folder: Path, task: str) -> None:
    """An agent that only looks."""


async def test_k4_a_copy_is_listed_with_its_work_and_removed_where_there_is_none(project: Project) -> None:
    project.file("kept.txt", "kept\n")
    world = AgentWorld(project, works(writes("kept.txt", "changed\n"), nothing))
    never = agent("never", workspace="copy", runtime="claude-code", fallback=False, retry={"max": 0})
    steps = [*(agent(name, workspace="copy") for name in ("changes", "looks", "goes")), never, agent("shares")]
    state = await world.run(plan(*steps, limits={"parallel": 1}))
    remove_tree(place_of(state.id, "goes"))
    async with world.engine() as engine:
        await engine.create(plan(agent("newer")))
        seen = await engine.workspaces()
        assert [one["step"] for one in seen] == ["changes", "looks", "never"]
        assert not any("removed" in one for one in seen), "to look removes nothing"
        listed = await engine.workspaces(state.id, clean=True)
    assert [(one["step"], one["work"], one["removed"]) for one in listed] == [
        ("changes", "changes that are only here", False),
        ("looks", "no work", True),
        ("never", "no work", True),
    ]
    assert [place_of(state.id, name).exists() for name in ("changes", "looks", "never")] == [True, False, False]


async def test_k4_a_copy_with_work_that_was_not_recorded_is_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.workspaces.file_store.MOST_FILES", 1)
    for name in ("one", "two"):
        project.file(name, "")
    world = AgentWorld(project, works(nothing))
    state = await world.run(plan(agent(workspace="copy")))
    async with world.engine() as engine:
        (listed,) = await engine.workspaces(state.id, clean=True)
    assert (listed["work"], listed["removed"]) == ("not recorded", False)


async def test_k4_a_folder_is_in_use_until_its_step_has_ended(project: Project) -> None:
    repository(project)

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "new.txt").write_text("new\n")
        return Turn().hang() if request.task == "do late" else Turn().say("done")

    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    steps = plan(agent(workspace="worktree"), agent("late", workspace="worktree", needs=["work"]))

    async def listed() -> list[str]:
        return [one["work"] for one in await engine.workspaces(execution.id)]

    async with world.engine() as engine:
        execution = await engine.start(steps)
        await occurred(execution, ev.AgentSession, 2)
        assert await listed() == ["1 commit not merged", "in use"]
        await execution.interrupt()
        assert await listed() == ["1 commit not merged", "1 file not committed"]


async def test_k2_work_that_never_began_is_not_verified(project: Project) -> None:
    git(project.path, "init", "-q")
    world = AgentWorld(project, works(writes("kept.txt")))
    state = await world.run(plan(agent(workspace="worktree", check="true")))
    assert state.status == "failed"
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="nothing to check again"):
            await engine.verify(state.id)


@pytest.mark.parametrize("kind", ["worktree", "copy"])
async def test_k4_a_folder_is_found_again_after_a_crash_with_the_work_in_it(project: Project, kind: str) -> None:
    repository(project)
    world = AgentWorld(project, works(writes("first.txt"), writes("second.txt")))
    first = await world.run(plan(agent(workspace=kind)))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentBegan))
    state = await later.resume(first.id)
    assert state.status == "completed"
    place = place_of(first.id, "work")
    assert (place / "first.txt").exists()
    assert (place / "second.txt").exists()
    assert len([event for event in await later.events(state.id) if isinstance(event, ev.WorkspaceOpened)]) == 2


async def test_k4_a_worktree_that_a_person_removed_comes_back_from_its_branch(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, works(writes("first.txt"), writes("second.txt")))
    first = await world.run(plan(agent(workspace="worktree", check="test -e second.txt", tries=1)))
    assert first.status == "failed"
    place = place_of(first.id, "work")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "by hand")
    git(folder, "worktree", "remove", "--force", "--force", str(place))
    async with world.engine() as engine:
        await engine.retry(first.id, "work")
        state = await (await engine.resume(first.id)).wait()
    assert state.status == "completed"
    assert git(folder, "diff", "--name-only", "HEAD", tip(folder, state)).split() == ["first.txt", "second.txt"]


async def test_k4_an_agent_that_points_its_worktree_elsewhere_gains_nothing(project: Project) -> None:
    folder = repository(project)

    def points_away(where: Path, task: str) -> None:
        (where / ".git").unlink()
        git(where, "init", "-q")
        git(where, "config", "filter.evil.clean", f"touch {where}/trapped; cat")
        (where / ".gitattributes").write_text("* filter=evil\n")

    state = await AgentWorld(project, works(points_away)).run(plan(agent(workspace="worktree")))
    assert state.status == "completed"
    assert not (place_of(state.id, "work") / "trapped").exists()
    assert git(folder, "diff", "--name-only", "HEAD", tip(folder, state)).split() == [".gitattributes"]


def test_k4_files_are_for_a_worktree() -> None:
    with pytest.raises((PlanInvalid, ValueError), match="`files` is for a worktree"):
        agent(workspace={"kind": "copy", "files": ["a"]})
