"""Engine.undo: a finished step's changes of files are taken back, and the journal knows it (H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Engine, Permits, Plan, Step
from windlass.core import events as ev
from windlass.core.view import snapshot
from windlass.errors import Category, NotFound, UsageError, WindlassError
from windlass.testing import ScriptedRunner, Turn
from windlass.tools.files import log as undo_log

if TYPE_CHECKING:
    from conftest import Project


def write(id: str, path: str, content: str, **more: Any) -> Step:
    return Step(id=id, tool="files.write", with_={"path": path, "content": content}, **more)


async def run(engine: Engine, *steps: Step, hold: bool = False) -> str:
    execution = await engine.start(Plan(steps=list(steps)), hold=hold)
    await execution.wait()
    return execution.id


async def test_h2_a_completed_step_is_taken_back_and_the_journal_says_so(project: Project) -> None:
    project.file("a.txt", "before")
    async with windlass.open() as engine:
        id = await run(engine, write("one", "a.txt", "after"), write("two", "b.txt", "new"))
        changes = await engine.undo(id[:14], "one", by="ann")
        assert changes == [{"path": "a.txt", "undone": "restored"}]
        assert (project.path / "a.txt").read_text() == "before"
        assert (project.path / "b.txt").read_text() == "new"
        state = await engine.state(id)
        assert (state.steps["one"].undone, state.steps["two"].undone) == (True, False)
        assert state.status == "completed"
        told = snapshot(state)["steps"]
        assert [step.get("undone") for step in told] == [True, None]
        last = (await engine.journal.read(id))[-1].event
        assert isinstance(last, ev.StepUndone)
        assert (last.step, last.by, last.changes) == ("one", "ann", changes)
        with pytest.raises(UsageError, match=r"step one of .* is already undone"):
            await engine.undo(id, "one")
        assert len(await engine.journal.read(id)) == state.seq


async def test_h2_another_process_takes_it_back_as_well(project: Project) -> None:
    async with windlass.open() as engine:
        id = await run(engine, write("one", "a.txt", "after"))
    async with windlass.open() as engine:
        assert await engine.undo(id, "one") == [{"path": "a.txt", "undone": "removed"}]
    assert not (project.path / "a.txt").exists()


async def test_h2_a_file_changed_since_is_named_and_nothing_is_written_down(project: Project) -> None:
    async with windlass.open() as engine:
        id = await run(engine, write("one", "a.txt", "after"), write("two", "a.txt", "later", needs=["one"]))
        with pytest.raises(WindlassError, match=r"'a.txt' was changed by step two since step one") as caught:
            await engine.undo(id, "one")
        assert caught.value.failure.category is Category.CONFIGURATION
        project.file("a.txt", "by hand")
        with pytest.raises(WindlassError, match=r"'a.txt' was changed by another program since step two"):
            await engine.undo(id, "two")
        assert not any(step.undone for step in (await engine.state(id)).steps.values())
    assert (project.path / "a.txt").read_text() == "by hand"


async def test_h2_items_of_a_foreach_are_taken_back_with_it_or_one_by_one(project: Project) -> None:
    each = Step(
        id="each",
        foreach=["x", "y", "z"],
        tool="files.write",
        with_={"path": "{{ item }}.txt", "content": "{{ item }}"},
    )
    async with windlass.open() as engine:
        id = await run(engine, each)
        assert await engine.undo(id, "each[1]") == [{"path": "y.txt", "undone": "removed"}]
        assert sorted(path.name for path in project.path.glob("*.txt")) == ["x.txt", "z.txt"]
        assert len(await engine.undo(id, "each")) == 3
        assert not list(project.path.glob("*.txt"))
        state = await engine.state(id)
        assert all(step.undone for step in state.steps.values())


async def test_h2_what_a_program_called_is_taken_back_newest_first(project: Project) -> None:
    project.file("a.txt", "before\n")
    source = """
    for (const n of [1, 2, 3]) await tools.files.write({path: "a.txt", content: `${n}\\n`, mode: "append"});
    await Promise.all([4, 5].map(n => tools.files.write({path: `new/${n}`, content: ""})));
    await tools.files.move({from: "a.txt", to: "b.txt"});
    """
    async with windlass.open() as engine:
        id = await run(engine, Step(id="work", code=source, grants=["files.*"]))
        assert (project.path / "b.txt").read_text() == "before\n1\n2\n3\n"
        changes = await engine.undo(id, "work")
        assert changes[0] == {"path": "b.txt", "undone": "moved back", "to": "a.txt"}
    assert (project.path / "a.txt").read_text() == "before\n"
    assert not (project.path / "b.txt").exists()
    assert not (project.path / "new").exists()


async def test_h2_what_an_agent_did_with_the_engines_tools_is_taken_back(project: Project) -> None:
    project.file("a.txt", "before")
    turn = (
        Turn().call("files.write", {"path": "a.txt", "content": "1"}).call("files.write", {"path": "b", "content": ""})
    )
    turn = turn.call("files.edit", {"path": "a.txt", "edits": [{"old": "1", "new": "2"}]}).say("done")
    step = Step(id="work", agent="developer", prompt="do it", permissions=Permits(allow=("files.*",)))
    async with windlass.open(runners=[ScriptedRunner([turn], name="cli")]) as engine:
        id = await run(engine, step)
        assert (project.path / "a.txt").read_text() == "2"
        assert {change["path"] for change in await engine.undo(id, "work")} == {"a.txt", "b"}
    assert (project.path / "a.txt").read_text() == "before"
    assert not (project.path / "b").exists()


async def test_h2_a_step_that_failed_halfway_through_its_calls_can_be_taken_back(project: Project) -> None:
    source = 'await tools.files.write({path: "a.txt", content: "x"}); throw new Error("no");'
    async with windlass.open() as engine:
        id = await run(engine, Step(id="work", code=source, retry={"max": 0}))
        assert (await engine.state(id)).status == "failed"
        assert await engine.undo(id, "work")
    assert not (project.path / "a.txt").exists()


async def test_h2_nothing_is_taken_back_that_may_still_go_on(project: Project) -> None:
    waits = Step(id="waits", needs=["one"], approve="always", run="true")
    async with windlass.open() as engine:
        execution = await engine.start(Plan(steps=[write("one", "a.txt", "x"), waits]))
        async for event in execution.events():
            if isinstance(event, ev.ApprovalAsked):
                break
        with pytest.raises(UsageError, match="is running"):
            await engine.undo(execution.id, "one")
        await engine.pause(execution.id)
        with pytest.raises(UsageError, match="can still continue"):
            await engine.undo(execution.id, "waits")
        with pytest.raises(NotFound):
            await engine.undo(execution.id, "none")
        assert await engine.undo(execution.id, "one")
        assert not (project.path / "a.txt").exists()
        # It stands still as before, and goes on from there.
        resumed = await engine.resume(execution.id)
        await engine.approve(execution.id, "waits")
        state = await resumed.wait()
        assert (state.status, state.steps["one"].undone) == ("completed", True)


async def test_h2_a_step_without_changes_of_files_has_nothing_to_take_back(project: Project) -> None:
    async with windlass.open() as engine:
        id = await run(engine, Step(id="sh", run="echo x > a.txt"))
        with pytest.raises(UsageError, match="changed no file with the file tools"):
            await engine.undo(id, "sh")
    assert (project.path / "a.txt").exists()


async def test_h2_more_than_is_kept_cannot_be_taken_back_and_that_is_said(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_log, "MOST_KEPT", 10)
    project.file("a.txt", "more than ten bytes")
    async with windlass.open() as engine:
        id = await run(engine, write("one", "a.txt", "x"))
        with pytest.raises(WindlassError, match="cannot be undone") as caught:
            await engine.undo(id, "one")
        assert caught.value.failure.category is Category.RESOURCE


async def test_h2_the_copies_are_kept_until_the_execution_is_cleaned(project: Project) -> None:
    project.file("a.txt", "before")
    async with windlass.open() as engine:
        id = await run(engine, write("one", "a.txt", "x"))
        folder = project.home / "executions" / id
        assert (folder / "steps/one/undo.done/0").read_text() == "before"
        await engine.forget(id)
        assert not folder.exists()
