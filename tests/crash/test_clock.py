"""Somebody sets the clock while an execution stands still: retries are neither lost nor let loose all at once (C3, D3).

The clock that a driver goes by cannot be set while it lives (`SystemClock`); what can happen is that the next driver
starts from another time: an hour or a day off either way, or in another time zone's daylight saving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_engine import engine_on
from waiting import PATIENCE

import windlass
from windlass.clock import SystemClock, iso
from windlass.core.decide import Policy
from windlass.core.retry import backoff
from windlass.errors import Category, Failure
from windlass.plan.model import Plan, Retry
from windlass.testing import FakeClock, MemoryJournal, Simulation

HOUR, DAY = 3600.0, 86400.0
JUMPS = [-DAY, -HOUR, -1.0, 0.0, HOUR, DAY]
TRANSIENT = Failure(Category.TRANSIENT, "the network is down")
DELAY = 100.0
LONGEST = DELAY * 4
"""The longest that a backoff of the third retry may take."""


def plan(steps: int = 1, **rest: object) -> Plan:
    retry = {"delay": DELAY, "max": 3}
    made = [{"id": f"s{n}", "tool": "t", "retry": retry} for n in range(steps)]
    return Plan.model_validate({"name": "clock", "steps": made, **rest})


def crash(run: Simulation) -> None:
    run.crash()


def interrupt(run: Simulation) -> None:
    run.interrupt()
    for step in list(run.stopping):
        run.stop(step)


stops = pytest.mark.parametrize("stop", [crash, interrupt])
jumps = pytest.mark.parametrize("jump", JUMPS)


@stops
@jumps
def test_c3_a_retry_is_not_lost_nor_put_off_by_more_than_its_backoff(
    stop: Callable[[Simulation], None], jump: float
) -> None:
    run = Simulation(plan())
    run.start()
    for attempt in range(1, 4):
        assert run.running["s0"].attempt == attempt
        run.fail("s0", TRANSIENT)
        assert run.running == {}
        stop(run)
        run.clock.set(run.clock.now() + jump)
        run.resume()
        waited = 0.0
        while not run.running:
            waited += 1.0
            assert waited <= LONGEST, "the retry is put off for longer than it was ever meant to be"
            run.pass_time(1.0)
        if jump <= 0.0:
            assert waited >= DELAY * 2 ** (attempt - 1) / 2 - 1.0, "the other side gets its rest"
    run.finish("s0")
    assert run.state.status == "completed"
    assert [started.attempt for started in run.performed] == [1, 2, 3, 4]


@jumps
def test_c3_any_number_of_restarts_with_a_wrong_clock_wears_no_backoff_down(jump: float) -> None:
    """Each restart looks at a clock that is off again. A wait may begin anew, but must not get shorter by it."""
    run = Simulation(plan())
    run.start()
    run.fail("s0", TRANSIENT)
    meant = backoff(Retry(delay=DELAY), 1, "simulated:s0")
    run.crash()
    run.clock.set(run.clock.now() + jump)
    run.resume()
    if jump > 0.0:
        assert list(run.running) == ["s0"], "its time has come, as far as anybody can tell"
        return
    for _ in range(10):
        run.crash()
        run.resume()
        assert run.running == {}, "a crash is no reason to try earlier"
    run.pass_time(meant - 0.5)
    assert run.running == {}
    run.pass_time(0.5)
    assert list(run.running) == ["s0"]


@stops
@jumps
def test_c3_retries_do_not_storm_when_the_clock_was_set(stop: Callable[[Simulation], None], jump: float) -> None:
    """Twenty steps wait for a retry. However the clock is off, no more than the limit go at once, each once."""
    run = Simulation(plan(20, limits={"parallel": 4}))
    run.start()
    while run.running:
        run.fail(next(iter(run.running)), TRANSIENT)
    stop(run)
    run.clock.set(run.clock.now() + jump)
    run.resume()
    run.pass_time(LONGEST)
    for _ in range(20):
        assert len(run.running) <= 4
        run.finish(next(iter(run.running)))
    assert run.state.status == "completed"
    second = [started.step for started in run.performed if started.attempt == 2]
    assert sorted(second) == sorted(f"s{n}" for n in range(20)), "each was tried once more, and only once"


@jumps
def test_c3_a_retry_that_fails_again_after_a_jump_backs_off_as_it_should(jump: float) -> None:
    """A clock that was a day ahead and is right again does not keep a retry waiting for a day."""
    run = Simulation(plan())
    run.start()
    run.fail("s0", TRANSIENT)
    run.crash()
    run.clock.set(run.clock.now() + jump)
    run.resume()
    run.pass_time(LONGEST)
    run.fail("s0", TRANSIENT)
    run.crash()
    run.clock.set(run.clock.now() - jump)
    run.resume()
    if run.running:
        assert jump < 0.0, "only a clock that went forward brings a retry forward"
        return
    run.pass_time(DELAY - 1.0)
    assert run.running == {}
    run.pass_time(LONGEST)
    assert run.running["s0"].attempt == 3


@jumps
def test_c8_the_time_that_an_execution_has_worked_never_runs_backwards(jump: float) -> None:
    run = Simulation(plan(2, limits={"timeout": 10_000}))
    run.start()
    run.pass_time(500.0)
    run.finish("s0")
    run.crash()
    run.clock.set(run.clock.now() + jump)
    run.resume()
    worked = run.state.worked(run.clock.now())
    assert worked == pytest.approx(500.0), "neither the time of nobody's driving nor the jump counts"
    assert run.state.status == "running"


@jumps
def test_c6_a_request_for_approval_is_answered_or_fails_closed_whatever_the_clock_says(jump: float) -> None:
    gated = Plan.model_validate({"name": "g", "steps": [{"id": "send", "tool": "t", "approve": "always"}]})
    run = Simulation(gated, policy=Policy(approval_expiry=2 * HOUR))
    run.start()
    assert run.state.paused_for == "approval"
    run.clock.set(run.clock.now() + jump)
    run.resume()
    if jump == DAY:
        assert run.state.steps["send"].status == "failed"
        assert run.performed == []
        return
    assert run.state.questions
    run.approve("send")
    run.resume()
    run.finish("send")
    assert run.state.status == "completed"


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
SPRING, AUTUMN = 1_743_296_400.0, 1_761_440_400.0
"""When Berlin's clocks went forward and back in 2025."""


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("change", [SPRING, AUTUMN])
def test_c3_daylight_saving_moves_no_retry(monkeypatch: pytest.MonkeyPatch, zone: str, change: float) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        run = Simulation(plan(), clock=FakeClock(change - 30.0))
        run.start()
        run.fail("s0", TRANSIENT)
        until = run.state.steps["s0"].until
        assert until is not None
        run.crash()
        run.clock.set(change + 1.0)
        run.resume()
        assert run.state.steps["s0"].until == until
        run.clock.set(until - 0.001)
        run.pass_time(0.0)
        assert run.running == {}
        run.pass_time(0.001)
        assert list(run.running) == ["s0"]
        assert iso(change) == {SPRING: "2025-03-30T01:00:00.000Z", AUTUMN: "2025-10-26T01:00:00.000Z"}[change]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_c3_the_clock_that_a_driver_goes_by_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()
    real = time.time()
    for jump in JUMPS:
        monkeypatch.setattr(time, "time", lambda jump=jump: real + jump)
        assert 0.0 <= clock.now() - before < 60.0


@pytest.mark.parametrize("jump", [HOUR, DAY])
async def test_c3_the_driver_itself_takes_up_a_retry_that_a_jump_has_made_due(tmp_path: Path, jump: float) -> None:
    """Through the engine: interrupted while it waits for a retry, resumed by another engine with a later clock."""
    runs: list[int] = []

    @windlass.tool
    async def flaky(call: windlass.Call) -> str:
        runs.append(call.attempt)
        if call.attempt == 1:
            raise windlass.ToolError("not yet", category="transient")
        return "done"

    steps = [{"id": "a", "tool": "flaky", "retry": {"delay": "30m", "max": 1}}]
    slow = Plan.model_validate({"name": "p", "steps": steps})
    journal, clock = MemoryJournal(), FakeClock()
    first = engine_on(journal, tmp_path, [flaky], clock)
    execution = await first.start(slow)
    async for event in execution.events():
        if type(event).__name__ == "StepWaiting":
            break
    await first.interrupt(execution.id)
    clock.set(clock.now() + jump)
    async with engine_on(journal, tmp_path, [flaky], clock) as second:
        resumed = await second.resume(execution.id)
        state = await asyncio.wait_for(resumed.wait(), PATIENCE)
    assert state.status == "completed"
    assert runs == [1, 2]
