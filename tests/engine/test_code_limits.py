"""Limits that a program shares with all that it calls, and the failures that its end means (G1, G2, G3)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from code_worlds import plain_call

import windlass
from windlass.core.decide import Policy
from windlass.core.events import CallFinished
from windlass.core.program import CallRecord, ProgramLog
from windlass.core.resources import Resources
from windlass.engine.code.caller import Permit, ProgramOrigin, Tree, callable_names
from windlass.engine.code.composed import Composed
from windlass.engine.code.failures import failure_of, raised
from windlass.engine.code.grounds import program_basis
from windlass.engine.code.running import ProgramDeps, run_program
from windlass.engine.code.tool import CodeTool
from windlass.engine.gates import TookTooLong
from windlass.errors import CUT_OFF, Category, Failure, ToolError, Trouble
from windlass.plan.model import Effect
from windlass.ports import (
    Call,
    ComposedTool,
    Delivery,
    GuestCall,
    PersonAnswer,
    Program,
    ProgramError,
    ProgramLimits,
    ProgramTurn,
)
from windlass.process import ProcessLost
from windlass.testing import FakeClock

LIMITS = ProgramLimits(memory=100, cpu=1.0, wall=60.0, calls=2, output=50, log=10)


def test_g3_a_program_that_is_called_has_what_its_caller_has_left() -> None:
    tree = Tree(LIMITS)
    assert tree.left() == LIMITS
    tree.computed(0.75)
    tree.called()
    tree.logged("abcd")
    assert tree.left() == ProgramLimits(memory=100, cpu=0.25, wall=60.0, calls=1, output=50, log=6)
    tree.computed(0.25)
    tree.called()
    tree.logged("abcdef")
    assert tree.left() == ProgramLimits(memory=100, cpu=0.01, wall=60.0, calls=0, output=50, log=0)


@pytest.mark.parametrize(
    ("use", "trouble", "said"),
    [
        (lambda tree: tree.computed(0.01), "cpu", "it used more than 1 s of CPU time, with the programs it called"),
        (lambda tree: tree.called(), "calls", "more than 2 calls, with those of the programs it called"),
        (lambda tree: tree.logged("a"), "log", "more than 10 bytes logged, with the programs it called"),
    ],
)
def test_g3_what_all_programs_use_together_is_within_the_limits_of_the_first(use: Any, trouble: str, said: str) -> None:
    tree = Tree(LIMITS)
    tree.computed(1.0)
    tree.called()
    tree.called()
    tree.logged("0123456789")
    with pytest.raises(ProgramError) as refused:
        use(tree)
    assert (refused.value.trouble, refused.value.message) == (trouble, said)
    assert tree.left().calls == tree.left().log == 0, "never less than nothing"


async def test_g2_no_use_begins_while_a_person_is_asked_and_none_is_under_way_then() -> None:
    tree, seen = Tree(LIMITS), list[str]()
    may_end, may_answer = asyncio.Event(), asyncio.Event()

    async def use(name: str) -> None:
        async with tree.working():
            seen.append(f"{name} begins")
            await may_end.wait()
        seen.append(f"{name} ends")

    async def ask(name: str) -> None:
        async with tree.asking():
            seen.append(f"{name} asks")
            await may_answer.wait()

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    first = asyncio.create_task(use("first"))
    await turns()
    question = asyncio.create_task(ask("one"))
    await turns()
    later = asyncio.create_task(use("later"))
    other = asyncio.create_task(ask("other"))
    await turns()
    assert seen == ["first begins"], "the question waits for the use, and the next use for the question"
    may_end.set()
    await first
    await turns()
    assert seen[:3] == ["first begins", "first ends", "one asks"]
    assert len(seen) == 3, "one question at a time"
    may_answer.set()
    await asyncio.gather(question, later, other)
    assert sorted(seen[3:]) == ["later begins", "later ends", "other asks"]


async def test_g2_a_question_that_is_given_up_before_it_was_asked_holds_up_nothing() -> None:
    tree, may_end, begun = Tree(LIMITS), asyncio.Event(), 0

    async def use() -> None:
        nonlocal begun
        async with tree.working():
            begun += 1
            await may_end.wait()

    async def ask() -> None:
        async with tree.asking():
            raise AssertionError("it was asked while a tool was used")

    first = asyncio.create_task(use())
    await asyncio.sleep(0)
    question = asyncio.create_task(ask())
    for _ in range(5):
        await asyncio.sleep(0)
    later = asyncio.create_task(use())
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == 1, "it waits for the question"
    question.cancel()
    await asyncio.wait({question})
    assert question.cancelled(), "nobody was asked"
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == 2, "it waits for nothing more"
    may_end.set()
    await asyncio.gather(first, later)


def test_g2_a_program_has_the_tools_of_its_caller_that_were_granted_and_no_agents() -> None:
    class Caller:
        def names(self) -> list[str]:
            return ["a", "b", "c"]

    caller: Any = Caller()
    assert ProgramOrigin(caller).names() == ["a", "b", "c"]
    assert ProgramOrigin(caller, granted=frozenset({"c", "a", "z"})).names() == ["a", "c"]
    assert callable_names(["agent", "code", "files.read", "merge"]) == ["files.read"]


def test_c6_an_answer_of_a_person_permits_a_call_or_says_why_not() -> None:
    assert Permit.of(PersonAnswer(True, "", {"file a": "hash"})) == Permit(None, {"file a": "hash"})
    assert Permit.of(PersonAnswer(False, "not today", {})).denied == "a person denied it: not today"
    assert Permit.of(PersonAnswer(False, "", {})).denied == "a person denied it"


@pytest.mark.parametrize("trouble", get_args(Trouble))
def test_c5_every_end_of_a_program_has_its_advice(trouble: Any) -> None:
    failure = failure_of(ProgramError(trouble, "it ended"))
    assert (failure.kind, failure.message) == (trouble, "it ended")
    assert failure.advice[0]


@pytest.mark.parametrize(
    ("trouble", "category", "final"),
    [
        ("memory", Category.RESOURCE, True),
        ("wall", Category.RESOURCE, False),
        ("lost", Category.TRANSIENT, False),
        ("thrown", Category.LOGIC, False),
        ("unhandled", Category.LOGIC, False),
        ("syntax", Category.LOGIC, True),
    ],
)
def test_c3_an_end_that_would_come_again_is_not_tried_again(trouble: Any, category: Category, final: bool) -> None:
    failure = failure_of(ProgramError(trouble, "it ended"))
    assert (failure.category, failure.final) == (category, final)


def test_c3_a_program_that_ends_with_a_failed_call_fails_like_that_call() -> None:
    cause = Failure(
        Category.RESOURCE, "used up", where="ask", advice=("wait",), retry_after=9.0, kind="api", final=True
    )
    thrown = failure_of(ProgramError("thrown", "Error: ask failed", call=3), cause)
    assert thrown.message == "call 3 (ask): used up"
    assert (thrown.category, thrown.retry_after, thrown.kind, thrown.final) == (Category.RESOURCE, 9.0, "thrown", True)
    assert thrown.advice[0] == "wait"
    assert len(thrown.advice) == 2
    unhandled = failure_of(ProgramError("unhandled", "nobody awaits it", call=3), cause)
    assert unhandled.message == "nobody awaits it; call 3 (ask): used up"
    inner = Failure(Category.RESOURCE, "too long", where="tool", kind="cpu")
    assert failure_of(ProgramError("thrown", "x", call=1), inner).kind == "cpu", "how the called program ended"


def test_c3_the_failure_of_a_call_is_as_the_journal_can_hold_it() -> None:
    error = ToolError("bad \udcff", category="transient", advice=("see \udcff",), retry_after=math.inf)
    failure = raised(error)
    assert (failure.message, failure.advice, failure.retry_after) == ("bad ?", ("see ?",), None)
    assert raised(ToolError("later", category="transient", retry_after=2.0)).retry_after == 2.0
    assert raised(asyncio.CancelledError()).message == "the tool cancelled itself"
    assert raised(ValueError("no")).kind != CUT_OFF
    for cut_off in (TookTooLong("slow", category="transient"), ProcessLost("gone")):
        assert raised(cut_off).kind == CUT_OFF


def test_g3_the_basis_of_a_program_has_every_composed_tool_that_it_may_call_in_turn() -> None:
    class Saved:
        def __init__(self, name: str, *grants: str) -> None:
            self.name, self.grants, self.source, self.returns = name, list(grants), f"source of {name}", None

    class Made:
        def __init__(self, composed: Saved | None = None) -> None:
            self.composed = composed

    class Box:
        def __init__(self) -> None:
            self.all = {
                one.name: one for one in (Saved("a", "b", "plain"), Saved("b", "a", "c"), Saved("c"), Saved("d"))
            }

        def names(self) -> list[str]:
            return [*self.all, "plain"]

        def get(self, name: str) -> Any:
            return Made(self.all.get(name))

    box: Any = Box()
    basis = program_basis([None, box.get("a")], box)
    assert sorted(basis) == ["program a", "program b", "program c"]
    assert len(set(basis.values())) == 3
    box.all["c"].source = "another"
    changed = program_basis([box.get("a")], box)
    assert [name for name in basis if basis[name] != changed[name]] == ["program c"]


async def test_g3_a_composed_tool_runs_only_inside_an_execution_and_not_in_itself(tmp_path: Path) -> None:
    used: list[bool] = []

    class Shelf:
        def used(self, tool: Any, at: float, *, failed: bool) -> None:
            used.append(failed)

    desk: Any = ProgramDeps(None, FakeClock(1.0))  # type: ignore[arg-type]
    shelf: Any = Shelf()
    greet = Composed(ComposedTool("greet", "return 1", {"type": "object"}), desk, Policy(), shelf)
    with pytest.raises(ToolError, match="a composed tool runs only inside an execution"):
        await greet.execute({}, plain_call(tmp_path))
    assert used == [True], "the shelf counts it as failed"
    caller: Any = None
    for chain, said in (
        (("greet",), "a composed tool cannot call itself: greet → greet"),
        (tuple("abcdefgh"), "more than 8 composed tools inside each other: a → b → c → d → e → f → g → h"),
    ):
        with pytest.raises(ToolError) as refused:
            greet._bounded(ProgramOrigin(caller, chain=chain))
        assert refused.value.failure.message == said
    greet._bounded(ProgramOrigin(caller, chain=tuple("abcdefg")))


class Turns:
    """A sandbox whose program takes these turns, or cannot be opened."""

    def __init__(self, *turns: ProgramTurn | Exception) -> None:
        self._turns = list(turns)
        self.closed = False

    async def open(self, program: Program) -> Any:
        return self if isinstance(self._turns[0], ProgramTurn) else self._next()

    async def begin(self) -> ProgramTurn:
        return self._next()

    async def deliver(self, results: list[Delivery]) -> ProgramTurn:
        return self._next()

    async def close(self) -> None:
        self.closed = True

    def _next(self) -> ProgramTurn:
        turn = self._turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn


def line(programs: ProgramLog | None = None) -> SimpleNamespace:
    """The line of a program to an execution, with what it did before."""
    return SimpleNamespace(step=SimpleNamespace(id="s", programs=programs), tell=lambda event: None)


async def perform(folder: Path, sandbox: Any, contact: Any, caller: Any = None, call: Call | None = None) -> Any:
    return await run_program(
        ProgramDeps(sandbox, FakeClock(1.0)),
        call or plain_call(folder, contact),
        ProgramOrigin(caller or SimpleNamespace(names=list)),
        "return 1;",
        {},
        grants=None,
        limits=LIMITS,
    )


async def test_c5_a_time_that_was_over_elsewhere_is_not_told_as_the_limit_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="the worker did not answer"):
        await perform(tmp_path, Turns(TimeoutError("the worker did not answer")), line())


async def test_g1_a_program_that_has_no_place_to_run_in_fails_and_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="there is no place") as failed:
        await perform(tmp_path, Turns(ProgramError("lost", "there is no place")), line())
    assert (failed.value.failure.kind, failed.value.failure.final) == ("lost", False)
    with pytest.raises(ToolError, match="a program runs only inside an execution"):
        await perform(tmp_path, Turns(ProgramTurn(done=True)), None)


@pytest.mark.parametrize(
    ("before", "missing"),
    [({}, "any call"), ({"1": CallRecord("a", {}, "none", 1, order=0)}, "call 1, which it made before")],
)
async def test_g1_a_program_that_waits_and_makes_no_call_has_diverged(
    tmp_path: Path, before: dict[str, CallRecord], missing: str
) -> None:
    sandbox = Turns(ProgramTurn())
    with pytest.raises(ToolError) as failed:
        await perform(tmp_path, sandbox, line(ProgramLog(calls=before)))
    assert (failed.value.failure.kind, failed.value.failure.message) == ("diverged", f"it did not make {missing}")
    assert sandbox.closed


def caller_of_one() -> SimpleNamespace:
    """Lets a program use the tool `one`."""

    @windlass.tool(effect="none")
    async def one() -> int:
        return 1

    async def allow(*_: Any) -> Permit:
        return Permit()

    return SimpleNamespace(
        names=lambda: ["one"],
        tool=lambda name: one,
        effect=lambda name, arguments: Effect.NONE,
        asks=lambda name, arguments: False,
        allow=allow,
    )


async def use_of_one(*_: Any) -> int:
    return 1


async def test_d2_an_error_of_the_engine_in_a_call_ends_the_program(tmp_path: Path) -> None:
    def tell(event: Any, *, soon: bool | None = None) -> None:
        if isinstance(event, CallFinished):
            raise RuntimeError("the journal is gone")

    contact = line()
    contact.tell, contact.use = tell, use_of_one
    sandbox = Turns(ProgramTurn((GuestCall(1, "one", {}),)))
    with pytest.raises(RuntimeError, match="the journal is gone"):
        await perform(tmp_path, sandbox, contact, caller_of_one())
    assert sandbox.closed


async def test_d7_the_computing_of_all_turns_of_a_program_counts_once(tmp_path: Path) -> None:
    contact = line()
    contact.tell, contact.use = lambda event, *, soon=None: None, use_of_one
    call = plain_call(tmp_path, contact)
    turns = ProgramTurn((GuestCall(1, "one", {}),), cpu=0.25, memory=9), ProgramTurn(done=True, cpu=0.75, memory=7)
    await perform(tmp_path, Turns(*turns), contact, caller_of_one(), call)
    assert call.meter.used == Resources(0.75, 9)


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (ProgramTurn(done=True, cpu=1.5), "it used more than 1 s of CPU time"),
        (ProgramTurn(tuple(GuestCall(number, "one", {}) for number in range(1, 4))), "more than 2 calls"),
    ],
    ids=["computing", "calls"],
)
async def test_g3_a_program_that_uses_more_than_its_limits_is_ended(
    tmp_path: Path, turn: ProgramTurn, said: str
) -> None:
    contact = line()
    contact.tell, contact.use = lambda event, *, soon=None: None, use_of_one
    with pytest.raises(ToolError, match=said):
        await perform(tmp_path, Turns(turn), contact, caller_of_one())


async def test_g1_the_code_tool_runs_only_inside_an_execution(tmp_path: Path) -> None:
    sandbox: Any = None
    tool = CodeTool(ProgramDeps(sandbox, FakeClock(1.0)), Policy())
    with pytest.raises(ToolError, match="a program runs only inside an execution"):
        await tool.execute({"source": "return 1;"}, plain_call(tmp_path))
