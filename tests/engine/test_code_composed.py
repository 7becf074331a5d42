"""Composed tools through the engine (G3): schemas, grants, limits, depth, counts, and what is damaged."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from code_worlds import CodeWorld, Notes, code, failure, kept, of, plan

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.engine.code.composed import FRESH, Composed
from windlass.errors import PlanInvalid, UsageError
from windlass.ports import Sandbox
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMED = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GREET = kept("greet", "return {said: await tools.note({text: `hello ${args.name}`})};", "note", schema=NAMED)


class World:
    def __init__(self, project: Project, sandbox: Sandbox, *tools: Any, **settings: Any) -> None:
        self.notes = Notes()
        self.code = CodeWorld(project, sandbox, self.notes.tools, **settings)
        for tool in (GREET, *tools):
            self.code.shelf.save(tool)

    async def step(self, source: str, **more: Any) -> Any:
        return await self.code.step(source, **{"retry": {"max": 0}, **more})

    async def tool(self, name: str, **more: Any) -> Any:
        """A step of a plan that is this tool."""
        step = Step(id="work", tool=name, retry={"max": 0}, **more)
        return (await self.code.run(Plan(steps=[step]))).steps["work"]


async def test_g3_it_is_used_from_a_plan_from_code_and_from_another(project: Project, sandbox: Sandbox) -> None:
    outer = kept("outer", "return await tools.greet({name: args.who});", "greet", "note")
    world = World(project, sandbox, outer)
    assert (await world.tool("greet", with_={"name": "{{ 'a' ~ 'nn' }}"})).output == {"said": "HELLO ANN"}
    assert (await world.step("return (await tools.greet({name: 'bob'})).said;")).output == "HELLO BOB"
    assert (await world.step("return (await tools.outer({who: 'cid'})).said;")).output == "HELLO CID"
    assert world.notes.done == ["hello ann", "hello bob", "hello cid"]


async def test_g3_its_calls_are_on_record_beneath_its_own(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox, kept("outer", "return await tools.greet({name: 'a'});", "*"))
    state = await world.code.run(plan("await tools.note({text: 'x'}); await tools.outer({});"))
    assert await world.code.calls(state.id) == ["1 note", "2 outer", "2.1 greet", "2.1.1 note"]
    assert [event.program for event in of(await world.code.events(state.id), ev.ProgramBegan)] == ["", "2", "2.1"]


@pytest.mark.parametrize(
    ("source", "said", "advice"),
    [
        ("const x = 1;\nawait tools.pay({text: 'a'});", "`tools.pay`, which is not granted to this program", "add pay"),
        ("await tools.notes.add({});", "`tools.notes.add`, which is not a tool", ""),
        ("await tools.files.raed({});", "`tools.files.raed`, which is not a tool", "did you mean tools.files.read?"),
    ],
)
async def test_g2_a_program_that_calls_what_it_was_not_given_is_told_so(
    project: Project, sandbox: Sandbox, source: str, said: str, advice: str
) -> None:
    world = World(project, sandbox, kept("wrong", source, "note"))
    error = (await world.tool("wrong")).error
    assert f"it calls {said}\nTypeError: " in error.message
    assert (error.category, error.final) == ("logic", True)
    assert error.advice[0].startswith(advice)


async def test_g3_arguments_are_held_to_its_schema_before_it_begins(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox)
    step = await world.step(
        "try { await tools.greet({name: 1}); } catch (error) { return [error.category, error.message]; }"
    )
    assert step.output[0] == "logic"
    assert "greet cannot take these arguments" in step.output[1]
    with pytest.raises(PlanInvalid, match="name"):
        await world.tool("greet", with_={"nam": "x"})
    assert world.notes.done == []


async def test_g3_results_are_held_to_its_returns(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox, kept("counts", "return args;", returns=NUMBER))
    assert (await world.step("return await tools.counts({n: 3});")).output == {"n": 3}
    for step in (
        await world.step("return await tools.counts({n: 'x'});"),
        await world.tool("counts", with_={"n": "x"}),
    ):
        assert step.error is not None
        assert step.error.category == "logic"
        assert "counts returned a result that does not match its `returns`" in step.error.message


@pytest.mark.parametrize(
    ("grants", "of_caller", "there"),
    [
        (("note",), None, "note"),
        (("note", "pay"), ["greet", "note", "both"], "note"),
        (("*",), ["both", "look"], "look"),
        (("note",), ["both", "pay"], ""),
        ((), None, ""),
    ],
)
async def test_g3_it_has_the_tools_that_it_names_and_its_caller_has(
    project: Project, sandbox: Sandbox, grants: tuple[str, ...], of_caller: list[str] | None, there: str
) -> None:
    source = "return ['note', 'pay', 'look'].filter((name) => tools[name]).join();"
    world = World(project, sandbox, kept("both", source, *grants))
    from_code = await world.step("return await tools.both({});", grants=of_caller)
    assert from_code.output == there
    found = await world.step(
        "return await tools.code.search({query: 'pay'});", grants=[*(of_caller or "*"), "code.search"]
    )
    assert ("pay:" in found.output) == (of_caller is None or "pay" in of_caller), "none is found that cannot be called"
    as_step = await world.tool("both", grants=of_caller)
    assert as_step.output == there


async def test_g3_nothing_calls_itself_and_none_goes_too_deep(project: Project, sandbox: Sandbox) -> None:
    chain = [kept(f"t{n}", f"return 1 + await tools.t{n + 1}({{}});", "*") for n in range(9)]
    circle = [kept("ping", "return await tools.pong({});", "*"), kept("pong", "return await tools.ping({});", "*")]
    world = World(project, sandbox, *chain, kept("t9", "return 1;"), *circle)
    assert (await world.step("return await tools.t2({});")).output == 8
    for name, told in (("t1", "more than 8 composed tools"), ("ping", "cannot call itself: ping → pong → ping")):
        step = await world.step(f"return await tools.{name}({{}});")
        assert step.error is not None
        assert told in step.error.message
        assert (step.error.kind, step.error.advice[0]) == ("depth", "nest fewer composed tools")


@pytest.mark.parametrize(
    ("limits", "kind"), [({"calls": 6}, "calls"), ({"cpu": "400ms"}, "cpu"), ({"log": "200b"}, "log")]
)
async def test_g3_all_that_a_program_calls_shares_its_limits(
    project: Project, sandbox: Sandbox, limits: dict[str, Any], kind: str
) -> None:
    rounds = 4e6 if kind == "cpu" else 1  # computing has a limit of its own, also when none is given
    source = f"""
    console.log("x".repeat(60));
    for (let n = 0, x = 0; n < {rounds}; n++) x += n % 7;
    return await tools.note({{text: "a"}});
    """
    world = World(project, sandbox, kept("busy", source, "note"))
    step = await world.step("for (let n = 0; n < 20; n++) await tools.busy({});", limits=limits)
    assert step.error is not None
    assert (step.error.kind, step.error.category, step.error.final) == (kind, "resource", True)


async def test_g3_it_is_counted_how_often_it_is_used_and_fails(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox, kept("fails", "throw new Error('no');"))
    source = "for (const n of ['a', 'b']) await tools.greet({name: n}); await tools.fails({}).catch(() => 0);"
    assert (await world.step(source)).status == "completed"
    assert (await world.tool("greet", with_={"name": "c"})).status == "completed"
    shelf = world.code.shelf
    uses = {tool.name: shelf.uses(tool)[:2] for tool in shelf.all()}
    assert uses == {"greet": (3, 0), "fails": (1, 1)}


async def test_g3_one_that_is_saved_while_the_engine_is_open_is_found_and_one_that_is_deleted_is_not(
    project: Project, sandbox: Sandbox
) -> None:
    world = World(project, sandbox)
    async with world.code.engine() as engine:
        world.code.shelf.save(kept("late", "return 1;"))
        execution = await engine.start(plan("return await tools.late({});"))
        assert (await execution.wait()).steps["work"].output == 1
        world.code.shelf.delete("late")
        execution = await engine.start(plan("return typeof tools['la' + 'te'];"))
        assert (await execution.wait()).steps["work"].output == "undefined"


async def test_g3_two_changes_within_a_tick_of_the_file_systems_clock_are_both_seen(
    project: Project, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tools.composed.shelf.TICK", 3600 * 10**9)  # on a slow machine too
    world, folder = World(project, sandbox), project.home / "composed-tools"
    changed = folder.stat().st_mtime_ns
    assert world.code.registry.get("greet") is not None
    world.code.shelf.delete("greet")
    os.utime(folder, ns=(changed, changed))
    assert world.code.registry.get("greet") is None


async def test_g3_an_edit_in_place_shows_after_a_moment_until_which_the_same_list_is_used(
    project: Project, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(1000.0)
    monkeypatch.setattr("windlass.engine.code.composed.time", SimpleNamespace(monotonic=clock.now))
    monkeypatch.setattr("windlass.tools.composed.shelf.TICK", -1)  # files that came or went show at once
    world = World(project, sandbox)
    before = world.code.registry.get("greet")
    (project.home / "composed-tools" / "greet.js").write_text("return 2;")
    clock.advance(FRESH)
    assert world.code.registry.get("greet") is before
    clock.advance(FRESH)
    edited = world.code.registry.get("greet")
    assert isinstance(edited, Composed)
    assert edited.composed.source == "return 2;"


@pytest.mark.parametrize("name", ["note", "code", "shell", "files.read", "files.mine", "note.more"])
async def test_g3_the_names_of_other_tools_are_taken(project: Project, sandbox: Sandbox, name: str) -> None:
    world = World(project, sandbox)
    with pytest.raises(UsageError):
        world.code.shelf.save(kept(name, "return 1;"))


async def test_g3_what_is_damaged_harms_nothing_else(project: Project, sandbox: Sandbox) -> None:
    folder = project.home / "composed-tools"
    world = World(project, sandbox, kept("broken", "return 1;"), kept("half", "return 1;"))
    (folder / "broken.json").write_text("{")
    (folder / "half.js").unlink()
    (folder / "note.js").write_text("return 'mine';")
    (folder / "note.json").write_text('{"schema": {"type": "object"}}')
    step = await world.step(
        "return [await tools.note({text: 'a'}), typeof tools['bro' + 'ken'], (await tools.greet({name: 'b'})).said];"
    )
    assert step.output == ["A", "undefined", "HELLO B"], "one of the name of another tool is not that tool"
    assert len(world.code.shelf.problems()) >= 2


async def test_g3_a_failure_inside_is_told_with_where_it_was(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox, kept("wrong", "return await tools.note({});", "note"))
    state = await world.code.run(plan(code("return await tools.wrong({});", retry={"max": 0})))
    told = failure(state).message
    assert "call 1 (wrong)" in told
    assert "note cannot take these arguments" in told
    caught = await world.step("try { await tools.wrong({}); } catch (error) { return error.message; }")
    assert caught.output == "wrong failed (logic)", "a program sees nothing of what happens inside another"


async def test_g3_a_question_inside_is_asked_with_the_inner_arguments_and_nothing_is_repeated(
    project: Project, sandbox: Sandbox
) -> None:
    buys = kept("buys", "await tools.note({text: 'first'}); return await tools.pay({text: args.what});", "note", "pay")
    world = World(project, sandbox, buys, approvals={"always": ["pay"]})
    state = await world.code.run(plan("return await tools.buys({what: 'rope'});"))
    question = state.steps["work"].approval
    assert question is not None
    assert (question.tool, question.input) == ("pay", {"text": "rope"})
    async with world.code.engine() as engine:
        await engine.approve(state.id, "work")
    state = await world.code.resume(state.id)
    assert state.steps["work"].output == "paid rope"
    assert world.notes.done == ["first", "rope"]
