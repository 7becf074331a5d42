"""Scheduled plans: their triggers start them, once each, and whatever does not start says why (L1)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import pytest_asyncio

from windlass.assembly import open_engine
from windlass.core.triggers import is_by_hand, watched_file
from windlass.engine import folders
from windlass.engine.engine import Engine
from windlass.engine.run_request import RunRequest
from windlass.engine.schedule import PendingFile, Schedule
from windlass.errors import JournalError, UsageError
from windlass.journal.stores import HomeStores
from windlass.journal.triggers import SqliteTriggers
from windlass.plan.triggers import FolderWatch
from windlass.ports import Amount, Charge, Usage
from windlass.ports.deliveries import HookDelivery
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project

PLAN = """
    name: hourly
    inputs: {word: none}
    triggers:
      - {id: hourly, cron: "0 * * * *", inputs: {word: some}}
    steps:
      - {id: a, run: "echo {{ inputs.word | quote }} >> ran.txt"}
"""
UNEXPECTED = "unexpected error: ZeroDivisionError: integer division or modulo by zero"
NOON = 1_800_014_400.0


class World:
    """A home with a plan that was scheduled at noon."""

    def __init__(self, project: Project, engine: Engine, store: SqliteTriggers) -> None:
        self.project, self.engine, self.store = project, engine, store
        self.clock = FakeClock(NOON)
        self.driven: list[str] = []
        self.schedule = Schedule(engine, store, self.drive, self.clock)
        self.plan = project.path / "plan.yaml"

    async def drive(self, execution: str) -> None:
        self.driven.append(execution)
        await self.engine.resume(execution)

    async def tick(self, seconds: float = 3600.0) -> list[str]:
        """A tick after so much time; gives what became of each time, and waits for what was started."""
        self.clock.advance(seconds)
        firings, _unread = await self.schedule.tick()
        for one in firings:
            if one.firing.status == "started":
                await self.engine.wait(one.firing.execution)
        return [one.firing.status.value for one in firings]


@pytest_asyncio.fixture
async def world(project: Project) -> AsyncIterator[World]:
    project.plan(PLAN)
    async with open_engine(project.home) as engine:
        store = HomeStores(engine.home).triggers()
        made = World(project, engine, store)
        await made.schedule.add(made.plan, project.path)
        yield made
        await store.close()


async def test_l1_a_due_time_starts_the_plan_with_the_inputs_of_its_trigger(world: World) -> None:
    assert await world.tick(3599) == []
    assert await world.tick(1) == ["started"]
    assert world.project.lines("ran.txt") == ["some"]
    assert await world.tick() == ["completed", "started"]
    assert world.project.lines("ran.txt") == ["some", "some"]
    assert [head.name for head in await world.engine.executions()] == ["hourly", "hourly"]


async def test_l1_a_tick_of_a_clock_that_was_a_year_ahead_keeps_no_later_time_from_starting(world: World) -> None:
    year = 365 * 86400.0
    assert "started" in await world.tick(year)
    world.clock.set(NOON)
    (view,) = (await world.schedule.view(world.plan)).triggers
    assert view.state.until == NOON, "its next time is one o'clock"
    assert await world.tick(60) == ["completed"]
    assert await world.tick() == ["started"]


async def test_l1_a_tick_of_a_clock_that_began_in_1970_brings_no_decided_time_back(world: World) -> None:
    world.project.plan(PLAN.replace('"0 * * * *"', '"0 * * * *", catch_up: 10h, overlap: allow'))
    assert await world.tick() == ["started"]
    world.clock.set(100.0)
    assert await world.tick(0) == ["completed"]
    world.clock.set(NOON + 2 * 3600)
    assert await world.tick(0) == ["started"], "and none of the times before the plan was scheduled"
    assert world.project.lines("ran.txt") == ["some", "some"]


async def test_l1_a_plan_without_triggers_is_not_scheduled(world: World) -> None:
    other = world.project.file("other.yaml", "steps: [{id: a, run: 'true'}]")
    with pytest.raises(UsageError, match="has no `triggers`"):
        await world.schedule.add(other, world.project.path)
    assert [plan.path for plan in await world.store.plans()] == [str(world.plan)]


async def test_l1_a_plan_that_is_removed_starts_no_more(world: World) -> None:
    await world.schedule.remove(world.plan)
    assert await world.tick() == []
    for asked in (world.schedule.remove(world.plan), world.schedule.view(world.plan)):
        with pytest.raises(UsageError, match="is not scheduled"):
            await asked


async def test_l1_a_name_that_two_scheduled_plans_have_names_neither(world: World) -> None:
    assert len((await world.schedule.view(Path("hourly"))).triggers) == 1
    other = world.project.file("other.yaml", PLAN)
    await world.schedule.add(other, world.project.path)
    with pytest.raises(UsageError, match="several scheduled plans have the name hourly") as refused:
        await world.schedule.remove(Path("hourly"))
    assert str(world.plan) in refused.value.message
    assert str(other) in refused.value.message
    assert len(await world.store.plans()) == 2


async def test_l1_a_scheduled_plan_that_is_a_link_by_now_is_found_by_its_path(world: World) -> None:
    other = world.project.file("elsewhere.yaml", world.plan.read_text())
    world.plan.unlink()
    world.plan.symlink_to(other)
    assert [view.plan.path for view in (await world.schedule.view(world.plan)).triggers] == [str(world.plan)]
    assert await world.schedule.pause(world.plan, None, "by a test") == {"hourly": True}
    await world.schedule.remove(world.plan)
    assert await world.store.plans() == []


async def test_l1_a_plan_that_cannot_be_read_holds_up_no_other_and_says_so_afterwards(world: World) -> None:
    await world.schedule.add(world.project.file("also.yaml", PLAN), world.project.path)
    text = world.plan.read_text()
    world.plan.write_text("steps: 1")
    world.clock.advance(2 * 3600)
    _firings, unread = await world.schedule.tick()
    assert [plan.path for plan in unread] == [str(world.plan)]
    assert (await world.schedule.view()).unread == unread
    assert len(await world.engine.executions()) == 1, "the other one"
    world.plan.write_text(text)
    world.clock.advance(1800)
    await world.schedule.tick()
    (view,) = (await world.schedule.view(world.plan)).triggers
    (_caught_up, missed) = view.state.firings
    assert missed.status == "missed"
    assert missed.reason.startswith("the plan could not be started: ")
    assert [plan.trouble for plan in await world.store.plans()] == ["", ""]


async def test_l1_an_unexpected_error_of_one_plan_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.schedule.add(world.project.file("also.yaml", PLAN), world.project.path)
    read, create = world.engine.read, RunRequest.create

    def broken_read(path: str, workdir: str) -> Any:
        return 1 // 0 if path == str(world.plan) else read(path, workdir)

    async def broken_create(self: RunRequest, engine: Engine, **more: Any) -> Any:
        return 1 // 0 if self.plan_file == str(world.plan) else await create(self, engine, **more)

    with monkeypatch.context() as patch:
        patch.setattr(world.engine, "read", broken_read)
        world.clock.advance(3600)
        firings, unread = await world.schedule.tick()
        assert [(one.firing.status, one.plan == str(world.plan)) for one in firings] == [("started", False)]
        assert [plan.trouble for plan in unread] == [UNEXPECTED]
        assert [view.plan.path == str(world.plan) for view in (await world.schedule.view()).triggers] == [False]
    await world.engine.wait(world.driven[0])
    monkeypatch.setattr(RunRequest, "create", broken_create)
    firings, unread = await world.schedule.tick()
    told = {(one.firing.status.value, one.firing.reason) for one in firings if one.plan == str(world.plan)}
    assert (unread, told) == (
        [],
        {("refused", UNEXPECTED)},
    )


async def test_l1_a_trigger_that_is_new_in_the_plan_begins_with_the_next_tick(world: World) -> None:
    more = '- {id: hourly, cron: "0 * * * *", inputs: {word: some}}'
    world.plan.write_text(world.plan.read_text().replace(more, f'{more}\n  - {{id: half, cron: "30 * * * *"}}'))
    assert await world.tick(2700) == [], "12:30 has passed before it was seen"
    assert await world.tick() == ["started", "started"]


async def test_l1_what_cannot_be_created_is_refused_with_its_reason(world: World) -> None:
    world.plan.write_text(world.plan.read_text().replace("echo", "no-such-program-anywhere"))
    assert await world.tick() == ["refused"]
    (view,) = (await world.schedule.view()).triggers
    assert "no-such-program-anywhere" in view.state.firings[0].reason
    assert "\n→ install no-such-program-anywhere\n" in view.state.firings[0].reason
    assert "`anyway`" not in view.state.firings[0].reason, "a trigger has no options"
    assert await world.engine.executions() == []
    assert await world.tick(60) == []


async def test_l1_a_start_that_failed_halfway_is_taken_up_by_the_next_tick(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full_disk(execution: str) -> None:
        raise JournalError("the disk is full")

    async def locked(*_: Any) -> bool:
        raise JournalError("the database is locked")

    broken = Schedule(world.engine, world.store, full_disk, world.clock)
    world.clock.advance(3600)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "write", locked)
        with pytest.raises(JournalError, match="locked"):
            await broken.tick()
    with pytest.raises(JournalError, match="full"):
        await broken.tick()
    (left,) = await world.engine.executions()
    assert left.status == "pending"
    assert await world.tick(60) == ["started"]
    assert [head.id for head in await world.engine.executions()] == [left.id] == world.driven
    assert world.project.lines("ran.txt") == ["some"]


async def test_l1_an_execution_that_was_removed_does_not_hold_up_the_next(world: World) -> None:
    await world.tick()
    await world.engine.forget(world.driven[0])
    assert await world.tick() == ["removed", "started"]


async def test_l1_a_paused_trigger_starts_nothing_and_begins_anew_when_it_is_resumed(world: World) -> None:
    assert await world.schedule.pause(world.plan, None, "by ana") == {"hourly": True}
    assert await world.tick() == ["skipped"]
    (view,) = (await world.schedule.view()).triggers
    assert view.state.paused == "by ana"
    assert view.state.firings[0].reason == "paused: by ana"
    world.clock.advance(3700)
    await world.schedule.pause(world.plan, "hourly", "")
    assert await world.tick(60) == [], "what came while it was paused is not caught up with"
    assert await world.tick() == ["started"]
    world.clock.advance(3700)
    assert await world.schedule.pause(world.plan, None, "") == {"hourly": False}
    assert "started" in await world.tick(0), "a time that is due is not dropped by a needless resume"
    with pytest.raises(UsageError, match="has no trigger 'daily'"):
        await world.schedule.pause(world.plan, "daily", "by ana")


async def test_l1_failures_in_a_row_pause_a_trigger_until_a_person_resumes_it(world: World) -> None:
    text = world.plan.read_text().replace('cron: "0 * * * *"', 'cron: "0 * * * *", pause_after: 2')
    world.plan.write_text(text.replace("echo", "false"))
    assert await world.tick() == ["started"]
    assert await world.tick() == ["failed", "started"]
    assert await world.tick() == ["failed", "skipped"]
    assert (await world.schedule.view()).triggers[
        0
    ].state.paused == "none of the last 2 executions completed (pause_after)"
    await world.schedule.pause(world.plan, None, "")
    assert await world.tick() == ["started"]


async def test_l1_the_budget_of_a_trigger_bounds_each_execution_and_the_day(world: World) -> None:
    text = world.plan.read_text().replace('cron: "0 * * * *"', 'cron: "0 * * * *", budget: {usd: 2, tokens: 500}')
    world.plan.write_text(text.replace("name: hourly", "name: hourly\nbudget: 1.5"))
    await world.tick()
    limit = (await world.engine.state(world.driven[0])).plan.budget
    assert limit is not None
    assert (limit.usd, limit.tokens) == (1.5, 500)
    await spend(world, world.driven[0], 1.25)
    await spend(world, "another execution", 100.0)
    await world.tick()
    limit = (await world.engine.state(world.driven[1])).plan.budget
    assert limit is not None
    assert limit.usd == 0.75
    await spend(world, world.driven[1], 0.75)
    assert await world.tick() == ["completed", "skipped"]
    reason = (await world.schedule.view()).triggers[0].state.firings[0].reason
    assert reason == "$2.00 of $2.00 for the day are spent (budget)"
    assert (await world.tick(12 * 3600))[-1:] == ["started"], "the next day has a budget of its own"


async def spend(world: World, execution: str, usd: float) -> None:
    charge = Charge(execution, "a", 1)
    await world.engine.ledger.reserve(charge, world.clock.now(), Amount(usd, 0), ())
    await world.engine.ledger.settle(charge, world.clock.now(), Usage(usd=usd, source="runtime"))


async def test_l1_the_view_says_who_looked_last(world: World) -> None:
    assert (await world.schedule.view()).ticks == {}
    await world.schedule.tick("serve")
    assert (await world.schedule.view()).ticks == {"serve": NOON}


WATCHING = """
    name: intake
    inputs: {file: none}
    triggers:
      - {id: inbox, watch: {path: inbox, files: "*.csv", settle: 5s}}
    steps:
      - {id: a, run: "cat {{ inputs.file | quote }} >> taken.txt"}
"""


class Intake:
    """A scheduled plan that watches a folder."""

    def __init__(self, world: World) -> None:
        self.world, self.folder = world, world.project.path / "inbox"
        self.folder.mkdir()
        self.plan = world.project.file("intake.yaml", WATCHING)

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        at = self.world.clock.now() - 60
        os.utime(self.folder / name, (at, at))


@pytest_asyncio.fixture
async def intake(world: World) -> Intake:
    made = Intake(world)
    await world.schedule.remove(world.plan)
    made.put("old.csv", "old\n")
    await world.schedule.add(made.plan, world.project.path)
    return made


async def test_l1_each_file_that_comes_starts_the_plan_with_its_path(world: World, intake: Intake) -> None:
    assert await world.tick(60) == [], "what was there before does not start it"
    intake.put("a.csv", "a\n")
    assert await world.tick(10) == ["started"]
    intake.put("b.csv", "b\n")
    intake.put("c.csv", "c\n")
    assert await world.tick(60) == ["completed", "waiting", "started"], "one after the other"
    assert await world.tick(60) == ["completed", "started"]
    assert await world.tick(60) == ["completed"]
    intake.put("a.csv", "changed\n")
    assert await world.tick(60) == ["started"]
    assert world.project.lines("taken.txt") == ["a", "b", "c", "changed"]
    (view,) = (await world.schedule.view()).triggers
    assert watched_file(view.state.firings[0]) == "a.csv"


@pytest.mark.parametrize("at", [-631_152_000, 15_032_385_535], ids=["of 1950", "of 2446"])
async def test_l1_a_file_with_an_impossible_time_starts_it_too(world: World, intake: Intake, at: int) -> None:
    intake.put("odd.csv", "odd\n")
    os.utime(intake.folder / "odd.csv", (at, at))
    assert await world.tick(60) == ["started"]
    assert await world.tick(60) == ["completed"]
    assert await world.tick(60) == []
    assert world.project.lines("taken.txt") == ["odd"]
    assert str(UUID(world.driven[0])) == world.driven[0]


async def test_l1_a_file_with_a_time_of_long_ago_comes_once_when_it_is_seen(world: World, intake: Intake) -> None:
    def put_old(name: str, years: int) -> None:
        intake.put(name, f"{name}\n")
        at = world.clock.now() - years * 365 * 86400
        os.utime(intake.folder / name, (at, at))

    intake.put("new.csv", "new.csv\n")
    assert await world.tick(60) == ["started"]
    put_old("a.csv", years=2)
    put_old("b.csv", years=3)
    assert await world.tick(60) == ["completed", "waiting", "started"]
    seen_at = world.clock.now()
    assert await world.tick(60) == ["completed", "started"]
    assert await world.tick(60) == ["completed"]
    assert world.project.lines("taken.txt") == ["new.csv", "b.csv", "a.csv"], "the older one first"
    assert world.driven == sorted(world.driven), "their ids sort as they were started"
    (view,) = (await world.schedule.view()).triggers
    assert [watched_file(firing) for firing in view.state.firings] == ["a.csv", "b.csv", "new.csv"]
    assert [round(firing.at - seen_at, 1) for firing in view.state.firings] == [0, 0, -60]
    (intake.folder / "b.csv").unlink()
    assert await world.tick(60) == []
    put_old("b.csv", years=1)
    assert await world.tick(60) == [], "the same file with the same content"


async def test_l1_a_file_whose_name_cannot_be_an_input_is_told_of_and_others_start(
    world: World, intake: Intake
) -> None:
    intake.put(os.fsdecode(b"\xe4.csv"), "one\n")
    intake.put("no\xa0break.csv", "two\n")
    assert await world.tick(60) == ["skipped", "started"]
    assert world.project.lines("taken.txt") == ["two"]
    (view,) = (await world.schedule.view()).triggers
    (skipped,) = [firing for firing in view.state.firings if firing.status == "skipped"]
    assert watched_file(skipped) == r"'\udce4.csv'"
    assert skipped.reason == "its name is not UTF-8, so it cannot be an input: rename it"
    assert await world.tick(60) == ["completed"]


async def test_l1_a_file_that_is_taken_away_while_it_is_looked_at_harms_nothing(
    world: World, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = folders._entries

    def late(watch: FolderWatch, workdir: str) -> list[os.DirEntry[str]]:
        found = entries(watch, workdir)
        (intake.folder / "gone.csv").unlink(missing_ok=True)
        return found

    intake.put("gone.csv", "gone\n")
    intake.put("here.csv", "here\n")
    monkeypatch.setattr(folders, "_entries", late)
    assert await world.tick(60) == ["started"]
    assert world.project.lines("taken.txt") == ["here"]


async def test_l1_files_that_come_during_a_pause_start_once_each_when_it_is_over(world: World, intake: Intake) -> None:
    intake.put("a.csv", "a\n")
    intake.put("b.csv", "b\n")
    assert await world.tick(60) == ["waiting", "started"]
    await world.schedule.pause(intake.plan, None, "by ana")
    intake.put("c.csv", "c\n")
    assert await world.tick(60) == ["completed"]
    (intake.folder / "c.csv").unlink()
    assert await world.tick(60) == []
    intake.put("c.csv", "c\n")
    assert await world.tick(60) == []
    (view,) = (await world.schedule.view(files=True)).triggers
    assert view.pending == [("c.csv", "paused: by ana")]
    assert [(one.status, one.reason) for one in view.state.firings if watched_file(one) == "b.csv"] == [
        ("waiting", "paused: by ana")
    ], "the queue waits, too"
    await world.schedule.pause(intake.plan, None, "")
    assert await world.tick(60) == ["waiting", "started"]
    assert await world.tick(60) == ["completed", "started"]
    assert await world.tick(60) == ["completed"]
    assert world.project.lines("taken.txt") == ["a", "b", "c"]


async def test_l1_files_that_come_over_the_budget_start_when_it_is_raised(world: World, intake: Intake) -> None:
    text = intake.plan.read_text()
    intake.plan.write_text(text.replace("settle: 5s}", "settle: 5s}, budget: 1"))
    intake.put("a.csv", "a\n")
    assert await world.tick(60) == ["started"]
    await spend(world, world.driven[0], 1.5)
    intake.put("b.csv", "b\n")
    assert await world.tick(60) == ["completed"]
    (view,) = (await world.schedule.view(files=True)).triggers
    assert view.pending == [("b.csv", "$1.50 of $1.00 for the day are spent (budget)")]
    intake.plan.write_text(text.replace("settle: 5s}", "settle: 5s}, budget: 2"))
    assert await world.tick(60) == ["started"]
    assert world.project.lines("taken.txt") == ["a", "b"]


async def test_l1_a_file_that_was_skipped_starts_when_it_is_put_there_again(world: World, intake: Intake) -> None:
    intake.plan.write_text(intake.plan.read_text().replace("settle: 5s}", "settle: 5s}, overlap: skip"))
    intake.put("a.csv", "a\n")
    intake.put("b.csv", "b\n")
    assert await world.tick(60) == ["skipped", "started"]
    (skipped,) = [one for one in (await world.schedule.view()).triggers[0].state.firings if one.status == "skipped"]
    (intake.folder / watched_file(skipped)).unlink()
    assert await world.tick(60) == ["completed"]
    intake.put(watched_file(skipped), f"{watched_file(skipped)[0]}\n")
    (view,) = (await world.schedule.view(files=True)).triggers
    assert view.pending == [(watched_file(skipped), "for the next tick")]
    assert await world.tick(60) == ["started"]
    assert sorted(world.project.lines("taken.txt")) == ["a", "b"]


async def test_l1_files_and_deliveries_for_which_the_queue_has_no_room_stay_where_they_are(
    world: World, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.core.triggers.MOST_WAITING", 2)
    hook = "  - {id: push, webhook: {secret: {from: PUSH_SECRET}, input: file}}"
    intake.plan.write_text(intake.plan.read_text().replace("steps:", f"{hook}\nsteps:"))
    await world.tick(60)

    async def come(*names: str) -> None:
        for name in names:
            intake.put(f"{name}.csv", f"{name}\n")
            sent = HookDelivery(name, world.clock.now(), name, "", f'"inbox/{name}.csv"'.encode())
            await world.store.deliveries.receive(str(intake.plan), "push", sent)

    async def pending() -> list[PendingFile] | None:
        return (await world.schedule.view(files=True)).triggers[0].pending

    await come("a", "b")
    assert sorted(await world.tick(0)) == ["started", "started", "waiting", "waiting"]
    await come("c")
    assert await pending() == [("c.csv", "for the next tick")]
    monkeypatch.setattr("windlass.core.triggers.MOST_WAITING", 1)
    assert await pending() == [("c.csv", "10 executions are waiting already (overlap: queue)")]
    assert sorted(await world.tick(0)) == ["completed", "completed", "started", "started"]
    assert sorted(await world.tick(0)) == ["completed", "completed", "started", "started"]
    assert sorted(world.project.lines("taken.txt")) == ["a", "a", "b", "b", "c", "c"]


async def test_l1_the_variables_that_steps_of_scheduled_plans_read_are_listed_for_one_plan_or_all(
    world: World,
) -> None:
    for name in ("one", "two"):
        text = PLAN.replace("name: hourly", f"name: {name}\n    env: {{TOKEN: {{from: TOKEN_{name}}}}}")
        await world.schedule.add(world.project.file(f"{name}.yaml", text), world.project.path)
    assert await world.schedule.variables() == ["TOKEN_one", "TOKEN_two"]
    assert await world.schedule.variables(world.project.path / "two.yaml") == ["TOKEN_two"]
    (world.project.path / "one.yaml").write_text("steps: 1")
    assert await world.schedule.variables() == ["TOKEN_two"], "a plan that cannot be read has none"


async def test_l1_a_file_of_another_time_and_the_same_content_is_noted_once_and_starts_nothing(
    world: World, intake: Intake
) -> None:
    async def known() -> tuple[int, int]:
        state = await world.store.state(str(intake.plan), "inbox")
        assert state is not None
        return state.version, (await world.store.files(str(intake.plan), "inbox"))["old.csv"].changed

    await world.tick(60)
    version, _ = await known()
    os.utime(intake.folder / "old.csv", (NOON - 30, NOON - 30))
    assert await world.tick(60) == []
    assert await known() == (version + 1, int(NOON - 30) * 10**9)
    assert await world.tick(60) == []
    assert (await known())[0] == version + 1, "where nothing is new, nothing is written"


async def test_l1_a_file_that_has_not_settled_or_that_no_tick_has_seen_is_shown(world: World, intake: Intake) -> None:
    intake.put("new.csv", "new\n")
    os.utime(intake.folder / "new.csv", (NOON - 3, NOON - 3))
    intake.put("ready.csv", "ready\n")
    (view,) = (await world.schedule.view(files=True)).triggers
    assert view.pending == [("ready.csv", "for the next tick"), ("new.csv", "settles in 2 s")]
    (view,) = (await world.schedule.view()).triggers
    assert view.pending is None, "they are looked for only where they are asked for"
    assert await world.tick(60) == ["waiting", "started"]
    (view,) = (await world.schedule.view(files=True)).triggers
    assert view.pending == []


async def test_l1_a_folder_that_cannot_be_watched_holds_up_no_other_trigger_of_its_plan(
    world: World, intake: Intake
) -> None:
    hourly = '  - {id: hourly, cron: "0 * * * *", inputs: {file: old.csv}}'
    intake.plan.write_text(intake.plan.read_text().replace("steps:", f"{hourly}\nsteps:"))
    (world.project.path / "old.csv").write_text("old\n")
    await world.tick(60)
    intake.folder.rename(world.project.path / "away")
    intake.folder.write_text("no folder")
    world.clock.advance(3600)
    firings, troubles = await world.schedule.tick()
    assert [(one.trigger, one.firing.status) for one in firings] == [("hourly", "started")]
    assert [(one.path, one.trigger) for one in troubles] == [(str(intake.plan), "inbox")]


async def test_l1_the_view_shows_the_end_of_an_execution_before_the_next_tick(world: World) -> None:
    assert await world.tick() == ["started"]
    (view,) = (await world.schedule.view()).triggers
    assert [firing.status for firing in view.state.firings] == ["completed"]
    assert await world.tick(60) == ["completed"], "the tick notes it as before"


async def test_l1_a_trigger_is_tried_by_hand_and_its_times_come_as_before(world: World) -> None:
    text = world.plan.read_text().replace("inputs: {word: some}}", "inputs: {word: some}, budget: 2}")
    world.plan.write_text(text.replace('run: "echo', 'run: "until [ -e go ]; do sleep 0.02; done; echo'))
    await world.schedule.pause(world.plan, None, "by ana")
    world.clock.advance(60)
    fired = await world.schedule.fire(world.plan)
    assert fired.firing.status == "started"
    with pytest.raises(UsageError, match=f"execution {fired.firing.execution} of hourly is unfinished"):
        await world.schedule.fire(world.plan, "hourly")
    (world.project.path / "go").touch()
    await world.engine.wait(fired.firing.execution)
    assert world.project.lines("ran.txt") == ["some"]
    limit = (await world.engine.state(fired.firing.execution)).plan.budget
    assert limit is not None
    assert limit.usd == 2
    (view,) = (await world.schedule.view()).triggers
    assert [(is_by_hand(one), one.status) for one in view.state.firings] == [(True, "completed")]
    await world.schedule.pause(world.plan, None, "")
    await world.schedule.tick()
    assert await world.tick(3540) == ["started"], "13:00 is due all the same"
    with pytest.raises(UsageError, match="hourly watches no folder, so no file starts it"):
        await world.schedule.fire(world.plan, None, "a.csv")
    await spend(world, fired.firing.execution, 2.0)
    with pytest.raises(UsageError, match=r"\$2.00 of \$2.00 for the day are spent"):
        await world.schedule.fire(world.plan)
    world.plan.write_text("steps: 1")
    for asked in (world.schedule.fire(world.plan), world.schedule.pause(world.plan, None, "by ana")):
        with pytest.raises(UsageError, match="cannot be read"):
            await asked


async def test_l1_a_file_is_tried_by_hand_and_what_names_none_is_refused(world: World, intake: Intake) -> None:
    for given in ("old.csv", str(intake.folder / "old.csv")):
        fired = await world.schedule.fire(intake.plan, "inbox", given)
        await world.engine.wait(fired.firing.execution)
        assert watched_file(fired.firing) == "old.csv"
    assert world.project.lines("taken.txt") == ["old", "old"]
    (world.project.path / "old.csv").write_text("another\n")
    for given in ("none.csv", str(world.project.path / "old.csv")):
        with pytest.raises(UsageError, match=r"the folder inbox has no file .*\.csv that fits \*\.csv"):
            await world.schedule.fire(intake.plan, None, given)
    with pytest.raises(UsageError, match="inbox starts for a file in inbox"):
        await world.schedule.fire(intake.plan)
    hook = "  - {id: push, webhook: {secret: {from: PUSH_SECRET}, input: file}}"
    intake.plan.write_text(intake.plan.read_text().replace("steps:", f"{hook}\nsteps:"))
    with pytest.raises(UsageError, match="has several triggers: inbox, push"):
        await world.schedule.fire(intake.plan)
    with pytest.raises(UsageError, match="push starts for a delivery of its webhook"):
        await world.schedule.fire(intake.plan, "push")


async def test_l1_another_folder_begins_with_what_comes_from_now_on(world: World, intake: Intake) -> None:
    other = world.project.path / "other"
    other.mkdir()
    (other / "x.csv").write_text("x\n")
    intake.plan.write_text(intake.plan.read_text().replace("path: inbox", "path: other"))
    assert await world.tick(60) == []
    assert await world.tick(3600 * 24 * 3650) == []


async def test_l1_a_folder_that_cannot_be_watched_is_told_of(world: World, intake: Intake) -> None:
    (intake.folder / "old.csv").unlink()
    intake.folder.rmdir()
    intake.folder.write_text("no folder")
    world.clock.advance(60)
    _firings, unread = await world.schedule.tick()
    assert ["cannot be watched: Not a directory" in plan.trouble for plan in unread] == [True]
    (view,) = (await world.schedule.view()).triggers
    assert "the folder inbox cannot be watched: Not a directory" in view.trouble
    intake.folder.unlink()
    (view,) = (await world.schedule.view()).triggers
    assert view.trouble == "the folder inbox is not there"
    assert await world.tick(60) == [], "it may come later"
    intake.folder.mkdir()
    (view,) = (await world.schedule.view()).triggers
    assert view.trouble == ""


async def test_l1_a_working_directory_that_is_not_there_is_refused_and_told_of_when_it_was_moved_away(
    world: World, intake: Intake
) -> None:
    work = world.project.path / "work"
    missing = f"the working directory {work} does not exist"
    with pytest.raises(UsageError, match=missing):
        await world.schedule.add(intake.plan, work)
    work.mkdir()
    await world.schedule.add(intake.plan, work)
    work.rename(world.project.path / "elsewhere")
    _firings, unread = await world.schedule.tick()
    assert [plan.trouble for plan in unread] == [missing]
    assert [view.trouble for view in (await world.schedule.view()).triggers] == [missing]
