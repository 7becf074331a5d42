"""K5: the files that an agent changed are recorded before and after, shown, and put back, in git and without it."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan, quick
from git_repositories import git, repository

from windlass import Engine, Step
from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine.agents.file_changes import recorded_changes
from windlass.errors import UsageError, WindlassError
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn
from windlass.workspaces.worktrees import place_of

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def works(*turns: Callable[[], Any]) -> ScriptedRunner:
    """An agent that does one thing in each of its turns."""
    left = list(turns)

    def turn(request: AgentRequest) -> Turn:
        left.pop(0)()
        return Turn(session="s1").say("done").spend(tokens_in=10, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


def changes_three(folder: Path) -> None:
    (folder / "old.txt").unlink()
    (folder / "kept.txt").write_text("kept\nand more\n")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "new.txt").write_text("new\n")


def paths(found: list[dict[str, Any]]) -> dict[str, str]:
    return {file["path"]: file["change"] for one in found for file in one["files"]}


THREE = {"kept.txt": "changed", "old.txt": "deleted", "sub/deep/new.txt": "added"}


@pytest.fixture(params=["git", "files"])
def folder(request: pytest.FixtureRequest, project: Project) -> Path:
    if request.param == "git":
        return repository(project)
    project.file("kept.txt", "kept\n")
    project.file("old.txt", "old\n")
    return project.path


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not {".git", ".windlass"} & set(path.parts))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


async def counted(engine: Engine) -> list[int | None]:
    """Files of the agents, as the history has them."""
    rows = (await engine.history("runtime")).as_dict()["rows"]
    days = (await engine.history("day")).as_dict()["rows"]
    found = [row["changed_files"] for row in rows]
    assert found == [day["changed_files"] for day in days], "the one step is all that the execution did"
    return found


async def test_k5_changes_are_shown_and_put_back(project: Project, folder: Path) -> None:
    before = everything(folder)
    world = AgentWorld(project, works(lambda: changes_three(folder)))
    state = await world.run(plan())
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert (found["step"], found["root"], found["ended"], found["note"]) == ("work", str(folder), True, "")
        assert paths([found]) == THREE
        assert await counted(engine) == [3]
        kept = next(file for file in found["files"] if file["path"] == "kept.txt")
        assert (kept["added"], kept["removed"]) == (1, 0)
        assert "+++ b/kept.txt\n@@ -1 +1,2 @@\n kept\n+and more\n" in kept["patch"]
        undone = await engine.undo(state.id, "work")
        assert {one["path"]: one["undone"] for one in undone} == {
            "kept.txt": "restored",
            "old.txt": "restored",
            "sub/deep/new.txt": "removed",
        }
        assert everything(folder) == before
        assert not (folder / "sub").exists()
        assert await counted(engine) == [0], "the work is gone"
        with pytest.raises(UsageError, match="already undone"):
            await engine.undo(state.id, "work")
        with pytest.raises(UsageError, match="was undone"):
            await engine.diff(state.id, "work")
        with pytest.raises(UsageError, match="no changes to show: those of work were undone"):
            await engine.diff(state.id)


async def test_k5_a_folder_that_the_agent_makes_a_repository_is_compared_all_the_same(project: Project) -> None:
    project.file("kept.txt", "kept\n")

    def begins_a_repository() -> None:
        git(project.path, "init", "-q")
        (project.path / "new.txt").write_text("new\n")

    world = AgentWorld(project, works(begins_a_repository))
    state = await world.run(plan())
    async with world.engine() as engine:
        assert paths(await engine.diff(state.id)) == {"new.txt": "added"}
        assert await counted(engine) == [1]
        await engine.undo(state.id, "work")
    assert not (project.path / "new.txt").exists()


async def test_k5_nothing_is_put_back_where_a_file_was_changed_since(project: Project, folder: Path) -> None:
    world = AgentWorld(project, works(lambda: changes_three(folder)))
    state = await world.run(plan())
    (folder / "kept.txt").write_text("by somebody else\n")
    now = everything(folder)
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match=r"nothing was touched: changed since: kept\.txt"):
            await engine.undo(state.id, "work")
        assert everything(folder) == now
        (folder / "kept.txt").write_text("kept\nand more\n")
        assert len(await engine.undo(state.id, "work")) == 3


async def test_k5_undo_goes_on_where_it_was_killed(project: Project, folder: Path) -> None:
    before = everything(folder)
    world = AgentWorld(project, works(lambda: changes_three(folder)))
    state = await world.run(plan())
    (folder / "old.txt").write_text("old\n")  # one of the three is back already
    async with world.engine() as engine:
        assert len(await engine.undo(state.id, "work")) == 3
    assert everything(folder) == before


async def test_k5_nothing_of_the_users_repository_changes(project: Project) -> None:
    folder = repository(project)
    (folder / "kept.txt").write_text("staged\n")
    git(folder, "add", "kept.txt")
    marks = {path: path.read_bytes() for path in (folder / ".git").rglob("*") if path.is_file()}
    status = git(folder, "--no-optional-locks", "status", "--porcelain")
    world = AgentWorld(project, works(lambda: (folder / "new.txt").write_text("new\n")))
    state = await world.run(plan())
    async with world.engine() as engine:
        assert paths(await engine.diff(state.id)) == {"new.txt": "added"}
        await engine.undo(state.id, "work")
    assert {path: path.read_bytes() for path in (folder / ".git").rglob("*") if path.is_file()} == marks
    assert git(folder, "--no-optional-locks", "status", "--porcelain") == status


async def test_k5_no_hook_filter_or_setting_of_the_repository_runs(project: Project) -> None:
    folder = repository(project, crlf="one\r\ntwo\r\n")
    trap = f"touch {folder}/trapped; cat"

    def sets_traps() -> None:
        for name, value in {
            "filter.evil.clean": trap,
            "filter.evil.process": trap,
            "core.fsmonitor": trap,
            "core.autocrlf": "input",
            "diff.external": trap,
        }.items():
            git(folder, "config", name, value)
        (folder / ".gitattributes").write_text("* text=auto filter=evil diff=evil ident\n")
        (folder / "crlf").write_bytes(b"one\r\nthree\r\n")

    world = AgentWorld(project, works(sets_traps))
    state = await world.run(plan())
    async with world.engine() as engine:
        assert paths(await engine.diff(state.id)) == {".gitattributes": "added", "crlf": "changed"}
        await engine.undo(state.id, "work")
    assert (folder / "crlf").read_bytes() == b"one\r\ntwo\r\n"
    assert not (folder / "trapped").exists()


async def test_k5_hostile_names_modes_and_links(project: Project) -> None:
    folder = repository(project)
    names = [b"-rf", b"a\nb\x1b[31m", b"sp ace", b"qu\"o'te", "ünï".encode(), b":(top)x", b"$(touch evil)"]
    if os.uname().sysname == "Linux":
        names.append(b"not-utf8-\xff")

    def makes() -> None:
        for name in names:
            (folder / os.fsdecode(name)).write_bytes(b"x\0y")
        (folder / "link").symlink_to("/etc/passwd")
        (folder / "kept.txt").chmod(0o755)

    before = everything(folder)
    world = AgentWorld(project, works(makes))
    state = await world.run(plan())
    async with world.engine() as engine:
        found = paths(await engine.diff(state.id))
        assert len(found) == len(names) + 2
        assert found["a\\nb\\u001b[31m"] == "added"
        assert found["kept.txt"] == "changed"
        await engine.undo(state.id, "work")
    assert everything(folder) == before
    assert not (folder / "link").is_symlink()
    assert not (folder / "kept.txt").stat().st_mode & 0o100


async def test_k5_a_link_on_the_way_is_not_followed(project: Project, tmp_path: Path) -> None:
    folder = repository(project)
    outside = tmp_path / "outside"
    outside.mkdir()

    def makes() -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("of the agent\n")

    world = AgentWorld(project, works(makes))
    state = await world.run(plan())
    (folder / "sub").rename(folder / "aside")
    (outside / "file").write_text("of the agent\n")
    (folder / "sub").symlink_to(outside)
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match="changed since: sub/file"):
            await engine.undo(state.id, "work")
    assert (outside / "file").exists()


async def test_k5_ignored_files_and_the_home_are_left_out(project: Project) -> None:
    folder = repository(project)

    def makes() -> None:
        (folder / "ignored").mkdir()
        (folder / "ignored" / "built").write_text("built\n")

    world = AgentWorld(project, works(makes))
    state = await world.run(plan())
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert found["files"] == []
        with pytest.raises(UsageError, match="its agent changed no file that was recorded"):
            await engine.undo(state.id, "work")


async def test_k5_a_repository_inside_and_a_file_that_cannot_be_read_stop_nothing(project: Project) -> None:
    folder = repository(project)
    git(folder, "init", "-q", "inside")  # without a commit

    def makes() -> None:
        (folder / "new.txt").write_text("new\n")

    world = AgentWorld(project, works(makes))
    state = await world.run(plan())
    assert state.status == "completed"
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert paths([found]) == {"new.txt": "added"}


async def test_k5_a_folder_that_is_too_large_is_not_recorded_and_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.workspaces.file_store.MOST_FILES", 1)
    project.file("one", "")
    project.file("two", "")
    world = AgentWorld(project, works(lambda: None))
    state = await world.run(plan())
    assert state.status == "completed"
    snapshots = [event for event in await world.events(state.id) if isinstance(event, ev.WorkspaceSnapshot)]
    assert [(event.moment, event.tree) for event in snapshots] == [("before", "")]
    who = state.steps["work"].agent
    assert who is not None
    assert recorded_changes([who], project.home) is None, "what its calls say of files is all that is known"
    async with world.engine() as engine:
        assert await counted(engine) == [None], "what is not known is never 0"
        with pytest.raises(UsageError, match=r"has no changes to show: not recorded: .* has more than 1 files"):
            await engine.diff(state.id)


async def test_k5_work_whose_end_cannot_be_recorded_is_not_undone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.workspaces.file_store.MOST_FILES", 2)

    def makes_many() -> None:
        for number in range(3):
            (project.path / f"of-{number}").write_text("x")

    world = AgentWorld(project, works(makes_many))
    state = await world.run(plan())
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match="its end was not recorded, so nobody can tell its changes"):
            await engine.undo(state.id, "work")
    assert len(list(project.path.glob("of-*"))) == 3


async def test_k5_of_an_agent_that_changes_nothing_in_several_turns_one_is_shown(project: Project) -> None:
    world = AgentWorld(project, works(lambda: None, lambda: None))
    state = await world.run(plan(agent(check="echo x >> log; grep -c x log | grep -x 2")))
    assert state.status == "completed", state.error
    async with world.engine() as engine:
        (found,) = await engine.diff(state.id)
    assert (found["step"], found["ended"], found["files"]) == ("work", True, [])


async def test_k5_a_fork_whose_agent_did_not_work_names_the_execution_that_has_its_changes(project: Project) -> None:
    world = AgentWorld(project, works(lambda: (project.path / "new.txt").write_text("new\n")))
    state = await world.run(plan(agent(), Step(id="after", needs=("work",), run="true")))
    async with world.engine() as engine:
        fork = await engine.fork(state.id, from_step="after")
        with pytest.raises(UsageError, match="no changes to show: no agent has worked on files") as caught:
            await engine.diff(fork)
        assert caught.value.advice[0].endswith(f"this one was forked from: windlass diff {state.id}")
        with pytest.raises(UsageError, match="step after has no changes to show: no agent has worked") as caught:
            await engine.diff(state.id, "after")
        assert caught.value.advice == ()


async def test_k5_a_person_may_change_files_between_two_attempts(project: Project, folder: Path) -> None:
    def first() -> None:
        (folder / "kept.txt").write_text("first\n")

    def second() -> None:
        (folder / "second.txt").write_text("second\n")

    world = AgentWorld(project, works(first, second))
    state = await world.run(plan(agent(check="test -e second.txt", tries=1)))
    assert state.status == "failed"
    (folder / "by-hand.txt").write_text("by hand\n")
    async with world.engine() as engine:
        await engine.retry(state.id, "work")
        state = await (await engine.resume(state.id)).wait()
        assert state.status == "completed"
        found = await engine.diff(state.id, "work")
        assert [paths([one]) for one in found] == [{"kept.txt": "changed"}, {"second.txt": "added"}]
        assert await counted(engine) == [2], "not the person's"
        await engine.undo(state.id, "work")
    assert (folder / "kept.txt").read_text() == "kept\n"
    assert (folder / "by-hand.txt").exists()
    assert not (folder / "second.txt").exists()


async def test_k5_an_agent_that_works_shows_its_changes_so_far(project: Project, folder: Path) -> None:
    world = AgentWorld(project, ScriptedRunner([Turn().say("working").hang()], name="cli"))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentBegan)
        changes_three(folder)
        (found,) = await engine.diff(execution.id)
        assert (found["ended"], paths([found])) == (False, THREE)
        with pytest.raises(UsageError, match="is running"):
            await engine.undo(execution.id, "work")
        await engine.cancel(execution.id)
        (found,) = await engine.diff(execution.id)
        assert (found["ended"], paths([found])) == (True, THREE)
        assert len(await engine.undo(execution.id, "work")) == 3


async def test_k5_an_attempt_that_a_crash_cut_off_is_part_of_the_work(project: Project, folder: Path) -> None:
    world = AgentWorld(project, works(lambda: changes_three(folder), lambda: (folder / "last").write_text("")))
    first = await world.run(plan())
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentBegan))
    state: State = await later.resume(first.id)
    assert state.status == "completed"
    async with later.engine() as engine:
        (found,) = await engine.diff(state.id)
        assert paths([found]) == {**THREE, "last": "added"}
        assert await counted(engine) == [4]


async def test_k5_agents_at_the_same_time_in_one_folder_are_undone_together_or_not_at_all(
    project: Project, folder: Path
) -> None:
    begun: list[str] = []

    def turn(request: AgentRequest) -> Turn:
        begun.append(request.task)
        (folder / f"of-{len(begun)}").write_text("x")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    state = await world.run(plan(agent(foreach=["a", "b", "c"], prompt="{{ item }}")))
    async with world.engine() as engine:
        assert {"of-1", "of-2", "of-3"} <= paths(await engine.diff(state.id, "work")).keys()
        await engine.undo(state.id, "work")
    assert not [name for name in os.listdir(folder) if name.startswith("of-")]


async def test_k5_of_agents_that_worked_at_the_same_time_none_is_undone_alone(project: Project, folder: Path) -> None:
    def turn(request: AgentRequest) -> Turn:
        line = {"line": f"echo x > of-{request.task}"}
        return Turn().call("shell", line).say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    step = agent(foreach=["a", "b"], prompt="{{ item }}", permissions={"mode": "ask"})
    async with world.engine() as engine:
        execution = await engine.start(plan(step), hold=True)
        await occurred(execution, ev.ApprovalAsked, 2)
        for count, item in enumerate(("work[1]", "work[0]"), 1):
            await execution.approve(item)
            await occurred(execution, ev.AttemptFinished, count)
        with pytest.raises(WindlassError, match=r"work\[1\] worked in the same folder at the same time") as caught:
            await engine.undo(execution.id, "work[0]")
        assert "windlass docs workspaces" in caught.value.advice[0]
        assert {one["path"] for one in await engine.undo(execution.id, "work")} == {"of-a", "of-b"}
    assert not list(folder.glob("of-*"))


def works_there(turn: Callable[[Path, str], Any]) -> ScriptedRunner:
    """An agent that does something in its own folder, by its task."""

    def takes_turn(request: AgentRequest) -> Turn:
        turn(request.workdir, request.task)
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(takes_turn, name="cli")


async def test_k5_of_several_folders_none_is_touched_where_a_file_of_one_was_changed_since(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / "kept.txt").write_text(task)))
    state = await world.run(plan(agent(foreach=["a", "b", "c"], prompt="{{ item }}", workspace="worktree")))
    places = [place_of(state.id, f"work.{number}") for number in range(3)]
    (places[1] / "kept.txt").write_text("by hand\n")
    now = [everything(place) for place in places]
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match="nothing was touched: changed since: ") as caught:
            await engine.undo(state.id, "work")
        assert str(caught.value).endswith(f": {places[1]}/kept.txt")
        assert [everything(place) for place in places] == now
        (places[1] / "kept.txt").write_text("b")
        assert len(await engine.undo(state.id, "work")) == 3
    assert [(place / "kept.txt").read_text() for place in places] == ["kept\n"] * 3


async def test_k5_a_folder_in_the_place_of_a_file_goes_unless_files_in_it_were_not_recorded(project: Project) -> None:
    folder = repository(project)
    before = everything(folder)

    def makes_folder() -> None:
        (folder / "kept.txt").write_text("more\n")
        (folder / "old.txt").unlink()
        (folder / "old.txt" / "empty" / "inner").mkdir(parents=True)
        (folder / "old.txt" / "new").write_text("new\n")
        (folder / "old.txt" / ".env").write_text("ignored\n")

    world = AgentWorld(project, works(makes_folder))
    state = await world.run(plan())
    now = everything(folder)
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match=r"nothing was touched: in the place of recorded files, .*: old\.txt$"):
            await engine.undo(state.id, "work")
        assert everything(folder) == now
        (folder / "old.txt" / ".env").unlink()
        await engine.undo(state.id, "work")
    assert everything(folder) == before


async def test_k5_a_file_in_the_place_of_a_folder_that_was_not_recorded_stays(project: Project) -> None:
    folder = repository(project, **{"sub/file": "file\n"})

    def removes() -> None:
        (folder / "kept.txt").write_text("more\n")
        (folder / "sub" / "file").unlink()
        (folder / "sub").rmdir()

    world = AgentWorld(project, works(removes))
    state = await world.run(plan())
    (folder / "sub").write_text("by hand\n")
    now = everything(folder)
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match=r"nothing was touched: in the place of recorded files, .*: sub$"):
            await engine.undo(state.id, "work")
    assert everything(folder) == now


async def test_k5_undo_says_that_the_folder_of_merged_work_is_gone(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / "kept.txt").unlink()))
    state = await world.run(plan(agent(workspace="worktree")))
    git(folder, "merge", "-q", f"windlass/{state.id}/work")
    async with world.engine() as engine:
        await engine.workspaces(state.id, clean=True)
        with pytest.raises(WindlassError, match=r"nothing was touched: the folder .* is gone") as caught:
            await engine.undo(state.id, "work")
    assert str(place_of(state.id, "work")) in str(caught.value)
    assert "git revert" in caught.value.advice[0]


async def test_k5_undo_of_merged_work_is_refused_and_nothing_is_touched(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / task).write_text("new\n")))
    fix = agent("fix", foreach=["a", "b"], prompt="{{ item }}", workspace="worktree")
    state = await world.run(plan(fix))
    git(folder, "checkout", "-q", "-b", "team/next")
    git(folder, "merge", "-q", f"windlass/{state.id}/fix.1")
    async with world.engine() as engine:
        for step in ("fix", "fix[1]"):
            with pytest.raises(
                WindlassError, match=r"nothing was touched: the work of fix\[1\] is merged into team/next$"
            ) as caught:
                await engine.undo(state.id, step)
            assert git(folder, "rev-parse", "--short=12", "team/next").strip() in caught.value.advice[0]
        assert (place_of(state.id, "fix[0]") / "a").exists()
        assert not any(step.undone for step in (await engine.state(state.id)).steps.values())


async def test_k5_undo_of_work_on_a_branch_says_so_and_no_merge_takes_it(project: Project, tmp_path: Path) -> None:
    folder = repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / task).write_text("new\n")))
    fix = agent("fix", foreach=["a", "b"], prompt="{{ item }}", workspace="worktree")
    state = await world.run(plan(fix, Step(id="land", merge="fix", check=f"test -e {tmp_path / 'fits'}", retry=quick)))
    assert state.steps["land"].status == "failed"
    (tmp_path / "fits").touch()
    async with world.engine() as engine:
        assert await engine.undo(state.id, "fix[0]") == [
            {
                "path": "a",
                "undone": "removed",
                "folder": str(place_of(state.id, "fix[0]")),
                "branch": f"windlass/{state.id}/fix.0",
            }
        ]
        await engine.retry(state.id, "land")
        landed = await (await engine.resume(state.id)).wait()
    assert [one["step"] for one in landed.steps["land"].output["merged"]] == ["fix[1]"]
    assert not (folder / "a").exists()


async def test_k5_undo_names_no_branch_where_a_person_has_taken_the_commit_back(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / "new").write_text("new\n")))
    state = await world.run(plan(agent(workspace="worktree")))
    place = place_of(state.id, "work")
    git(place, "reset", "-q", "HEAD~1")
    async with world.engine() as engine:
        undone = await engine.undo(state.id, "work")
    assert undone == [{"path": "new", "undone": "removed", "folder": str(place)}]


async def test_k5_a_merge_of_nothing_but_undone_work_says_so(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, works_there(lambda where, task: (where / "new").write_text("new\n")))
    fix = agent("fix", workspace="worktree")
    state = await world.run(plan(fix, Step(id="land", merge="fix", check="false", retry={"max": 0})))
    async with world.engine() as engine:
        await engine.undo(state.id, "fix")
        await engine.retry(state.id, "land")
        landed = await (await engine.resume(state.id)).wait()
    error = landed.steps["land"].error
    assert error is not None
    assert error.message == "step fix has no work to merge: it was undone"


async def test_k5_an_error_while_files_are_put_back_names_those_that_are_not_and_the_command_goes_on(
    project: Project,
) -> None:
    folder = repository(project, large="x" * 8_000_000)
    before = everything(folder)

    def changes() -> None:
        (folder / "large").write_text("small\n")
        changes_three(folder)

    world = AgentWorld(project, works(changes))
    state = await world.run(plan())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with world.engine() as engine:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, limits[1]))
        try:
            with pytest.raises(WindlassError, match="not all files could be put back: File too large: ") as caught:
                await engine.undo(state.id, "work")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(caught.value).endswith(": large, old.txt; put back already: sub/deep/new.txt, kept.txt")
        assert not list(folder.glob(".windlass-*"))
        assert len(await engine.undo(state.id, "work")) == 4
    assert everything(folder) == before


async def test_k5_a_file_that_is_put_back_keeps_its_permissions(project: Project, folder: Path) -> None:
    for name, mode in {"private": 0o600, "tool": 0o750, "plain": 0o640, "gone": 0o600}.items():
        (folder / name).write_text("before\n")
        (folder / name).chmod(mode)

    def changes() -> None:
        for name in ("private", "tool", "plain"):
            (folder / name).write_text("after\n")
        (folder / "tool").chmod(0o640)
        (folder / "plain").chmod(0o750)
        (folder / "gone").unlink()

    world = AgentWorld(project, works(changes))
    state = await world.run(plan())
    async with world.engine() as engine:
        assert len(await engine.undo(state.id, "work")) == 4
    (folder / "usual").touch()
    found = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in ("private", "tool", "plain", "gone")}
    usual = stat.S_IMODE((folder / "usual").stat().st_mode)
    assert found == {"private": 0o600, "tool": 0o750, "plain": 0o640, "gone": usual}


@pytest.mark.parametrize("stopped", [False, True])
async def test_k5_a_folder_that_became_a_link_and_a_link_that_became_a_folder_are_put_back(
    project: Project, folder: Path, stopped: bool
) -> None:
    for name in ("folder", "real"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(f"in {name}\n")
    (folder / "link").symlink_to("real")
    before = everything(folder)

    def changes() -> None:
        (folder / "folder" / "file").unlink()
        (folder / "folder").rmdir()
        (folder / "folder").symlink_to("real")
        (folder / "link").unlink()
        (folder / "link").mkdir()
        (folder / "link" / "file").write_text("new\n")

    world = AgentWorld(project, works(changes))
    state = await world.run(plan())
    if stopped:  # the links are as they were before
        (folder / "folder").unlink()
        (folder / "link" / "file").unlink()
        (folder / "link").rmdir()
        (folder / "link").symlink_to("real")
    async with world.engine() as engine:
        assert {one["path"]: one["undone"] for one in await engine.undo(state.id, "work")} == {
            "folder": "removed",
            "folder/file": "restored",
            "link": "restored",
            "link/file": "removed",
        }
    assert everything(folder) == before
    assert not (folder / "folder").is_symlink()
    assert os.readlink(folder / "link") == "real"


async def test_k5_a_link_that_leads_elsewhere_since_is_not_taken_for_the_agents(
    project: Project, tmp_path: Path
) -> None:
    folder = repository(project, **{"sub/file": "file\n"})

    def changes() -> None:
        (folder / "sub" / "file").unlink()
        (folder / "sub").rmdir()
        (folder / "sub").symlink_to("ignored")

    world = AgentWorld(project, works(changes))
    state = await world.run(plan())
    (folder / "sub").unlink()
    (folder / "sub").symlink_to(tmp_path)
    async with world.engine() as engine:
        with pytest.raises(WindlassError, match="changed since: sub, sub/file"):
            await engine.undo(state.id, "work")
    assert os.readlink(folder / "sub") == str(tmp_path)
    assert not (tmp_path / "file").exists()
