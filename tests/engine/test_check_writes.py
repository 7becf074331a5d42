"""K4, K5: what a check writes is nobody's work: it is not committed, not merged, not shown, and not undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import git, repository

from windlass import Step
from windlass.core import events as ev
from windlass.core.state import State
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn
from windlass.workspaces.worktrees import place_of

if TYPE_CHECKING:
    from conftest import Project

CHECK = "echo checked >> checklog.txt; echo formatted >> kept.txt; rm -f old.txt; grep -qx 42 answer"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def answers(*texts: str, also: Callable[[Path], object] = lambda folder: None) -> ScriptedRunner:
    """An agent that writes one answer after another; it notes the files that it finds."""
    left = list(texts)

    def turn(request: AgentRequest) -> Turn:
        names = sorted(path.name for path in request.workdir.iterdir() if not path.name.startswith("."))
        (request.workdir / "answer").write_text(f"{left.pop(0)}\n")
        also(request.workdir)
        return Turn(session="s1").say(" ".join(names)).spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


async def shown(world: AgentWorld, state: State) -> list[list[str]]:
    async with world.engine() as engine:
        return [[file["path"] for file in one["files"]] for one in await engine.diff(state.id, "work")]


async def test_k4_files_that_a_check_writes_are_neither_committed_nor_merged(project: Project) -> None:
    folder = repository(project)
    first = git(folder, "rev-parse", "HEAD").strip()
    world = AgentWorld(project, answers("41", "42"))
    merge = Step(id="merge", merge="work", check="echo merged > checklog.txt; echo formatted >> kept.txt")
    state = await world.run(plan(agent(workspace="worktree", check=CHECK), merge))
    assert state.status == "completed", state.steps["merge"].error
    assert state.steps["work"].output == "answer kept.txt old.txt", "no file of the check"
    assert git(folder, "diff", "--name-only", first, "main").split() == ["answer"]
    assert await shown(world, state) == [["answer"]]
    async with world.engine() as engine:
        (row,) = (await engine.history("runtime")).as_dict()["rows"]
        assert row["changed_files"] == 1, "written twice, counted once"
        assert await engine.stale(state) == frozenset()
        verified = await engine.verify(state.id)
        assert verified.steps["work"].agent is not None
        assert verified.steps["work"].agent.verdict == "verified"
        assert await engine.stale(verified) == frozenset()
        (cleaned,) = await engine.workspaces(state.id, clean=True)
    assert (cleaned["work"], cleaned["removed"]) == ("merged", True), "nothing of the check is left in the folder"


async def test_k4_files_of_a_check_that_a_crash_cut_off_are_not_committed(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, answers("42"))
    first = await world.run(plan(agent(workspace="worktree", check=CHECK)))
    git(place_of(first.id, "work"), "reset", "-q", "HEAD~1")  # the commit was not made yet
    (place_of(first.id, "work") / "checklog.txt").write_text("checked\n")
    (place_of(first.id, "work") / "old.txt").unlink()
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentClaimed))
    state = await later.resume(first.id)
    assert state.status == "completed"
    assert git(folder, "diff", "--name-only", "main", f"windlass/{state.id}/work").split() == ["answer"]
    assert await shown(later, state) == [["answer"]]


async def test_k4_a_paused_check_leaves_nothing_that_would_be_committed(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, answers("42"))
    step = agent(workspace="worktree", check="echo checked >> checklog.txt; echo begun; test -e go || sleep 1000")
    async with world.engine() as engine:
        execution = await engine.start(plan(step))
        async for event in execution.events():
            if isinstance(event, ev.OutputWritten) and event.stream == "stdout":
                break
        await engine.pause(execution.id, now=True)
        await execution.wait()
        place = place_of(execution.id, "work")
        assert not (place / "checklog.txt").exists()
        (place / "go").touch()  # by a person, and so part of the work
        state = await (await engine.resume(execution.id)).wait()
    assert state.status == "completed"
    assert git(folder, "diff", "--name-only", "main", f"windlass/{state.id}/work").split() == ["answer", "go"]


async def test_k4_what_a_person_mends_by_hand_is_committed_without_the_files_of_the_checks(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, answers("41"))
    failed = await world.run(plan(agent(workspace="worktree", check=CHECK, tries=1)))
    assert failed.status == "failed"
    (place_of(failed.id, "work") / "answer").write_text("42\n")
    (place_of(failed.id, "work") / "by-hand").write_text("new\n")
    async with world.engine() as engine:
        await engine.retry(failed.id, "work")
        state = await (await engine.resume(failed.id)).wait()
    assert state.status == "completed"
    assert git(folder, "diff", "--name-only", "main", f"windlass/{state.id}/work").split() == ["answer", "by-hand"]
    assert await shown(world, state) == [["answer"]], "the agent did the first part alone"


async def test_k4_a_copy_is_as_the_agent_left_it_when_a_check_has_run(project: Project) -> None:
    project.file("kept.txt", "kept\n")
    project.file("old.txt", "old\n")
    world = AgentWorld(project, answers("41", "42"))
    state = await world.run(plan(agent(workspace="copy", check=CHECK)))
    assert state.status == "completed"
    assert sorted(path.name for path in place_of(state.id, "work").iterdir()) == ["answer", "kept.txt", "old.txt"]
    assert await shown(world, state) == [["answer"]]


async def notes(world: AgentWorld, state: State) -> str:
    return "".join(event.text for event in await world.events(state.id) if isinstance(event, ev.OutputWritten))


async def test_k4_files_that_a_check_wrote_are_named_when_they_are_put_back(project: Project) -> None:
    world = AgentWorld(project, answers("42"))
    state = await world.run(plan(agent(workspace="copy", check="touch w0 w1 w2 w3 w4 w5 w6 w7 w8 w9")))
    names = ", ".join(f"w{number}" for number in range(10))
    assert f"files that the check wrote were put back: {names}\n" in await notes(world, state)


async def test_k4_files_of_a_check_that_cannot_be_put_back_stay_and_are_said_to_be(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.workspaces.file_store.MOST_FILES", 2)
    world = AgentWorld(project, answers("42"))
    state = await world.run(plan(agent(workspace="copy", check="touch w0 w1 w2")))
    assert state.status == "completed"
    assert "files that the check wrote stay, and count as the agent's: " in await notes(world, state)
    assert (place_of(state.id, "work") / "w2").exists()


async def test_k4_tests_that_were_put_back_for_the_check_stay_so_in_the_agents_own_folder(project: Project) -> None:
    folder = repository(project, **{"tests/run.sh": "grep -qx 42 answer\n"})
    cheats = ["true\n"]

    def changes_test(where: Path) -> None:
        if cheats:
            (where / "tests/run.sh").write_text(cheats.pop())

    world = AgentWorld(project, answers("41", "42", also=changes_test))
    state = await world.run(plan(agent(workspace="worktree", check="sh tests/run.sh")))
    assert state.status == "completed", state.error
    assert git(folder, "diff", "--name-only", "main", f"windlass/{state.id}/work").split() == ["answer"]


@pytest.mark.parametrize("in_git", [True, False])
async def test_k5_in_a_shared_folder_files_of_a_check_stay_and_are_not_the_agents(
    project: Project, in_git: bool
) -> None:
    if in_git:
        repository(project)
    project.file("kept.txt", "kept\n")
    project.file("old.txt", "old\n")
    world = AgentWorld(project, answers("40", "41", "42"))
    state = await world.run(plan(agent(check=CHECK)))
    assert state.status == "completed"
    assert await shown(world, state) == [["answer"], ["answer"], ["answer"]]
    async with world.engine() as engine:
        assert [one["path"] for one in await engine.undo(state.id, "work")] == ["answer"]
    assert not (project.path / "answer").exists()
    assert (project.path / "checklog.txt").read_text() == "checked\n" * 3


async def test_k5_undo_takes_back_a_file_that_both_the_agent_and_the_check_changed(project: Project) -> None:
    repository(project)

    def formats(folder: Path) -> None:
        (folder / "kept.txt").write_text((folder / "kept.txt").read_text() + "by the agent\n")

    world = AgentWorld(project, answers("41", "42", also=formats))
    check = "grep -qx 42 answer || { echo formatted >> kept.txt; false; }"
    state = await world.run(plan(agent(check=check)))
    assert (project.path / "kept.txt").read_text() == "kept\nby the agent\nformatted\nby the agent\n"
    async with world.engine() as engine:
        await engine.undo(state.id, "work")
    assert (project.path / "kept.txt").read_text() == "kept\n"


async def test_k4_the_check_of_a_merge_does_not_get_in_the_way_of_the_next_branch(project: Project) -> None:
    folder = repository(project)

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / request.task).write_text("of the agent\n")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    fix = agent("fix", foreach=["a", "b"], prompt="{{ item }}", workspace="worktree")
    commits = "git -c user.name=c -c user.email=c@c commit -qam check"
    check = f"test -e b || echo check > b; echo check >> kept.txt; {commits}; echo more >> kept.txt"
    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    state = await world.run(plan(fix, Step(id="merge", merge="fix", check=check, retry={"max": 0})))
    assert state.status == "completed", state.steps["merge"].error
    assert [(folder / name).read_text() for name in ("a", "b")] == ["of the agent\n"] * 2
    assert (folder / "kept.txt").read_text() == "kept\n"
    assert "check" not in git(folder, "log", "--format=%s").split()
