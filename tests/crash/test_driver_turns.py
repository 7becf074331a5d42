"""What the driver does between two decisions: it naps when there is nothing to do, and reads each message once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crash_engine import engine_on

import windlass
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.engine import commit_writer, driver
from windlass.errors import JournalError, WindlassError
from windlass.plan.model import Plan
from windlass.testing import FakeClock, MemoryJournal

Eventually = Callable[..., Awaitable[Any]]


class CountingClock(SystemClock):
    """Tells how often it was looked at: once and again in each of a driver's turns. It can be set `ahead`."""

    looks = 0
    ahead = 0.0

    def now(self) -> float:
        self.looks += 1
        return super().now() + self.ahead


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
    clock, began, release = CountingClock(), asyncio.Event(), asyncio.Event()

    @windlass.tool
    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    steps = [{"id": "a", "tool": "stubborn"}]
    plan = Plan.model_validate({"name": "p", "limits": {"timeout": "1h"}, "steps": steps})
    async with engine_on(MemoryJournal(), tmp_path, [stubborn], clock) as engine:
        execution = await engine.start(plan)
        driving = engine._drivers[execution.id]
        await began.wait()
        clock.ahead = 3600.0
        driving._wake()
        await eventually(lambda: driving._stopping, "the limit is noticed")
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


class CountingMemory(MemoryJournal):
    """Counts the commits, and refuses those after the `last`."""

    commits = 0
    last = 1_000_000

    async def append(self, execution: str, after: int, events: Sequence[ev.Event], **rest: Any) -> None:
        self.commits += 1
        if self.commits > self.last:
            raise JournalError("the disk is full")
        await super().append(execution, after, events, **rest)


@windlass.tool(effect="none")
async def look(x: int) -> int:
    return x + 1


def looking(count: int, *more: dict[str, Any]) -> Plan:
    """Steps without effect in a row, and others after the last of them."""
    steps = [{"id": f"s{i}", "tool": "look", "with": {"x": f"{{{{ steps.s{i - 1}.output }}}}"}} for i in range(count)]
    steps[0]["with"] = {"x": 0}
    return Plan.model_validate({"name": "p", "steps": [*steps, *more]})


async def test_j1_commits_of_steps_without_effect_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_writer, "OVERLAP_FOR", 60.0)  # on a slow machine too, only the number of events counts
    journal = CountingMemory()
    async with engine_on(journal, tmp_path, [look]) as engine:
        execution = await engine.start(looking(300))
        state = await execution.wait()
    assert state.steps["s299"].output == 300
    assert journal.commits <= 2 + 600 / commit_writer.OVERLAP_MOST, "steps shared a commit"
    events = [entry.event for entry in await journal.read(execution.id)]
    ends = [event.step for event in events if isinstance(event, ev.AttemptFinished)]
    assert ends == [f"s{i}" for i in range(300)]


async def test_d2_a_step_with_an_effect_finds_everything_before_it_on_disk(tmp_path: Path) -> None:
    journal = CountingMemory()
    found: list[str] = []

    @windlass.tool
    async def change(call: windlass.Call) -> None:
        for entry in await journal.read(call.execution):
            if isinstance(entry.event, ev.AttemptStarted | ev.AttemptFinished):
                found.append(f"{type(entry.event).__name__} {entry.event.step}")

    async with engine_on(journal, tmp_path, [look, change]) as engine:
        plan = looking(20, {"id": "change", "tool": "change", "needs": ["s19"]})
        await (await engine.start(plan)).wait()
    assert found[-3:] == ["AttemptStarted s19", "AttemptFinished s19", "AttemptStarted change"]
    assert len(found) == 2 * 20 + 1


@pytest.mark.parametrize("last", [1, 2, 3])
async def test_d6_a_commit_that_fails_beside_the_steps_ends_the_driver(tmp_path: Path, last: int) -> None:
    journal = CountingMemory()
    journal.last = last
    ran: list[str] = []

    @windlass.tool
    async def change(call: windlass.Call) -> None:
        ran.append(call.step)

    async with engine_on(journal, tmp_path, [look, change]) as engine:
        execution = await engine.start(looking(2_000, {"id": "change", "tool": "change", "needs": ["s1999"]}))
        with pytest.raises(JournalError, match="the disk is full"):
            await execution.wait()
    assert ran == [], "what has an effect waits for the journal"
    events = [entry.event for entry in await journal.read(execution.id)]
    assert len(events) < 2 * 2_000


async def test_c1_a_plan_that_calls_a_step_harmless_does_not_make_it_overlap(tmp_path: Path) -> None:
    """The tool's own word counts: the step may cost money."""
    journal = CountingMemory()

    @windlass.tool
    async def change() -> None:
        pass

    steps = [{"id": f"s{i}", "tool": "change", "effect": "none", "needs": [f"s{i - 1}"] * (i > 0)} for i in range(20)]
    async with engine_on(journal, tmp_path, [change]) as engine:
        await (await engine.start(Plan.model_validate({"name": "p", "steps": steps}))).wait()
    assert journal.commits >= 20


def in_a_row(tool: str, count: int) -> Plan:
    steps = [{"id": f"s{i}", "tool": tool, "needs": [f"s{i - 1}"] * (i > 0)} for i in range(count)]
    return Plan.model_validate({"name": "p", "steps": steps})


async def test_c1_a_step_of_a_chain_finds_nothing_that_the_one_before_it_left_in_its_context(tmp_path: Path) -> None:
    mark: ContextVar[str] = ContextVar("mark", default="")
    found: list[str] = []

    @windlass.tool
    async def leave(call: windlass.Call) -> None:
        found.append(mark.get())
        mark.set(call.step)

    async with engine_on(MemoryJournal(), tmp_path, [leave]) as engine:
        await (await engine.start(in_a_row("leave", 6))).wait()
    assert found == [""] * 6


async def test_c3_a_chain_lets_others_have_their_turn_on_the_loop(tmp_path: Path) -> None:
    ran: list[str] = []
    seen: list[int] = []

    @windlass.tool
    async def step(call: windlass.Call) -> None:
        ran.append(call.step)

    async def look_on() -> None:
        while len(ran) < 40:
            seen.append(len(ran))
            await asyncio.sleep(0)

    async with engine_on(MemoryJournal(), tmp_path, [step]) as engine:
        looking_on = asyncio.create_task(look_on())
        await (await engine.start(in_a_row("step", 40))).wait()
        await looking_on
    assert max(after - before for before, after in pairwise(seen)) <= driver.MOST_IN_A_ROW


async def test_c5_a_step_that_ignored_its_stop_does_not_stop_the_next(tmp_path: Path) -> None:
    began, stopped = asyncio.Event(), list[str]()

    @windlass.tool
    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("ignored")

    @windlass.tool
    async def broken() -> None:
        raise ValueError("as it is")

    steps = [{"id": "a", "tool": "stubborn"}, {"id": "b", "tool": "broken", "needs": ["a"]}]
    async with engine_on(MemoryJournal(), tmp_path, [stubborn, broken]) as engine:
        execution = await engine.start(Plan.model_validate({"name": "p", "steps": steps}))
        await began.wait()
        await engine.skip(execution.id, "a")
        state = await execution.wait()
    assert stopped == ["ignored"]
    assert state.steps["b"].error is not None
    assert "as it is" in state.steps["b"].error.message
