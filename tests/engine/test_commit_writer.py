"""Events reach the journal in order, one commit after another, and nobody is told of one that failed (D1, D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from waiting import settled, skip_time, wait_until_async

from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine import commit_writer
from windlass.engine.commit_writer import CommitWriter, head_of
from windlass.errors import JournalError
from windlass.plan.model import Plan
from windlass.ports import Note
from windlass.testing import MemoryJournal, Simulation

pytestmark = pytest.mark.timeout(30)  # where a commit is lost, its caller would wait for ever


class GatedJournal(MemoryJournal):
    """A journal whose appends wait for `gate`, or fail with `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.commits: list[list[str]] = []
        self.given: list[dict[str, Any]] = []

    async def append(self, execution: str, after: int, events: Sequence[ev.Event], **more: Any) -> None:
        self.commits.append([ev.type_of(event) for event in events])
        self.given.append(more)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().append(execution, after, events, **more)


class World:
    """The writer of one execution with the steps a and b, which have no effect, and `acts`, which has one."""

    def __init__(self, notifier: Any = None) -> None:
        steps = [{"id": name, "tool": "t"} for name in ("a", "b", "acts")]
        run = Simulation(Plan.model_validate({"name": "p", "steps": steps}))
        self.created = ev.ExecutionCreated(1.0, "x", run.plan.encoded, {}, "/")  # type: ignore[arg-type]
        self.state = fold([self.created], run.plan)
        self.journal = GatedJournal()
        self.told: list[tuple[int, int]] = []
        self.woken = 0
        self.writer = CommitWriter(
            self.state,
            self.journal,
            notifier,
            created=self.created,
            only_looks=lambda step: step.id != "acts",
            on_disk=lambda events, last: self.told.append((len(events), last)),
            wake=self.wake,
        )

    def wake(self) -> None:
        self.woken += 1

    def add(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(event)
            self.writer.batch.append(event)

    async def begun(self) -> World:
        self.add(ev.ExecutionStarted(2.0, "d"))
        await self.writer.write()
        return self

    def started(self, step: str) -> ev.AttemptStarted:
        return ev.AttemptStarted(3.0, step, 1, "t", {}, "none")


async def test_d1_the_first_commit_has_the_creation_and_the_start() -> None:
    world = await World().begun()
    assert world.journal.commits == [["execution.created", "execution.started"]]
    assert world.told == [(2, 2)]
    assert [head.status for head in await world.journal.heads()] == ["running"]


async def test_d1_only_starts_and_ends_of_attempts_without_effect_may_wait_for_the_disk() -> None:
    world = World()
    assert not world.writer.may_overlap(), "the execution itself is not on disk"
    await world.begun()
    assert world.writer.may_overlap(), "there is nothing to write"
    world.add(world.started("a"))
    assert world.writer.may_overlap()
    world.add(ev.AttemptFinished(4.0, "a", 1, 7))
    assert world.writer.may_overlap()
    world.add(world.started("acts"))
    assert not world.writer.may_overlap()
    await world.writer.write()
    world.add(world.started("b"))
    assert world.writer.may_overlap()
    world.add(ev.ControlRequested(5.0, "pause", "me"))
    assert not world.writer.may_overlap(), "somebody waits for that"
    await world.writer.write()
    world.add(ev.ControlRequested(6.0, "interrupt", "me"))
    assert not world.writer.may_overlap(), "nor where it is the first to be written"


async def test_d1_nothing_overlaps_while_a_caller_or_a_message_waits_for_the_commit() -> None:
    world = await World().begun()
    world.add(world.started("a"))
    witness: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.writer.witnesses.append(witness)
    assert not world.writer.may_overlap()
    await world.writer.write()
    assert witness.done()
    assert world.writer.may_overlap()
    world.writer.consumed.append(7)
    assert not world.writer.may_overlap()
    await world.writer.write()
    assert world.journal.given[-1]["consumed"] == [7], "a message is gone though it brought no event"
    assert world.writer.may_overlap()


async def test_d1_a_caller_that_has_gone_does_not_disturb_the_others() -> None:
    world = await World().begun()
    gone, there = (asyncio.get_running_loop().create_future() for _ in range(2))
    gone.cancel()
    world.writer.witnesses += [gone, there]
    await world.writer.write()
    assert there.done()
    assert world.journal.commits == [["execution.created", "execution.started"]], "there was nothing to write"


async def test_d2_a_commit_waits_for_the_one_that_goes_on_beside_the_attempts() -> None:
    world = await World().begun()
    world.journal.gate.clear()
    world.add(world.started("a"))
    world.writer.write_soon()
    await wait_until_async(lambda: len(world.journal.commits) == 2)
    world.add(world.started("b"))
    second = asyncio.ensure_future(world.writer.write())
    await asyncio.sleep(0)
    world.writer.write_soon()
    assert len(world.journal.commits) == 2, "one is under way"
    world.journal.gate.set()
    await second
    assert world.journal.commits[1:] == [["attempt.started"], ["attempt.started"]]
    assert world.told[1:] == [(1, 3), (1, 4)]


async def test_d2_a_commit_that_comes_before_the_moment_for_company_is_over_is_the_only_one_under_way() -> None:
    world = await World().begun()
    world.add(world.started("a"))
    for _ in range(2):
        world.writer.write_soon()
    world.journal.gate.clear()
    writing = asyncio.ensure_future(world.writer.write())
    await asyncio.sleep(0)
    world.add(world.started("b"))
    skip_time(commit_writer.OVERLAP_FOR)
    await settled()
    assert len(world.journal.commits) == 2
    world.journal.gate.set()
    await writing


async def test_d1_events_that_come_during_a_commit_beside_attempts_follow_by_themselves() -> None:
    world = await World().begun()
    world.journal.gate.clear()
    world.add(world.started("a"))
    world.writer.write_soon()
    await wait_until_async(lambda: len(world.journal.commits) == 2)
    world.add(world.started("b"))
    world.journal.gate.set()
    await wait_until_async(lambda: world.told[-1] == (1, 4))


async def test_d1_many_events_are_written_at_once_and_few_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_writer, "OVERLAP_FOR", 3600.0)
    monkeypatch.setattr(commit_writer, "OVERLAP_MOST", 3)
    world = await World().begun()
    world.add(world.started("a"), world.started("b"))
    world.writer.write_soon()
    await asyncio.sleep(0)
    assert len(world.journal.commits) == 1, "more may come"
    world.add(ev.AttemptFinished(4.0, "a", 1, 7))
    world.writer.write_soon()
    await wait_until_async(lambda: world.told[-1] == (3, 5))
    world.add(ev.AttemptFinished(4.0, "b", 1, 7))
    await world.writer.write()
    assert world.journal.commits[2:] == [["attempt.finished"]]


async def test_d1_a_commit_beside_attempts_that_fails_wakes_the_driver_and_fails_the_next_write() -> None:
    world = await World().begun()
    world.journal.error = JournalError("disk full")
    world.add(world.started("a"))
    world.writer.write_soon()
    await wait_until_async(lambda: world.woken == 1)
    assert world.told == [(2, 2)], "nobody was told that it is on disk"
    world.journal.error = None
    world.add(world.started("b"))
    with pytest.raises(JournalError, match="disk full"):
        await world.writer.write()
    assert len(world.journal.commits) == 2, "nothing is written behind what is missing"


async def test_d1_a_closed_writer_begins_nothing_beside_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_writer, "OVERLAP_MOST", 1)
    world = await World().begun()
    world.writer.close()
    world.add(world.started("a"))
    world.writer.write_soon()
    await world.writer.settled()
    assert len(world.journal.commits) == 1


async def test_d1_the_last_commit_beside_attempts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_writer, "OVERLAP_MOST", 1)
    world = await World().begun()
    world.journal.gate.clear()
    world.add(world.started("a"))
    world.writer.write_soon()
    settling = asyncio.ensure_future(world.writer.settled())
    await wait_until_async(lambda: len(world.journal.commits) == 2)
    assert not settling.done()
    world.journal.gate.set()
    await settling
    assert world.told[-1] == (1, 3)


async def test_d1_the_lists_change_with_the_status_the_questions_and_what_it_waits_for() -> None:
    world = await World().begun()

    async def lists() -> tuple[str, str] | None:
        await world.writer.write()
        head = world.journal.given[-1]["head"]
        return None if head is None else (head.status, head.detail)

    world.add(world.started("a"))
    assert await lists() is None
    assert world.journal.given[-1]["questions"] is None
    assert world.journal.given[-1]["record"] is None
    world.add(ev.ApprovalAsked(4.0, "b", "digest", "t", {}, 99.0))
    assert await lists() is None
    assert [one.question.step for one in await world.journal.questions()] == ["b"]
    world.add(ev.ApprovalAnswered(5.0, "b", "digest", True, "me"))
    assert await lists() is None
    assert await world.journal.questions() == []
    world.add(ev.StepWaiting(6.0, "acts", "budget", None, "more?", scope="day"))
    assert await lists() == ("running", "budget")
    world.add(ev.ExecutionPaused(7.0, "budget"))
    assert await lists() == ("paused", "budget")
    assert world.journal.given[-1]["record"] is not None, "the history has it as it stands"


class Notes:
    """A notifier that has a note of each start of an attempt."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def watch(self, state: State) -> Any:
        return lambda batch: [
            Note("key", state.id, "done", "bell", "", 1.0, 1.0, 9.0, "it is done", "a began", {}, "me")
            for one in batch
            if isinstance(one, ev.AttemptStarted)
        ]

    def committed(self, notes: Sequence[Note]) -> None:
        self.sent.append(len(notes))


async def test_i8_a_note_is_sent_when_it_is_on_disk_and_not_before() -> None:
    notes = Notes()
    world = await World(notes).begun()
    assert notes.sent == [], "nobody is told of what has none"
    world.journal.gate.clear()
    world.add(world.started("a"))
    writing = asyncio.ensure_future(world.writer.write())
    await wait_until_async(lambda: len(world.journal.commits) == 2)
    assert notes.sent == []
    world.journal.gate.set()
    await writing
    assert (notes.sent, len(world.journal.notes)) == ([1], 1)


def ended(*events: ev.Event) -> State:
    run = Simulation(Plan.model_validate({"name": "p", "steps": [{"id": "a", "agent": "developer", "prompt": "go"}]}))
    run.start()
    for event in events:
        run.state.apply(event)
    return run.state


def test_e3_the_lists_say_of_an_ended_execution_that_it_went_over_its_budget() -> None:
    over = ev.BudgetWarned(3.0, "a", "passed", "day", limit=1.0, spent=2.0)
    end = ev.ExecutionFinished(4.0, "completed")
    assert head_of(ended(end)).detail == ""
    assert head_of(ended(over, end)).detail == "over budget"
    assert head_of(ended(over)).detail == ""
    assert head_of(ended(over, ev.ExecutionPaused(4.0, "me"))).detail == "me"
