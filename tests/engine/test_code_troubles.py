"""How programs end without a result (G1, G2): each has a kind, a category and advice, and none harms its neighbours."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, get_args

import pytest
from code_worlds import CodeWorld, Notes, code, kept, of, plan

import windlass
from windlass.core import events as ev
from windlass.engine.code.failures import failure_of
from windlass.errors import PlanInvalid, Trouble
from windlass.ports import ProgramError
from windlass.sandbox.programs import WasmSandbox

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL = {"cpu": "300ms", "memory": "16mb", "wall": "2m", "calls": 3, "output": "1kb", "log": "100b"}
TROUBLES: list[tuple[str, str, str]] = [
    ("syntax", "logic", "return {"),
    ("thrown", "logic", "throw new Error('enough');"),
    ("unhandled", "logic", "Promise.reject(new Error('nobody looks')); await tools.note({text: 'a'}); return 1;"),
    ("stalled", "logic", "await new Promise(() => {});"),
    ("memory", "resource", "const all = []; for (;;) all.push(new Uint8Array(1 << 20));"),
    ("stack", "resource", "const deep = () => deep() + 1; return deep();"),
    ("cpu", "resource", "for (;;);"),
    ("wall", "resource", "await tools.hangs();"),
    ("calls", "resource", "for (let n = 0; n < 9; n++) await tools.note({text: 'a'});"),
    ("output", "resource", "return 'x'.repeat(2000);"),
    ("log", "resource", "for (;;) console.log('x'.repeat(50));"),
    ("depth", "logic", "return await tools.itself({});"),
    ("marshal", "logic", "return () => 1;"),
]


@pytest.fixture
def world(project: Project, sandbox: WasmSandbox) -> CodeWorld:
    @windlass.tool
    async def hangs() -> None:
        await asyncio.Event().wait()

    made = CodeWorld(project, sandbox, [*Notes().tools, hangs])
    made.shelf.save(kept("itself", "return await tools.itself({});", "*"))
    return made


@pytest.mark.parametrize(("kind", "category", "source"), TROUBLES, ids=[kind for kind, *_ in TROUBLES])
async def test_g1_each_way_to_end_has_a_kind_a_category_and_advice(
    world: CodeWorld, kind: str, category: str, source: str
) -> None:
    limits = {**SMALL, "wall": "1s"} if kind == "wall" else SMALL
    state = await world.run(plan(code(source, limits=limits, retry={"max": 0}), code("return 'fine';", "other")))
    error = state.steps["work"].error
    assert error is not None, state.steps["work"].output
    assert (error.kind, str(error.category)) == (kind, category), error.message
    assert error.message
    assert error.advice
    assert state.steps["other"].output == "fine"


async def test_g1_a_program_that_cannot_be_parsed_is_refused_with_its_plan(world: CodeWorld) -> None:
    async with world.engine() as engine:
        engine._plans._sandbox = world.sandbox
        with pytest.raises(PlanInvalid, match=r"step work: .* of the program"):
            await engine.start(plan(code("return {")))
    assert await world.journal.heads() == []


async def test_g1_every_trouble_has_advice_and_only_what_may_end_otherwise_is_tried_again() -> None:
    known = {trouble: failure_of(ProgramError(trouble, "x")) for trouble in get_args(Trouble)}
    assert {kind for kind, *_ in TROUBLES} | {"lost", "diverged"} == set(known), "the table above has all of them"
    assert all(failure.advice and failure.kind == trouble for trouble, failure in known.items())
    again = {trouble for trouble, failure in known.items() if not failure.final}
    assert again == {"wall", "lost", "thrown", "unhandled"}
    assert str(known["lost"].category) == "transient"


async def test_g1_a_program_whose_worker_is_killed_goes_on_in_another(project: Project, sandbox: WasmSandbox) -> None:
    notes = Notes()

    @windlass.tool
    async def kills() -> int:
        """kill -9 to every worker, while the program waits in one of them."""
        for pid in sandbox.workers:
            os.kill(pid, signal.SIGKILL)
        return len(sandbox.workers)

    world = CodeWorld(project, sandbox, [*notes.tools, kills])
    source = """
    const first = [await tools.note({text: "a"}), Math.random(), Date.now()];
    const killed = await tools.kills();
    return [first, killed > 0, await tools.note({text: "b"}), console.log("once")];
    """
    step = await world.step(source)
    assert step.status == "completed", step.error
    assert (step.output[1:3], step.attempts) == ([True, "B"], 1)
    assert notes.done == ["a", "b"]


async def test_g1_a_limit_ends_what_is_under_way(project: Project, sandbox: WasmSandbox) -> None:
    stopped: list[str] = []

    @windlass.tool
    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("hangs")

    world = CodeWorld(project, sandbox, [*Notes().tools, hangs])
    source = "tools.hangs(); await tools.note({text: 'a'}); for (;;);"
    step = await world.step(source, limits=SMALL)
    assert step.error is not None
    assert (step.error.kind, stopped) == ("cpu", ["hangs"])


async def test_g1_a_failed_call_that_nobody_awaits_fails_the_step_with_its_own_words(
    project: Project, sandbox: WasmSandbox
) -> None:
    @windlass.tool
    async def fails() -> None:
        raise windlass.ToolError("the tap is shut", category="configuration")

    step = await CodeWorld(project, sandbox, [fails]).step("tools.fails(); return 1;", retry={"max": 0})
    assert step.error is not None
    assert (step.error.kind, str(step.error.category)) == ("unhandled", "configuration")
    assert "the tap is shut" in step.error.message


async def test_g1_what_a_program_logged_before_it_threw_is_in_the_output(world: CodeWorld) -> None:
    state = await world.run(plan(code("console.log('so far'); throw new Error('enough');", retry={"max": 0})))
    written = of(await world.events(state.id), ev.OutputWritten)
    assert [(event.stream, event.text) for event in written] == [("log", "so far\n")]


async def test_g1_many_programs_at_once_keep_apart(project: Project, sandbox: WasmSandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools)
    source = "let all = ''; for (let n = 0; n < 5; n++) all += await tools.note({text: `${args.id}${n}`}); return all;"
    steps: list[Any] = [code(source, f"s{number}", with_={"id": chr(97 + number)}) for number in range(12)]
    state = await world.run(plan(*steps, limits={"parallel": 12}))
    for number in range(12):
        letter = chr(65 + number)
        assert state.steps[f"s{number}"].output == "".join(f"{letter}{n}" for n in range(5))
    assert len(notes.done) == 60
