"""One call of a program: what is on record before it, after it, and what the program gets to see (G2, D2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from code_worlds import plain_call

from windlass.core import events as ev
from windlass.core.program import CallRecord
from windlass.engine.code.caller import Permit, ProgramOrigin, Tree
from windlass.engine.code.calls import UNKNOWN, Calls
from windlass.errors import ApprovalOutdated, Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import GuestCall, ProgramLimits
from windlass.testing import FakeClock

NOW = 1_800_000_000.0


class World:
    """A program with the tool `act`, a person, and a record of all that is told."""

    name = "act"
    returns: Any = None
    is_program = False

    def __init__(self, tmp_path: Path, path: str = "") -> None:
        self.told: list[tuple[ev.Event, bool]] = []
        self.effects = Effect.ONCE
        self.asked: list[tuple[str, str]] = []
        self.asks_first = False
        self.permits: list[Permit] = []
        self.results: list[Any] = []
        self.parked = 0
        call = plain_call(tmp_path)
        contact: Any = SimpleNamespace(step=SimpleNamespace(id="s"), tell=self.tell, record=self.record, use=self.use)
        run: Any = SimpleNamespace(park=self.park)
        caller: Any = self
        origin = ProgramOrigin(caller, path)
        self.failures: dict[int, Any] = {}
        clock = FakeClock(NOW)
        granted = frozenset({"act"})
        self.calls = Calls(call, contact, clock, origin, Tree(ProgramLimits()), granted, run, self.failures)

    # the contact, and the run
    def tell(self, event: ev.Event, soon: bool = False) -> None:
        self.told.append((event, soon))

    async def record(self, event: ev.Event) -> None:
        self.told.append((event, True))

    async def use(self, tool: Any, arguments: Any, call: Any) -> Any:
        result = self.results.pop(0) if self.results else "done"
        if isinstance(result, BaseException):
            raise result
        return await result() if callable(result) else result

    def park(self) -> None:
        self.parked += 1

    # the caller
    def names(self) -> list[str]:
        return ["act"]

    def tool(self, name: str) -> Any:
        return self

    def effect(self, name: str, arguments: Any) -> Effect:
        return self.effects

    def asks(self, name: str, arguments: Any) -> bool:
        return self.asks_first

    async def allow(self, name: str, arguments: Any, use: str, question: str = "") -> Permit:
        self.asked.append((use, question))
        return self.permits.pop(0) if self.permits else Permit()

    # the tool
    def validate(self, arguments: Any) -> list[str]:
        return ["it takes no x"] if "x" in arguments else []

    async def make(self, tool: str = "act", before: CallRecord | None = None, **arguments: Any) -> Any:
        return await self.calls.make(GuestCall(3, tool, arguments), before)

    def kinds(self) -> list[tuple[str, bool]]:
        return [(ev.type_of(event), soon) for event, soon in self.told]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_d2_a_change_is_on_disk_before_and_soon_after_it_and_a_read_when_there_is_time(world: World) -> None:
    delivery = await world.make(a=1)
    assert (delivery.number, delivery.value, delivery.error) == (3, "done", None)
    assert world.kinds() == [("call.started", True), ("call.finished", True)]
    started = world.told[0][0]
    assert isinstance(started, ev.CallStarted)
    assert (started.call, started.tool, started.input, started.effect) == ("3", "act", {"a": 1}, "once")
    world.told.clear()
    world.effects = Effect.NONE
    await world.make()
    assert world.kinds() == [("call.started", False), ("call.finished", False)]


async def test_g3_a_call_of_a_program_in_a_program_is_named_by_both(tmp_path: Path) -> None:
    world = World(tmp_path, "7.2")
    await world.make()
    finished = world.told[-1][0]
    assert isinstance(finished, ev.CallFinished)
    assert finished.call == "7.2.3"


async def test_g2_a_failure_is_recorded_whole_and_the_program_sees_its_category_alone(world: World) -> None:
    world.results = [ToolError("no /secret/file", category=Category.CONFIGURATION)]
    delivery = await world.make()
    assert (delivery.error.message, delivery.error.category) == ("act failed (configuration)", "configuration")
    assert world.failures[3].message == "no /secret/file"
    assert world.failures[3].where == "act"
    failed, soon = world.told[-1]
    assert isinstance(failed, ev.CallFailed)
    assert (failed.failure.message, failed.seen, soon) == ("no /secret/file", "act failed (configuration)", True)


@pytest.mark.parametrize(
    ("tool", "arguments", "category", "said"),
    [
        ("gone", {}, "permission", "gone is not granted to this program"),
        ("act", {"x": 1}, "logic", "act cannot take these arguments: it takes no x"),
    ],
)
async def test_g2_a_call_that_cannot_be_made_is_on_record_and_changes_nothing(
    world: World, tool: str, arguments: dict[str, Any], category: str, said: str
) -> None:
    delivery = await world.make(tool, **arguments)
    assert (delivery.error.message, delivery.error.category) == (said, category)
    assert [kind for kind, _ in world.kinds()] == ["call.started", "call.failed"]
    started = world.told[0][0]
    assert isinstance(started, ev.CallStarted)
    assert started.effect == "none"


async def test_g2_a_result_that_no_journal_can_hold_or_that_breaks_its_schema_is_a_failure(world: World) -> None:
    world.results = [object()]
    assert (await world.make()).error.category == "logic"
    world.returns = {"type": "integer"}
    world.results = ["text"]
    delivery = await world.make()
    assert "act returned a result that does not match its schema" in delivery.error.message
    world.results = [7]
    assert (await world.make()).value == 7


async def test_c6_a_person_is_asked_while_nothing_else_goes_on_and_a_no_is_not_explained_to_the_program(
    world: World,
) -> None:
    world.asks_first = True
    world.permits = [Permit("a person denied it: not today")]
    delivery = await world.make()
    assert world.asked == [("3", "")]
    assert world.parked == 1
    assert delivery.error.message == "it was not allowed"
    assert world.failures[3].message == "act was not allowed: a person denied it: not today"


async def test_d2_a_change_that_was_cut_off_is_put_to_a_person_before_it_is_made_again(world: World) -> None:
    cut_off = CallRecord("act", {}, "once", 1)
    await world.make(before=cut_off)
    assert world.asked == [("3 again 1", UNKNOWN)]
    world.asked.clear()
    await world.make(before=CallRecord("act", {}, "repeatable", 1))
    assert world.asked == [("3", "")], "it may be repeated"


async def test_c6_what_changed_since_the_answer_is_asked_about_once_more_and_not_for_ever(world: World) -> None:
    world.permits = [Permit(None, {"file a": "1"}), Permit(None, {"file a": "2"})]
    world.results = [ApprovalOutdated(("a changed",)), "done"]
    assert (await world.make()).value == "done"
    assert len(world.asked) == 2
    world.permits = [Permit(None, {"file a": "1"}), Permit(None, {"file a": "1"})]
    world.results = [ApprovalOutdated(("a changed",)), ApprovalOutdated(("a changed",))]
    assert (await world.make()).error is not None


async def test_g2_a_tool_that_cancels_itself_has_failed_and_a_program_that_is_stopped_has_not(world: World) -> None:
    world.results = [asyncio.CancelledError()]
    assert (await world.make()).error.category == "logic"
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.sleep(3600)

    world.told.clear()
    world.results = [hang]
    task = asyncio.create_task(world.make())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [kind for kind, _ in world.kinds()] == ["call.started"]


def test_g2_a_result_of_a_way_that_was_left_is_written_where_it_belongs_now(world: World) -> None:
    before = CallRecord("act", {}, "once", 1)
    before.output = "done before"
    delivery = world.calls.take_over(GuestCall(3, "act", {}), before)
    assert (delivery.number, delivery.at, delivery.value) == (3, NOW, "done before")
    assert world.kinds() == [("call.started", False), ("call.finished", True)]
