"""Less is begun when there is little left (C8): it waits and says so, and one attempt always goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from waiting import settled

import windlass
from windlass import Execution, Plan, Step
from windlass.core.events import OutputWritten
from windlass.engine.gates import intake as module
from windlass.engine.gates.intake import Admission, free_memory
from windlass.settings import LoadSettings
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project, Windlass

MB = 1024 * 1024


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH", 0.0)
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.001)


@asynccontextmanager
async def under_way(intake: Admission, notes: list[str]) -> AsyncIterator[None]:
    """As an attempt is."""
    if not intake.enter():
        await intake.wait(lambda stream, text: notes.append(text))
    try:
        yield
    finally:
        intake.leave()


async def test_c8_a_turn_that_nobody_wants_any_more_goes_to_the_next() -> None:
    intake, notes = Admission(LoadSettings(attempts=1), memory=lambda: None), list[str]()
    entered = asyncio.Event()

    async def attempt() -> None:
        async with under_way(intake, notes):
            entered.set()

    async with under_way(intake, notes):
        first, second = asyncio.ensure_future(attempt()), asyncio.ensure_future(attempt())
        await settled()
    first.cancel()  # its turn has just come
    await asyncio.wait({first, second})
    assert first.cancelled()
    assert entered.is_set()
    async with under_way(intake, notes):
        assert len(notes) == 2, "nobody was under way any more"


async def test_c8_an_attempt_that_is_stopped_while_it_waits_gives_back_its_own_slot_and_no_other() -> None:
    free, notes = [10 * MB], list[str]()
    intake = Admission(LoadSettings(attempts=2, memory_floor=100 * MB), memory=lambda: free[0])

    def wait() -> asyncio.Task[None]:
        return asyncio.ensure_future(intake.wait(lambda stream, text: notes.append(text)))

    async with under_way(intake, notes):
        for_memory = wait()
        await settled()
        for_memory.cancel()
        await asyncio.wait({for_memory})
        free[0] = 200 * MB
        async with under_way(intake, notes):
            for_a_slot, late = wait(), wait()
            await settled()
            assert intake.told()["held_back"] == ["2 attempts are running (load.attempts)"]
            for_a_slot.cancel()
            await settled()
            assert for_a_slot.cancelled()
            assert not late.done()
        await late
    intake.leave()
    assert (intake.told()["under_way"], intake.told()["waiting"]) == (0, 0)


async def test_c8_with_little_memory_an_attempt_waits_for_others_and_says_so() -> None:
    free, notes, order = [10 * MB], [], []
    intake = Admission(LoadSettings(memory_floor=100 * MB), memory=lambda: free[0])

    async def attempt(name: str, until: asyncio.Event) -> None:
        async with under_way(intake, notes):
            order.append(name)
            await until.wait()

    first_done, second_done = asyncio.Event(), asyncio.Event()
    first = asyncio.ensure_future(attempt("first", first_done))
    await settled()
    second = asyncio.ensure_future(attempt("second", second_done))
    await settled()
    assert order == ["first"], "the first goes on though memory is short: somebody must"
    assert notes == ["waiting for memory: less than 100 MiB are free (load.memory_floor)\n"]
    free[0] = 200 * MB
    second_done.set()
    await second
    first_done.set()
    await first


async def test_c8_no_more_attempts_at_a_time_than_the_settings_say() -> None:
    intake, notes = Admission(LoadSettings(attempts=1), memory=lambda: None), []
    gate, entered = asyncio.Event(), asyncio.Event()

    async def second() -> None:
        async with under_way(intake, notes):
            entered.set()

    async with under_way(intake, notes):
        waiting = asyncio.ensure_future(second())
        await settled()
        assert not entered.is_set()
        gate.set()
    await waiting
    assert notes == ["waiting for a slot: 1 attempts are running (load.attempts)\n"]


async def test_c8_no_more_attempts_in_a_home_than_the_settings_say_in_all_its_processes(
    tmp_path: Path, eventually: Any
) -> None:
    """Two who share nothing but the home, as two processes do."""
    one, other = (Admission(LoadSettings(home=2), tmp_path, memory=lambda: None) for _ in range(2))
    notes: list[str] = []
    async with under_way(one, notes):
        async with under_way(other, notes):
            late = asyncio.ensure_future(one.wait(lambda stream, text: notes.append(text)))
            await eventually(lambda: notes)
            assert notes == ["waiting for a slot: 2 attempts are running in this home (load.home)\n"]
            assert one.told()["held_back"] == ["2 attempts are running in this home (load.home)"]
            assert not late.done()
        await late
        assert one.told() == {"under_way": 2, "waiting": 0, "limit": 256, "held_back": []}
        gone = asyncio.ensure_future(other.wait(lambda stream, text: None))
        await eventually(lambda: other.told()["held_back"])
        gone.cancel()
        await asyncio.wait({gone})
        one.leave()
    async with under_way(other, notes):
        assert other.told()["under_way"] == 1


async def test_c8_a_disk_below_its_floor_holds_attempts_back_until_there_is_space(
    tmp_path: Path, eventually: Any
) -> None:
    full, free = LoadSettings(attempts=1, disk_floor=1 << 60), LoadSettings(attempts=1, disk_floor=0)
    intake, notes, entered = Admission(full, tmp_path, memory=lambda: None), list[str](), list[str]()

    async def attempt(name: str) -> None:
        async with under_way(intake, notes):
            entered.append(name)

    waiting = [asyncio.ensure_future(attempt(name)) for name in ("first", "second")]
    await eventually(lambda: len(notes) == 2)
    assert "waiting for disk space" in notes[0]
    assert "windlass clean" in notes[0]
    assert any("must stay free" in told for told in intake.told()["held_back"])
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    assert entered == []
    intake._settings = free
    await waiting[1]
    await attempt("third")
    assert entered == ["second", "third"]
    assert (intake.told()["under_way"], intake.told()["waiting"]) == (0, 0)


def test_c8_space_on_the_disk_is_counted_in_mebibytes_and_what_is_left_at_the_floor_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 7 * MB
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    intake = Admission(LoadSettings(disk_floor=7 * MB), tmp_path, memory=lambda: None)
    assert intake.told()["held_back"] == []
    free -= 1
    told = f"only 6 MiB are free on the disk of {tmp_path}, and 7 MiB must stay free"
    assert intake.told()["held_back"] == [told]


async def test_c8_an_execution_on_a_full_disk_waits_and_goes_on_when_there_is_space(
    project: Project, eventually: Any
) -> None:
    async with windlass.open(load={"disk_floor": 1 << 60}) as engine:
        plan = Plan(steps=[Step(id="a", run="echo hi", retry={"max": 0})])
        execution = await engine.start(plan)
        written = [event async for event in until_output(execution)]
        assert "waiting for disk space" in written[-1]
        assert not (await engine.state(execution.id)).status.finished
        engine.attempt_runner.intake._settings = LoadSettings(disk_floor=0)
        result = await execution.result()
    assert result["status"] == "completed"


async def test_c8_h1_an_execution_that_waits_for_disk_space_writes_no_forecasts(
    project: Project, eventually: Any
) -> None:
    async with windlass.open(load={"disk_floor": 1 << 60}) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run="echo hi")]))
        watched, turns = engine._forecasts._watched[execution.id], set[float]()

        def several_turns() -> bool:
            turns.add(watched.due)
            return len(turns) > 3

        await eventually(several_turns)
        assert await engine.journal.forecasts.latest(execution.id) == {}
        engine.attempt_runner.intake._settings = LoadSettings(disk_floor=0)
        await execution.result()


def test_c8_a_quiet_run_says_once_that_it_waits_for_disk_space(
    project: Project, windlass: Windlass, until: Any
) -> None:
    project.plan("steps: [{id: a, run: echo a}, {id: b, run: echo b}]")
    full = '{"disk_floor": "900000gb"}'
    run = windlass.background("run", "plan.yaml", "--progress=quiet", WINDLASS_LOAD=full)
    until(lambda: project.ids() and "waiting for disk space" in windlass("logs", "@last").out)
    until(lambda: "waiting for disk space" in run.err)
    run.signal(signal.SIGINT)
    assert run.ended().err.count("waiting for disk space") == 1


async def until_output(execution: Execution) -> AsyncIterator[str]:
    """What the execution shows, up to its first words."""
    async for event in execution.events():
        if isinstance(event, OutputWritten):
            yield event.text
            return


async def test_c8_nobody_slips_in_between_one_who_leaves_and_one_whose_turn_it_is(eventually: Any) -> None:
    intake, notes = Admission(LoadSettings(attempts=1), memory=lambda: None), list[str]()
    most = 0

    async def attempt() -> None:
        nonlocal most
        async with under_way(intake, notes):
            most = max(most, intake.told()["under_way"])
            await asyncio.sleep(0)

    async with under_way(intake, notes):
        waiting = asyncio.ensure_future(attempt())
        await eventually(lambda: notes)
    await asyncio.gather(waiting, attempt())  # the second comes before the first has woken up
    assert most == 1


async def test_c8_several_that_wait_for_memory_do_not_wait_for_each_other(eventually: Any) -> None:
    free, notes = [10 * MB], list[str]()
    intake = Admission(LoadSettings(memory_floor=100 * MB), memory=lambda: free[0])

    async def attempt() -> None:
        async with under_way(intake, notes):
            assert intake.told()["under_way"] == 1, "one after the other, while memory is short"

    async with under_way(intake, notes):
        waiting = [asyncio.ensure_future(attempt()) for _ in range(3)]
        await eventually(lambda: len(notes) == 3)
        assert intake.told()["held_back"] == ["less than 100 MiB are free (load.memory_floor)"]
    await asyncio.gather(*waiting)


async def test_c8_a_look_at_the_machine_is_good_for_a_moment_in_which_only_the_number_holds_one_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FRESH", 10.0)
    clock, free, notes = FakeClock(1000.0), [200 * MB], list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.now))
    intake = Admission(LoadSettings(attempts=2, memory_floor=100 * MB), memory=lambda: free[0])
    assert not intake.enter(), "nobody has looked yet"
    async with under_way(intake, notes):
        free[0] = 10 * MB
        assert intake.enter()
        assert not intake.enter(), "as many are under way as may be"
        intake.leave()
        clock.advance(10.0)
        assert not intake.enter(), "it has to be looked at again"
        late = asyncio.ensure_future(intake.wait(lambda stream, text: notes.append(text)))
        await settled()
        assert not late.done()
    await late
    assert notes == ["waiting for memory: less than 100 MiB are free (load.memory_floor)\n"]


def test_free_memory_is_told_where_linux_runs() -> None:
    free = free_memory()
    assert free is None or free > MB
