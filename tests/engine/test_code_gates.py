"""The gates before each call of a program (G2): grants, arguments, results; no word of the host gets through."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from code_worlds import CodeWorld, Notes, code, failure, of, plan

import windlass
from windlass import Call, ToolError
from windlass.core import events as ev
from windlass.ports import GuestCall, Program, ProgramRun, ProgramTurn, Sandbox, Tool
from windlass.sandbox.programs import WasmSandbox
from windlass.testing import MemoryJournal

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "/home/ann/.ssh/key"
SEEN = """
try { return await tools.NAME(args); }
catch (error) { return {...error, message: error.message, stack: String(error.stack), text: String(error)}; }
"""


async def test_g2_arguments_are_checked_before_anything_happens(project: Project, sandbox: Sandbox) -> None:
    notes = Notes()
    world = CodeWorld(project, sandbox, notes.tools, approvals={"always": ["note"]})
    source = "try { await tools.note(args); } catch (error) { return [error.category, error.message]; }"
    for given in ({}, {"text": 1}, {"text": "a", "more": 1}):
        step = await world.step(source, with_=given)
        category, message = step.output
        assert category == "logic"
        assert "note cannot take these arguments" in message
    assert notes.done == []


async def test_g2_results_are_held_to_what_the_tool_promises(project: Project, sandbox: Sandbox) -> None:
    @windlass.tool
    async def counts() -> int:
        return "many"  # type: ignore[return-value]

    step = await CodeWorld(project, sandbox, [counts]).step("return await tools.counts();", retry={"max": 0})
    assert step.error is not None
    assert (step.error.category, step.error.kind) == ("logic", "thrown")
    assert "counts returned a result that does not match its schema" in step.error.message


@pytest.mark.parametrize(
    ("grants", "there"),
    [
        ([], ""),
        (["note"], "note"),
        (["files.*"], "files"),
        (["files.r*", "look"], "files,look"),
        (None, "code,files,look,note,pay,shell"),
        (["a*", "cod*"], "code"),
    ],
)
async def test_g2_a_program_has_the_tools_that_are_granted_and_no_others(
    project: Project, sandbox: Sandbox, grants: list[str] | None, there: str
) -> None:
    world = CodeWorld(project, sandbox, Notes().tools)
    source = "return [Object.keys(tools).sort().join(), typeof tools.code, typeof tools.agent];"
    step = await world.step(source, grants=grants)
    names, of_code, of_agent = step.output
    assert [name for name in names.split(",") if name in "code,files,look,note,pay,shell"] == there.split(",")
    assert (of_code, of_agent) == ("object" if "code" in there else "undefined", "undefined"), (
        "code.search is no program"
    )


class Forging:
    """A sandbox whose program calls what it was not given: as one would that broke out of its worker."""

    def __init__(self, inner: Sandbox, tool: str, arguments: Any) -> None:
        self._inner, self._forged = inner, GuestCall(1, tool, arguments)

    async def open(self, program: Program) -> ProgramRun:
        return _Forged(self._forged)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Forged:
    def __init__(self, call: GuestCall) -> None:
        self._call = call

    async def begin(self) -> ProgramTurn:
        return ProgramTurn((self._call,))

    async def deliver(self, results: Any) -> ProgramTurn:
        return ProgramTurn(done=True, value=[[result.value, result.error and list(result.error)] for result in results])

    def park(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("name", ["pay", "agent", "code", "nothing.of.this.name"])
async def test_g2_a_forged_call_is_refused(project: Project, sandbox: WasmSandbox, name: str) -> None:
    notes = Notes()
    world = CodeWorld(project, Forging(sandbox, name, {"text": "a"}), notes.tools)
    state = await world.run(plan(code("return 1;", grants=["note"])))
    ((value, error),) = state.steps["work"].output
    assert (value, error) == (None, [f"{name} is not granted to this program", "permission"])
    assert notes.done == []
    assert len(of(await world.events(state.id), ev.CallStarted, ev.CallFailed)) == 2, "and it is on record"


def breaking() -> list[Tool]:
    """Tools that fail in every way there is."""

    class Odd(BaseException):
        pass

    @windlass.tool
    async def breaks(how: str) -> Any:
        match how:
            case "oserror":
                raise FileNotFoundError(2, "No such file", SECRET)
            case "exit":
                raise SystemExit(SECRET)
            case "cancelled":
                raise asyncio.CancelledError(SECRET)
            case "group":
                raise ExceptionGroup(SECRET, [ValueError(SECRET)])
            case "bytes":
                raise OSError(f"\udcff {SECRET}")
            case "unprintable":
                raise Unprintable
            case "own":
                raise ToolError(SECRET, category="resource", advice=[SECRET], retry_after=math.inf, output=SECRET)
            case "object":
                return object()
            case "nan":
                return {1: math.nan, "set": {1}, "of": Odd}
            case "large":
                return "x" * (17 * 1024 * 1024)

    @windlass.tool
    def blocks(how: str) -> Any:
        raise KeyError(SECRET)

    return [breaks, blocks]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ("name", "how", "category"),
    [
        ("breaks", "oserror", "configuration"),
        ("breaks", "exit", "logic"),
        ("breaks", "cancelled", "logic"),
        ("breaks", "group", "logic"),
        ("breaks", "bytes", "logic"),
        ("breaks", "unprintable", "logic"),
        ("breaks", "own", "resource"),
        ("breaks", "object", "logic"),
        ("breaks", "nan", "logic"),
        ("breaks", "large", "logic"),
        ("blocks", "sync", "logic"),
    ],
)
async def test_g2_of_whatever_a_tool_raises_the_program_sees_a_class_and_no_word_of_the_host(
    project: Project, sandbox: Sandbox, name: str, how: str, category: str
) -> None:
    world = CodeWorld(project, sandbox, breaking())
    state = await world.run(plan(code(SEEN.replace("NAME", name), with_={"how": how})))
    step = state.steps["work"]
    assert step.status == "completed", step.error
    seen = str(step.output)
    assert SECRET not in seen
    assert str(project.path) not in seen
    assert "Traceback" not in seen
    assert (step.output["category"], step.output["tool"]) == (category, name)
    assert step.output["message"] == f"{name} failed ({category})"
    (failed,) = of(await world.events(state.id), ev.CallFailed)
    assert failed.failure.where == name


async def test_g2_people_are_told_what_really_happened(project: Project, sandbox: Sandbox) -> None:
    world = CodeWorld(project, sandbox, breaking())
    state = await world.run(plan(code("return await tools.breaks({how: 'oserror'});", retry={"max": 0})))
    assert SECRET in failure(state).message


async def test_g2_functions_that_block_run_beside_each_other_and_get_a_place_of_their_own(
    project: Project, sandbox: Sandbox
) -> None:
    seen: list[Call] = []

    @windlass.tool
    def blocking(n: int, call: Call) -> int:
        seen.append(call)
        return n * 2

    world = CodeWorld(project, sandbox, [blocking])
    step = await world.step("return await Promise.all([1, 2, 3].map((n) => tools.blocking({n})));")
    assert step.output == [2, 4, 6]
    assert len({call.scratch for call in seen}) == len({call.effect_id for call in seen}) == 3
    assert all(call.contact is None for call in seen), "a tool that a program uses asks nobody itself"


async def test_g2_what_a_program_logs_is_in_the_log_of_its_step(project: Project, sandbox: Sandbox) -> None:
    world = CodeWorld(project, sandbox, Notes().tools)
    source = "console.log('one', {a: [1]}); await tools.note({text: 'x'}); console.log('two');"
    state = await world.run(plan(source))
    written = of(await world.events(state.id), ev.OutputWritten)
    assert {event.stream for event in written} == {"log"}
    assert "".join(event.text for event in written) == "one {a: [1]}\ntwo\n"


async def test_g2_a_call_that_changes_something_is_on_disk_before_it_begins(project: Project, sandbox: Sandbox) -> None:
    known: dict[str, list[str]] = {}

    @windlass.tool
    async def change(text: str, call: Call) -> str:
        events = await world.events(call.execution)
        known[text] = [event.input["text"] for event in of(events, ev.CallStarted)]
        return text

    world = CodeWorld(project, sandbox, [change])
    source = """
    for (const text of ["a", "b"]) await tools.change({text});
    await Promise.all(["c", "d"].map((text) => tools.change({text})));
    """
    assert (await world.step(source)).status == "completed"
    assert all(text in begun for text, begun in known.items())
    assert set(known) == set("abcd")


async def test_g2_a_program_sees_what_its_step_may_see_and_no_more(project: Project, sandbox: Sandbox) -> None:
    plan_of: Mapping[str, Any] = {
        "inputs": {"who": "ann"},
        "steps": [
            {"id": "one", "code": "return {a: inputs.who};"},
            {"id": "other", "code": "return 2;"},
            {"id": "work", "needs": ["one"], "with": {"n": "{{ 1 + 1 }}"}, "foreach": ["x"], "code": SEES},
        ],
    }
    state = await CodeWorld(project, sandbox).run(windlass.Plan.model_validate(plan_of))
    assert state.status == "completed", state.steps["work[0]"].error
    assert state.steps["work[0]"].output == [{"a": "ann"}, "undefined", "ann", 2, "x", 0, "{{ inputs.who }}"]


SEES = """
const other = "oth" + "er";
return [steps.one.output, typeof steps[other], inputs.who, Number(args.n), item, index, "{{ inputs.who }}"];
"""


async def test_g2_a_call_that_changes_something_waits_for_a_slow_disk(project: Project, sandbox: Sandbox) -> None:
    """Calls are made while a commit is under way: that one does not have them, and they wait for the next."""
    early: list[str] = []

    class Slow(MemoryJournal):
        async def append(self, *given: Any, **more: Any) -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            await super().append(*given, **more)

    @windlass.tool
    async def change(text: str, call: Call) -> str:
        begun = [event.input["text"] for event in of(await world.events(call.execution), ev.CallStarted)]
        early.extend([text] if text not in begun else [])
        return text

    world = CodeWorld(project, sandbox, [change], Slow())
    source = """
    const chain = async (name) => { for (let n = 0; n < 10; n++) await tools.change({text: `${name}${n}`}); };
    await Promise.all(["a", "b", "c", "d"].map(chain));
    """
    assert (await world.step(source)).status == "completed"
    assert early == []
