"""Your own functions as tools (I5): what they are given, what they may return, and how they may fail (C3)."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from fractions import Fraction
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel
from waiting import PATIENCE

import windlass
from windlass import Call, Effect, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.errors import UsageError
from windlass.ports import Tool
from windlass.tools.function import FunctionTool

if TYPE_CHECKING:
    from conftest import Project


async def run(function: Tool, arguments: dict[str, Any] | None = None, **step: Any) -> dict[str, Any]:
    """The one step of a plan that uses the tool, as it ended."""
    plan = Plan(steps=[Step(id="a", tool=function.name, with_=arguments or {}, retry={"max": 0}, **step)])
    async with windlass.open(tools=[function], grace=0.2) as engine:
        return (await (await engine.start(plan)).result())["steps"][0]


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────


class Colour(StrEnum):
    RED = "red"


class Point(BaseModel):
    x: int
    y: int = 0


class Limit(BaseModel):
    most: float = math.inf


class Opaque:
    pass


OPAQUE = Opaque()


async def test_i5_annotations_make_the_schema_and_check_what_is_given(project: Project) -> None:
    @tool
    def paint(colour: Colour, at: Point, size: Literal[1, 2] = 1, note: str | None = None) -> list[Any]:
        """Paint a spot.

        More about it.
        """
        return [type(colour).__name__, type(at).__name__, at.x, at.y, size, note]

    assert paint.name == "paint"
    assert paint.description == "Paint a spot."
    assert set(paint.schema["properties"]) == {"colour", "at", "size", "note"}
    assert paint.schema["required"] == ["colour", "at"]
    step = await run(paint, {"colour": "red", "at": {"x": 3}})
    assert step["output"] == ["Colour", "Point", 3, 0, 1, None]
    wrong = {"at": {"x": "left"}, "size": 3, "colr": "red"}
    assert len(paint.validate(wrong)) == 4, "every mistake is told: missing, wrong twice, unknown"


async def test_i5_wrong_arguments_that_only_a_template_brought_fail_as_configuration(project: Project) -> None:
    @tool
    def half(number: int) -> float:
        return number / 2

    plan = Plan(inputs={"n": "ten"}, steps=[Step(id="a", tool="half", with_={"number": "{{ inputs.n }}"})])
    async with windlass.open(tools=[half]) as engine:
        step = (await (await engine.start(plan)).result())["steps"][0]
    assert (step["status"], step["error"]["category"], step["attempts"]) == ("failed", "configuration", 1)
    assert "number" in step["error"]["message"]


async def test_i5_a_parameter_annotated_call_receives_the_attempt(project: Project) -> None:
    seen: list[Call] = []

    @tool
    async def look(text: str, about: Call) -> None:
        seen.append(about)

    assert "about" not in look.schema["properties"]
    await run(look, {"text": "x"}, timeout="1h")
    (call,) = seen
    assert (call.step, call.attempt, call.reduced, call.timeout) == ("a", 1, 0, 3600)
    assert call.workdir == project.path
    assert call.effect_id == f"{call.execution}:a"
    assert call.scratch == project.home / "executions" / call.execution / "steps" / "a"
    assert call.variables["WINDLASS_STEP"] == "a"


async def test_i5_a_call_that_may_be_none_receives_the_attempt_too(project: Project) -> None:
    @tool
    def number(call: Call | None = None) -> int:
        return call.attempt if call is not None else 0

    assert (await run(number))["output"] == 1


def test_i5_a_parameter_that_takes_no_data_has_a_schema_all_the_same() -> None:
    @tool
    def use(size: int, client: Opaque = OPAQUE) -> None: ...

    assert use.schema["required"] == ["size"]
    assert use.schema["properties"]["client"] == {"title": "Client"}


@pytest.mark.filterwarnings("error")
async def test_i5_a_parameter_may_have_the_name_of_a_method_of_models(project: Project) -> None:
    @tool
    def use(json: str, schema: int = 2, copy: bool = False) -> Any:
        return [json, schema, copy]

    assert (await run(use, {"json": "a"}))["output"] == ["a", 2, False]


async def test_i5_the_function_can_still_be_called_as_one(project: Project) -> None:
    @tool(name="sum.up", description="Adds", effect="none")
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2, b=3) == 5
    assert (add.name, add.description, add.effect({})) == ("sum.up", "Adds", Effect.NONE)
    assert (await run(add, {"a": 1}))["output"] == 2


@pytest.mark.parametrize("effect", ["none", "repeatable", "once"])
async def test_i5_the_effect_of_a_tool_is_journalled_and_a_step_may_say_otherwise(
    project: Project, effect: Literal["none", "repeatable", "once"]
) -> None:
    @tool(effect=effect)
    async def act() -> None:
        """Does nothing."""

    async with windlass.open(tools=[act]) as engine:
        steps = [Step(id="own", tool="act"), Step(id="told", tool="act", effect="none")]
        execution = await engine.start(Plan(steps=steps))
        await execution.wait()
    started = {e.step: e.effect for e in project.events(execution.id) if isinstance(e, ev.AttemptStarted)}
    assert started == {"own": effect, "told": "none"}


def test_i5_a_function_that_cannot_be_a_tool_is_refused_when_it_is_decorated() -> None:
    def star(*values: int) -> None: ...

    def names(**values: int) -> None: ...

    def unknown(value: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def hidden(_value: int) -> None: ...

    def configured(model_config: str) -> None: ...

    def many() -> Any:
        yield 1

    async def many_later() -> Any:
        yield 1

    for function in (star, names, unknown, hidden, configured, many, many_later, len, dict):
        with pytest.raises(UsageError, match=f"tool {function.__name__}"):
            tool(function)
    with pytest.raises(ValueError, match="sometimes"):
        tool(effect="sometimes")(lambda: None)


@pytest.mark.parametrize("given", [lambda: None, partial(lambda: None), Opaque(), 5, "name", tool(asyncio.sleep)])
def test_i5_what_has_no_name_or_is_no_function_is_refused_with_what_to_write(given: Any) -> None:
    with pytest.raises(UsageError) as caught:
        tool(given)
    assert "tool" in str(caught.value)
    assert caught.value.advice


class Adder:
    """Add to what it holds."""

    def __init__(self, base: int) -> None:
        self.base = base

    def __call__(self, number: int, call: Call) -> int:
        return self.base + number + call.attempt

    async def later(self, number: int) -> int:
        return self.base + number


def add(base: int, number: int) -> int:
    """Add two numbers."""
    return base + number


async def add_later(base: int, number: int) -> int:
    return base + number


@pytest.mark.parametrize(
    ("make", "name", "result"),
    [
        (lambda: tool(partial(add, 40)), "add", 42),
        (lambda: tool(partial(add_later, base=40)), "add_later", 42),
        (lambda: tool(name="adder")(Adder(40)), "adder", 43),
        (lambda: tool(Adder(40).later), "later", 42),
        (lambda: tool(name="double")(lambda number: 2 * number), "double", 4),
    ],
    ids=["partial", "async partial", "object", "bound method", "lambda"],
)
async def test_i5_whatever_can_be_called_is_a_tool(
    project: Project, make: Callable[[], FunctionTool], name: str, result: int
) -> None:
    made = make()
    assert made.name == name
    assert (await run(made, {"number": 2}))["output"] == result
    assert made.basis({}, Path(), {})[f"code {name}"], "an approval rests on its code"


def test_i5_the_description_of_a_partial_is_that_of_its_function() -> None:
    assert tool(partial(add, 1)).description == "Add two numbers."
    assert tool(name="adder")(Adder(1)).description == "Add to what it holds."


def test_i5_a_default_that_json_cannot_hold_is_not_in_the_schema() -> None:
    @tool
    def use(x: float = math.nan, y: list[float] = [math.inf], z: str = "\ud800", n: float = 1.5) -> Limit:  # noqa: B006
        return Limit()

    assert {name: facts.get("default") for name, facts in use.schema["properties"].items()} == {
        **dict.fromkeys("xyz"),
        "n": 1.5,
    }
    assert use.schema.get("required", []) == []
    json.dumps([use.schema, use.returns], allow_nan=False)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


class Text(str):
    """As parsers of XML and HTML return."""


class Share(float):
    """As NumPy's float64 is."""


class Count(int):
    pass


class Size:
    """A number that is no `int`, as NumPy's are."""

    def __int__(self) -> int:
        return 9

    def __repr__(self) -> str:
        return "Size()"


Integral.register(Size)


@dataclass
class Found:
    path: str
    on: date


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2.5, 2.5),
        ("ü", "ü"),
        ((1, (2,)), [1, [2]]),
        ({1: "a"}, {"1": "a"}),
        (Colour.RED, "red"),
        (Found("x", date(2026, 1, 2)), {"path": "x", "on": "2026-01-02"}),
        (2**70, 2**70),
        ([Point(x=1)], [{"x": 1, "y": 0}]),
        ([Text("x"), {"n": Share(0.5)}, Count(3)], ["x", {"n": 0.5}, 3]),
        ([Size(), {"n": Fraction(1, 2)}], [9, {"n": 0.5}]),
    ],
    ids=repr,
)
async def test_i5_what_is_plain_data_is_kept_as_json_gives_it_back(project: Project, value: Any, kept: Any) -> None:
    @tool
    def give() -> Any:
        return value

    step = await run(give)
    assert (step["status"], step["output"]) == ("completed", kept)


@dataclass
class Measured:
    values: list[float]


class Measurement(BaseModel):
    value: float


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), ""),
        ({"a": [float("inf")]}, " at a[0]"),
        (Measured([1.0, float("nan")]), " at values[1]"),
        ([Measurement(value=float("nan"))], " at [0].value"),
        ([Share("nan")], " at [0]"),
    ],
    ids=repr,
)
async def test_i5_a_number_that_is_not_finite_fails_the_step_wherever_it_is(
    project: Project, value: Any, place: str
) -> None:
    @tool
    def give() -> Any:
        return value

    step = await run(give)
    assert (step["error"] or {}).get("message") == f"give returned a number that is not finite{place}"


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [
        *(
            Opaque(),
            Path("\udcff"),
            [Opaque()],
            {"k": Opaque()},
            LOOP,
            {(1, 2): 3},
            "\ud800",
            ["\ud800"],
            lambda: 1,
            10**5000,
        ),
        *([{1: "a", "1": "b"}], {"k": {2.5: 1, "2.5": 2}}),
    ],
    ids=[
        *("object", "path that is no text", "list", "dict", "loop", "tuple key", "surrogate", "surrogates", "function"),
        *("5,000 digits", "same keys", "same keys deeper"),
    ],
)
async def test_i5_what_is_not_plain_data_fails_the_step_and_says_so(project: Project, value: Any) -> None:
    @tool
    def give() -> Any:
        return value

    step = await run(give)
    assert step["status"] == "failed"
    assert step["error"]["category"] == "logic"
    assert "give returned something that is not plain data" in step["error"]["message"]
    assert step["error"]["advice"]


async def test_i5_too_large_a_result_fails_the_step(project: Project) -> None:
    @tool
    def give() -> str:
        return "x" * (17 * 1024 * 1024)

    step = await run(give)
    assert step["status"] == "failed"
    assert "bytes" in step["error"]["message"]
    assert any("file" in advice for advice in step["error"]["advice"])


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────


async def test_c3_a_tool_error_says_category_advice_and_what_there_was(project: Project) -> None:
    @tool
    def give_up() -> None:
        raise ToolError("half done", category="configuration", advice=["set X"], output={"rows": 2})

    step = await run(give_up)
    advice = step["error"].pop("advice")
    assert step["error"] == {"category": "configuration", "message": "half done", "where": "a"}
    assert advice[0] == "set X"
    assert any("windlass retry" in line for line in advice)
    assert step["output"] == {"rows": 2}


@pytest.mark.parametrize(
    "error",
    [
        ToolError("no", output=Opaque()),
        ToolError("no", output="\ud800"),
        ToolError("bad file name \udcff"),
        ToolError("no", advice=["look at \udcff"]),
        FileNotFoundError(2, "No such file", "caf\udce9.txt"),
        ToolError("no", retry_after=float("nan")),
        ToolError("no", retry_after=float("inf"), category="transient"),
    ],
    ids=["output", "output text", "message", "advice", "file name", "nan", "inf"],
)
async def test_c3_a_failure_that_json_cannot_hold_is_a_failure_all_the_same(project: Project, error: Exception) -> None:
    """Names of files need not be UTF-8, and exceptions carry them."""

    @tool
    def give_up() -> None:
        raise error

    step = await run(give_up)
    assert step["status"] == "failed"
    assert step["error"]["message"]


async def test_c5_the_message_of_a_failure_has_a_bound(project: Project) -> None:
    """It is printed, and kept for good: a library may put all of its data there."""

    @tool
    def give_up() -> None:
        raise ValueError("begin" + 5_000_000 * "x" + "end")

    message = (await run(give_up))["error"]["message"]
    assert len(message) < 70_000
    assert message.startswith("ValueError: begin")
    assert "characters are left out" in message
    assert message.endswith("end")


def raising(error: BaseException, kind: str) -> Any:
    """A tool that does nothing else."""

    def do() -> None:
        raise error

    async def do_async() -> None:
        raise error

    class Do(Tool):
        name, description, schema = "do", "", {"type": "object"}

        async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
            raise error

    return Do() if kind == "class" else tool(name="do")(do if kind == "sync" else do_async)


@pytest.mark.parametrize("kind", ["sync", "async", "class"])
@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), asyncio.CancelledError(), GeneratorExit()])
async def test_c3_a_tool_that_raises_what_nobody_raises_fails_alone(
    project: Project, error: BaseException, kind: str
) -> None:
    """`sys.exit()` in somebody's function must not take the engine along."""

    messages = set()
    for more in ({}, {"timeout": 60}):
        step = await run(raising(error, kind), **more)
        assert step["status"] == "failed"
        assert step["error"]["category"] == "logic"
        messages.add(step["error"]["message"])
    assert len(messages) == 1, "a limit of time changes nothing of what is said"


class Panic(BaseException):
    """As extensions written in Rust raise."""


@pytest.mark.parametrize("kind", ["sync", "async", "class"])
@pytest.mark.parametrize("error", [Panic("it broke"), BaseExceptionGroup("it broke", [Panic()])])
async def test_c3_an_error_that_is_no_exception_of_the_usual_kind_is_named(
    project: Project, error: BaseException, kind: str
) -> None:
    step = await run(raising(error, kind))
    assert f"{type(error).__name__}: it broke" in step["error"]["message"]


@pytest.mark.parametrize("kind", ["sync", "async", "class"])
async def test_c3_a_keyboard_interrupt_that_a_function_raises_itself_fails_its_step(
    project: Project, kind: str
) -> None:
    for more in ({}, {"timeout": 60}):
        step = await run(raising(KeyboardInterrupt(), kind), **more)
        assert step["error"]["message"].endswith("the tool raised KeyboardInterrupt")


async def test_c3_d3_a_tool_that_cannot_tell_its_effect_is_taken_for_one_that_happens_once(project: Project) -> None:
    class Odd(Tool):
        name, description, schema = "odd", "", {"type": "object"}

        def effect(self, arguments: Mapping[str, Any]) -> Effect:
            return Effect(arguments["effect"])

        async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
            return "done"

    async with windlass.open(tools=[Odd()]) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="odd")]))
        assert (await execution.result())["steps"][0]["output"] == "done"
        events = [recorded.event for recorded in await engine.journal.read(execution.id)]
    assert [event.effect for event in events if isinstance(event, ev.AttemptStarted)] == ["once"]


@pytest.mark.parametrize("handler", ["asyncio's", "Python's own"])
def test_c3_ctrl_c_in_an_async_function_still_ends_the_process(project: Project, handler: str) -> None:
    """The second one, where asyncio has its handler: the first one cancels the main task."""
    own = "signal.signal(signal.SIGINT, signal.default_int_handler)" if handler == "Python's own" else ""
    program = f"""if True:
        import asyncio, signal, windlass

        @windlass.tool
        async def interrupted() -> str:
            {own}
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return "it went on"

        async def main() -> None:
            plan = windlass.Plan(steps=[windlass.Step(id="a", tool="interrupted")])
            async with windlass.open(tools=[interrupted]) as engine:
                print(await (await engine.start(plan)).result())

        asyncio.run(main())
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(("code", "given"), [(0, None), (0, 0), (3, 3), (1, "text")])
async def test_c3_the_child_of_a_function_that_forks_ends_where_the_function_ends(
    project: Project, code: int, given: Any
) -> None:
    @tool
    def fork() -> int:
        child = os.fork()
        if child == 0:
            sys.exit(given)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert (await run(fork))["output"] == code


# ── threads and stopping ─────────────────────────────────────────────────────────────────────────────


async def test_i5_a_sync_function_runs_in_a_thread_and_holds_up_nobody(project: Project) -> None:
    here = threading.get_ident()
    freed = threading.Event()

    @tool
    def block() -> bool:
        return freed.wait(PATIENCE) and threading.get_ident() != here

    @tool
    async def free() -> None:
        freed.set()

    plan = Plan(steps=[Step(id="a", tool="block"), Step(id="b", tool="free")])
    async with windlass.open(tools=[block, free]) as engine:
        result = await (await engine.start(plan)).result()
    assert result["steps"][0]["output"] is True


@pytest.mark.parametrize("kind", ["sync", "async", "class"])
async def test_i5_a_function_can_show_what_it_does_while_it_runs(project: Project, kind: str) -> None:
    def do(call: Call) -> None:
        call.output("stdout", "half way\n")
        call.output("stderr", "with a bad byte \udcff\n")

    async def do_async(call: Call) -> None:
        do(call)

    made = tool(name="do")(do if kind == "sync" else do_async)
    async with windlass.open(tools=[made]) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="do")]))
        result = await execution.result()
    assert result["status"] == "completed", result["steps"][0]["error"]
    written = {e.stream: e.text for e in project.events(execution.id) if isinstance(e, ev.OutputWritten)}
    assert written["stdout"] == "half way\n"
    assert written["stderr"].startswith("with a bad byte ")


async def test_i5_a_sync_function_that_looks_at_stopping_ends_in_time_and_keeps_its_result(project: Project) -> None:
    began = threading.Event()

    @tool
    def patient(call: Call) -> str:
        began.set()
        return "stopped in order" if call.stopping.wait(PATIENCE) else "never told"

    async with windlass.open(tools=[patient], grace=PATIENCE) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="patient")]))
        await asyncio.to_thread(began.wait)
        state = await execution.interrupt()
    assert state.steps["a"].status == "completed"
    assert state.steps["a"].output == "stopped in order"


@pytest.mark.parametrize("kind", ["sync", "async", "class"])
async def test_d3_a_function_that_ends_with_an_error_because_it_was_stopped_has_not_failed(
    project: Project, kind: str
) -> None:
    """It was told to stop and did, in its own way; the resume runs it again."""
    began = threading.Event()

    def do(call: Call) -> int:
        if call.attempt == 1:
            began.set()
            call.stopping.wait(PATIENCE)
            raise RuntimeError("told to stop")
        return call.attempt

    async def do_async(call: Call) -> int:
        if call.attempt == 1:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("told to stop") from None
        return call.attempt

    made = tool(name="do")(do if kind == "sync" else do_async)
    async with windlass.open(tools=[made], grace=PATIENCE) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="do")]))
        await asyncio.to_thread(began.wait)
        state = await execution.interrupt()
        assert state.steps["a"].status == "paused"
        result = await (await engine.resume(execution.id)).result()
    assert result["steps"][0]["output"] == 2


async def test_i5_a_sync_function_that_never_ends_is_left_behind_after_the_grace(project: Project) -> None:
    began, release = threading.Event(), threading.Event()

    @tool
    def deaf() -> str:
        began.set()
        release.wait(PATIENCE)
        return "far too late"

    async with windlass.open(tools=[deaf], grace=0.05) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", tool="deaf")]))
        await asyncio.to_thread(began.wait)
        state = await execution.interrupt()
        release.set()
    assert state.status == "paused"
    assert state.steps["a"].status == "paused"


async def test_i5_more_sync_functions_than_threads_still_all_run(project: Project) -> None:
    @tool
    def one() -> int:
        return 1

    plan = Plan(steps=[Step(id="a", tool="one", foreach=list(range(200)))], limits={"parallel": 100})
    async with windlass.open(tools=[one]) as engine:
        result = await (await engine.start(plan)).result()
    assert result["steps"][0]["output"] == [1] * 200


# ── files of tools ───────────────────────────────────────────────────────────────────────────────────


async def test_i5_a_plan_brings_its_own_tools(project: Project) -> None:
    project.file(
        "tools.py",
        """
        from __future__ import annotations
        from windlass import Call, tool

        @tool
        def greet(name: str, call: Call) -> str:
            return f"hello {name} from {call.step}"
        """,
    )
    path = project.path / project.plan(
        """
        tools: tools.py
        steps: [{id: a, tool: greet, with: {name: you}}]
        """
    )
    async with windlass.open(ask=lambda folder, files: True) as engine:
        result = await (await engine.start(path)).result()
    assert result["steps"][0]["output"] == "hello you from a"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\n", "has no tools in it"),
        ("x = 1\ny = x +\n", "tools.py:2: SyntaxError"),
        ("x = 1\n\nraise RuntimeError('at import')\n", "tools.py:3: RuntimeError: at import"),
        ("import not_there_at_all\n", "tools.py:1: ModuleNotFoundError"),
        ("import sys\nsys.exit(5)\n", "tools.py:2: SystemExit"),
        ("from windlass import tool\n@tool\ndef f(*a): ...\n", "tool f"),
    ],
    ids=["empty", "syntax", "raises", "import", "exits", "no tool"],
)
async def test_i5_a_file_of_tools_that_does_not_load_is_named_with_the_line(
    project: Project, code: str, said: str
) -> None:
    project.file("tools.py", code)
    path = project.path / project.plan("{tools: [tools.py], steps: [{id: a, tool: f}]}")
    async with windlass.open(ask=lambda folder, files: True) as engine:
        with pytest.raises(UsageError, match=said):
            engine.read(path)
    assert sys.modules.get("not_there_at_all") is None


# ── what a function changes in its arguments ─────────────────────────────────────────────────────────


async def test_c3_a_tool_that_changes_its_arguments_changes_nothing_else(project: Project) -> None:
    @tool
    def add(box: Any, call: Call) -> Any:
        box["things"].append(call.attempt)
        if call.attempt == 1:
            raise TimeoutError
        return box

    plan = Plan(
        inputs={"box": {"things": []}},
        steps=[
            Step(id="first", tool="add", with_={"box": "{{ inputs.box }}"}, retry={"delay": 0.01}),
            Step(id="next", tool="add", with_={"box": "{{ steps.first.output }}"}, retry={"delay": 0.01}),
            Step(id="each", foreach=[1, 2], tool="add", with_={"box": {"things": []}}, retry={"delay": 0.01}),
        ],
    )
    async with windlass.open(tools=[add]) as engine:
        for _ in range(2):  # the plan is kept for its next execution
            steps = {step["id"]: step for step in (await (await engine.start(plan)).result())["steps"]}
            assert steps["first"]["input"] == {"box": {"things": []}}
            assert steps["first"]["output"] == {"things": [2]}
            assert steps["next"]["output"] == {"things": [2, 2]}
            assert steps["each"]["output"] == [{"things": [2]}, {"things": [2]}]
