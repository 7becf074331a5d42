"""Pause, interrupt, cancel and resume, at every stage and many times over (D3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from waiting import settled, wait_until_async

import windlass
from windlass import Call, Engine, Execution, Limits, Plan, Retry, Step, ToolError, tool
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.errors import Conflict, UsageError
from windlass.ids import new_id
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project

FAR = Retry(delay="1h", max_delay="1h")


class Stage:
    """Tools whose attempts the test holds and lets go of, with a record of them."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()
        self.ran: list[str] = []
        self.stopped: list[str] = []

        @tool
        async def work(call: Call) -> str:
            self.ran.append(call.step)
            self.began.put_nowait(call.step)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append(call.step)
                raise
            return f"{call.step}{call.attempt}"

        @tool
        async def quick(call: Call) -> str:
            self.ran.append(call.step)
            return f"{call.step}{call.attempt}"

        @tool
        async def flaky(call: Call) -> str:
            self.ran.append(call.step)
            if call.attempt == 1:
                raise ToolError("not yet", category="transient")
            return f"{call.step}{call.attempt}"

        self.tools = [work, quick, flaky]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def engine(project: Project, stage: Stage) -> AsyncIterator[Engine]:
    async with windlass.open(tools=stage.tools, grace=0.2) as engine:
        yield engine


def chain(*names: str, tool: str = "work") -> Plan:
    steps = [Step(id=n, tool=tool, needs=names[i - 1 : i] if i else ()) for i, n in enumerate(names)]
    return Plan(steps=steps)


def statuses(state: State) -> dict[str, str]:
    return {step.id: str(step.status) for step in state.steps.values()}


async def soon(started: asyncio.Task[Any], engine: Engine) -> None:
    """Let a request that was just made be taken in, though it cannot be fulfilled yet."""
    drivers = engine._drivers._drivers.values()
    await wait_until_async(
        lambda: any(driver.state.wanted is not None for driver in drivers), "the request is taken in"
    )
    await settled()
    assert not started.done()


# ── inside a step ────────────────────────────────────────────────────────────────────────────────────


async def test_d3_pause_lets_the_running_attempt_finish_and_starts_nothing_new(engine: Engine, stage: Stage) -> None:
    execution = await engine.start(chain("a", "b"))
    await stage.began.get()
    pausing = asyncio.create_task(execution.pause())
    await soon(pausing, engine)
    stage.go.set()
    state = await pausing
    assert (state.status, state.paused_for) == ("paused", "pause")
    assert statuses(state) == {"a": "completed", "b": "pending"}
    assert stage.ran == ["a"]
    assert stage.stopped == []
    result = await (await engine.resume(execution.id)).result()
    assert [s["output"] for s in result["steps"]] == ["a1", "b1"]
    assert stage.ran == ["a", "b"], "the completed step did not run again"


@pytest.mark.parametrize("driven", [True, False], ids=["driven", "cut off"])
async def test_d3_a_request_that_no_journal_could_hold_is_refused_and_changes_nothing(
    engine: Engine, stage: Stage, driven: bool
) -> None:
    execution = await engine.start(chain("a"))
    await stage.began.get()
    if not driven:
        await execution.pause(now=True)
    before = await execution.state()
    wrong: Any
    for wrong in (None, 7, b"ann", "\ud800"):
        with pytest.raises(UsageError):
            await engine.cancel(execution.id, by=wrong)
    wrong = "maybe"
    with pytest.raises(UsageError, match="there is no decision 'maybe'"):
        await engine.settle(execution.id, "a", wrong)
    if not driven:
        for odd in (ev.DecisionMade(1.0, "a", wrong, "ann"), ev.DecisionMade(1.0, "a", "done", "ann", object())):
            with pytest.raises(UsageError, match="cannot be kept"):
                await engine.resume(execution.id, decisions=[odd])
    assert (await execution.state()).seq == before.seq
    assert (await engine.cancel(execution.id, by="ann")).status == "cancelled"
    wrong = None
    for late in (engine.undo(execution.id, "a", by=wrong), engine.workspaces(execution.id, clean=True, by=wrong)):
        with pytest.raises(UsageError, match="`by` is text"):
            await late


@pytest.mark.parametrize("how", ["pause now", "interrupt"])
async def test_d3_now_stops_the_running_attempt_and_resume_runs_it_again(
    engine: Engine, stage: Stage, how: str
) -> None:
    execution = await engine.start(chain("a", "b"))
    await stage.began.get()
    state = await (execution.interrupt() if how == "interrupt" else execution.pause(now=True))
    assert (state.status, state.paused_for) == ("paused", how.removesuffix(" now"))
    assert statuses(state) == {"a": "paused", "b": "pending"}
    assert stage.stopped == ["a"]
    stage.go.set()
    result = await (await engine.resume(execution.id)).result()
    assert [s["output"] for s in result["steps"]] == ["a2", "b1"]


async def test_d3_cancel_stops_the_running_attempt_and_ends_the_execution_for_good(
    engine: Engine, stage: Stage
) -> None:
    execution = await engine.start(chain("a", "b"))
    await stage.began.get()
    state = await execution.cancel()
    assert state.status == "cancelled"
    assert statuses(state) == {"a": "skipped", "b": "skipped"}
    assert {s.skipped_because for s in state.steps.values()} == {"execution cancelled"}
    assert stage.stopped == ["a"]
    with pytest.raises(UsageError, match="cancelled") as refused:
        await engine.resume(execution.id)
    assert f"windlass fork {execution.id}" in refused.value.advice[0]


async def test_d3_interrupt_after_a_pause_that_takes_too_long_stops_what_runs(engine: Engine, stage: Stage) -> None:
    execution = await engine.start(chain("a"))
    await stage.began.get()
    pausing = asyncio.create_task(execution.pause())
    await soon(pausing, engine)
    state = await execution.interrupt()
    assert (state.status, state.paused_for) == ("paused", "interrupt")
    assert (await pausing).status == "paused"


async def test_d3_a_pause_does_not_take_a_cancel_back(engine: Engine, stage: Stage) -> None:
    deaf = asyncio.Event()

    @tool
    async def deaf_for_a_while() -> str:
        stage.began.put_nowait("x")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await deaf.wait()
            raise
        return "never"

    async with windlass.open(tools=[deaf_for_a_while], grace=60) as other:
        execution = await other.start(Plan(steps=[Step(id="a", tool="deaf_for_a_while")]))

        async def both() -> bool:
            events = [entry.event for entry in await other.journal.read(execution.id)]
            return sum(isinstance(event, ev.ControlRequested) for event in events) == 2

        await stage.began.get()
        cancelling = asyncio.create_task(execution.cancel())
        await soon(cancelling, other)
        pausing = asyncio.create_task(execution.pause())
        await wait_until_async(both, "the pause is taken in, too")
        deaf.set()
        assert (await cancelling).status == "cancelled"
        assert (await pausing).status == "cancelled"


@pytest.mark.parametrize("how", ["cancel", "interrupt"])
async def test_d3_a_step_that_finishes_while_it_is_being_stopped_keeps_its_result(project: Project, how: str) -> None:
    began = asyncio.Event()

    @tool
    async def finishes() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            """Too late to stop: the work is done."""
        return "done after all"

    plan = Plan(steps=[Step(id="a", tool="finishes"), Step(id="b", tool="finishes", needs=["a"])])
    async with windlass.open(tools=[finishes]) as engine:
        execution = await engine.start(plan)
        await began.wait()
        state = await getattr(execution, how)()
    assert state.steps["a"].status == "completed"
    assert state.steps["a"].output == "done after all"
    assert state.steps["b"].status == ("skipped" if how == "cancel" else "pending")


async def test_d3_a_step_that_fails_while_a_pause_is_asked_for_waits_for_its_retry(
    engine: Engine, stage: Stage
) -> None:
    fail = asyncio.Event()

    @tool
    async def fails_late(call: Call) -> int:
        if call.attempt == 1:
            stage.began.put_nowait(call.step)
            await fail.wait()
            raise ToolError("no", category="transient")
        return call.attempt

    async with windlass.open(tools=[fails_late]) as other:
        execution = await other.start(Plan(steps=[Step(id="a", tool="fails_late", retry=Retry(delay="10ms"))]))
        await stage.began.get()
        pausing = asyncio.create_task(execution.pause())
        await soon(pausing, other)
        fail.set()
        state = await pausing
        assert statuses(state) == {"a": "waiting"}
        result = await (await other.resume(execution.id)).result()
    assert result["steps"][0]["output"] == 2


async def test_d3_several_running_attempts_are_all_stopped(engine: Engine, stage: Stage) -> None:
    plan = Plan(steps=[Step(id=n, tool="work") for n in "abcdef"], limits=Limits(parallel=4))
    execution = await engine.start(plan)
    for _ in range(4):
        await stage.began.get()
    state = await execution.interrupt()
    assert sorted(stage.stopped) == ["a", "b", "c", "d"]
    stage.go.set()
    result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert [s["attempts"] for s in result["steps"]] == [2, 2, 2, 2, 1, 1]
    assert state.status == "paused"


async def test_d3_a_foreach_goes_on_with_the_items_that_are_left(engine: Engine, stage: Stage) -> None:
    plan = Plan(steps=[Step(id="each", tool="work", foreach=[1, 2, 3])], limits=Limits(parallel=1))
    execution = await engine.start(plan)
    await stage.began.get()
    pausing = asyncio.create_task(execution.pause())
    await soon(pausing, engine)
    stage.go.set()
    state = await pausing
    assert statuses(state) == {
        "each": "running",
        "each[0]": "completed",
        "each[1]": "pending",
        "each[2]": "pending",
    }
    result = await (await engine.resume(execution.id)).result()
    assert result["steps"][0]["output"] == ["each[0]1", "each[1]1", "each[2]1"]
    assert stage.ran == ["each[0]", "each[1]", "each[2]"]


# ── during a backoff, while waiting for approval, while paused ───────────────────────────────────────


async def in_backoff(engine: Engine) -> Execution:
    execution = await engine.start(Plan(steps=[Step(id="a", tool="flaky", retry=FAR), *chain("b", tool="quick").steps]))
    waits = finished = False
    async for event in execution.events():
        waits |= isinstance(event, ev.StepWaiting)
        finished |= isinstance(event, ev.AttemptFinished)
        if waits and finished:
            return execution
    raise AssertionError


async def in_question(engine: Engine) -> Execution:
    steps = [Step(id="a", tool="quick", approve="always"), *chain("b", tool="quick").steps]
    execution = await engine.start(Plan(steps=steps))
    asked = finished = False
    async for event in execution.events():
        asked |= isinstance(event, ev.ApprovalAsked)
        finished |= isinstance(event, ev.AttemptFinished)
        if asked and finished:
            return execution
    raise AssertionError


async def paused(engine: Engine) -> Execution:
    execution = await in_backoff(engine)
    await execution.pause()
    return execution


async def pending(engine: Engine) -> Execution:
    return Execution(engine, await engine.create(chain("a", "b")))


@pytest.mark.parametrize("situation", [in_backoff, in_question, paused, pending])
@pytest.mark.parametrize("how", ["pause", "interrupt"])
async def test_d3_whatever_it_waits_for_it_can_be_made_to_stand_still(
    engine: Engine, stage: Stage, situation: Any, how: str
) -> None:
    execution = await situation(engine)
    state = await getattr(execution, how)()
    assert state.status == "paused"
    before = statuses(state)
    assert before["a"] in ("waiting", "pending")
    assert stage.ran.count("b") == (0 if situation is pending else 1)
    resumed = await engine.resume(execution.id)
    state = await resumed.cancel()
    assert state.status == "cancelled"
    assert stage.ran.count("b") <= 1


@pytest.mark.parametrize("situation", [in_backoff, in_question, paused, pending])
async def test_d3_whatever_it_waits_for_it_can_be_cancelled(engine: Engine, stage: Stage, situation: Any) -> None:
    execution = await situation(engine)
    state = await execution.cancel()
    assert state.status == "cancelled"
    assert state.steps["a"].status == "skipped"
    assert state.questions == {}
    for again in (execution.pause, execution.interrupt, execution.cancel):
        with pytest.raises(UsageError, match="already cancelled"):
            await again()


async def test_d3_a_backoff_goes_on_counting_while_paused(clock: FakeClock, engine: Engine, stage: Stage) -> None:
    """Its time is a time of day: resuming after it, there is nothing left to wait for."""
    execution = await engine.start(Plan(steps=[Step(id="a", tool="flaky", retry=FAR)]))
    async for event in execution.events():
        if isinstance(event, ev.StepWaiting):
            break
    state = await execution.pause()
    assert state.steps["a"].status == "waiting"
    clock.advance(3600)
    result = await (await engine.resume(execution.id)).result()
    assert result["steps"][0]["output"] == "a2"


async def test_d3_between_steps_nothing_is_lost_or_done_twice_in_ten_cycles(engine: Engine, stage: Stage) -> None:
    names = [f"s{n}" for n in range(10)]
    execution = await engine.start(chain(*names))
    for count, name in enumerate(names[:-1], 1):
        assert await stage.began.get() == name
        pausing = asyncio.create_task(execution.pause())
        await soon(pausing, engine)
        stage.go.set()
        state = await pausing
        stage.go.clear()
        assert [s for s in names if state.steps[s].status == "completed"] == names[:count]
        await engine.resume(execution.id)
    stage.go.set()
    result = await execution.result()
    assert result["status"] == "completed"
    assert stage.ran == names


async def test_d3_ten_interruptions_of_one_step_and_another_engine_each_time(project: Project, stage: Stage) -> None:
    async with windlass.open(tools=stage.tools) as engine:
        execution = await engine.start(chain("a"))
        await stage.began.get()
    for _ in range(9):
        async with windlass.open(tools=stage.tools) as engine:
            await engine.resume(execution.id)
            await stage.began.get()
            assert (await engine.interrupt(execution.id)).status == "paused"
    stage.go.set()
    async with windlass.open(tools=stage.tools) as engine:
        result = await (await engine.resume(execution.id)).result()
    assert result["steps"][0]["output"] == "a11"


async def test_d3_pausing_what_stands_still_already_changes_nothing(engine: Engine, project: Project) -> None:
    execution = await paused(engine)
    before = project.events(execution.id)
    assert (await execution.pause()).status == "paused"
    assert (await execution.interrupt()).status == "paused"
    assert project.events(execution.id) == before


async def test_d3_what_is_finished_or_running_cannot_be_resumed_and_says_what_to_do(
    engine: Engine, stage: Stage
) -> None:
    execution = await engine.start(chain("a"))
    await stage.began.get()
    with pytest.raises(UsageError) as running:
        await engine.resume(execution.id)
    assert any("windlass watch" in advice for advice in running.value.advice)
    stage.go.set()
    await execution.wait()
    for again in (execution.pause, execution.interrupt, execution.cancel):
        with pytest.raises(UsageError, match="already completed"):
            await again()
    with pytest.raises(UsageError, match="completed") as finished:
        await engine.resume(execution.id)
    assert any("windlass fork" in advice for advice in finished.value.advice)


async def test_d3_control_reaches_another_engine_through_the_inbox(project: Project, stage: Stage) -> None:
    async with windlass.open(tools=stage.tools) as one, windlass.open() as other:
        execution = await one.start(chain("a"))
        await stage.began.get()
        assert (await other.interrupt(execution.id, by="the other")).status == "paused"
        assert stage.stopped == ["a"]
        assert await one.journal.receive() == [], "the request was taken out of the inbox"
        asked = [e for e in project.events(execution.id) if isinstance(e, ev.ControlRequested)]
        assert [(e.kind, e.by) for e in asked] == [("interrupt", "the other")]


async def test_d3_a_pause_that_its_driver_never_read_does_not_hit_the_next_resume(
    project: Project, stage: Stage
) -> None:
    async with windlass.open(tools=stage.tools) as engine:
        execution = await engine.start(chain("a"))
        await stage.began.get()
        await execution.interrupt()
        await engine.journal.send(execution.id, engine.clock.now(), {"kind": "pause", "by": "too late"})
        stage.go.set()
        result = await (await engine.resume(execution.id)).result()
        assert result["status"] == "completed"
        assert await engine.journal.receive() == []


async def test_d3_an_attempt_that_is_stopped_before_its_first_turn_has_ended_at_once(
    engine: Engine, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is there before the attempt's task has run at all."""
    monkeypatch.setattr("windlass.engine.driver.ABANDON_AFTER", 3600)
    execution = await engine.create(chain("a", "b"))
    await engine.journal.send(execution, engine.clock.now(), {"kind": "cancel", "by": "early"})
    state = await (await engine.resume(execution)).wait()
    assert state.status == "cancelled"
    assert stage.ran == []


async def test_d3_a_tool_that_ignores_its_cancellation_is_left_behind(
    project: Project, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not keep the execution from standing still; its late result changes nothing."""
    monkeypatch.setattr("windlass.engine.driver.ABANDON_AFTER", 0.1)
    release = asyncio.Event()

    @tool
    async def deaf(call: Call) -> str:
        if call.attempt > 1:
            return "second"
        stage.began.put_nowait("a")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                """Not now."""
        return "late"

    async with windlass.open(tools=[deaf], grace=0.1) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="deaf")]))
        await stage.began.get()
        assert (await execution.interrupt()).status == "paused"
        resumed = await engine.resume(execution.id)
        result = await resumed.result()
        release.set()
        assert result["steps"][0]["output"] == "second"
    assert project.state(execution.id).steps["a"].output == "second"


# ── paused for too long ──────────────────────────────────────────────────────────────────────────────


async def test_d3_a_pause_can_expire_and_then_ends_the_execution_or_names_it_for_resuming(
    project: Project, stage: Stage, eventually: Any
) -> None:
    ids = {}
    for what in ("cancel", "resume"):
        async with windlass.open(tools=stage.tools, pause_expiry="10ms", on_pause_expiry=what) as engine:
            execution = await in_backoff(engine)
            await execution.pause()
            ids[what] = execution.id
    async with windlass.open(tools=stage.tools) as engine:
        forever = await in_backoff(engine)
        await forever.pause()
        await eventually(lambda: engine.clock.now() > (project.state(ids["resume"]).expires_at or 0))
        assert sorted(await engine.sweep()) == sorted((ids[what], what) for what in ids)
        assert (await engine.state(ids["cancel"])).status == "cancelled"
        assert (await engine.state(ids["resume"])).status == "paused", "whoever asked resumes it"
        assert (await engine.state(forever.id)).status == "paused"


async def test_d3_a_pause_that_has_not_expired_is_left_alone(project: Project, stage: Stage) -> None:
    async with windlass.open(tools=stage.tools, pause_expiry="1h") as engine:
        execution = await in_backoff(engine)
        await execution.pause()
        assert await engine.sweep() == []
        assert (await execution.state()).status == "paused"


@pytest.mark.parametrize(("asked_before", "reason"), [(False, "restart"), (True, "pause")])
async def test_d6_an_engine_that_closes_for_a_restart_leaves_word_unless_somebody_asked_before(
    project: Project, stage: Stage, asked_before: bool, reason: str
) -> None:
    engine = windlass.open(tools=stage.tools, grace=0.2, label="server")
    started = await engine.start(chain("a", "b"))
    await stage.began.get()
    if asked_before:
        await engine.pause(started.id, within=0)
    await engine.close("restart")
    state = project.state(started.id)
    assert (state.status, state.paused_for) == ("paused", reason)
    assert "-server-" in state.driver
    assert stage.stopped == ["a"]


@pytest.mark.parametrize("strange", ["../../../escaped", "x", "/etc/x", "01a1ed34-4e90-7146-a12e-da93e8c7371e/x"])
async def test_i5_an_id_that_is_none_of_ours_is_refused(engine: Engine, strange: str) -> None:
    with pytest.raises(UsageError, match="is not an id of an execution"):
        await engine.start(chain("a", tool="quick"), id=strange)
    kept = await engine.start(chain("a", tool="quick"))
    await kept.wait()
    with pytest.raises(UsageError, match="is not an id of an execution"):
        await engine.fork(kept.id, id=strange)
    assert [head.id for head in await engine.executions()] == [kept.id]


async def test_two_starts_with_one_id_are_one_execution(engine: Engine, stage: Stage) -> None:
    kept = new_id()
    first = await engine.start(chain("a", tool="quick"), id=kept)
    assert first.id == kept
    await first.wait()
    with pytest.raises(Conflict, match=f"there is an execution {kept} already; nothing was written"):
        await engine.start(chain("a", tool="quick"), id=kept)
    fork = await engine.fork(kept, id=new_id())
    with pytest.raises(Conflict):
        await engine.fork(kept, id=fork)
    assert stage.ran == ["a"]
    assert (await engine.counts())["completed"] == 1


async def test_starts_with_one_id_at_the_same_time_are_one_execution_that_can_be_stopped(engine: Engine) -> None:
    kept = new_id()
    begun = await asyncio.gather(*(engine.start(chain("a"), id=kept) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in begun].count(Conflict) == 2, begun
    assert (await engine.cancel(kept)).status == "cancelled", "the one that drives it is known"


@pytest.mark.parametrize("named", ["by its id", "by a beginning of it"])
async def test_d5_of_resumes_at_the_same_time_one_goes_on_and_the_others_find_it_running(
    engine: Engine, named: str
) -> None:
    for apart in range(8):
        made = await engine.create(chain("a"))
        name = made if named == "by its id" else made[:-1]

        async def resumed(after: int, name: str = name) -> State | None:
            for _ in range(after):
                await asyncio.sleep(0)
            try:
                await engine.resume(name)
            except UsageError:
                return await engine.state(name)
            return None

        found = await asyncio.gather(*(resumed(apart * place) for place in range(4)))
        assert found.count(None) == 1
        assert all(engine.driven(state) for state in found if state is not None), "what they are told is true"
        assert (await engine.cancel(made)).status == "cancelled", "the one that drives it is known"


@pytest.mark.parametrize("gives_up", [False, True])
async def test_d3_a_request_that_comes_too_late_does_not_fail_those_who_wait(
    project: Project, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """The execution pauses by itself while somebody asks it to: the request finds it running, and nobody driving it."""
    async with windlass.open() as engine:
        started = await engine.start(Plan(steps=[Step(id="a", run="true", approve="always")]), hold=False)
        assert (await started.wait()).status == "paused"
        entries = await engine.journal.read(started.id)
        before = fold([entry.event for entry in entries[:-1]])
        assert (type(entries[-1].event), before.status) == (ev.ExecutionPaused, "running")
        writes, goes_on = asyncio.Event(), asyncio.Event()
        states, append = iter([before]), engine.journal.append

        async def read(_execution: str) -> State:
            found = next(states, None)
            return found if found is not None else (await observer.record(started.id))[0]

        async def hesitate(*given: Any, **more: Any) -> None:
            writes.set()
            await goes_on.wait()
            await append(*given, **more)

        observer = engine._observer
        monkeypatch.setattr(observer, "state", read)
        monkeypatch.setattr(engine.journal, "append", hesitate)
        request = asyncio.create_task(engine.pause(started.id, by="windlass"))
        await writes.wait()
        if gives_up:  # as the command does that asked, once it has seen the pause
            request.cancel()
            await asyncio.wait({request})
        waiting = asyncio.create_task(started.wait())
        await settled()
        goes_on.set()
        assert (await waiting).status == "paused"
        assert gives_up or (await request).status == "paused"
        assert len(await engine.journal.read(started.id)) == len(entries), "nothing was written"
