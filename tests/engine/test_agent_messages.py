"""A message to an agent, as the one who sends it is told: once, and how the agent got it (K1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan

from windlass import Engine, Execution
from windlass.core import events as ev
from windlass.errors import REFUSED_CONTENT, CannotResume, Category, Failure, UsageError
from windlass.ids import new_id
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


def cli(*script: Turn) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


def asks(step: str) -> Turn:
    """An agent that asks a person, and has done its work then."""
    return Turn(when=f"do {step}", session=step).ask("Bash", {"command": step}).say("done")


def told(events: list[ev.Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, ev.AgentTold)]


async def asking(engine: Engine, *steps: str) -> Execution:
    execution = await engine.start(plan(*map(agent, steps)), hold=True)
    await occurred(execution, ev.ApprovalAsked, len(steps))
    return execution


async def test_k1_who_waits_is_told_when_the_agent_has_the_message_and_of_no_other_one(project: Project) -> None:
    world = AgentWorld(project, cli(asks("a"), asks("b"), done()))
    async with world.engine() as engine:
        execution = await asking(engine, "a", "b")
        to_a = asyncio.create_task(engine.say(execution.id, "a", "for a", within=60.0))
        to_b = asyncio.create_task(engine.say(execution.id, "b", "for b", within=60.0))
        await occurred(execution, ev.AgentTold, 2)
        await engine.approve(execution.id, "b")
        heard = await to_b
        assert (heard.how, heard.text) == ("follow-up", "b had finished its turn and goes on with the message")
        assert heard.as_dict() == {
            "id": heard.id,
            "execution": execution.id,
            "step": "b",
            "how": "follow-up",
            "forked": False,
            "detail": heard.text,
        }
        await occurred(execution, ev.AttemptFinished)
        await engine.approve(execution.id, "a")
        heard = await to_a
        assert heard.how == "follow-up"
        assert heard.state.steps["b"].status == "completed", "it waited until its own agent had it"
        await execution.wait()


async def test_k1_who_waits_for_an_agent_that_ends_without_the_message_is_told_so(project: Project) -> None:
    world = AgentWorld(project, cli(Turn(session="s1").ask("Bash", {"command": "x"}).fail("no"), done()))
    async with world.engine() as engine:
        execution = await asking(engine, "work")
        saying = asyncio.create_task(engine.say(execution.id, "work", "hello", within=60.0))
        await occurred(execution, ev.AgentTold)
        await engine.approve(execution.id, "work")
        receipt = await saying
        assert receipt.how == ""
        assert receipt.as_dict()["how"] is None
        assert receipt.text == "work will be given the message with the prompt of its next attempt"
        assert receipt.state.steps["work"].status == "failed", "as it was then"
        await execution.wait()


async def test_k1_a_message_to_a_step_that_does_not_run_is_not_waited_for(project: Project) -> None:
    world = AgentWorld(project, cli(Turn(session="s1").fail("no"), done()))
    state = await world.run(plan())
    async with world.engine() as engine:
        async with asyncio.timeout(60.0):
            receipt = await engine.say(state.id, "work", "hello", within=3600.0)
        assert receipt.how == ""
        resumed = await engine.resume(state.id)
        async with asyncio.timeout(60.0):
            await resumed.wait()


async def test_k1_the_words_about_a_step_say_what_it_is_doing(project: Project) -> None:
    world = AgentWorld(project, cli(Turn(when="do runs").hang(), done()))
    async with world.engine() as engine:
        waits = agent("waits", approve="always")
        execution = await engine.start(plan(waits, agent("runs"), agent("after", needs=["runs"])), hold=True)
        await occurred(execution, ev.AgentBegan)
        await occurred(execution, ev.ApprovalAsked)
        said = {step: (await engine.say(execution.id, step, "hello")).text for step in ("waits", "runs", "after")}
        await execution.cancel()
    assert said == {
        "waits": "waits is waiting for approval: it will be given the message after the answer",
        "runs": "runs will be given the message at its next turn",
        "after": "after will be given the message with the prompt of its next attempt",
    }


async def test_k1_a_step_that_waits_for_something_else_than_a_person_is_not_said_to_wait_for_approval(
    project: Project,
) -> None:
    slow = {"delay": "1h", "max_delay": "1h", "on": ["transient"]}
    world = AgentWorld(project, cli(Turn(session="s1").fail("no answer", category="transient"), done()))
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(retry=slow)), hold=True)
        await occurred(execution, ev.AttemptFailed)
        receipt = await engine.say(execution.id, "work", "hello")
        assert receipt.state.steps["work"].status == "waiting"
        assert receipt.text == "work will be given the message with the prompt of its next attempt"
        await execution.cancel()


# -- the same message again -----------------------------------------------------------------------


async def test_k1_a_message_that_is_said_again_with_its_id_is_one_message_and_tells_what_became_of_it(
    project: Project,
) -> None:
    runner = cli(Turn(session="s1").fail("no"), done("better"))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    first, other = new_id(), new_id()
    async with world.engine() as engine:
        said = await engine.say(state.id, "work", "use ruff", id=first)
        again = await engine.say(state.id, "work", "use ruff", id=first)
        assert (said.id, again.id, again.how) == (first, first, "")
        assert told(await world.events(state.id)) == ["use ruff"]
        await engine.say(state.id, "work", "and mypy", id=other)
        assert told(await world.events(state.id)) == ["use ruff", "and mypy"], "another id is another message"
        await (await engine.resume(state.id)).wait()
        heard = await engine.say(state.id, "work", "use ruff", id=first)
    assert (heard.id, heard.how, heard.forked) == (first, "prompt", False)
    assert heard.text == "work has the message, with the prompt of attempt 2"
    assert told(await world.events(state.id)) == ["use ruff", "and mypy"]
    assert len(await world.journal.heads()) == 1, "it was not said to a fork, though the step is completed by now"


async def test_k1_a_completed_step_is_forked_once_for_a_message_that_is_said_again(project: Project) -> None:
    world = AgentWorld(project, cli(Turn(session="s1").say("done"), done("better")))
    state = await world.run(plan())
    name = new_id()
    async with world.engine() as engine:
        said = await engine.say(state.id, "work", "make it better", id=name)
        again = await engine.say(state.id, "work", "make it better", id=name)
        assert said.state.id == again.state.id == name
        assert (said.forked, again.forked, again.how) == (True, True, "")
        assert again.text == f"work goes on with the message in a fork, {name}"
        assert len(await world.journal.heads()) == 2
        await (await engine.resume(name, keep_plan=True)).wait()
        heard = await engine.say(state.id, "work", "make it better", id=name)
    assert (heard.how, heard.forked) == ("prompt", True)
    assert len(await world.journal.heads()) == 2


# -- refused --------------------------------------------------------------------------------------


async def test_k1_a_step_that_is_over_without_a_conversation_gets_no_message_and_says_what_to_do(
    project: Project,
) -> None:
    refuses = Turn(when="do refused").fail(Failure(Category.LOGIC, "refused", kind=REFUSED_CONTENT))
    world = AgentWorld(project, cli(refuses, Turn(when="do work", session="s1").hang()))
    async with world.engine() as engine:
        steps = (agent("refused", importance="optional"), agent("work"), agent("never", needs=["work"]))
        execution = await engine.start(plan(*steps), hold=True)
        await occurred(execution, ev.AttemptFailed)
        await occurred(execution, ev.AgentSession, 3)
        await execution.cancel()
        for step in ("refused", "never"):
            with pytest.raises(UsageError) as refused:
                await engine.say(execution.id, step, "hello")
            assert f"step {step} of {execution.id} never runs again in its execution" in refused.value.message
            assert refused.value.advice == (
                f"run it again in a new execution: windlass fork {execution.id} --from {step}",
            )
        receipt = await engine.say(execution.id, "work", "hello")
    assert receipt.text.startswith("work is skipped, and its execution is cancelled: it goes on with the message")


async def test_k1_a_message_whose_fork_could_not_start_leaves_none_and_says_how_to_send_it_again(
    project: Project,
) -> None:
    world = AgentWorld(project, cli(Turn(session="s1").say("done"), done()))
    folder = project.path / "here"
    folder.mkdir()
    async with world.engine() as engine:
        state = await (await engine.start(plan(), workdir=folder)).wait()
        folder.rmdir()
        with pytest.raises(CannotResume) as refused:
            await engine.say(state.id, "work", "make it better", to_resume=True)
        assert refused.value.advice == (f"when that is corrected: windlass say {state.id} work TEXT",)
        assert "here" in str(refused.value.reasons)
        assert len(await world.journal.heads()) == 1
        folder.mkdir()
        assert (await engine.say(state.id, "work", "make it better", to_resume=True)).forked


async def test_d5_a_message_to_go_on_with_is_refused_where_the_plan_has_changed_unless_the_old_one_is_kept(
    project: Project,
) -> None:
    text = "steps: [{id: work, agent: developer, prompt: do it, retry: 0}]"
    world = AgentWorld(project, cli(Turn(session="s1").fail("no")))
    async with world.engine() as engine:
        state = await (await engine.start(project.path / project.plan(text))).wait()
        project.plan(text.replace("do it", "do it well"))
        with pytest.raises(CannotResume, match="plan"):
            await engine.say(state.id, "work", "hello", to_resume=True)
        assert told(await world.events(state.id)) == []
        await engine.say(state.id, "work", "hello", to_resume=True, keep_plan=True)
    assert told(await world.events(state.id)) == ["hello"]
