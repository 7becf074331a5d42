"""Approvals in the middle of an attempt (C6): one at a time, from any process, bound to what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan, quick
from waiting import PATIENCE, skip_time, wait_until_async

import windlass
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.core.view import snapshot
from windlass.engine import driver
from windlass.errors import UsageError
from windlass.ports import Answer
from windlass.testing import FakeClock, MemoryJournal, ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

LS = {"command": "ls"}
RM = {"command": "rm -r build"}


def cli(*script: Turn) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


def asking(*inputs: dict[str, str]) -> Turn:
    turn = Turn(session="s1", repeat=True)
    for input in inputs:
        turn = turn.ask("Bash", input, if_denied=Turn().say("then not"))
    return turn.say("did it")


async def test_c6_a_step_waits_for_the_answer_in_the_middle_of_its_attempt_and_runs_on(project: Project) -> None:
    runner = cli(asking(LS))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        asked = await occurred(execution, ev.ApprovalAsked)
        assert (asked.step, asked.tool, asked.input, asked.attempt) == ("work", "Bash", LS, 1)
        view = snapshot(await execution.state())["steps"][0]
        assert (view["status"], view["waiting_for"]) == ("waiting", "approval")
        assert (view["question"]["tool"], view["question"]["input"]) == ("Bash", LS)
        await execution.approve("work")
        state = await execution.wait()
    assert state.steps["work"].output == "did it"
    assert state.steps["work"].attempts == 1, "the attempt was never stopped"
    assert runner.answers == [Answer(True, "")]
    # Running, waiting, running, completed: replayed from the journal.
    history = await world.events(state.id)
    seen = [str(fold(history[:length]).steps["work"].status) for length in range(1, len(history) + 1)]
    assert [status for n, status in enumerate(seen) if n == 0 or seen[n - 1] != status] == [
        "pending",
        "running",
        "waiting",
        "running",
        "completed",
    ]


async def test_c6_a_denial_reaches_the_agent_with_its_note_and_the_agent_goes_on(project: Project) -> None:
    runner = cli(asking(RM))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        await execution.approve("work", allow=False, note="keep the build")
        state = await execution.wait()
    assert runner.answers == [Answer(False, "keep the build")]
    assert (state.steps["work"].status, state.steps["work"].output) == ("completed", "then not")


async def test_c6_two_requests_of_one_agent_are_asked_one_after_the_other(project: Project) -> None:
    class Twofold(ScriptedRunner):
        async def run(self, request: Any, host: Any) -> Any:
            self.answers = list(await asyncio.gather(host.ask("Bash", LS), host.ask("Bash", RM)))
            return await super().run(request, host)

    runner = Twofold([done()], name="cli")
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        first = await occurred(execution, ev.ApprovalAsked)
        assert [e for e in await world.events(execution.id) if isinstance(e, ev.ApprovalAsked)] == [first]
        await execution.approve("work")
        second = await occurred(execution, ev.ApprovalAsked, 2)
        assert [first.input, second.input] == [LS, RM]
        await execution.approve("work", allow=False)
        assert (await execution.wait()).status == "completed"
    assert [answer.allow for answer in runner.answers] == [True, False]


async def test_c6_the_same_is_asked_once_and_something_else_anew(project: Project) -> None:
    runner = cli(asking(LS, LS, RM))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        await execution.approve("work")
        assert (await occurred(execution, ev.ApprovalAsked, 2)).input == RM
        await execution.approve("work")
        await execution.wait()
    assert [answer.allow for answer in runner.answers] == [True, True, True]


async def test_c6_another_process_may_answer(project: Project) -> None:
    runner = cli(asking(LS))
    async with windlass.open(project.home, runners=[runner]) as engine, windlass.open(project.home) as other:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        await other.approve(execution.id, "work", by="somebody else")
        state = await execution.wait()
    assert state.steps["work"].output == "did it"
    assert state.steps["work"].approval is not None
    assert state.steps["work"].approval.by == "somebody else"


async def test_c6_unanswered_in_time_it_is_denied_and_the_agent_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)
    clock = FakeClock()
    runner = cli(asking(RM))
    world = AgentWorld(project, runner, clock=clock, approval_expiry="10s")
    async with world.engine() as engine:
        execution = await engine.start(plan())
        asked = await occurred(execution, ev.ApprovalAsked)
        assert asked.expires_at == clock.now() + 10
        clock.advance(10)
        state = await execution.wait()
    assert runner.answers == [Answer(False, "the approval expired")]
    assert (state.steps["work"].status, state.steps["work"].output) == ("completed", "then not")


@pytest.mark.parametrize("allow", [True, False])
async def test_c6_with_nobody_there_it_is_paused_and_the_answer_is_not_asked_for_again(
    project: Project, allow: bool
) -> None:
    runner = cli(asking(RM))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert runner.interrupts, "the agent was stopped"
    assert list(state.questions) == ["work"]
    assert (await world.resume(state.id)).paused_for == "approval", "without an answer it stands where it stood"
    assert len(runner.requests) == 1, "and nothing is started for it"
    async with world.engine() as engine:
        await engine.approve(state.id, "work", allow=allow, note="noted")
        state = await (await engine.resume(state.id, hold=False)).wait()
    assert state.status == "completed"
    assert runner.answers == [Answer(allow, "noted")]
    assert len([e for e in await world.events(state.id) if isinstance(e, ev.ApprovalAsked)]) == 1
    second = runner.requests[1]
    assert second.session == "s1"
    said = "Bash, which was approved: noted" if allow else "Bash was denied: noted"
    assert said in second.brief.prompt
    assert second.brief.prompt.count("noted") == 1


async def test_c6_resumed_the_agent_is_asked_anew_for_another_input(project: Project) -> None:
    runner = cli(Turn().ask("Bash", LS).say("1"), Turn(repeat=True).ask("Bash", RM).say("2"))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        await engine.approve(state.id, "work")
        state = await (await engine.resume(state.id, hold=False)).wait()
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert state.steps["work"].approval is not None
    assert state.steps["work"].approval.input == RM


async def test_c6_late_for_an_agent_that_was_stopped_it_is_denied_when_it_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)
    clock = FakeClock()
    runner = cli(asking(RM))
    world = AgentWorld(project, runner, clock=clock, approval_expiry="10s")
    state = await world.run(plan())
    assert state.paused_for == "approval"
    clock.advance(11)
    state = await world.resume(state.id)
    assert (state.status, state.steps["work"].output) == ("completed", "then not")
    assert [answer.allow for answer in runner.answers] == [False]


async def test_c6_a_gate_before_the_step_and_a_question_inside_it_are_two_questions(project: Project) -> None:
    runner = cli(asking(RM))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(approve="always")))
        gate = await occurred(execution, ev.ApprovalAsked)
        assert (gate.tool, gate.attempt) == ("agent", 0)
        assert runner.requests == []
        await execution.approve("work", note="begin")
        inside = await occurred(execution, ev.ApprovalAsked, 2)
        assert (inside.tool, inside.attempt) == ("Bash", 1)
        assert (await execution.state()).steps["work"].input["prompt"] == "do work", "the step's input stays its own"
        paused = await execution.pause(now=True)
        assert paused.steps["work"].waiting_for == "approval"
        await engine.approve(execution.id, "work", allow=False)
        state = await (await engine.resume(execution.id)).wait()
    assert (state.status, state.steps["work"].output) == ("completed", "then not")
    assert len([e for e in await world.events(state.id) if isinstance(e, ev.ApprovalAsked)]) == 2


async def test_d6_a_question_survives_a_crash_and_can_be_answered_before_and_after_the_resume(
    project: Project,
) -> None:
    runner = cli(asking(LS))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        before = await world.cut_off(execution.id, lambda event: isinstance(event, ev.ApprovalAsked))
        after = await world.cut_off(execution.id, lambda event: isinstance(event, ev.ApprovalAsked))
    async with before.engine() as engine:
        await engine.approve(execution.id, "work")
        assert (await (await engine.resume(execution.id)).wait()).status == "completed"
    runner.answers.clear()
    async with after.engine() as engine:
        resumed = await engine.resume(execution.id)
        state = await resumed.state()
        assert list(state.questions) == ["work"], "it is open as it was"
        await resumed.approve("work")
        assert (await resumed.wait()).status == "completed"
    assert [answer.allow for answer in runner.answers] == [True]
    assert len([e for e in await after.events(execution.id) if isinstance(e, ev.ApprovalAsked)]) == 1


async def test_c6_an_agent_that_waits_for_a_person_takes_nobodys_place(project: Project) -> None:
    runner = cli(
        Turn(when="do ask").ask("Bash", LS).say("asked"), Turn(when="do other", repeat=True).say("went on meanwhile")
    )
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent("ask"), agent("other"), limits={"parallel": 1}))
        async for event in execution.events():
            if isinstance(event, ev.AttemptFinished):
                assert event.step == "other"
                break
        await execution.approve("ask")
        assert (await execution.wait()).status == "completed"


async def test_c6_one_that_must_run_alone_does_not_wait_for_one_that_waits_for_a_person(project: Project) -> None:
    """A retry after a resource failure runs alone. Who only waits for an answer uses nothing: else both would wait."""
    runner = cli(
        Turn(when="do ask").ask("Bash", LS).say("asked"),
        Turn(when="do big").fail("out of memory", category="resource"),
        Turn(when="do big").say("smaller"),
    )
    world = AgentWorld(project, runner)
    steps = [agent("ask"), agent("big", retry=quick)]
    state = await world.run(plan(*steps))
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert state.steps["big"].status == "completed"


async def test_c6_one_that_runs_alone_and_asks_does_not_hold_up_the_others(project: Project) -> None:
    runner = cli(
        Turn(when="do big").fail("out of memory", category="resource"),
        Turn(when="do big").ask("Bash", LS).say("asked"),
        Turn(when="do late").say("late"),
    )
    gate = asyncio.Event()

    @windlass.tool
    async def hold() -> None:
        await gate.wait()

    world = AgentWorld(project, runner, tools=[hold])
    steps = [agent("big"), windlass.Step(id="hold", tool="hold"), agent("late", needs=["hold"])]
    async with world.engine() as engine:
        execution = await engine.start(plan(*steps), hold=False)
        await occurred(execution, ev.StepWaiting)
        gate.set()
        state = await execution.wait()
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert state.steps["late"].status == "completed"


async def test_c6_a_question_put_during_a_commit_is_heard(project: Project) -> None:
    """The driver writes while the agent asks: nobody may wait for something else to happen first."""
    writing, asked = asyncio.Event(), asyncio.Event()

    class SlowJournal(MemoryJournal):
        async def append(self, execution: str, after: int, events: Sequence[ev.Event], **rest: Any) -> None:
            await super().append(execution, after, events, **rest)
            if any(isinstance(event, ev.AgentSession) for event in events):
                writing.set()
                await asked.wait()

    class Prompt(ScriptedRunner):
        async def run(self, request: Any, host: Any) -> Any:
            host.session("s1")
            await writing.wait()
            answer = asyncio.ensure_future(host.ask("Bash", LS))
            await asyncio.sleep(0)
            asked.set()
            self.answers.append(await answer)
            return await super().run(request, host)

    runner = Prompt([done()], name="cli")
    world = AgentWorld(project, runner, journal=SlowJournal())
    async with world.engine() as engine:
        execution = await engine.start(plan())
        async with asyncio.timeout(PATIENCE):
            await occurred(execution, ev.ApprovalAsked)
        await execution.approve("work")
        assert (await execution.wait()).status == "completed"


async def test_d4_an_open_question_and_its_answer_survive_a_checkpoint(project: Project) -> None:
    runner = cli(asking(LS, RM))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        await engine.approve(state.id, "work", note="fine")
        state = await (await engine.resume(state.id, hold=False)).wait()
        file = await engine.checkpoint(state.id)
    other = AgentWorld(project, runner)
    runner.answers.clear()
    async with other.engine() as engine:
        restored = await engine.restore(file)
        again = await engine.state(restored)
        assert snapshot(again) == snapshot(state)
        assert again.steps["work"].approval == state.steps["work"].approval
        assert again.steps["work"].answers == state.steps["work"].answers
        await engine.approve(restored, "work")
        assert (await (await engine.resume(restored)).wait()).status == "completed"
    assert [answer.note for answer in runner.answers] == ["fine", ""]


async def test_c6_cancelled_with_an_open_question_nothing_is_left_open(project: Project) -> None:
    world = AgentWorld(project, cli(asking(LS)))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        state = await execution.cancel()
        assert state.status == "cancelled"
        assert state.questions == {}
        with pytest.raises(UsageError, match="is not waiting for approval"):
            await execution.approve("work")


async def test_c6_an_answer_is_bound_to_what_was_seen(project: Project) -> None:
    world = AgentWorld(project, cli(asking(LS, RM)))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        first = await occurred(execution, ev.ApprovalAsked)
        await engine.approve(execution.id, "work", digest=first.digest)
        await occurred(execution, ev.ApprovalAsked, 2)
        with pytest.raises(UsageError, match="asks for something else"):
            await engine.approve(execution.id, "work", digest=first.digest)


async def test_d3_a_pause_does_not_wait_for_a_person_to_answer(project: Project) -> None:
    """Running attempts may finish first. One that waits for an answer would not: its question stays open."""
    runner = cli(asking(LS))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        paused = await execution.pause()
        assert (paused.status, paused.paused_for) == ("paused", "pause")
        assert list(paused.questions) == ["work"]
        await engine.approve(execution.id, "work")
        assert (await (await engine.resume(execution.id)).wait()).status == "completed"
    assert [answer.allow for answer in runner.answers] == [True]


async def test_c6_the_time_that_a_person_takes_is_not_the_attempts(project: Project) -> None:
    """One is asked about, another hangs as long as both may take: then the first is answered, and goes on."""
    runner = cli(Turn(when="do work").ask("Bash", LS).say("did it"), Turn(when="do other", repeat=True).hang())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        asks = await engine.start(plan(agent(timeout="2m", retry=0)))
        await occurred(asks, ev.ApprovalAsked)
        other = await engine.start(plan(agent("other", timeout="2m", retry=0)))
        await runner.wait_for(2)
        skip_time(120)
        hangs = await other.wait()
        assert hangs.steps["other"].error is not None
        assert "timeout of 120 s" in hangs.steps["other"].error.message
        await asks.approve("work")
        state = await asks.wait()
    assert (state.steps["work"].status, state.steps["work"].output) == ("completed", "did it")


async def test_c6_after_the_answer_the_clock_of_the_attempt_goes_on(project: Project) -> None:
    runner = cli(Turn().ask("Bash", LS).hang())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(timeout="2m", retry=0)))
        await occurred(execution, ev.ApprovalAsked)
        await execution.approve("work")
        await wait_until_async(lambda: runner.answers, "the answer is heard")
        skip_time(120)
        state = await execution.wait()
    assert state.steps["work"].error is not None
    assert "timeout of 120 s" in state.steps["work"].error.message


async def test_c6_an_answer_that_the_agent_has_heard_is_not_told_to_it_again(project: Project) -> None:
    """It would do once more what it was allowed to do."""
    failing = Turn(session="s1").ask("Bash", LS).fail("the line broke", category="transient")
    runner = cli(failing, done())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.ApprovalAsked)
        await execution.approve("work")
        assert (await execution.wait()).status == "completed"
    assert runner.requests[1].session == "s1"
    assert "allowed" not in runner.requests[1].brief.prompt
