"""Automatic checkpoint files: which commit brings one up to date, when it is written, and what becomes of it (D4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from waiting import settled, wait_until_async

from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine import checkpoints as module
from windlass.engine.checkpoints import CheckpointWriter
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import LocalDrivers
from windlass.errors import JournalError
from windlass.ids import new_id
from windlass.journal.checkpoint import CheckpointFolder
from windlass.plan.model import Plan
from windlass.ports import Entry
from windlass.testing import FakeClock, MemoryJournal

ONE, OTHER, LATER = new_id(), new_id(), new_id()
PLAN = Plan.model_validate({"name": "p", "steps": [{"id": "a", "tool": "t"}]})
STARTED = ev.AttemptStarted(3.0, "a", 1, "t", {}, "none")
FINISHED = ev.AttemptFinished(4.0, "a", 1, 7)
OUTPUT = ev.OutputWritten(3.0, "a", 1, "stdout", "here\n")


class UnreadableJournal(MemoryJournal):
    """A journal that cannot be read while `error` is set."""

    error: JournalError | None = None

    async def read(self, *args: Any, **more: Any) -> list[Entry]:
        if self.error is not None:
            raise self.error
        return await super().read(*args, **more)


class World:
    """The writer of checkpoint files, and the drivers whose commits it sees."""

    def __init__(self, folder: Path, when: Literal["step", "stop"] = "step") -> None:
        self.journal = UnreadableJournal()
        self.drivers = LocalDrivers(self.journal, FakeClock(9.0))
        self.folder, self.archive = folder, CheckpointFolder(folder)
        self.writer = CheckpointWriter(self.drivers, self.archive, when)

    async def begin(self, execution: str = ONE) -> None:
        """An execution that is driven here from now on."""
        driver: Any = self
        self.drivers._drivers[execution] = driver
        created = ev.ExecutionCreated(1.0, execution, msgspec.Raw(PLAN.encoded), {}, "/")
        await self.commit(created, ev.ExecutionStarted(2.0, "here"), execution=execution)

    async def commit(self, *events: ev.Event, execution: str = ONE) -> None:
        before = [entry.event for entry in await self.journal.read(execution)]
        await self.journal.append(execution, len(before), events, head=head_of(fold([*before, *events])))
        self.drivers.commits.publish(execution, events, len(before) + len(events))

    def end(self, execution: str = ONE) -> None:
        """It is driven no more."""
        del self.drivers._drivers[execution]
        self.drivers.commits.publish(execution, (), 0)

    def kept(self, execution: str = ONE) -> int:
        """How many events its file has. It may be written at this moment."""
        path = self.folder / f"{execution}.json"
        return path.read_text().count('\n{"type":') if path.exists() else 0

    async def has(self, count: int, execution: str = ONE) -> None:
        await wait_until_async(lambda: self.kept(execution) == count, f"the file has {count} events")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """With time to wait for company that never ends."""
    monkeypatch.setattr(module, "INTERVAL", 3600.0)
    made = World(tmp_path)
    yield made
    await made.writer.close()


async def test_d4_a_file_is_brought_up_to_date_by_the_end_of_a_step_and_by_many_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "MOST_HELD", 3)
    await world.begin()
    await world.commit(STARTED)
    await settled()
    assert world.kept() == 0, "no step has ended, and three events are not many"
    await world.commit(FINISHED)
    await world.has(4)
    await world.commit(OUTPUT, OUTPUT, OUTPUT, OUTPUT)
    await world.has(8)


async def test_d4_a_file_waits_for_company_until_the_last_execution_here_stops(world: World) -> None:
    await world.begin()
    await world.begin(OTHER)
    await world.commit(STARTED, FINISHED)
    world.end()
    await settled()
    assert world.kept() == 0, "another execution goes on"
    world.end(OTHER)
    await world.has(4)
    await world.begin(LATER)
    await world.commit(STARTED, FINISHED, execution=LATER)
    await settled()
    assert world.kept(LATER) == 0, "it waits again"
    await world.writer.close()
    assert world.kept(LATER) == 4, "nothing is missing at the end"


async def test_d4_files_that_are_written_at_stops_alone_wait_for_one(tmp_path: Path) -> None:
    world = World(tmp_path, "stop")
    await world.begin()
    await world.commit(STARTED, FINISHED)
    await world.writer.close()
    assert world.kept() == 0
    world.end()
    await world.has(4)


async def test_d4_a_file_grows_while_its_execution_goes_on_and_is_let_go_when_it_has_stopped(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    await world.begin()
    await world.commit(STARTED, FINISHED)
    await world.has(4)
    await wait_until_async(lambda: world.archive.saved(ONE) == 4, "the file is open for more")
    world.end()
    await wait_until_async(lambda: world.archive.saved(ONE) == 0, "nothing of it is held")
    assert world.archive.read(tmp_path / f"{ONE}.json") == [entry.event for entry in await world.journal.read(ONE)]


async def test_d4_an_execution_that_cannot_be_read_is_told_until_its_file_is_written(world: World) -> None:
    await world.begin()
    world.journal.error = JournalError("the database is locked")
    world.writer._fresh.clear()
    world.end()
    await wait_until_async(lambda: world.writer.failures == {ONE: "the database is locked"}, "it is told")
    world.journal.error = None
    await world.begin(OTHER)
    world.end(OTHER)
    await world.has(2, OTHER)
    assert list(world.writer.failures) == [ONE]
    world.drivers.commits.publish(ONE, (), 2)
    await world.has(2)
    await wait_until_async(lambda: not world.writer.failures, "it is written")
