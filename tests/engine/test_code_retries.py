"""After a failed attempt, a changed plan or a changed tool: what worked is kept, what failed is done again (G1, C3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from code_worlds import CodeWorld, Notes, code, failure, kept, of, plan, quick

import windlass
from windlass import ToolError
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.commit_writer import head_of
from windlass.ports import Sandbox, Tool
from windlass.process import ProcessLost
from windlass.testing import MemoryJournal

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Flaky(Notes):
    """Besides the rest: `flaky`, which works from its second time on."""

    def __init__(self, category: str = "transient") -> None:
        super().__init__()

        @windlass.tool
        async def flaky(text: str) -> str:
            self.done.append(text)
            if self.done.count(text) == 1:
                raise ToolError("the line is down", category=category)
            return text

        self.tools.append(flaky)


async def test_c3_calls_that_worked_are_not_made_again_and_the_failed_one_is(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Flaky()
    world = CodeWorld(project, sandbox, notes.tools)
    source = """
    const [a, b] = await Promise.all([tools.note({text: "a"}), tools.pay({text: "b"})]);
    return [a, b, await tools.flaky({text: "c"}), await tools.note({text: "d"}), Math.random()];
    """
    state = await world.run(plan(source))
    assert state.steps["work"].output[:4] == ["A", "paid b", "c", "D"]
    assert state.steps["work"].attempts == 2
    assert notes.done == ["a", "b", "c", "c", "d"]
    (first,) = of(await world.events(state.id), ev.AttemptFailed)
    assert (first.failure.category, first.failure.kind) == ("transient", "thrown")
    assert "call 3 (flaky): the line is down" in first.failure.message


async def test_c3_a_failure_that_the_program_catches_is_no_failure_of_the_step(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Flaky()
    world = CodeWorld(project, sandbox, notes.tools)
    source = """
    for (let n = 1; ; n++) {
      try { return [n, await tools.flaky({text: "a"})]; }
      catch (error) { await tools.note({text: `${error.category} ${error.tool}`}); }
    }
    """
    step = await world.step(source)
    assert (step.output, step.attempts) == ([2, "a"], 1)
    assert notes.done == ["a", "transient flaky", "a"]


async def test_c3_a_further_attempt_may_take_another_way(project: Project, sandbox: Sandbox) -> None:
    """First the flaky one fails and the program does something else; then that fails; then the flaky one works."""
    notes = Flaky()
    world = CodeWorld(project, sandbox, notes.tools)
    source = """
    await tools.note({text: "before"});
    let seen = "";
    try { seen = await tools.flaky({text: "a"}); } catch { seen = await tools.note({text: "instead"}); }
    if (seen === "a") return await tools.note({text: "with it"});
    await tools.flaky({text: "b"});
    """
    step = await world.step(source)
    assert (step.output, step.attempts) == ("WITH IT", 2)
    assert notes.done == ["before", "a", "instead", "b", "a", "with it"]


async def test_g1_on_another_way_nothing_that_worked_is_done_again_even_after_a_crash(
    project: Project, sandbox: Sandbox
) -> None:
    """In the second attempt results come in another order, and so the calls have other numbers than in the first."""
    notes = Flaky()

    @windlass.tool
    async def last(text: str) -> str:
        notes.done.append(text)
        if notes.done.count(text) == 1:
            raise ToolError("again", category="transient")
        return text

    world = CodeWorld(project, sandbox, [*notes.tools, last])
    source = """
    const chain = async (name, first) => { await first; return tools.note({text: `after ${name}`}); };
    const flaky = tools.flaky({text: "f"}).catch(() => "failed");
    const a = chain("a", tools.note({text: "a"}));
    const b = chain("f", flaky);
    await Promise.all([a, b]);
    await Promise.all([chain("x", tools.note({text: "x"})), chain("y", flaky), chain("z", tools.look({text: "z"}))]);
    return await tools.last({text: "end"});
    """
    state = await world.run(plan(source))
    assert state.steps["work"].attempts == 2
    assert sorted(notes.done) == sorted([*"affxz", "end", "end", *(f"after {name}" for name in "afxyz")])
    history = await world.events(state.id)
    second = next(n for n, event in enumerate(history) if isinstance(event, ev.AttemptStarted) and event.attempt == 2)
    for end in range(second + 1, len(history) - 1):
        again = MemoryJournal()
        await again.append(state.id, 0, history[:end], head=head_of(fold(history[:end])))
        log = fold(history[:end]).steps["work"].programs
        assert log is not None
        ended = {call.input["text"] for call in log.calls.values() if call.ended}
        notes.done.clear()
        notes.done += ["f", "end"]
        result = await world.with_journal(again).resume(state.id)
        assert result.status == "completed", result.steps["work"].error
        repeated = [text for text in notes.done[2:] if text in ended]
        assert repeated == [], f"cut off after event {end}"


async def test_g1_a_call_in_doubt_is_one_call_of_the_other_way_though_several_there_are_the_same(
    project: Project, sandbox: Sandbox
) -> None:
    """One was cut off, and the further attempt makes two of them at once: only one of these may be a repetition."""
    notes = Flaky()

    @windlass.tool(effect="once")
    async def send(text: str) -> str:
        notes.done.append(text)
        if notes.done.count(text) == 1:
            raise ProcessLost("how it ended is unknown")
        return text

    world = CodeWorld(project, sandbox, [*notes.tools, send])
    source = """
    const more = await tools.flaky({text: "f"}).then(() => 1, () => 0);
    return await Promise.all(Array(1 + more).fill().map(() => tools.send({text: "a"})));
    """
    state = await world.run(plan(source))
    assert (state.paused_for, notes.done) == ("approval", ["f", "a", "f"]), state.steps["work"].error
    state = await allowed(world, state)
    assert (state.status, state.steps["work"].output) == ("completed", ["a", "a"])
    assert len(of(await world.events(state.id), ev.ApprovalAsked)) == 1


async def test_c3_what_would_end_the_same_again_is_not_tried_again(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools)
    for source in ("await tools.note({text: 'a'}); return () => 1;", "const a = [];\nfor (;;) a.push(a);", "return {"):
        step = await world.step(source, limits={"cpu": "300ms"})
        assert step.attempts == 1
        assert step.error is not None
        assert step.error.final
    assert notes.done == ["a"]


async def test_g1_a_changed_program_begins_anew_and_keeps_what_is_the_same(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, approvals={"always": ["pay"]})
    path = project.path / "plan.yaml"
    text = "{steps: [{id: work, code: \"await tools.note({text: 'a'}); await tools.note({text: '%s'}); %s\"}]}"
    path.write_text(text % ("b", "return await tools.pay({text: 'p'})"))
    async with world.engine() as engine:
        execution = await engine.start(path, hold=False)
        assert (await execution.wait()).paused_for == "approval"
    path.write_text(text % ("c", "return 1"))
    state = await world.resume(execution.id, accept_changes=True)
    assert (state.status, state.steps["work"].output) == ("completed", 1)
    assert notes.done == ["a", "b", "c"]
    began = of(await world.events(execution.id), ev.ProgramBegan)
    assert len({event.digest for event in began}) == 2, "the journal says that another program began"


async def test_g1_a_fork_makes_all_calls_anew(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools)
    async with world.engine() as engine:
        execution = await engine.start(plan("return await tools.note({text: 'a'});"))
        await execution.wait()
        forked = await engine.resume(await engine.fork(execution.id, from_step="work"))
        assert (await forked.wait()).status == "completed"
    assert notes.done == ["a", "a"]


async def diverging(world: CodeWorld, source: str, change: Any = None, tools: list[Tool] | None = None) -> State:
    """Stopped at a question, then gone on with from a journal that says something else, or with other tools."""
    state = await world.run(plan(code(source)))
    assert state.paused_for == "approval", state.steps["work"].error
    history = [change(event) if change else event for event in await world.events(state.id)]
    journal = MemoryJournal()
    await journal.append(state.id, 0, history, head=head_of(fold(history)))
    return await allowed(world.with_journal(journal, tools), state)


async def allowed(world: CodeWorld, state: State) -> State:
    async with world.engine() as engine:
        await engine.approve(state.id, "work")
    return await world.resume(state.id)


@pytest.mark.parametrize("how", ["input", "tool", "more", "gone"])
async def test_g1_a_program_that_does_not_do_the_same_again_fails_as_diverged(
    project: Project, sandbox: Sandbox, how: str
) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, approvals={"always": ["pay"]})

    def changed(event: ev.Event) -> ev.Event:
        if isinstance(event, ev.CallStarted) and event.call == "1":
            if how == "input":
                return ev.CallStarted(event.at, event.step, 1, "1", "note", {"text": "b"}, event.effect)
            if how == "tool":
                return ev.CallStarted(event.at, event.step, 1, "1", "look", event.input, event.effect)
        if how == "more" and isinstance(event, ev.CallFinished):
            return ev.CallFinished(event.at, event.step, event.attempt, event.call, "stop")
        return event

    source = """
    const first = await tools.note({text: "a"});
    if (first === "stop") return 1;
    await tools.note({text: typeof tools.look});
    return await tools.pay({text: "p"});
    """
    tools = [tool for tool in notes.tools if tool.name != "look"] if how == "gone" else None
    state = await diverging(world, source, changed, tools)
    if how == "more":
        assert state.steps["work"].output == 1, "it needs fewer results than there are, and comes to an end"
        return
    failed = failure(state)
    assert (failed.kind, failed.category, failed.final) == ("diverged", "logic", True)
    assert "run this step from its start" in failed.advice[0]
    assert state.steps["work"].attempts == 2
    assert notes.done == ["a", "function"], "nothing is done on a wrong path"


async def test_g3_a_composed_tool_that_was_changed_meanwhile_begins_anew(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, approvals={"always": ["pay"]})
    world.shelf.save(kept("both", "await tools.note({text: 'a'}); return await tools.pay({text: 'p'});", "*"))
    state = await world.run(plan("return await tools.both({});"))
    assert state.paused_for == "approval"
    world.shelf.save(kept("both", "await tools.note({text: 'b'}); return 2;", "*"))
    state = await allowed(world, state)
    assert state.steps["work"].output == 2
    assert notes.done == ["a", "b"]


async def test_c3_resource_failures_of_calls_are_tried_again_and_those_that_no_retry_can_mend_are_not(
    project: Project, sandbox: Sandbox
) -> None:
    notes = Flaky("resource")
    world = CodeWorld(project, sandbox, notes.tools)
    step = await world.step("return await tools.flaky({text: 'a'});", retry=quick)
    assert (step.output, step.attempts) == ("a", 2)
    for category in ("logic", "permission"):
        notes = Flaky(category)
        step = await CodeWorld(project, sandbox, notes.tools).step("return await tools.flaky({text: 'a'});")
        assert (step.status, step.attempts) == ("failed", 1), category
