"""Looking at executions changes nothing, misses nothing, and leaves nothing behind (D2, D9, I5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.forecast.calibration import Band
from windlass.core.forecast.value import Forecast
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import State, fold
from windlass.core.transitions import ExecutionStatus
from windlass.engine.commit_writer import head_of
from windlass.engine.observer import Drivers, Observer
from windlass.errors import Damaged, NotFound, UsageError
from windlass.ids import new_id
from windlass.ports import Entry
from windlass.testing import MemoryJournal

PLAN = Plan(steps=[Step(id="a", tool="work")])


class World:
    """A journal, and a driver of this process and what it commits."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.drivers = Drivers(self.journal)
        self.observer = Observer(self.drivers)
        self.driver = self.journal.enlist()

    async def create(self, *, start: bool) -> str:
        execution = new_id()
        plan = msgspec.Raw(PLAN.encoded)
        created = ev.ExecutionCreated(1.0, id=execution, plan=plan, inputs={}, workdir="/", start=start)
        await self.commit(execution, created)
        return execution

    async def begin(self, *, driver: str = "") -> str:
        execution = await self.create(start=True)
        await self.commit(execution, ev.ExecutionStarted(2.0, driver or self.driver))
        return execution

    async def commit(self, execution: str, *events: ev.Event) -> State:
        before = [entry.event for entry in await self.journal.read(execution)]
        state, asked = fold([*before, *events]), open_questions(fold(before)) if before else {}
        changes = changes_of(asked, open_questions(state))
        await self.journal.append(execution, len(before), events, head=head_of(state), questions=changes)
        self.drivers.commits.publish(execution, events, len(before) + len(events))
        return state


@pytest.fixture
def world() -> World:
    return World()


async def ended(found: AsyncIterator[Entry]) -> list[Entry]:
    return [entry async for entry in found]


@pytest.fixture
def told_alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Followers never look by themselves, but only when they are told of news; has an entry for each wait."""
    waits: list[int] = []

    async def wait_for_news(news: asyncio.Event, _journal: object) -> float:
        waits.append(1)
        await news.wait()
        return 0.0

    monkeypatch.setattr("windlass.engine.observer.wait_for_news", wait_for_news)
    return waits


async def test_i5_a_follower_is_told_of_each_commit_and_waits_in_between(world: World, told_alone: list[int]) -> None:
    execution, other = await world.begin(), await world.begin()
    following = asyncio.ensure_future(ended(world.observer.follow(execution)))
    for at in (3.0, 4.0, 5.0):
        await asyncio.sleep(0)
        await world.commit(execution, ev.ControlRequested(at, "pause"))
        await world.commit(other, ev.ControlRequested(at, "pause"))
    await world.commit(execution, ev.ExecutionFinished(6.0, "cancelled"))
    assert [entry.seq for entry in await following] == [1, 2, 3, 4, 5, 6]
    assert len(told_alone) <= 5, "once for each commit at most"


async def test_i5_nothing_is_left_of_a_follower_and_another_goes_on(
    world: World, told_alone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: list[str] = []

    def listen(_journal: MemoryJournal, name: str, _told: object) -> Callable[[], None]:
        listening.append(name)
        return lambda: listening.remove(name)

    monkeypatch.setattr(MemoryJournal, "listen", listen)
    execution = await world.begin()
    first, second = (world.observer.follow(execution) for _ in range(2))
    for follower in (first, second):
        assert (await anext(follower)).seq == 1
    assert world.drivers.commits._subscribers
    await first.aclose()
    rest = asyncio.ensure_future(ended(second))
    await asyncio.sleep(0)
    await world.commit(execution, ev.ExecutionFinished(3.0, "cancelled"))
    assert [entry.seq for entry in await rest] == [2, 3]
    assert listening == []
    assert world.drivers.commits._subscribers == ()
    assert world.observer._followers == {}
    assert await ended(world.observer.follow(execution, 2)), "it can be followed again"


async def test_i5_following_begins_with_the_first_event_or_after_the_one_that_is_named(world: World) -> None:
    execution = await world.begin()
    await world.commit(execution, ev.ExecutionFinished(3.0, "cancelled"))
    assert [entry.seq for entry in await ended(world.observer.follow(execution))] == [1, 2, 3]
    assert [entry.seq for entry in await ended(world.observer.follow(execution, 2))] == [3]
    with pytest.raises(UsageError, match="`after` is the `seq` of an event"):
        await anext(world.observer.follow(execution, -1))


async def test_i5_following_goes_on_with_an_execution_that_is_resumed_while_its_pause_is_looked_at(
    world: World,
) -> None:
    execution = await world.begin()
    await world.commit(execution, ev.ExecutionPaused(3.0, "me"))
    seen: list[int] = []
    async for entry in world.observer.follow(execution):
        seen.append(entry.seq)
        if isinstance(entry.event, ev.ExecutionPaused):
            resumed = ev.ExecutionResumed(4.0, world.driver)
            await world.commit(execution, resumed, ev.ExecutionFinished(5.0, "cancelled"))
    assert seen == [1, 2, 3, 4, 5]


class Silence:
    """Each wait for news takes ten seconds, of which nobody notices anything."""

    def __init__(self) -> None:
        self.waits = 0
        self.last: Callable[[], Any] | None = None
        """What happens in the fifth wait."""

    async def wait(self, _news: asyncio.Event, _journal: object) -> float:
        self.waits += 1
        if self.waits == 5 and self.last is not None:
            await self.last()
        assert self.waits < 9, "it is followed without end"
        return 10.0


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    made = Silence()
    monkeypatch.setattr("windlass.engine.observer.wait_for_news", made.wait)
    return made


async def test_d6_following_ends_with_a_driver_that_died(world: World, silence: Silence) -> None:
    execution = await world.begin(driver="dead")
    assert [entry.seq for entry in await ended(world.observer.follow(execution))] == [1, 2]
    assert silence.waits == 1
    lives, cut_off, unwanted = await world.begin(), await world.create(start=True), await world.create(start=False)
    assert {head.id for head in await world.observer.orphans()} == {execution, cut_off}
    alive = {head.id: world.observer.alive(head) for head in await world.observer.executions()}
    assert alive == {execution: False, lives: True, cut_off: False, unwanted: False}
    assert [one.id for one in await world.observer.executions() if world.observer.driven(one)] == [lives]


async def test_d6_following_a_new_execution_ends_when_no_driver_has_begun_it_for_long(
    world: World, silence: Silence
) -> None:
    execution = await world.create(start=True)
    assert [entry.seq for entry in await ended(world.observer.follow(execution))] == [1]
    assert silence.waits == 3, "twenty seconds are not over before"


async def test_i5_following_does_not_end_while_a_driver_that_lives_is_silent(world: World, silence: Silence) -> None:
    execution = await world.begin()
    silence.last = lambda: world.commit(execution, ev.ExecutionFinished(3.0, "cancelled"))
    assert [entry.seq for entry in await ended(world.observer.follow(execution))] == [1, 2, 3]


async def test_d7_the_time_left_is_given_of_what_runs_and_has_a_forecast(world: World) -> None:
    rest: dict[str, Any] = dict.fromkeys(("estimated", "unknown", "uncounted", "unpriced", "overdue"), ())
    rest |= dict.fromkeys(("raw", "usd", "usd_raw", "approval_s"))
    rest |= dict.fromkeys(("runs", "unchanged", "samples", "approvals", "spent_usd"), 0)

    def left(middle: float | None) -> Forecast:
        band = Band(0.0, middle, 99.0) if middle is not None else None
        return Forecast(at=10.0, elapsed_s=0.0, done=0.0, left=band, origins={}, low_confidence=True, **rest)

    known, unknown, dead, _without = [await world.begin(driver=name) for name in ("", "", "dead", "")]
    for execution, middle in ((known, 7.12), (unknown, None), (dead, 7.12)):
        await world.journal.forecasts.add(execution, "p", left(middle))
    assert await world.observer.etas(await world.observer.executions(), 12.0) == {known: 5.1}


async def test_i5_a_page_of_executions_begins_after_an_id_and_nothing_else(world: World) -> None:
    ids = sorted([await world.begin() for _ in range(3)], reverse=True)
    assert [head.id for head in await world.observer.executions()] == ids
    assert [head.id for head in await world.observer.executions(before=ids[0])] == ids[1:]
    with pytest.raises(UsageError, match=r"`before` is the last id of the page before; given is 'x'"):
        await world.observer.executions(before="x")
    with pytest.raises(UsageError, match="there is no status 'runing'; there are: pending, running"):
        await world.observer.executions(["running", "runing"])
    assert [head.id for head in await world.observer.executions("running")] == ids


async def test_i5_executions_are_counted_and_those_that_wait_for_a_person_named(world: World) -> None:
    asks, rests, ends = [await world.begin() for _ in range(3)]
    await world.commit(asks, ev.ExecutionPaused(3.0, "budget"))
    await world.commit(rests, ev.ExecutionPaused(3.0, "pause"))
    await world.commit(ends, ev.ExecutionFinished(3.0, "cancelled"))
    counts = await world.observer.counts()
    assert {status: count for status, count in counts.items() if count} == {"paused": 2, "cancelled": 1}
    assert set(counts) == {str(status) for status in ExecutionStatus}
    assert await world.observer.waiting(await world.observer.executions()) == {asks: "budget"}


async def test_c6_all_open_questions_are_given_but_those_of_the_damaged(world: World) -> None:
    ids = [await world.begin() for _ in range(3)]
    for at, execution in enumerate(ids):
        await world.commit(execution, ev.ApprovalAsked(3.0 + at, "a", "d", "work", {}, 99.0))
    assert [question.execution for question, _asked in await world.observer.open_questions()] == ids[::-1]
    world.observer.damaged[ids[0]] = Damaged(ids[0], 2, "a bit was flipped")
    assert [question.execution for question, _asked in await world.observer.open_questions()] == ids[:0:-1]


async def test_d9_one_that_has_an_end_is_waited_for_no_longer_and_its_state_is_given(world: World) -> None:
    execution = await world.begin()
    waiting = asyncio.ensure_future(world.observer.wait(execution[:-1]))
    await asyncio.sleep(0)
    await world.commit(execution, ev.ExecutionFinished(3.0, "cancelled"))
    assert (await waiting).status == "cancelled"


class DamagedJournal(MemoryJournal):
    """The events of one execution cannot be read."""

    bad = ""

    async def read(self, execution: str | None, after: int = 0) -> list[Entry]:
        if execution == self.bad:
            raise Damaged(self.bad, 2, "a bit was flipped")
        return await super().read(execution, after)


async def test_d9_damage_is_remembered_until_it_is_mended_or_removed() -> None:
    world = World()
    world.journal = journal = DamagedJournal()
    world.drivers = Drivers(journal)
    world.observer = Observer(world.drivers)
    execution = journal.bad = await world.begin()
    with pytest.raises(Damaged):
        await world.observer.state(execution)
    assert set(world.observer.damaged) == {execution}
    journal.bad = ""
    await world.observer.state(execution)
    assert world.observer.damaged == {}, "it was mended"
    journal.bad = "0" * 36
    with pytest.raises(NotFound, match=f"execution {journal.bad} was removed"):
        await world.observer.record(journal.bad)
    await world.observer.verify(journal.bad)
    assert world.observer.damaged == {}, "it was removed"


async def test_d9_an_execution_of_the_list_whose_events_are_missing_is_damaged(world: World) -> None:
    intact, lost = await world.begin(), new_id()
    head = (await world.observer.find(intact))._replace(id=lost)
    await world.journal.append(lost, 0, [], head=head)
    for execution in (intact, lost):
        await world.observer.verify(execution)
    assert {name: (one.seq, one.reason) for name, one in world.observer.damaged.items()} == {lost: (1, "it is missing")}
