"""K5: records of files go with the last execution that has them, and with no other."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent
from agent_worlds import plan as plan_of
from git_repositories import git as run_git
from git_repositories import repository

from windlass.core.state import State
from windlass.ports import AgentRequest
from windlass.testing import MemoryJournal, ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


class Checkout:
    """Runs agents that write one file each, and looks at what the home keeps of them."""

    def __init__(self, project: Project, *, git: bool) -> None:
        self.folder = repository(project) if git else project.path
        self.home = project.home
        self.world = AgentWorld(project, ScriptedRunner(self._write, name="cli"))

    def _write(self, request: AgentRequest) -> Turn:
        (self.folder / "made").write_text(f"{request.brief.prompt}\n" * 100)
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    async def run(self, what: str) -> State:
        return await self.world.run(plan_of(agent("work", prompt=what)))

    async def shown(self, state: State) -> list[str]:
        async with self.world.engine() as engine:
            found = await engine.diff(state.id)
        return [file["path"] for one in found for file in one["files"]]

    async def forget(self, *states: State) -> None:
        async with self.world.engine() as engine:
            await engine.forget(*(state.id for state in states))

    @property
    def contents(self) -> set[Path]:
        """Objects of git, or copies of files."""
        return {file for file in (self.home / "snapshots").rglob("*") if file.is_file() and len(file.name) >= 38}


@pytest.mark.parametrize("git", [True, False])
async def test_k5_records_go_with_the_execution_and_those_of_others_stay(project: Project, git: bool) -> None:
    checkout = Checkout(project, git=git)
    first, second, third = [await checkout.run(word) for word in ("one", "two", "three")]
    before = checkout.contents
    shown = await checkout.shown(second)
    await checkout.forget(first)
    assert await checkout.shown(second) == shown
    await checkout.forget(second)
    assert checkout.contents < before, "what the first wrote, and the second changed, is gone"
    async with checkout.world.engine() as engine:
        await engine.undo(third.id, "work")
    assert "two" in (checkout.folder / "made").read_text(), "as it was before the third"
    fourth = await checkout.run("four")
    assert await checkout.shown(fourth) == ["made"]


async def test_k5_a_store_of_an_earlier_version_is_left_as_it_is(project: Project) -> None:
    checkout = Checkout(project, git=True)
    first = await checkout.run("one")
    (notes,) = (checkout.home / "snapshots").glob("*/kept")
    for note in notes.iterdir():
        note.unlink()
    notes.rmdir()
    second = await checkout.run("two")
    before = checkout.contents
    await checkout.forget(first)
    assert checkout.contents == before
    assert await checkout.shown(second) == ["made"]


@pytest.mark.parametrize("git", [True, False])
async def test_k5_cleaning_with_another_journal_leaves_the_records_of_this_one(project: Project, git: bool) -> None:
    checkout = Checkout(project, git=git)
    await checkout.run("one")
    state = await checkout.run("two")
    ours, before = checkout.world.journal, checkout.contents
    checkout.world.journal = MemoryJournal()
    other = await checkout.run("two")
    await checkout.forget()
    await checkout.forget(other)
    checkout.world.journal = ours
    assert checkout.contents == before
    async with checkout.world.engine() as engine:
        await engine.undo(state.id, "work")
    assert "one" in (checkout.folder / "made").read_text()


async def test_k5_a_torn_last_record_keeps_nothing_from_being_removed(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    checkout = Checkout(project, git=False)
    first, second, third = [await checkout.run(word) for word in ("one", "two", "three")]
    before = checkout.contents
    (latest,) = checkout.home.glob("snapshots/*/trees/latest")
    latest.write_bytes(b"")
    await checkout.forget(first, second)
    assert checkout.contents < before
    assert await checkout.shown(third) == ["made"]
    assert not caplog.records


async def test_k5_a_store_with_a_torn_record_is_left_as_it_is_and_said(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    checkout = Checkout(project, git=False)
    first = await checkout.run("one")
    second = await checkout.run("two")
    (note,) = checkout.home.glob(f"snapshots/*/kept/{second.id}")
    torn = note.parents[1] / "trees" / note.read_text().split()[-1]
    torn.write_bytes(b"{")
    before = checkout.contents
    with caplog.at_level(logging.WARNING):
        await checkout.forget(first)
    assert checkout.contents == before
    assert f"{torn} cannot be read" in caplog.text
    await checkout.forget(second)
    assert checkout.contents < before, "what was left goes with the torn record"


async def test_k5_records_of_an_empty_folder_go_without_a_word(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    world = AgentWorld(project, ScriptedRunner([Turn().say("done")], name="cli"))
    state = await world.run(plan_of(agent("work")))
    async with world.engine() as engine:
        await engine.forget(state.id)
    assert not [*project.home.glob("snapshots/*/kept/*")]
    assert not caplog.records


async def test_k5_records_that_share_a_folder_which_the_repository_dropped_stay_whole(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    checkout = Checkout(project, git=True)
    folder = checkout.folder
    project.file("sub/file", "old")
    run_git(folder, "add", "sub")
    run_git(folder, "commit", "-qm", "sub")
    await checkout.run("zero")  # so that the next one begins with files that no commit has
    kept = await checkout.run("one")
    project.file("sub/file", "new")
    run_git(folder, "add", "sub")
    run_git(folder, "commit", "-q", "--amend", "-m", "sub")
    run_git(folder, "reflog", "expire", "--expire=now", "--all")
    run_git(folder, "gc", "-q", "--prune=now")
    second, third, _ = [await checkout.run(word) for word in ("two", "three", "four")]
    before = checkout.contents
    await checkout.forget(second, third)
    assert checkout.contents < before
    assert await checkout.shown(kept) == ["made"]
    assert not caplog.records
