"""The engine is the one place to ask: what it was given can be had from it, and closed it does nothing more (I5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan

import windlass
from windlass import Call, Step, Tool
from windlass.core import events as ev
from windlass.engine.commit_writer import head_of
from windlass.errors import Damaged, UsageError
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


class Closing(Tool):
    """A tool that notes each time that it is closed, and does something then."""

    name = "closing"
    description = "notes its end"
    schema: dict[str, Any] = {"type": "object"}

    def __init__(self, act: Callable[[], Awaitable[None]] | None = None) -> None:
        self.act = act
        self.closed = 0

    async def execute(self, arguments: Any, call: Call) -> Any:
        return None

    async def close(self) -> None:
        self.closed += 1
        if self.act is not None:
            await self.act()


def world_of(project: Project, *script: Turn, tools: tuple[Tool, ...] = (), **settings: Any) -> AgentWorld:
    return AgentWorld(project, ScriptedRunner(script or [done()], name="cli"), tools=tools, **settings)


CLOSED = "this engine is closed: nothing was done"


# -- closed ---------------------------------------------------------------------------------------


async def test_i5_a_closed_engine_refuses_every_call_also_those_that_only_look(project: Project) -> None:
    world = world_of(project)
    state = await world.run(plan())
    engine = world.engine()
    assert not engine.closed
    await engine.close()
    assert engine.closed
    assert repr(engine) == f"<Engine {project.home} (closed)>"
    with pytest.raises(UsageError, match=CLOSED):
        engine.driven_state(state.id)
    for look in (engine.executions(), engine.state(state.id), engine.counts(), engine.start(plan())):
        with pytest.raises(UsageError, match=CLOSED) as refused:
            await look
        assert "windlass.open(…)" in refused.value.advice[0]


async def test_i5_an_engine_closes_its_tools_once_and_is_closed_while_it_does(project: Project) -> None:
    seen: list[str] = []

    async def look() -> None:
        try:
            await engine.executions()
        except UsageError as error:
            seen.append(error.message)

    tool = Closing(look)
    engine = world_of(project, tools=(tool,)).engine()
    await engine.close()
    await engine.close()
    assert tool.closed == 1
    assert seen == [CLOSED]


def test_i5_an_engine_whose_loop_has_ended_can_be_closed_in_another_one(project: Project) -> None:
    tool = Closing()
    engine = world_of(project, tools=(tool,)).engine()
    assert asyncio.run(engine.executions()) == []
    asyncio.run(engine.close())
    assert engine.closed
    assert tool.closed == 0, "what belongs to it ended with its loop"


def test_i5_an_engine_whose_loop_ends_while_it_waits_for_what_it_drives_is_closed(project: Project) -> None:
    engine = world_of(project, Turn().hang()).engine()

    async def leave() -> None:
        await occurred(await engine.start(plan()), ev.AgentSession)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing

    asyncio.run(leave())
    assert engine.closed


# -- what it was given ----------------------------------------------------------------------------


async def test_i5_an_engine_has_the_home_and_settings_that_it_was_given(project: Project) -> None:
    async with world_of(project).engine(grace=7.0) as engine:
        assert engine.home == project.home
        assert engine.settings.grace == 7.0
        assert repr(engine) == f"<Engine {project.home}>"


async def test_d3_an_engine_goes_by_the_rules_of_its_settings(project: Project) -> None:
    world = world_of(project, pause_expiry="1h")
    state = await world.run(plan(agent(approve="always")))
    assert state.expires_at is not None


async def test_g3_the_composed_tools_of_a_home_are_at_its_engine(project: Project) -> None:
    async with windlass.open() as engine:
        assert engine.shelf is not None
        assert engine.shelf.all() == []
        assert engine.built_in is not None
        assert "shell" in engine.built_in


async def test_i5_subscribers_are_told_of_what_the_engine_writes(project: Project) -> None:
    told: list[str] = []
    async with world_of(project).engine() as engine:
        end = engine.commits.subscribe(lambda execution, events, seq: told.extend(map(ev.type_of, events)))
        await (await engine.start(plan(Step(id="a", run="true")))).wait()
        end()
    assert told[-1] == "execution.finished"


async def test_k8_the_transcript_of_an_agent_and_a_message_to_it_go_through_the_engine(project: Project) -> None:
    world = world_of(project, Turn(session="s1").say("I did it"), done())
    async with world.engine() as engine:
        state = await (await engine.start(plan())).wait()
        texts = [entry.text for entry in await engine.transcript(state.id, "work")]
        assert any("I did it" in text for text in texts)
        assert (await engine.say(state.id, "work", "once more")).forked


async def test_d9_an_execution_that_cannot_be_read_is_told_by_the_engine(project: Project) -> None:
    world = world_of(project)
    state = await world.run(plan())
    async with world.engine() as engine:
        await world.journal.append(state.id, state.seq, [ev.AttemptFinished(1.0, "no-such-step", 1, None)])
        with pytest.raises(Damaged):
            await engine.state(state.id)
        assert set(engine.damaged) == {state.id}


async def test_c6_a_rule_for_always_is_in_the_settings_of_the_engine_at_once(project: Project) -> None:
    world = world_of(project, Turn().ask("Bash", {"command": "make"}).say("done"))
    async with world.engine() as engine:
        execution = await engine.start(plan(), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        rule = await engine.always_rule(execution.id, "work")
        assert rule is not None
        assert rule not in engine.settings.permissions.allow
        await engine.approve_always(execution.id, "work", rule)
        assert rule in engine.settings.permissions.allow
        assert (await execution.wait()).status == "completed"


async def test_j2_workers_get_turns_of_an_execution_from_the_engine_and_nobody_else_is_told(project: Project) -> None:
    world = world_of(project)
    told: list[str] = []
    async with world.engine() as engine:
        engine.commits.subscribe(lambda execution, events, seq: told.append(execution))
        shared = engine.shared("workers", "one")
        created = await engine.create(plan(agent()))
        state = await engine.state(created)
        began = ev.ExecutionStarted(engine.clock.now(), "workers")
        state.apply(began)
        await world.journal.append(created, 1, [began], head=head_of(state))
        turn = await shared.turn(created, hold=False)
        assert [due.step for due in turn.active] == ["work"]
        assert told == [], "no process sees all that is written of such an execution"


# -- a journal that was lost ----------------------------------------------------------------------


async def test_d9_a_journal_that_lost_its_executions_is_told_where_their_files_are_left(project: Project) -> None:
    world = world_of(project)
    files = project.home / "executions"
    files.mkdir(parents=True)
    async with world.engine() as engine:
        assert await engine.journal_loss() == "", "nothing was ever here"
        state = await (await engine.start(plan(Step(id="a", run="true")))).wait()
        await (await engine.start(plan(Step(id="a", run="true")))).wait()
    async with world.engine() as engine:
        assert await engine.journal_loss() == ""
        await world.journal.remove(state.id)
        assert await engine.journal_loss() == "", "there is another one"
        await world.journal.remove(*(head.id for head in await engine.executions()))
        assert await engine.journal_loss() == (
            f"the journal of {project.home} has lost its executions, of which there are checkpoint files: "
            "windlass doctor"
        )
    async with world.engine(journal="postgresql://elsewhere/windlass") as engine:
        assert await engine.journal_loss() == "", "a database of several homes may have none of this one"
    for file in files.glob("*.json"):
        file.unlink()
    async with world.engine() as engine:
        assert await engine.journal_loss() == ""
