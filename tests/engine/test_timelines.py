"""Timelines that are kept between questions are those of the journal as it is (D4, I4)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

import windlass
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine import timelines as module
from windlass.engine.commit_writer import head_of
from windlass.engine.timelines import Timelines
from windlass.errors import UsageError
from windlass.ports import Entry
from windlass.testing import MemoryJournal

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(name="asks", steps=[Step(id="a", run="true", approve="always"), Step(id="b", run="true", needs=["a"])])


async def test_d4_a_restored_execution_shows_nothing_of_the_removed_one(project: Project) -> None:
    async with windlass.open() as engine:
        started = await engine.start(PLAN, hold=False)
        assert (await started.wait()).status == "paused"
        file = await engine.checkpoint(started.id)
        half = project.path / "half.json"
        half.write_bytes(file.read_bytes())
        await engine.approve(started.id, "a")
        assert (await (await engine.resume(started.id)).wait()).status == "completed"
        timelines = Timelines(engine.journal)
        whole = (await timelines.at(started.id)).seq
        assert (await timelines.at(started.id, whole - 1)).seq == whole - 1
        await engine.journal.remove(started.id)
        await engine.restore(half)
        now = await timelines.at(started.id)
        assert now.seq == len(await engine.journal.read(started.id)) < whole
        await engine.approve(started.id, "a", allow=False)
        assert (await (await engine.resume(started.id)).wait()).status == "failed"
        events = [entry.event for entry in await engine.journal.read(started.id)]
        assert (await timelines.at(started.id)).seq == len(events)
        assert (await timelines.at(started.id, len(events))).state.status == "failed"


class CountingJournal(MemoryJournal):
    """A journal that notes which events were asked for, and how many it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str | None, int]] = []
        self.given = 0

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        found = await super().read(execution, after, limit)
        self.asked.append((execution, after))
        self.given += len(found)
        return found

    async def write(self, execution: str, *requests: str) -> None:
        """Add a request to the execution for each of these words; the first time, it begins."""
        before = [entry.event for entry in await super().read(execution)]
        at = float(len(before))
        events: list[ev.Event] = [ev.ControlRequested(at, "pause", by=by) for by in requests]
        if not before:
            created = ev.ExecutionCreated(at, id=execution, plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")
            events = [created, ev.ExecutionStarted(at, "driver"), *events]
        await self.append(execution, len(before), events, head=head_of(fold([*before, *events])))

    @contextmanager
    def counted(self) -> Iterator[list[tuple[str | None, int]]]:
        """Note anew what is asked for."""
        self.asked, self.given = [], 0
        yield self.asked


@pytest.fixture
def journal() -> CountingJournal:
    return CountingJournal()


async def test_i4_a_page_that_asks_again_has_only_the_new_events_folded(journal: CountingJournal) -> None:
    timelines = Timelines(journal)
    await journal.write("x", *"abcde")
    assert (await timelines.at("x")).seq == 7
    await journal.write("x", "f")
    with journal.counted() as asked:
        assert (await timelines.at("x")).seq == 8
    assert asked == [("x", 6), ("x", 7)], "the event that it knows, to see that it is the same, and what comes after"
    assert journal.given == 2


async def test_i4_a_later_moment_of_the_past_goes_on_from_the_one_before_and_an_earlier_one_is_folded_anew(
    journal: CountingJournal,
) -> None:
    timelines = Timelines(journal)
    await journal.write("x", *"abcde")
    assert (await timelines.at("x", 4)).seq == 4
    with journal.counted():
        assert (await timelines.at("x", 6)).seq == 6
        assert journal.given == 3, "the fourth event, and two more"
    with journal.counted():
        assert (await timelines.at("x", 6)).seq == 6
        assert journal.given == 1, "the same moment again: nothing is folded"
    with journal.counted() as asked:
        assert (await timelines.at("x", 5)).seq == 5
        assert asked == [("x", 0)]


async def test_i4_a_look_at_the_past_does_not_take_the_place_of_now(journal: CountingJournal) -> None:
    timelines = Timelines(journal)
    await journal.write("x", *"abcde")
    now, then = await timelines.at("x"), await timelines.at("x", 3)
    assert (now.seq, then.seq) == (7, 3)
    assert await timelines.at("x") is now


async def test_i4_the_timelines_that_were_looked_at_last_are_kept(journal: CountingJournal) -> None:
    timelines = Timelines(journal)
    names = [f"x{number}" for number in range(module.MOST_KEPT)]
    for name in (*names, "more"):
        await journal.write(name, "a")
    kept = {name: await timelines.at(name) for name in names}
    assert await timelines.at(names[0]) is kept[names[0]], "as many as are kept"
    await timelines.at("more")
    assert await timelines.at(names[0]) is kept[names[0]], "it was looked at again"
    with journal.counted() as asked:
        await timelines.at(names[1])
    assert asked == [(names[1], 0)], "the one that nobody has looked at for the longest time"


async def test_i4_an_execution_of_many_events_is_folded_whole_and_others_have_a_turn(
    journal: CountingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 4)
    await journal.write("x", *"abcdefghij")
    timelines = Timelines(journal)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    assert (await timelines.at("x")).seq == 12
    beside.cancel()
    assert 3 <= turns < 100, "one for each part of it, and it goes on at once"
    for seq in (12, 11, 9, 8, 4, 3):
        assert (await Timelines(journal).at("x", seq)).seq == seq


async def test_i4_a_moment_after_the_last_event_is_refused(
    journal: CountingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.write("x", *"abcde")
    for page in (4, 2_000):
        monkeypatch.setattr(module, "PAGE", page)
        assert (await Timelines(journal).at("x", 7)).seq == 7
        with pytest.raises(UsageError, match="execution x has 7 events, not 8"):
            await Timelines(journal).at("x", 8)


async def test_i4_no_search_for_garbage_interrupts_a_fold_and_it_goes_on_after(journal: CountingJournal) -> None:
    await journal.write("x", *"abcdefghij" * 20)
    searches: list[str] = []

    def searched(phase: str, _info: object) -> None:
        if journal.asked and phase == "start":
            searches.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(searched)
    gc.set_threshold(1)
    try:
        journal.asked = []
        timeline = await Timelines(journal).at("x")
        during = len(searches)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(searched)
    assert timeline.seq == 202
    assert during < 50, "some before and after, none while it folds"
    assert gc.isenabled()
