"""What the driver does between two decisions: it naps when there is nothing to do, and reads each message once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from crash_engine import engine_on

import windlass
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.errors import WindlassError
from windlass.plan.model import Plan
from windlass.testing import FakeClock, MemoryJournal

Eventually = Callable[..., Awaitable[Any]]


class CountingClock(SystemClock):
    """Tells how often it was looked at: once and again in each of a driver's turns."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return super().now()


async def some_turns() -> None:
    for _ in range(500):
        await asyncio.sleep(0)


async def test_c3_a_driver_whose_due_retry_finds_no_room_does_not_spin(tmp_path: Path, eventually: Eventually) -> None:
    clock, release = CountingClock(), asyncio.Event()

    @windlass.tool
    async def fails(call: windlass.Call) -> int:
        if call.attempt == 1:
            raise windlass.ToolError("not yet", category="transient")
        return call.attempt

    @windlass.tool
    async def holds() -> None:
        await release.wait()

    steps = [{"id": "a", "tool": "fails", "retry": {"delay": "1ms"}}, {"id": "b", "tool": "holds"}]
    plan = Plan.model_validate({"name": "p", "limits": {"parallel": 1}, "steps": steps})
    async with engine_on(MemoryJournal(), tmp_path, [fails, holds], clock) as engine:
        execution = await engine.start(plan)
        waiting = engine._drivers[execution.id].state.steps["a"]
        await eventually(lambda: waiting.until and SystemClock().now() > waiting.until + 0.02, "the retry is due")
        before = clock.looks
        await some_turns()
        assert clock.looks - before < 20, "it goes round and round while it waits for room"
        release.set()
        state = await execution.wait()
    assert state.status == "completed"
    assert state.steps["a"].attempts == 2


async def test_c8_a_driver_whose_time_is_up_does_not_spin_while_its_attempts_end(
    tmp_path: Path, eventually: Eventually
) -> None:
    clock, release = CountingClock(), asyncio.Event()

    @windlass.tool
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    steps = [{"id": "a", "tool": "stubborn"}]
    plan = Plan.model_validate({"name": "p", "limits": {"timeout": "20ms"}, "steps": steps})
    async with engine_on(MemoryJournal(), tmp_path, [stubborn], clock) as engine:
        execution = await engine.start(plan)
        driver = engine._drivers[execution.id]
        await eventually(lambda: driver._stopping, "the limit is noticed")
        before = clock.looks
        await some_turns()
        assert clock.looks - before < 20
        release.set()
        state = await execution.wait()
    assert state.status == "failed"


class SlowMemory(MemoryJournal):
    """A journal on a slow disk: others get their turn while a commit is under way."""

    async def append(self, execution: str, after: int, events: Sequence[ev.Event], **rest: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await super().append(execution, after, events, **rest)


@pytest.mark.parametrize("kind", ["pause", "interrupt"])
async def test_d3_a_pause_that_nobody_obeyed_before_the_driver_died_does_not_stop_the_resumed_one(
    tmp_path: Path, eventually: Eventually, kind: str
) -> None:
    release = asyncio.Event()

    @windlass.tool
    async def holds() -> str:
        await release.wait()
        return "done"

    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", "tool": "holds"}]})
    journal = SlowMemory()
    async with engine_on(journal, tmp_path, [holds]) as engine:
        execution = await engine.create(plan)
        await journal.send(execution, 1.0, {"kind": kind, "by": "somebody", "now": False})
        resumed = await engine.resume(execution)
        await eventually(lambda: not journal._inbox, "the message is taken")
        await some_turns()
        release.set()
        state = await resumed.wait()
    assert state.status == "completed", "the resume answers the pause; it is not obeyed once more"
    events = [entry.event for entry in await journal.read(execution)]
    assert not any(isinstance(event, ev.ControlRequested) for event in events)


async def test_d3_a_cancel_that_nobody_obeyed_before_the_driver_died_is_obeyed_once(tmp_path: Path) -> None:
    @windlass.tool
    async def hangs() -> None:
        await asyncio.Event().wait()

    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", "tool": "hangs"}]})
    journal = SlowMemory()
    async with engine_on(journal, tmp_path, [hangs]) as engine:
        execution = await engine.create(plan)
        await journal.send(execution, 1.0, {"kind": "cancel", "by": "somebody"})
        state = await (await engine.resume(execution)).wait()
    assert state.status == "cancelled"
    events = [entry.event for entry in await journal.read(execution)]
    assert sum(isinstance(event, ev.ControlRequested) for event in events) == 1


async def test_c6_an_answer_that_comes_after_the_question_expired_is_refused_even_if_nobody_drives(
    tmp_path: Path,
) -> None:
    ran: list[int] = []

    @windlass.tool
    async def send(call: windlass.Call) -> None:
        ran.append(call.attempt)

    steps = [{"id": "a", "tool": "send", "approve": "always", "approve_within": "1h"}]
    plan = Plan.model_validate({"name": "p", "steps": steps})
    clock = FakeClock()
    async with engine_on(MemoryJournal(), tmp_path, [send], clock) as engine:
        execution = await engine.start(plan, hold=False)
        assert (await execution.wait()).paused_for == "approval"
        clock.advance(3600.0)
        with pytest.raises(WindlassError):
            await engine.approve(execution.id, "a")
        state = await (await engine.resume(execution.id)).wait()
    assert state.steps["a"].status == "failed"
    assert ran == []


async def test_c2_an_attempt_that_a_critical_failure_of_the_same_turn_forbids_never_starts(tmp_path: Path) -> None:
    ran: list[str] = []

    @windlass.tool
    async def note(call: windlass.Call, text: str = "") -> None:
        ran.append(call.step)

    steps = [
        {"id": "other", "tool": "note"},
        {"id": "skipped", "tool": "note", "when": "1 > 2"},
        {
            "id": "vital",
            "tool": "note",
            "importance": "critical",
            "when": "steps.skipped.status == 'skipped'",
            "with": {"text": "{{ inputs.a.b }}"},
        },
    ]
    plan = Plan.model_validate({"name": "p", "inputs": {"a": {}}, "steps": steps})
    async with engine_on(MemoryJournal(), tmp_path, [note]) as engine:
        state = await (await engine.start(plan)).wait()
    assert state.status == "failed"
    assert ran == []
