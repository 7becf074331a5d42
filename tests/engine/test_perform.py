"""What an attempt gives is kept as the journal can hold it, and what cannot be kept is refused in words (C1, C3)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest
from agent_worlds import AgentWorld, quick
from gate_worlds import Scripted
from waiting import settled, skip_time

from windlass import Call, tool
from windlass.core import events as ev
from windlass.core.approval import digest_of
from windlass.core.state import State, StepState, fold
from windlass.engine import perform
from windlass.engine.gates import TookTooLong
from windlass.engine.gates.intake import Admission
from windlass.engine.perform import AttemptRunner, Held, _as_failure, _no_such_tool, _own, read_back, storable
from windlass.errors import CUT_OFF, Category, Failure, ToolError
from windlass.plan.model import Effect, Plan
from windlass.ports import Terms
from windlass.process import ProcessLost, Supervisor
from windlass.settings import LoadSettings
from windlass.tools.built_in import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project


class Report(pydantic.BaseModel):
    lines: int = pydantic.Field(alias="Lines")


class OwnText(str):
    """Text of a class of its own, as of NumPy."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**63, 2**63),
        (-(2**63), -(2**63)),
        (0.5, 0.5),
        ("text", "text"),
        ((1, 2), [1, 2]),
        ({"a": [None, {"b": 1}]}, {"a": [None, {"b": 1}]}),
        (Report(Lines=3), {"Lines": 3}),
        ([OwnText("x")], ["x"]),
        ({"made": Path("out/a.png")}, {"made": "out/a.png"}),
    ],
)
def test_c1_a_result_is_kept_as_the_journal_gives_it_back(value: Any, kept: Any) -> None:
    found = storable(value, "count")
    assert (found.value, found.failure, found.cut_off) == (kept, None, False)
    assert type(found.value) is type(kept)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "count returned something that is not plain data: Encoding objects of type object is unsupported"),
        (Report, "is not plain data: Encoding objects of type"),
        pytest.param(2**20000, "is not plain data", id="an integer with very many digits"),
        ({1: "a", "1": "b"}, "is not plain data"),
        (math.nan, "count returned a number that is not finite"),
        ({"a": [1.0, {"b": math.inf}]}, "count returned a number that is not finite at a[1].b"),
        ([0.5, -math.inf], "count returned a number that is not finite at [1]"),
    ],
)
def test_c1_a_result_that_no_journal_can_hold_is_a_mistake_of_the_tool(value: Any, said: str) -> None:
    found = storable(value, "count")
    assert found.failure is not None
    assert found.failure.category is Category.LOGIC
    assert said in found.failure.message
    assert found.value is None


def test_c1_a_null_in_a_result_is_no_number_that_is_not_finite() -> None:
    assert storable({"a": None, "b": [1.5, None]}, "count").failure is None


def test_c1_a_result_of_exactly_the_limit_is_kept_and_a_longer_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert storable("x" * 2_000_000, "count").failure is None
    monkeypatch.setattr(perform, "MAX_RESULT", 10)
    assert storable("x" * 8, "count").value == "x" * 8, "two bytes are its quotes"
    failure = storable("x" * 9, "count").failure
    assert failure is not None
    assert failure.message == "count returned 11 bytes; the limit for a step's output is 10"
    assert failure.advice == ("write large results to a file and return its path",)


def test_c1_what_was_written_with_two_entries_of_one_name_is_not_read_back() -> None:
    assert read_back(b'{"a":1}') == {"a": 1}
    with pytest.raises(ValueError, match="1"):
        read_back(b'{"1":"a","1":"b"}')


def test_c3_a_long_error_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "LONGEST_MESSAGE", 8)

    def kept(text: str) -> str:
        failure = _as_failure(Failure(Category.LOGIC, text), None).failure
        assert failure is not None
        return failure.message

    assert kept("12345678") == "12345678"
    assert kept("123456789") == "1234\n… (1 characters are left out) …\n6789"
    assert kept("1234x" * 400) == "1234\n… (1,992 characters are left out) …\n234x"


def test_c3_an_error_with_bytes_that_are_not_utf_8_and_a_wait_without_end_can_be_kept() -> None:
    given = Failure(Category.TRANSIENT, "bad \udcff", where="f\udcff", advice=("a\udcff",), retry_after=math.inf)
    found = _as_failure(given, math.nan)
    assert found.failure == Failure(Category.TRANSIENT, "bad ?", where="f?", advice=("a?",))
    assert found.value is None
    again = _as_failure(Failure(Category.TRANSIENT, "later", retry_after=2.5), ["so far"])
    assert again.failure is not None
    assert (again.failure.retry_after, again.value) == (2.5, ["so far"])


def test_d9_what_a_tool_changes_in_its_arguments_changes_nothing_else() -> None:
    given = {"list": [{"a": [1]}], "dict": {"b": [2]}, "text": "t"}
    own = _own(given)
    own["list"][0]["a"].append(9)
    own["dict"]["b"].append(9)
    own["text"] = "other"
    assert given == {"list": [{"a": [1]}], "dict": {"b": [2]}, "text": "t"}


def test_c8_an_attempt_before_a_closed_gate_waits_unless_another_model_takes_over() -> None:
    held = Held("quota", "used up", until=9.0, runtime="cli", account="me")
    waiting = held.waiting(1.0, "a")
    assert waiting is not None
    assert str(held) == "used up"
    assert (waiting.reason, waiting.until, waiting.question, waiting.runtime, waiting.account) == (
        "quota",
        9.0,
        "used up",
        "cli",
        "me",
    )
    assert Held("model", "next").waiting(1.0, "a") is None


def step_of(**more: Any) -> StepState:
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", **more}]})
    return fold([ev.ExecutionCreated(1.0, "x", msgspec.Raw(plan.encoded), {}, "/")], plan).steps["a"]


def runner_of(tmp_path: Path, *tools: Scripted) -> AttemptRunner:
    return AttemptRunner(Registry(tools), Supervisor(), {}, tmp_path)


def test_d1_only_an_attempt_that_changes_and_uses_up_nothing_may_be_forgotten(tmp_path: Path) -> None:
    rate = Terms(concurrent=1)
    runner = runner_of(tmp_path, Scripted("look"), Scripted("few", terms=rate), Scripted("act", effect=Effect.ONCE))

    def only_looks(**more: Any) -> bool:
        step = step_of(**more)
        step.effect = runner.effect(step, {})
        return runner.only_looks(step)

    assert only_looks(tool="look")
    assert only_looks(tool="gone"), "it fails"
    assert not only_looks(tool="few"), "a place of it is used up"
    assert not only_looks(tool="act")
    assert not only_looks(tool="act", effect="none"), "the word of a plan is none for that"


def test_d2_the_plans_word_on_an_effect_comes_before_the_tools(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, Scripted("act", effect=Effect.ONCE))
    assert runner.effect(step_of(tool="act"), {}) == "once"
    assert runner.effect(step_of(tool="act", effect="repeatable"), {}) == "repeatable"
    assert runner.effect(step_of(tool="gone"), {}) == "none"


async def ended(project: Project, *outcomes: Any, tools: tuple[Any, ...] = (), **step: Any) -> State:
    """One step with a tool that does this, until it ends or asks a person."""
    given = {"tool": "act", "retry": 0, **step}
    plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", **given}]})
    return await AgentWorld(project, tools=[Scripted("act", *outcomes, effect=Effect.ONCE), *tools]).run(plan)


async def test_d2_an_attempt_that_was_cut_off_has_an_unknown_outcome_and_one_that_failed_has_not(
    project: Project,
) -> None:
    lost = ToolError.of(Failure(Category.TRANSIENT, "no answer came", kind=CUT_OFF))
    for cut_off in (lost, ProcessLost("it ran"), TookTooLong("no answer", category="transient")):
        assert (await ended(project, cut_off)).paused_for == "decision"
    assert (await ended(project, ToolError("refused", category="transient"))).status == "failed"


def test_c6_a_question_about_a_tool_that_is_gone_can_be_asked(tmp_path: Path) -> None:
    asked = ev.ApprovalAsked(1.0, "a", "", "gone", {"x": 1}, 9.0)
    found = runner_of(tmp_path).grounded(asked, step_of(tool="gone"), str(tmp_path))
    assert (found.input, found.digest) == ({"x": 1}, digest_of("a", "gone", {"x": 1}, found.basis))


async def test_c8_an_attempt_that_waits_for_a_slot_says_so_and_its_wait_is_no_work(project: Project) -> None:
    go = asyncio.Event()
    world = AgentWorld(project, tools=[Scripted("act", go.wait())])
    async with world.engine() as engine:
        engine.attempt_runner.intake = Admission(LoadSettings(attempts=1), memory=lambda: None)
        execution = await engine.start(Plan.model_validate({"steps": [{"id": name, "tool": "act"} for name in "ab"]}))
        await settled()
        skip_time(7.0)
        go.set()
        assert (await execution.wait()).status == "completed"
        events = await world.events(execution.id)
    queued = {event.step: event.queued for event in events if isinstance(event, ev.AttemptFinished)}
    assert queued["a"] < 7.0 <= queued["b"]
    assert [(event.step, event.text) for event in events if isinstance(event, ev.OutputWritten)] == [
        ("b", "waiting for a slot: 1 attempts are running (load.attempts)\n"),
        ("b", "the wait is over: starting\n"),
    ]


async def test_i6_the_processes_of_an_attempt_are_given_its_span(project: Project) -> None:
    @tool
    def spy(call: Call) -> list[str]:
        return [call.env["TRACEPARENT"], *sorted(call.env.keys() & {"PATH"})]

    world = AgentWorld(project, tools=[spy])
    async with world.engine() as engine:
        engine.attempt_runner.span_variables = lambda execution, step, attempt: {"TRACEPARENT": f"{step} {attempt}"}
        execution = await engine.start(Plan.model_validate({"steps": [{"id": "a", "tool": "spy"}]}))
        assert (await execution.wait()).steps["a"].output == ["a 1", "PATH"]


async def test_c3_credentials_are_refreshed_before_an_attempt_that_follows_a_permission_failure(
    project: Project,
) -> None:
    failures, refreshed = ["transient", "permission"], list[int]()

    @tool(refresh=lambda: refreshed.append(len(failures)))
    def guarded() -> None:
        if failures:
            raise ToolError("not yet", category=failures.pop(0))

    state = await AgentWorld(project, tools=[guarded]).run(
        Plan.model_validate({"steps": [{"id": "a", "tool": "guarded", "retry": quick}]})
    )
    assert state.status == "completed"
    assert refreshed == [0], "once, when both had failed"


def test_c5_a_tool_that_is_gone_is_told_with_one_that_is_like_it_else_with_all() -> None:
    tools = Registry([Scripted("act")])
    like, unlike = _no_such_tool("atc", tools), _no_such_tool("zzz.qqq", tools)
    assert (like.category, like.message) == (Category.CONFIGURATION, "there is no tool named 'atc'")
    assert like.advice == ("did you mean 'act'?",)
    assert unlike.advice[0].startswith("the tools are: ")


async def test_c8_a_step_that_takes_too_long_says_so_and_a_timeout_within_it_is_its_own_error(
    project: Project,
) -> None:
    slow = (await ended(project, asyncio.sleep(3600), timeout="1ms", effect="none")).steps["a"].error
    assert slow is not None
    assert slow.message == "took longer than its timeout of 0.001 s and was stopped"
    own = (await ended(project, TimeoutError("no line is free"), timeout="1h", effect="none")).steps["a"].error
    assert own is not None
    assert "no line is free" in own.message
