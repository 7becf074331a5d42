"""Pause, interruption, cancellation and time limits in the middle of a program (C5, G1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from code_worlds import CodeWorld, Notes, code, failure, occurred, of, plan
from waiting import skip_time

import windlass
from windlass.core import events as ev
from windlass.ports import Sandbox
from windlass.process import ProcessLost

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = """
const first = await tools.note({text: "first"});
const held = await tools.hold({text: "held"});
return [first, held, await tools.note({text: "last"})];
"""


class Holding(Notes):
    """Besides the rest: `hold`, which ends only from its second time on, and `hold_once`, which may happen once.

    With `late`, so many seconds have passed when it is held.
    """

    def __init__(self, late: float = 0.0) -> None:
        super().__init__()
        self.begun = asyncio.Event()

        async def holding(text: str) -> str:
            self.done.append(text)
            self.begun.set()
            if self.done.count(text) == 1:
                skip_time(late)
                await asyncio.Event().wait()
            return text

        self.tools += [windlass.tool(name="hold")(holding), windlass.tool(name="hold_once", effect="once")(holding)]


async def test_c5_an_interrupted_program_goes_on_where_it_was(project: Project, sandbox: Sandbox) -> None:
    notes = Holding()
    world = CodeWorld(project, sandbox, notes.tools)
    async with world.engine() as engine:
        execution = await engine.start(plan(SOURCE))
        await notes.begun.wait()
        await execution.pause(now=True)
        assert (await execution.state()).status == "paused"
    state = await world.resume(execution.id)
    assert state.steps["work"].output == ["FIRST", "held", "LAST"]
    assert notes.done == ["first", "held", "held", "last"]


async def test_c5_a_pause_lets_the_program_come_to_its_end(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    begun, go = asyncio.Event(), asyncio.Event()

    @windlass.tool
    async def slow() -> None:
        begun.set()
        await go.wait()

    world = CodeWorld(project, sandbox, [*notes.tools, slow])
    source = "await tools.slow(); return await tools.note({text: 'after'});"
    async with world.engine() as engine:
        execution = await engine.start(plan(code(source), code("return 1;", "next", needs=["work"])))
        await begun.wait()
        pausing = asyncio.ensure_future(execution.pause())
        await occurred(execution, ev.ControlRequested)
        go.set()
        await pausing
        state = await execution.wait()
    assert {step.id: str(step.status) for step in state.steps.values()} == {"work": "completed", "next": "pending"}
    assert notes.done == ["after"]


async def test_c5_a_closed_engine_leaves_a_program_that_another_goes_on_with(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Holding()
    world = CodeWorld(project, sandbox, notes.tools)
    async with world.engine() as engine:
        execution = await engine.start(plan(SOURCE))
        await notes.begun.wait()
    assert (await world.resume(execution.id)).status == "completed"
    assert notes.done == ["first", "held", "held", "last"]


@pytest.mark.parametrize(("allow", "output"), [(True, "held"), (False, "permission")])
async def test_g1_what_may_happen_once_and_was_cut_off_is_put_to_a_person(
    project: Project, sandbox: Sandbox, allow: bool, output: str
) -> None:
    notes = Holding()
    world = CodeWorld(project, sandbox, notes.tools)
    source = "try { return await tools.hold_once({text: 'held'}); } catch (error) { return error.category; }"
    async with world.engine() as engine:
        execution = await engine.start(plan(source))
        await notes.begun.wait()
        await execution.pause(now=True)
    state = await world.resume(execution.id)
    question = state.steps["work"].approval
    assert (state.paused_for, notes.done) == ("approval", ["held"])
    assert question is not None
    assert (question.tool, question.input) == ("hold_once", {"text": "held"})
    assert "may or may not have taken effect" in question.question
    async with world.engine() as engine:
        await engine.approve(execution.id, "work", allow=allow)
    state = await world.resume(execution.id)
    assert state.steps["work"].output == output
    assert notes.done == ["held"] * (2 if allow else 1)


async def test_c5_a_cancelled_execution_stops_its_program_and_its_calls(project: Project, sandbox: Sandbox) -> None:
    notes = Holding()
    world = CodeWorld(project, sandbox, notes.tools)
    async with world.engine() as engine:
        execution = await engine.start(plan(SOURCE))
        await notes.begun.wait()
        await execution.cancel()
        assert (await execution.wait()).status == "cancelled"
    assert notes.done == ["first", "held"]


async def test_c3_a_step_that_is_out_of_time_does_again_only_what_was_cut_off(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Holding(late=120)
    world = CodeWorld(project, sandbox, notes.tools)
    state = await world.run(plan(code(SOURCE, timeout="2m")))
    assert state.steps["work"].output == ["FIRST", "held", "LAST"]
    assert state.steps["work"].attempts == 2
    assert notes.done == ["first", "held", "held", "last"]


async def test_g1_what_may_happen_once_is_not_repeated_unasked_after_a_timeout(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Holding(late=120)
    world = CodeWorld(project, sandbox, notes.tools)
    state = await world.run(plan(code("return await tools.hold_once({text: 'held'});", timeout="2m")))
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert notes.done == ["held"]


@pytest.mark.parametrize("lost", ["time", "process"])
async def test_g1_what_may_happen_once_is_not_repeated_unasked_when_it_was_ended_from_outside(
    project: Project, sandbox: Sandbox, lost: str
) -> None:
    """Its own time was over, or its process was lost: nobody knows whether it took effect."""
    notes = Holding()

    @windlass.tool(effect="once")
    async def gone(text: str) -> str:
        notes.done.append(text)
        raise ProcessLost("the process that ran it is gone")

    world = CodeWorld(project, sandbox, [*notes.tools, gone], terms={"hold_once": {"timeout": "200ms"}})
    name = "hold_once" if lost == "time" else "gone"
    state = await world.run(plan(f"return await tools.{name}({{text: 'held'}});"))
    assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
    assert notes.done == ["held"]


async def test_g1_what_a_finished_program_left_unawaited_is_waited_for(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    go = asyncio.Event()

    @windlass.tool
    async def slow(text: str) -> str:
        await go.wait()
        notes.done.append(text)
        return text

    world = CodeWorld(project, sandbox, [*notes.tools, slow])
    async with world.engine() as engine:
        execution = await engine.start(plan("tools.slow({text: 'late'}); return await tools.note({text: 'done'});"))
        await occurred(execution, ev.CallFinished)
        assert (await execution.state()).steps["work"].status == "running"
        go.set()
        state = await execution.wait()
    assert (state.steps["work"].output, notes.done) == ("DONE", ["done", "late"])


async def test_g1_a_program_that_throws_waits_for_what_it_began(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools)
    source = "tools.pay({text: 'a'}); await tools.note({text: 'b'}); throw new Error('enough');"
    state = await world.run(plan(code(source, retry={"max": 0})))
    assert failure(state).kind == "thrown"
    assert len(of(await world.events(state.id), ev.CallFinished)) == 2, "how they ended is known"
