"""Approval in the middle of a program (C6, G2): what is asked, what goes on meanwhile, and what an answer holds for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from code_worlds import CodeWorld, Notes, code, failure, occurred, of, plan
from waiting import skip_time

import windlass
from windlass.core import events as ev
from windlass.core.state import State
from windlass.ports import Sandbox

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = {"approvals": {"always": ["pay"]}}
THREE = """
const results = await Promise.allSettled([
  tools.slow({text: "a"}), tools.pay({text: "b"}), tools.slow({text: "c"}),
]);
return results.map((result) => result.status === "fulfilled" ? result.value : result.reason.category);
"""


class Slow(Notes):
    """Besides the rest: `slow`, which ends when it is let go, and says when it is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go, self.cut_off = asyncio.Event(), asyncio.Event(), False

        @windlass.tool
        async def slow(text: str) -> str:
            self.done.append(text)
            self.begun.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cut_off = True
                raise
            return text

        self.tools.append(slow)


async def asked(world: CodeWorld, source: str, **more: object) -> State:
    """A run that stands still at its first question."""
    state = await world.run(plan(code(source, **more)))
    assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
    return state


async def answer(world: CodeWorld, state: State, allow: bool = True, note: str = "") -> State:
    async with world.engine() as engine:
        await engine.approve(state.id, "work", allow=allow, note=note)
    return await world.resume(state.id)


async def test_c6_a_question_shows_the_tool_and_its_exact_arguments(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    state = await asked(world, "await tools.note({text: 'before'}); return await tools.pay({text: 'to ' + 'ann'});")
    question = state.steps["work"].approval
    assert question is not None
    assert (question.tool, question.input) == ("pay", {"text": "to ann"})
    assert notes.done == ["before"]
    state = await answer(world, state)
    assert (state.status, state.steps["work"].output) == ("completed", "paid to ann")
    assert notes.done == ["before", "to ann"], "the answer was found after a restart, and nothing was done again"


async def test_c6_what_is_under_way_is_not_cut_off_by_a_question(project: Project, sandbox: Sandbox) -> None:
    """Nobody is there to answer, so the execution stands still; but not before what was begun has ended."""
    notes = Slow()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    async with world.engine() as engine:
        execution = await engine.start(plan(THREE), hold=False)
        await notes.begun.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        state = await execution.state()
        assert (state.status, state.steps["work"].approval) == ("running", None)
        notes.go.set()
        state = await execution.wait()
    assert (state.paused_for, notes.cut_off) == ("approval", False)
    assert "b" not in notes.done
    state = await answer(world, state)
    assert state.steps["work"].output == ["a", "paid b", "c"]
    assert sorted(notes.done) == ["a", "b", "c"]


async def test_c6_a_denied_call_is_a_permission_error_that_a_program_can_catch(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    source = """
    try { await tools.pay({text: "a"}); }
    catch (error) {
      return [error.name, error.category, error.tool, error.message, await tools.note({text: "instead"})];
    }
    """
    state = await answer(world, await asked(world, source), allow=False, note="see /home/ann/why")
    assert state.steps["work"].output == ["ToolError", "permission", "pay", "it was not allowed", "INSTEAD"]
    assert notes.done == ["instead"]
    (failed,) = of(await world.events(state.id), ev.CallFailed)
    assert "see /home/ann/why" in failed.failure.message, "people see the note, programs do not"


async def test_c6_a_denial_that_is_not_caught_fails_the_step_with_the_note(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    state = await asked(world, "return await tools.pay({text: 'a'});", retry={"max": 0})
    failed = failure(await answer(world, state, allow=False, note="not today"))
    assert (failed.category, failed.kind) == ("permission", "thrown")
    assert "call 1 (pay): pay was not allowed: a person denied it: not today" in failed.message
    assert notes.done == []


async def test_c6_the_same_call_twice_is_asked_about_twice(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    source = "return [await tools.pay({text: 'a'}), await tools.pay({text: 'a'})];"
    state = await answer(world, await asked(world, source))
    assert (state.paused_for, notes.done) == ("approval", ["a"])
    state = await answer(world, state)
    assert (state.steps["work"].output, notes.done) == (["paid a", "paid a"], ["a", "a"])


async def test_c6_questions_of_one_group_come_one_after_another_while_it_is_held(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, **ASK)
    source = "return await Promise.all(['a', 'b', 'c'].map((text) => tools.pay({text})));"
    async with world.engine() as engine:
        execution = await engine.start(plan(source), hold=True)
        for count, text in enumerate("abc", 1):
            question = await occurred(execution, ev.ApprovalAsked, count)
            assert question.input == {"text": text}
            await execution.approve("work")
        state = await execution.wait()
    assert state.steps["work"].output == ["paid a", "paid b", "paid c"]
    assert state.steps["work"].attempts == 1


async def test_g2_the_patterns_of_the_settings_hold_for_calls_from_code(project: Project, sandbox: Sandbox) -> None:
    world = CodeWorld(project, sandbox, approvals={"always": ["files.*"]})
    state = await asked(world, "return await tools.files.write({path: 'a.txt', content: 'x'});")
    question = state.steps["work"].approval
    assert question is not None
    assert (question.tool, question.input) == ("files.write", {"path": "a.txt", "content": "x"})
    assert not (project.path / "a.txt").exists()
    assert (await answer(world, state)).status == "completed"
    assert (project.path / "a.txt").read_text() == "x"


async def test_g2_what_is_sensitive_is_asked_about_where_the_step_says_so(project: Project, sandbox: Sandbox) -> None:
    project.file("a.txt", "x")
    world = CodeWorld(project, sandbox)
    source = "return await tools.files.delete({path: 'a.txt'});"
    assert (await asked(world, source, approve="sensitive")).steps["work"].approval is not None
    assert (project.path / "a.txt").exists()


async def test_c6_the_time_of_a_question_counts_for_no_limit(project: Project, sandbox: Sandbox) -> None:
    """The person takes longer than the program may."""
    notes, begun = Notes(), asyncio.Event()

    @windlass.tool(effect="none")
    async def hangs() -> None:
        begun.set()
        await asyncio.Event().wait()

    world = CodeWorld(project, sandbox, [*notes.tools, hangs], **ASK)
    step = code("return await tools.pay({text: 'a'});", limits={"wall": "2m"}, timeout="2m")
    late = code("await tools.hangs();", "late", limits={"wall": "2m"}, retry={"max": 0})
    async with world.engine() as engine:
        execution = await engine.start(plan(step, late), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await begun.wait()
        skip_time(120)
        async for event in execution.events():
            if isinstance(event, ev.AttemptFailed):
                break  # a step with the same limit, begun at the same time, has run out of it
        await execution.approve("work")
        state = await execution.wait()
    assert state.steps["work"].output == "paid a"
    assert (failure(state, "late").kind, failure(state, "late").category) == ("wall", "resource")
