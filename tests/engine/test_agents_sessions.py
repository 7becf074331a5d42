"""Conversations of agents: gone on with after a stop, begun anew where they are lost or led nowhere (A2, D3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan

from windlass import Step
from windlass.core import events as ev
from windlass.core.view import snapshot
from windlass.errors import MODEL_API, REFUSED_CONTENT, CannotResume, Category, Failure, UsageError
from windlass.ports import AgentRequest, AgentResult, Health, Host, Usage
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

TASK = "do work"


def cli(*script: Turn | AgentResult) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


@pytest.mark.parametrize("how", ["interrupt", "pause now"])
async def test_d3_a_stopped_agent_goes_on_in_the_same_conversation(project: Project, how: str) -> None:
    runner = cli(Turn(session="s1").say("half").hang(), done("whole"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await runner.wait_for(1)
        paused = await (execution.interrupt() if how == "interrupt" else execution.pause(now=True))
        assert paused.status == "paused"
        assert runner.interrupts == [f"{execution.id}:work:1"], "it was asked to end its turn, not killed"
        state = await (await engine.resume(execution.id)).wait()
    assert state.steps["work"].output == "whole"
    first, second = runner.requests
    assert (first.session, second.session) == (None, "s1")
    assert TASK in first.brief.prompt
    assert TASK not in second.brief.prompt, "the conversation knows it"
    assert second.task == TASK
    began = [event for event in await world.events(state.id) if isinstance(event, ev.AgentBegan)]
    assert [event.session for event in began] == [None, "s1"]
    assert [event.prompt for event in began] == [request.brief.prompt for request in runner.requests]


async def test_d6_cut_off_by_a_crash_it_goes_on_in_the_same_conversation(project: Project) -> None:
    runner = cli(Turn(session="s1").say("half").hang(), done("whole"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentSession)
        cut = await world.cut_off(execution.id, lambda event: isinstance(event, ev.AgentSession))
    state = await cut.resume(execution.id)
    assert state.status == "completed"
    assert [request.session for request in runner.requests] == [None, "s1"]
    stopped = [event for event in await cut.events(state.id) if isinstance(event, ev.AttemptStopped)]
    assert [event.reason for event in stopped] == ["lost"]


async def test_d6_cut_off_before_there_was_a_conversation_it_is_told_everything_again(project: Project) -> None:
    runner = cli(Turn(session="s1").hang(), done())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentSession)
        cut = await world.cut_off(execution.id, lambda event: isinstance(event, ev.AgentBegan))
    assert (await cut.resume(execution.id)).status == "completed"
    assert runner.requests[1].session is None
    assert TASK in runner.requests[1].brief.prompt


@pytest.mark.parametrize(("here", "refused"), [("2.1.9", True), ("2.1.10", False), ("2.2", False), ("", False)])
async def test_d5_an_older_runtime_does_not_go_on_with_a_newer_ones_conversation_unasked(
    project: Project, here: str, refused: bool
) -> None:
    runner = ScriptedRunner(
        (Turn(session="s1").say("half").hang(), done("whole")), name="cli", health=Health(True, version="2.1.10")
    )
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await runner.wait_for(1)
        await execution.interrupt()
        runner.health = Health(True, version=here)
        if refused:
            with pytest.raises(
                CannotResume, match=r"conversation of step work was written by cli 2\.1\.10, which 2\.1\.9"
            ):
                await engine.resume(execution.id)
        state = await (await engine.resume(execution.id, accept_changes=refused)).wait()
    assert state.status == "completed"
    assert [request.session for request in runner.requests] == [None, "s1"]
    began = [event for event in await world.events(state.id) if isinstance(event, ev.AgentBegan)]
    assert [event.version for event in began] == ["2.1.10", here]


async def test_a_transient_failure_goes_on_and_says_why(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("the line broke", category="transient"), done())
    world = AgentWorld(project, runner)
    assert (await world.run(plan())).status == "completed"
    assert runner.requests[1].session == "s1"
    assert "the line broke" in runner.requests[1].brief.prompt


async def test_a_failure_that_is_not_about_the_words_keeps_the_conversation(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("refused", category="resource"), done())
    world = AgentWorld(project, runner)
    assert (await world.run(plan())).status == "completed"
    assert runner.requests[1].session == "s1"


@pytest.mark.parametrize("category", ["logic", "configuration"])
async def test_k1_a_failure_of_any_category_keeps_the_conversation(project: Project, category: str) -> None:
    runner = cli(Turn(session="s1").fail("confused", category=category), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(retry={"max": 1, "delay": "1ms", "on": [category]})))
    assert state.status == "completed"
    assert runner.requests[1].session == "s1"


async def test_k1_a_conversation_that_the_model_refuses_is_dropped(project: Project) -> None:
    refused = AgentResult(failure=Failure(Category.LOGIC, "prompt is too long", kind=REFUSED_CONTENT), session="s1")
    runner = cli(refused, done())
    world = AgentWorld(project, runner)
    assert (await world.run(plan(agent(retry=1)))).status == "completed"
    assert runner.requests[1].session is None
    assert TASK in runner.requests[1].brief.prompt


async def test_a_lost_conversation_begins_anew_with_everything_in_the_same_attempt(project: Project) -> None:
    lost = AgentResult(
        failure=Failure(Category.CONFIGURATION, "no such session"),
        usage=Usage(usd=0.0, source="runtime"),
        metadata={"session_lost": True},
    )
    runner = cli(Turn(session="s1").hang(), lost, done("anew"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await runner.wait_for(1)
        await execution.interrupt()
        state = await (await engine.resume(execution.id)).wait()
    assert state.steps["work"].output == "anew"
    assert state.steps["work"].attempts == 2
    assert [request.session for request in runner.requests] == [None, "s1", None]
    assert TASK in runner.requests[2].brief.prompt
    began = [event for event in await world.events(state.id) if isinstance(event, ev.AgentBegan)]
    assert any("lost" in note for note in began[-1].notes), "the user is told"


async def test_each_step_and_each_item_has_a_conversation_of_its_own(project: Project) -> None:
    runner = cli(done())
    world = AgentWorld(project, runner)
    steps = [agent("a"), agent("b", needs=["a"]), agent("each", foreach=[1, 2])]
    state = await world.run(plan(*steps))
    assert state.status == "completed"
    assert [request.session for request in runner.requests] == [None] * 4
    sessions = {step.id: step.agent.session for step in state.steps.values() if step.agent is not None}
    assert len(sessions) == len(set(sessions.values())) == 4


async def test_k1_a_retry_by_hand_goes_on_and_a_fresh_one_begins_anew(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("stuck", category="logic"), Turn(session="s1").fail("stuck"), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(retry={"max": 0})))
    assert state.status == "failed"
    async with world.engine() as engine:
        for fresh in (False, True):
            await engine.retry(state.id, "work", fresh=fresh)
            state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed"
    assert [request.session for request in runner.requests] == [None, "s1", None]
    assert runner.requests[1].brief.nudge
    assert TASK in runner.requests[2].brief.prompt


async def test_k1_a_changed_task_is_said_whole_in_the_same_conversation(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("stuck", category="logic"), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(retry={"max": 0})))
    async with world.engine() as engine:
        await engine.retry(state.id, "work", edits={"prompt": "do something else"})
        state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed"
    assert runner.requests[1].session == "s1"
    assert "do something else" in runner.requests[1].brief.prompt


@pytest.mark.parametrize("fresh", [False, True])
async def test_k1_a_fork_goes_on_in_a_copy_of_the_conversation(project: Project, fresh: bool) -> None:
    runner = cli(Turn(session="s1").fail("stuck", category="logic"), done(), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(retry={"max": 0})))
    async with world.engine() as engine:
        forked = await engine.fork(state.id, from_step="work", fresh=fresh)
        assert (await (await engine.resume(forked)).wait()).status == "completed"
        again = await engine.fork(forked, from_step="work", fresh=fresh)
        assert (await (await engine.resume(again)).wait()).status == "completed"
    first, second = runner.requests[1:]
    if fresh:
        assert (first.session, second.session) == (None, None)
        assert (first.inherited, second.inherited) == (None, None)
        return
    assert first.session == "s1"
    assert first.inherited is not None
    assert first.inherited.parts[-3:] == (state.id, "steps", "work")
    assert first.brief.nudge, "it failed, and goes on"
    assert second.inherited is not None
    assert second.inherited.parts[-3:] == (forked, "steps", "work")
    assert TASK in second.brief.prompt, "it was done: the task is asked again"


@pytest.mark.parametrize("fresh", [False, True])
async def test_k1_a_fork_from_a_foreach_goes_on_in_the_conversation_of_each_item(project: Project, fresh: bool) -> None:
    one, two = Turn(session="s1").say("one"), Turn(session="s2").fail("stuck", category="logic")
    runner = cli(one, two, done("again"))
    world = AgentWorld(project, runner)
    many = agent("many", foreach="{{ inputs.names }}", prompt="do {{ item }}", retry={"max": 0})
    state = await world.run(plan(many, inputs={"names": ["a", "b"]}, limits={"parallel": 1}))
    assert state.status == "failed"
    async with world.engine() as engine:
        forked = await engine.fork(state.id, from_step="many", fresh=fresh)
        assert (await (await engine.resume(forked)).wait()).steps["many"].output == ["again", "again"]
        other = await engine.fork(state.id, from_step="many", inputs={"names": ["a", "c"]}, fresh=fresh)
        assert (await (await engine.resume(other)).wait()).steps["many"].output == ["again", "again"]
    sessions = [request.session for request in runner.requests[2:]]
    assert sessions == ([None] * 4 if fresh else ["s1", "s2", "s1", None]), "another item begins its own"
    if fresh:
        return
    first, second = runner.requests[2:4]
    assert first.inherited is not None
    assert first.inherited.parts[-3:] == (state.id, "steps", "many[0]")
    assert "<task>\ndo " in first.brief.prompt, "it was done: the task is asked again"
    assert second.brief.nudge, "it failed, and goes on"


async def test_k1_a_fork_whose_items_are_not_known_yet_begins_new_conversations(project: Project) -> None:
    runner = cli(done())
    world = AgentWorld(project, runner)
    names = Step(id="names", tool="files.write", with_={"path": "names.txt", "content": "a b"})
    many = agent("many", foreach=[1, 2], prompt="do {{ item }}", needs=["names"])
    async with world.engine() as engine:
        state = await (await engine.start(plan(names, many), workdir=project.path)).wait()
        assert state.status == "completed", state.error
        await engine.undo(state.id, "names")
        with pytest.raises(UsageError, match=r"many\[0\] of .* cannot go on in a fork: steps before it"):
            await engine.say(state.id, "many[0]", "better")
        forked = await engine.fork(state.id, from_step="many")
        assert (await (await engine.resume(forked)).wait()).status == "completed"
    assert [request.session for request in runner.requests] == [None] * 4


async def test_k1_a_fork_on_another_runtime_begins_a_conversation(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("stuck", category="logic"))
    world = AgentWorld(project, runner, ScriptedRunner([done()], name="claude-code"))
    state = await world.run(plan(agent(retry={"max": 0})))
    async with world.engine() as engine:
        await engine.retry(state.id, "work", runtime="claude-code")
        assert (await (await engine.resume(state.id)).wait()).status == "completed"
    assert world.runners["claude-code"].requests[0].session is None


async def test_k1_an_outage_is_waited_out_in_the_same_conversation(project: Project) -> None:
    busy = Failure(Category.TRANSIENT, "cli: the model API answered 529: busy", kind=MODEL_API)
    runner = cli(*[AgentResult(failure=busy, session="s1")] * 20, done())
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    assert state.status == "completed"
    events = await world.events(state.id)
    assert sum(isinstance(event, ev.AttemptFailed) for event in events) == 20
    waits = [event for event in events if isinstance(event, ev.StepWaiting)]
    assert {wait.question for wait in waits} == {"waiting for the model API: answered 529: busy"}
    assert len({wait.gives_up_at for wait in waits}) == 1
    assert {request.session for request in runner.requests[1:]} == {"s1"}
    assert all(request.brief.nudge for request in runner.requests[1:])


async def test_a_changed_plan_keeps_what_was_spent(project: Project) -> None:
    """A step that failed begins anew with the changed plan: what it cost before is not forgotten."""
    runner = cli(Turn().spend(tokens_in=5, usd=0.5).fail("no"), done("yes", usd=0.25))
    world = AgentWorld(project, runner)
    source = "steps:\n  - {id: work, agent: developer, prompt: PROMPT}\n  - {id: gate, run: 'true', approve: always}\n"
    file = project.file("plan.yaml", source.replace("PROMPT", "one"))
    async with world.engine() as engine:
        state = await (await engine.start(file, hold=False)).wait()
        assert state.steps["work"].status == "failed"
        project.file("plan.yaml", source.replace("PROMPT", "another"))
        state = await (await engine.resume(state.id, accept_changes=True, hold=False)).wait()
    assert state.steps["work"].status == "completed"
    assert state.cost.usd == pytest.approx(0.75)
    assert state.cost.tokens == 16


async def test_a8_an_interrupt_that_fails_does_not_keep_a_run_from_being_ended(project: Project) -> None:
    class Stubborn(ScriptedRunner):
        ended = False

        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            try:
                return await super().run(request, host)
            finally:
                self.ended = True

        async def interrupt(self, request: str) -> None:
            raise RuntimeError("it does not answer")

    runner = Stubborn([Turn().spend(tokens_in=3).hang()], name="cli")
    world = AgentWorld(project, runner, grace=0.05)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.UsageReported)
        assert (await execution.interrupt()).status == "paused"
        assert runner.ended
        (spent,) = await world.ledger.spent("execution")
        assert (spent.tokens_in, spent.unknown) == (3, 1), "what it told before counts"


async def test_d6_the_history_has_the_whole_text_of_what_was_too_long_for_the_journal(project: Project) -> None:
    class Recording(ScriptedRunner):
        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            if request.session is None:
                host.spoke("I look at it.")
                host.acted("Write", "short", "x" * (8192 - 2), "c1")
                host.acted("Write", "long", {"content": whole}, "c2")
                for text in ("", "x" * 8192, whole, whole.upper()):
                    host.returned("c2", "Write", text)
            else:
                seen.extend(await host.history())
            return await super().run(request, host)

    whole, seen = "all of it\n" * 2000, list[ev.Event]()
    runner = Recording([Turn(session="s1").fail("the line broke", category="transient"), done()], name="cli")
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    assert state.status == "completed"
    acted, returned = ev.AgentActed, ev.AgentReturned
    events = await world.events(state.id)
    assert [event.file != "" for event in events if isinstance(event, acted)] == [False, True]
    kept = [event for event in events if isinstance(event, returned)]
    assert [(event.size, event.file != "") for event in kept] == [(0, False)] * 2 + [(len(whole), True)] * 2
    assert whole.startswith(kept[2].text)
    assert [event.input for event in seen if isinstance(event, acted)][1] == {"content": whole}
    assert [event.text for event in seen if isinstance(event, returned)] == ["", "x" * 8192, whole, whole.upper()]
    assert [event.text for event in seen if isinstance(event, ev.AgentSpoke)] == ["I look at it."]


async def test_a2_the_result_is_told_where_the_agent_has_said_nothing_and_else_not_again(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().say("half", " whole"), AgentResult("silent")))
    state = await world.run(plan(agent("talks"), agent("works", needs=["talks"])))
    assert state.status == "completed"
    outputs = [event for event in await world.events(state.id) if isinstance(event, ev.OutputWritten)]
    told = ["".join(one.text for one in outputs if one.step == step) for step in ("talks", "works")]
    assert told == ["half whole", "silent"]


async def test_h1_what_a_runner_measures_of_its_processes_is_counted_for_the_step(project: Project) -> None:
    class Measuring(ScriptedRunner):
        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            host.meter.add(cpu=7.5, memory=2**20)  # type: ignore[attr-defined]
            return await super().run(request, host)

    state = await AgentWorld(project, Measuring([done()], name="cli")).run(plan())
    (step,) = snapshot(state)["steps"]
    assert step["resources"]["cpu_s"] == 7.5
