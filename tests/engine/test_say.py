"""K1: messages of people to agents: kept before they are acknowledged, given once, in order, also over a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan

from windlass import Step
from windlass.core import events as ev
from windlass.core.say import LONGEST_MESSAGE
from windlass.errors import NotFound, UsageError
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


def cli(*script: Turn) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


def told_and_heard(events: list[ev.Event]) -> list[str]:
    told = {event.id: event.text for event in events if isinstance(event, ev.AgentTold)}
    heard = [event for event in events if isinstance(event, ev.AgentHeard)]
    return [f"{event.how}: {told[id]}" for event in heard for id in event.ids]


async def test_k1_an_agent_that_has_finished_its_turn_goes_on_with_the_message(project: Project) -> None:
    runner = cli(Turn(session="s1").ask("Bash", {"command": "x"}).say("done"), done("with the changelog", usd=0.25))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        receipt = await engine.say(execution.id, "work", " also the\x00 changelog\r\n", by="ann")
        assert (receipt.how, receipt.forked) == ("", False)
        assert "will be given the message after the answer" in receipt.text
        await engine.approve(execution.id, "work", by="ann")
        state = await execution.wait()
    assert state.status == "completed"
    assert state.steps["work"].output == "with the changelog"
    assert [request.session for request in runner.requests] == [None, "s1"]
    assert runner.requests[1].brief.prompt == "also the changelog"
    assert told_and_heard(await world.events(state.id)) == ["follow-up: also the changelog"]
    agent_state = state.steps["work"].agent
    assert agent_state is not None
    assert not agent_state.told
    assert agent_state.cost.tokens_in == 10


async def test_k1_a_failed_step_is_retried_with_the_message_in_its_conversation(project: Project) -> None:
    runner = cli(Turn(session="s1").say("half").fail("cannot", category="logic"), done("whole"))
    world = AgentWorld(project, runner)
    failed = await world.run(plan())
    assert failed.status == "failed"
    async with world.engine() as engine:
        receipt = await engine.say(failed.id, "work", "the file is in /tmp", by="ann")
        assert "with the prompt of its next attempt" in receipt.text
        last = [type(event) for event in (await world.events(failed.id))[-3:]]
        assert last == [ev.ExecutionReopened, ev.AgentTold, ev.StepRetried]
        state = await (await engine.resume(failed.id)).wait()
    assert state.status == "completed"
    assert runner.requests[1].session == "s1"
    assert runner.requests[1].brief.prompt.endswith("the file is in /tmp")
    assert told_and_heard(await world.events(state.id)) == ["prompt: the file is in /tmp"]


async def test_k1_messages_to_a_paused_agent_go_with_its_next_prompt_in_their_order(project: Project) -> None:
    runner = cli(Turn(session="s1").say("half").hang(), done())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await runner.wait_for(1)
        await execution.interrupt()
        await engine.say(execution.id, "work", "one")
        await engine.say(execution.id, "work", "two")
        state = await (await engine.resume(execution.id)).wait()
    assert runner.requests[1].brief.prompt.endswith("one\n\ntwo")
    assert told_and_heard(await world.events(state.id)) == ["prompt: one", "prompt: two"]


@pytest.mark.parametrize("heard", [False, True])
async def test_k1_over_a_crash_a_message_is_neither_lost_nor_said_twice(project: Project, heard: bool) -> None:
    runner = cli(Turn(session="s1").hang(), Turn(session="s1").say("I see").hang(), done())
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await runner.wait_for(1)
        await execution.interrupt()
        await engine.say(execution.id, "work", "use ruff")
        resumed = await engine.resume(execution.id)
        await occurred(resumed, ev.AgentHeard)
        cut = await world.cut_off(execution.id, lambda e: isinstance(e, ev.AgentHeard if heard else ev.AgentTold))
    state = await cut.resume(execution.id)
    assert state.status == "completed"
    assert [("use ruff" in request.brief.prompt) for request in runner.requests] == [False, True, not heard]
    assert told_and_heard(await cut.events(state.id)) == ["prompt: use ruff"]


async def test_k1_a_completed_step_goes_on_with_the_message_in_a_fork(project: Project) -> None:
    runner = cli(Turn(session="s1").say("done"), done("better"))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        receipt = await engine.say(state.id, "work", "make it better", by="ann")
        assert receipt.forked
        assert receipt.text == f"work is completed: it goes on with the message in a fork, {receipt.state.id}"
        assert receipt.state.id != state.id
        forked = await (await engine.resume(receipt.state.id, keep_plan=True)).wait()
    assert forked.steps["work"].output == "better"
    assert runner.requests[1].session == "s1"
    assert runner.requests[1].brief.prompt == "make it better", "the conversation knows the task"
    assert (await world.events(state.id))[-1:] != [], "the original is as it was"
    assert not any(isinstance(event, ev.AgentTold) for event in await world.events(state.id))


async def test_k1_a_completed_item_goes_on_in_a_fork_that_keeps_the_others(project: Project) -> None:
    runner = cli(Turn(session="s1").say("one"), Turn(session="s2").say("two"), done("better"))
    world = AgentWorld(project, runner)
    many = agent("many", foreach="{{ [1, 2] }}", prompt="do {{ item }}")
    state = await world.run(plan(many, agent("after", needs=["many"]), limits={"parallel": 1}))
    async with world.engine() as engine:
        receipt = await engine.say(state.id, "many[1]", "make it better", by="ann")
        assert receipt.forked
        forked = await (await engine.resume(receipt.state.id, keep_plan=True)).wait()
    assert forked.steps["many"].output == ["one", "better"]
    spoken = runner.requests[3]
    assert (spoken.session, spoken.brief.prompt) == ("s2", "make it better")
    assert spoken.inherited is not None
    assert spoken.inherited.parts[-3:] == (state.id, "steps", "many[1]")
    assert len(runner.requests) == 5, "the other item is kept, and the step after it runs again"


async def test_k1_a_step_that_failed_in_a_completed_execution_is_not_called_completed(project: Project) -> None:
    world = AgentWorld(project, cli(Turn(session="s1").fail("no", category="logic")))
    state = await world.run(plan(agent("work", importance="optional")))
    async with world.engine() as engine:
        receipt = await engine.say(state.id, "work", "try this", by="ann")
    assert receipt.text.startswith("work failed, and its execution is completed: it goes on with the message in a fork")


async def test_k1_the_note_of_an_approval_reaches_the_agent_once(project: Project) -> None:
    runner = cli(Turn(session="s1").ask("Bash", {"command": "rm x"}).say("done"), done("careful"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await engine.approve(execution.id, "work", by="ann", note="but keep y")
        state = await execution.wait()
    assert state.status == "completed"
    note = "Note on your use of Bash, which was approved: but keep y"
    assert told_and_heard(await world.events(state.id)) == [f"follow-up: {note}"]
    assert [request.brief.prompt.count("but keep y") for request in runner.requests] == [0, 1]


async def test_k1_a_message_is_refused_where_no_agent_can_get_it(project: Project) -> None:
    world = AgentWorld(project, cli(done(), done()))
    many = agent("many", foreach="{{ [1, 2] }}", prompt="do {{ item }}")
    state = await world.run(plan(Step(id="shell", run="true"), many))
    assert state.status == "completed"
    async with world.engine() as engine:
        for step, text, error in (
            ("shell", "hello", "step shell of .* has no agent to speak to: it uses shell"),
            ("many", "hello", "step many of .* has an agent for each item"),
            ("many[1]", " \x00\n", "the message is empty"),
            ("many[1]", "x" * (LONGEST_MESSAGE + 1), "262,145 bytes, and an agent takes 262,144 at most"),
        ):
            with pytest.raises(UsageError, match=error):
                await engine.say(state.id, step, text)
        with pytest.raises(NotFound, match="no step 'other'"):
            await engine.say(state.id, "other", "hello")
    assert not any(isinstance(event, ev.AgentTold) for event in await world.events(state.id))
