"""A quota that is used up: waited for without a retry and without a cent, or left for later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import GONE, AgentWorld, agent, done, occurred, plan

from windlass import Execution
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.core.view import snapshot
from windlass.engine import driver
from windlass.testing import FakeClock, ScriptedRunner, Turn
from windlass.testing.simulation import EPOCH

if TYPE_CHECKING:
    from conftest import Project

HOUR = 3600.0
BACK = EPOCH + HOUR


@pytest.fixture(autouse=True)
def _looks_at_the_clock_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours: nobody wakes the driver when we set it."""
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)


def used_up(at: float = BACK, **more: Any) -> Turn:
    return Turn(**more).fail("5-hour limit reached", category="resource", resets_at=at)


def runner(name: str, *script: Turn) -> ScriptedRunner:
    return ScriptedRunner(script, name=name)


async def waits(execution: Execution) -> ev.StepWaiting:
    told = await occurred(execution, ev.StepWaiting)
    assert isinstance(told, ev.StepWaiting)
    return told


async def test_a_step_waits_until_the_quota_is_back_and_goes_on_by_itself(project: Project) -> None:
    clock = FakeClock()
    cli = runner("cli", used_up(session="s1"), done("at last"))
    world = AgentWorld(project, cli, clock=clock)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        told = await waits(execution)
        assert (told.reason, told.until, told.runtime) == ("quota", BACK, "cli")
        assert "5-hour limit" in told.question
        view = snapshot(await execution.state())["steps"][0]
        assert (view["status"], view["waiting_for"]) == ("waiting", "quota")
        assert view["until"].startswith("2025-06-15T16:06:40")
        clock.advance(HOUR - 1)
        await engine.pause(execution.id)  # a turn of the driver, at a time when it is not over
        assert len(cli.requests) == 1
        resumed = await engine.resume(execution.id)
        clock.advance(1)
        state = await resumed.wait()
    step = state.steps["work"]
    assert (step.status, step.output) == ("completed", "at last")
    assert step.failures is None, "no retry was counted"
    assert cli.requests[1].session == "s1", "the conversation goes on"


async def test_nothing_else_starts_on_that_runtime_and_others_go_on(project: Project) -> None:
    clock = FakeClock()
    cli, claude = runner("cli", used_up(), done()), runner("claude-code", done())
    world = AgentWorld(project, cli, claude, clock=clock)
    steps = [agent("a"), agent("b"), agent("c"), agent("other", runtime="claude-code"), agent("after", needs=["other"])]
    async with world.engine() as engine:
        execution = await engine.start(
            plan(*steps[:4], steps[4].model_copy(update={"runtime": "claude-code"}), limits={"parallel": 1})
        )
        async for event in execution.events():
            if isinstance(event, ev.AttemptFinished) and event.step == "after":
                break
        state = await execution.state()
        assert [state.steps[name].waiting_for for name in "abc"] == ["quota"] * 3
        assert {state.steps[name].until for name in "abc"} == {BACK}
        assert [state.steps[name].attempts for name in "abc"] == [1, 0, 0], "the others were never launched"
        assert len(cli.requests) == 1
        clock.set(BACK)
        assert (await execution.wait()).status == "completed"
    assert len(cli.requests) == 4
    assert state.cost.usd == 0.0


async def test_who_falls_back_to_a_runtime_without_quota_waits_as_well(project: Project) -> None:
    clock = FakeClock()
    opencode = runner("open-code", used_up(), done())
    gone = ScriptedRunner(name="claude-code", health=GONE)
    world = AgentWorld(project, gone, opencode, clock=clock)
    steps = [agent("a", runtime="open-code"), agent("b", runtime="claude-code")]
    async with world.engine() as engine:
        execution = await engine.start(plan(*steps, limits={"parallel": 1}))
        await occurred(execution, ev.StepWaiting, 2)
        state = await execution.state()
        assert [state.steps[name].waiting_for for name in "ab"] == ["quota", "quota"]
        assert len(opencode.requests) == 1
        clock.set(BACK)
        assert (await execution.wait()).status == "completed"


async def test_a_quota_is_no_reason_to_fall_back(project: Project) -> None:
    """Whoever pays for one runtime need not pay for another: it is waited for."""
    clock = FakeClock()
    turn = Turn().fail("limit reached", category="resource", resets_at=BACK, elsewhere=True)
    world = AgentWorld(project, runner("claude-code", turn, done()), runner("open-code", done()), clock=clock)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(runtime="claude-code")))
        await waits(execution)
        clock.set(BACK)
        assert (await execution.wait()).status == "completed"
    assert world.runners["open-code"].requests == []


async def test_without_waiting_it_is_paused_and_can_be_resumed_later(project: Project) -> None:
    clock = FakeClock()
    cli = runner("cli", used_up(), done())
    world = AgentWorld(project, cli, clock=clock, wait_for_quota=False)
    state = await world.run(plan(), hold=True)
    assert (state.status, state.paused_for) == ("paused", "quota"), "also when somebody is there"
    state = await world.resume(state.id)
    assert (state.status, state.paused_for) == ("paused", "quota")
    assert len(cli.requests) == 1, "resumed too early, it asks for nothing"
    clock.set(BACK)
    assert (await world.resume(state.id)).status == "completed"


async def test_without_waiting_what_runs_elsewhere_comes_to_its_end_first(project: Project) -> None:
    world = AgentWorld(
        project, runner("cli", used_up()), runner("claude-code", done()), clock=FakeClock(), wait_for_quota=False
    )
    steps = [agent("a"), agent("b", runtime="claude-code"), agent("c", runtime="claude-code", needs=["b"])]
    state = await world.run(plan(*steps, limits={"parallel": 1}))
    assert (state.status, state.paused_for) == ("paused", "quota")
    assert [str(state.steps[name].status) for name in "abc"] == ["waiting", "completed", "completed"]


async def test_d6_cut_off_while_it_waits_it_waits_on_after_a_restart(project: Project) -> None:
    clock = FakeClock()
    cli = runner("cli", used_up(), done())
    world = AgentWorld(project, cli, clock=clock)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await waits(execution)
        cut = await world.cut_off(execution.id, lambda event: isinstance(event, ev.StepWaiting))
    async with cut.engine() as engine:
        resumed = await engine.resume(execution.id)
        state = await resumed.state()
        assert (state.steps["work"].waiting_for, state.steps["work"].until) == ("quota", BACK)
        assert len(cli.requests) == 1
        clock.set(BACK)
        assert (await resumed.wait()).status == "completed"
    assert len(cli.requests) == 2


async def test_d3_it_can_be_cancelled_while_it_waits(project: Project) -> None:
    world = AgentWorld(project, runner("cli", used_up()), clock=FakeClock())
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await waits(execution)
        assert (await execution.cancel()).status == "cancelled"


@pytest.mark.parametrize("at", [EPOCH, EPOCH - 1, 0.0, EPOCH * 1000, float("inf")], ids=str)
async def test_a_time_that_nobody_can_wait_for_is_an_ordinary_failure(project: Project, at: float) -> None:
    """One that is over would be tried at once, again and again; one in milliseconds would be waited for till 57000."""
    cli = runner("cli", used_up(at, repeat=True))
    world = AgentWorld(project, cli, clock=FakeClock())
    state = await world.run(plan(agent(retry=0)))
    assert state.steps["work"].status == "failed"
    assert len(cli.requests) == 1
    assert snapshot(fold(await world.events(state.id)))["steps"][0]["error"]["category"] == "resource"


async def test_a_quota_is_remembered_over_a_checkpoint(project: Project, tmp_path_factory: Any) -> None:
    clock = FakeClock()
    world = AgentWorld(project, runner("cli", used_up(), done()), clock=clock, wait_for_quota=False)
    async with world.engine() as engine:
        state: State = await (await engine.start(plan(agent("a"), agent("b"), limits={"parallel": 1}))).wait()
        file = await engine.checkpoint(state.id)
    other = AgentWorld(project, *world.runners.values(), clock=clock, wait_for_quota=False)
    async with other.engine() as engine:
        restored = await engine.restore(file)
        again = await engine.state(restored)
        assert again.quotas == {"cli": BACK}
        assert (await (await engine.resume(restored)).wait()).paused_for == "quota"
        assert len(world.runners["cli"].requests) == 1
        clock.set(BACK)
        assert (await (await engine.resume(restored)).wait()).status == "completed"
