"""The driver of one execution: what it writes before it acts, and whom it hears (D1, D2, D3, B5, K1)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from waiting import settled, skip_time, wait_until_async

from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.state import State, fold
from windlass.engine import commit_writer
from windlass.engine import driver as driver_module
from windlass.engine.driver import Driver
from windlass.engine.driver import World as SharedWorld
from windlass.engine.perform import AttemptRunner, Held
from windlass.errors import ApprovalOutdated, Conflict, ToolError
from windlass.plan.model import Effect, Plan
from windlass.ports import Call, Message, Tool, Usage
from windlass.process import Supervisor
from windlass.testing import FakeClock, MemoryJournal
from windlass.tools.built_in import Registry

AGENT = {"agent": "developer", "prompt": "do it"}
E = TypeVar("E", bound=ev.Event)


class HeldJournal(MemoryJournal):
    """A journal that writes when the test lets it, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.error: Exception | None = None
        self.stubborn = False
        """A write that has begun is made, though its caller is cancelled."""

    async def append(self, execution: str, after: int, events: Sequence[ev.Event], **more: Any) -> None:
        while not self.may_write.is_set():
            try:
                await self.may_write.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        if self.error is not None:
            raise self.error
        await super().append(execution, after, events, **more)


class CountedClock(FakeClock):
    """Counts how often it is asked."""

    asked = 0

    def now(self) -> float:
        self.asked += 1
        return super().now()


class Work(Tool):
    """A tool whose attempts do what the test says, by the id of their step; else they wait until they are let go."""

    description = "work"
    schema: dict[str, Any] = {"type": "object"}

    def __init__(self, name: str = "work", effect: Effect = Effect.REPEATABLE) -> None:
        self.name, self._effect = name, effect
        self.acts: dict[str, Callable[[Call], Any]] = {}
        self.calls: list[Call] = []
        self.go: dict[str, asyncio.Event] = {}
        self.stopped: list[str] = []
        self.over: list[str] = []
        """Attempts that came to their own end in spite of a stop."""

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return self._effect

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        self.calls.append(call)
        if call.step in self.acts:
            done = self.acts[call.step](call)
            return await done if asyncio.iscoroutine(done) else done
        try:
            await self.go.setdefault(call.step, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.stopped.append(call.step)
            raise
        return "done"

    def began(self) -> list[str]:
        return [call.step for call in self.calls]


class World:
    """An execution that is driven here, its journal and its clock."""

    def __init__(self, folder: Path, *steps: dict[str, Any], **plan: Any) -> None:
        self.journal, self.clock = HeldJournal(), CountedClock()
        self.work, self.look = Work(), Work("look", Effect.NONE)
        self.plan = Plan.model_validate({"name": "p", "steps": [_with_tool(step) for step in steps], **plan})
        created = ev.ExecutionCreated(
            self.clock.now(), id="e", plan=msgspec.Raw(self.plan.encoded), inputs={}, workdir=str(folder)
        )
        self.processes = Supervisor()
        agent = Work("agent")
        agent.acts, agent.calls, agent.go = self.work.acts, self.work.calls, self.work.go
        runner = AttemptRunner(Registry([self.work, self.look, agent]), self.processes, {}, folder, grace=0.0)
        shared = SharedWorld(self.journal, self.clock, Policy(), self._tell)
        self.driver = Driver(fold([created], self.plan), shared, runner, hold=False, created=created)
        self._sent = 0
        self.told: list[tuple[list[ev.Event], int]] = []
        """Events of each write, and the sequence of the last of them, as followers are told."""

    def _tell(self, execution: str, events: list[ev.Event], seq: int) -> None:
        self.told.append((events, seq))

    @property
    def state(self) -> State:
        return self.driver.state

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[asyncio.Task[None]]:
        """The execution is driven within this."""
        troubles: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, about: troubles.append(about))
        async with self.processes:
            task = asyncio.ensure_future(self.driver.run(ev.ExecutionStarted(self.clock.now(), "here")))
            try:
                await settled()
                yield task
            finally:
                for event in self.work.go.values():
                    event.set()
                self.journal.may_write.set()
                task.cancel()
                await asyncio.wait({task})
        gc.collect()
        assert troubles == [], "asyncio tells of errors that nobody caught"

    def post(self, kind: str, **body: Any) -> None:
        self._sent += 1
        self.driver.post(Message(self._sent, "e", self.clock.now(), {"kind": kind, **body}))

    def release(self, step: str) -> None:
        self.work.go.setdefault(step, asyncio.Event()).set()

    async def written(self, kind: type[E]) -> list[E]:
        return [entry.event for entry in await self.journal.read("e") if isinstance(entry.event, kind)]

    def has_written(self, kind: type[E], count: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return len(await self.written(kind)) >= count

        return look

    async def texts(self, step: str) -> str:
        """What is written of the output of a step."""
        return "".join(event.text for event in await self.written(ev.OutputWritten) if event.step == step)

    def statuses(self) -> dict[str, str]:
        return {step.id: str(step.status) for step in self.state.top_level()}


def _with_tool(step: dict[str, Any]) -> dict[str, Any]:
    return step if {"agent", "run", "code"} & step.keys() else {"tool": "work", "retry": 0, **step}


def chain(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "needs": [*names[at - 1 : at]] if at else [], **more} for at, name in enumerate(names)]


# ── what is written before what ──────────────────────────────────────────────────────────────────────


async def test_d1_an_attempt_begins_after_its_start_is_on_disk(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))
    async with world.driven():
        world.journal.may_write.clear()
        world.release("a")
        await settled()
        assert world.work.began() == ["a"]
        world.journal.may_write.set()
        await settled()
        assert world.work.began() == ["a", "b"]


async def test_d1_an_attempt_that_ends_in_the_moment_of_a_message_is_not_followed_before_that_is_on_disk(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, *chain("a", "b"))
    async with world.driven():
        world.journal.may_write.clear()
        world.release("a")
        world.post("retry", step="b")
        await settled()
        assert world.work.began() == ["a"]
        world.journal.may_write.set()
        await settled()
        assert world.work.began() == ["a", "b"]


async def test_d1_an_attempt_without_effect_begins_beside_the_write_and_is_written_all_the_same(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, *chain("a", "b", "c", tool="look"))
    world.look.go = world.work.go
    async with world.driven():
        world.journal.may_write.clear()
        world.release("a")
        await settled()
        assert world.look.began() == ["a", "b"]
        world.journal.may_write.set()
        await wait_until_async(lambda: world.written(ev.AttemptFinished), "the end of a is written though b runs")
        assert [started.step for started in await world.written(ev.AttemptStarted)] == ["a", "b"]


async def test_d1_a_step_with_effect_waits_for_all_that_steps_without_effect_left_unwritten(tmp_path: Path) -> None:
    first, second = chain("a", "b")
    world = World(tmp_path, {**first, "tool": "look"}, second)
    world.look.go = world.work.go
    async with world.driven():
        world.journal.may_write.clear()
        world.release("a")
        await settled()
        assert world.work.began() == []
        world.journal.may_write.set()
        await settled()
        assert world.work.began() == ["b"]


async def test_d2_a_journal_that_refuses_the_end_of_an_attempt_ends_the_driver_and_all_attempts(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"), {"id": "after", "needs": ["b"]})
    async with world.driven() as driving:
        world.journal.error = Conflict("another process took over")
        world.release("a")
        await asyncio.wait({driving}, timeout=30.0)
        assert isinstance(driving.exception(), Conflict)
    assert world.work.began() == ["a"]


async def test_d2_an_attempt_may_end_while_the_end_of_another_one_is_written(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a"}, {"id": "b"})
    async with world.driven() as driving:
        world.journal.may_write.clear()
        for step in ("a", "b"):
            world.release(step)
            await settled()
        world.journal.may_write.set()
        await driving
    assert world.state.status == "completed"


async def test_d2_nothing_begins_after_the_end_of_the_driver_though_its_last_write_is_made(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))
    async with world.driven() as driving:
        world.journal.stubborn = True
        world.journal.may_write.clear()
        world.release("a")
        await settled()
        driving.cancel()
        await settled()
        world.journal.may_write.set()
        await asyncio.wait({driving})
        await settled()
        assert world.work.began() == ["a"]


async def test_d2_a_driver_does_not_end_before_its_attempts_have_stopped(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a"})

    async def clean_up(call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await settled()
            world.work.over.append(call.step)

    world.work.acts["a"] = clean_up
    async with world.driven() as driving:
        driving.cancel()
        await asyncio.wait({driving})
        assert world.work.over == ["a"]


async def test_d2_nothing_is_written_after_the_end_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_writer, "OVERLAP_FOR", 1000.0)
    world = World(tmp_path, *chain("a", "b", tool="look"))
    world.look.go = world.work.go
    async with world.driven() as driving:
        world.release("a")
        await settled()
        assert world.look.began() == ["a", "b"]
        driving.cancel()
        await asyncio.wait({driving})
        skip_time(1000.0)
        await settled()
        assert await world.written(ev.AttemptFinished) == []


async def test_i5_whoever_follows_an_execution_is_told_of_each_write(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))
    async with world.driven() as driving:
        for step in ("a", "b"):
            world.release(step)
            await settled()
        await driving
    written = [entry.event for entry in await world.journal.read("e")]
    assert [event for events, _ in world.told for event in events] == written
    assert world.told[-1][1] == len(written)
    assert len(world.told) == 3


async def test_d2_what_an_agent_tells_while_something_is_written_is_written_next(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "work", **AGENT})
    async with world.driven():
        (call,) = world.work.calls
        assert call.contact is not None
        world.journal.may_write.clear()
        world.post("say", step="work", id="m1", text="one")
        await settled()
        call.contact.tell(ev.AgentSession(1.0, "work", 1, "cli", "s1"))
        world.journal.may_write.set()
        await settled()
        assert [began.session for began in await world.written(ev.AgentSession)] == ["s1"]


async def test_h2_output_waits_a_moment_for_company_and_what_is_recorded_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "OUTPUT_FLUSH", 1000.0)
    world = World(tmp_path, {"id": "work", **AGENT})
    async with world.driven():
        (call,) = world.work.calls
        assert call.contact is not None
        for text in ("one, ", "two\n"):
            call.output("stdout", text)
            await settled()
        assert await world.texts("work") == ""
        skip_time(1000.0)
        await wait_until_async(world.has_written(ev.OutputWritten, 1), "its moment is over")
        assert [written.text for written in await world.written(ev.OutputWritten)] == ["one, two\n"]
        call.output("stdout", "three\n")
        await settled()
        skip_time(1000.0)
        await wait_until_async(world.has_written(ev.OutputWritten, 2), "its moment is over, too")
        await call.contact.record(ev.AgentSession(1.0, "work", 1, "cli", "s1"))
        assert len(await world.written(ev.AgentSession)) == 1


async def test_d9_an_attempt_reads_all_that_has_happened_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "OUTPUT_FLUSH", 1000.0)
    world = World(tmp_path, {"id": "a"})
    async with world.driven():
        (call,) = world.work.calls
        assert call.contact is not None
        call.output("stdout", "here\n")
        told = await call.contact.history()
        assert [type(event) for event in told] == [ev.AttemptStarted, ev.OutputWritten]


# ── attempts that follow one another in one task ─────────────────────────────────────────────────────

LEFT = ContextVar("LEFT", default="nothing")


async def test_b5_an_attempt_sees_no_context_variable_that_the_one_before_it_left(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))
    seen: list[str] = []

    def leave(call: Call) -> None:
        seen.append(LEFT.get())
        LEFT.set(call.step)

    world.work.acts = {"a": leave, "b": leave}
    async with world.driven() as driving:
        await driving
    assert seen == ["nothing", "nothing"]


async def test_d3_an_attempt_that_follows_another_one_at_once_is_heard_and_can_be_stopped(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))
    world.work.acts["a"] = lambda call: None

    async def speak(call: Call) -> None:
        call.output("stdout", "here\n")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            world.work.stopped.append(call.step)
            raise

    world.work.acts["b"] = speak
    async with world.driven() as driving:
        world.post("pause", now=True)
        await driving
    assert world.work.stopped == ["b"]
    assert (world.state.status, world.statuses()["b"]) == ("paused", "paused")
    assert await world.texts("b") == "here\n"


async def test_j1_a_chain_of_quick_steps_lets_others_have_their_turns(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(20)]
    world = World(tmp_path, *chain(*names))
    turns, seen = 0, set[int]()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    world.work.acts = {name: lambda call: seen.add(turns) for name in names}
    counting = asyncio.ensure_future(count())
    async with world.driven() as driving:
        await driving
    counting.cancel()
    assert len(seen) > 2


async def test_d3_a_request_that_comes_while_the_end_of_an_attempt_is_written_reaches_the_one_that_follows(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, *chain("a", "b"))
    async with world.driven() as driving:
        world.journal.may_write.clear()
        world.release("a")
        await settled()
        world.post("pause", now=True)
        world.journal.may_write.set()
        await wait_until_async(lambda: driving.done(), "it is paused")
    assert world.state.status == "paused"


async def test_e3_an_execution_pauses_when_the_attempt_that_follows_needs_a_person(tmp_path: Path) -> None:
    world = World(tmp_path, *chain("a", "b"))

    def hold(call: Call) -> None:
        raise Held("budget", "the budget is used up", scope="execution")

    world.work.acts["b"] = hold
    async with world.driven() as driving:
        world.release("a")
        await wait_until_async(lambda: driving.done(), "it is paused")
    assert (world.state.status, world.state.paused_for) == ("paused", "budget")


# ── stops ────────────────────────────────────────────────────────────────────────────────────────────


async def deaf(tool: Work, call: Call) -> str:
    """An attempt that swallows its cancellation, until it is let go."""
    go = tool.go.setdefault(call.step, asyncio.Event())
    while not go.is_set():
        try:
            await go.wait()
        except asyncio.CancelledError:
            tool.stopped.append(call.step)
    call.output("stdout", "late\n")
    tool.over.append(call.step)
    return "late"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that ignores its stop is left behind at once."""
    monkeypatch.setattr(driver_module, "ABANDON_AFTER", 0.0)


async def test_d10_what_an_attempt_that_was_left_behind_does_later_changes_nothing(
    tmp_path: Path, at_once: None
) -> None:
    world = World(tmp_path, {"id": "a"}, {"id": "b"})
    world.work.acts["a"] = lambda call: deaf(world.work, call)
    async with world.driven() as driving:
        world.post("skip", step="a", by="me")
        await wait_until_async(lambda: world.statuses()["a"] == "skipped", "it is left behind")
        world.release("a")
        await settled()
        assert world.statuses() == {"a": "skipped", "b": "running"}
        world.release("b")
        await driving
    assert world.state.status == "completed"
    assert [event.step for event in await world.written(ev.AttemptFinished)] == ["b"]
    assert (world.work.over, await world.texts("a")) == (["a"], "")


async def test_d3_an_attempt_that_is_stopped_has_its_time_before_it_is_left_behind(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a"}, {"id": "b"})
    world.work.acts["a"] = lambda call: deaf(world.work, call)
    async with world.driven():
        world.post("skip", step="a", by="me")
        await settled()
        assert world.statuses()["a"] == "running"
        world.journal.may_write.clear()
        world.post("retry", step="b")
        await settled()
        world.release("b")
        await settled()
        skip_time(driver_module.ABANDON_AFTER)
        await settled()
        world.journal.may_write.set()
        await wait_until_async(lambda: world.statuses()["a"] == "skipped", "its time is over, though b ended then")


async def test_d10_an_attempt_that_was_left_behind_ends_without_harm_to_the_one_that_runs_now(
    tmp_path: Path, at_once: None
) -> None:
    world = World(tmp_path, {"id": "a"}, {"id": "b"})
    tool = world.work
    tool.acts["a"] = lambda call: deaf(tool, call)
    async with world.driven() as driving:
        world.post("skip", step="a", by="me")
        await wait_until_async(lambda: world.statuses()["a"] == "skipped", "it is left behind")
        del tool.acts["a"]
        earlier, tool.go["a"] = tool.go["a"], asyncio.Event()
        world.post("retry", step="a", by="me")
        await wait_until_async(lambda: tool.began() == ["a", "b", "a"], "it is tried again")
        earlier.set()
        await settled()
        tool.calls[-1].output("stdout", "here\n")
        world.post("pause", now=True)
        await wait_until_async(lambda: driving.done(), "it is paused")
    assert await world.texts("a") == "late\nhere\n"
    assert tool.stopped == ["a", "b", "a"]
    assert world.state.status == "paused"


async def test_c3_a_tool_that_cancels_itself_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a"})

    def cancel(call: Call) -> None:
        raise asyncio.CancelledError

    world.work.acts["a"] = cancel
    async with world.driven() as driving:
        await driving
    error = world.state.steps["a"].error
    assert error is not None
    assert error.message == "the tool cancelled itself"
    assert world.state.status == "failed"


async def test_c3_an_attempt_is_to_use_less_only_after_failures_for_want_of_resources(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a", "retry": {"delay": "1ms", "max_delay": "1ms"}})
    failures = ["transient", "resource"]

    def fail(call: Call) -> None:
        if failures:
            raise ToolError("not yet", category=failures.pop(0))

    def goes_on() -> bool:
        world.clock.advance(1.0)
        skip_time(driver_module.LONGEST_NAP)
        return driving.done()

    world.work.acts["a"] = fail
    async with world.driven() as driving:
        await wait_until_async(goes_on, "it is tried again")
    assert [call.reduced for call in world.work.calls] == [0, 0, 1]


async def test_c6_an_attempt_that_found_something_changed_since_the_approval_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a"})

    def change(call: Call) -> str:
        if call.attempt == 1:
            raise ApprovalOutdated(("the file x changed",))
        return "done"

    world.work.acts["a"] = change
    async with world.driven() as driving:
        await driving
    (stopped,) = await world.written(ev.AttemptStopped)
    assert (stopped.attempt, stopped.reason, stopped.changes) == (1, "changed", ("the file x changed",))
    assert world.state.steps["a"].output == "done"


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────


async def test_k1_an_agent_hears_of_a_message_once_that_is_on_disk(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "work", **AGENT})
    heard: list[int] = []

    async def listen(call: Call) -> None:
        assert call.contact is not None
        for _ in range(2):
            await call.contact.message()
            heard.append(len(await world.written(ev.AgentTold)))

    world.work.acts["work"] = listen
    async with world.driven() as driving:
        world.journal.may_write.clear()
        world.post("say", step="work", id="m1", text="one")
        await settled()
        assert heard == []
        world.journal.may_write.set()
        await settled()
        assert heard == [1]
        world.post("say", step="work", id="m2", text="two")
        await driving
    assert heard == [1, 2]


async def test_c6_each_answer_reaches_its_question_where_a_step_and_an_agent_wait_for_one(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "work", **AGENT}, {"id": "gate", "approve": "always"}, {"id": "aside"})

    async def ask(call: Call) -> str:
        assert call.contact is not None
        return (await call.contact.ask("Bash", {"command": "ls"}, tmp_path)).note

    world.work.acts["work"] = ask
    async with world.driven() as driving:
        await wait_until_async(world.has_written(ev.ApprovalAsked, 2), "both are asked")
        digests = {asked.step: asked.digest for asked in await world.written(ev.ApprovalAsked)}
        world.post("approve", step="gate", digest=digests["gate"], allow=True, by="me")
        await wait_until_async(lambda: "gate" in world.work.began(), "it is allowed")
        assert world.statuses()["work"] == "waiting"
        world.post("approve", step="work", digest=digests["work"], allow=True, by="me", note="go on")
        for step in ("gate", "aside"):
            world.release(step)
        await driving
    assert world.state.steps["work"].output == "go on"


async def test_d6_a_message_that_the_last_driver_did_not_read_is_taken_once(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "work", **AGENT})
    said = Message(7, "e", 1.0, {"kind": "say", "step": "work", "id": "m1", "text": "one"})
    paused = Message(8, "e", 1.0, {"kind": "pause", "now": True})
    for message in (said, paused):
        world.driver.catch_up(message)
    async with world.driven():
        for message in (said, paused):
            world.driver.post(message)
        await settled()
        assert [told.id for told in await world.written(ev.AgentTold)] == ["m1"]
        assert await world.written(ev.ControlRequested) == [], "to resume it answers the pause"


async def test_k1_a_message_to_an_agent_that_listens_no_more_is_not_taken_and_its_next_attempt_is_told(
    tmp_path: Path,
) -> None:
    retry = {"delay": "1m"}
    world = World(tmp_path, {"id": "work", **AGENT, "retry": retry}, {"id": "other", **AGENT})

    async def end(call: Call) -> None:
        assert call.contact is not None
        if call.attempt == 1:
            call.contact.close()
        await world.work.go.setdefault(f"{call.step}{call.attempt}", asyncio.Event()).wait()
        if call.attempt == 1:
            raise ToolError("no answer", category="transient")

    world.work.acts["work"] = end
    async with world.driven():
        world.post("say", step="work", id="late", text="too late")
        world.post("say", step="other", id="other", text="in time")
        world.post("summarise", step="work", by="me")
        await settled()
        assert [told.id for told in await world.written(ev.AgentTold)] == ["other"]
        assert len(await world.written(ev.AgentSummaryRequested)) == 1
        world.release("work1")
        await settled()
        world.post("retry", step="work", by="me")
        await wait_until_async(lambda: world.work.began().count("work") == 2, "it is tried again")
        world.post("say", step="work", id="again", text="in time, too")
        await settled()
        assert [told.id for told in await world.written(ev.AgentTold)] == ["other", "again"]


async def test_e1_of_reports_of_an_agents_usage_in_one_moment_the_last_one_is_written(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "work", **AGENT})

    def report(call: Call) -> None:
        assert call.contact is not None
        for tokens in (1, 2, 3):
            call.contact.tell(ev.UsageReported(1.0, "work", 1, Usage(tokens_in=tokens)))

    world.work.acts["work"] = report
    async with world.driven() as driving:
        await driving
    assert [report.usage.tokens_in for report in await world.written(ev.UsageReported)] == [3]


# ── services ─────────────────────────────────────────────────────────────────────────────────────────


class Process:
    """The process of a service."""

    def __init__(self) -> None:
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ended(self) -> str:
        return await self.end

    async def stop(self, grace: float) -> None:
        if not self.end.done():
            self.end.set_result("stopped")


class Served(World):
    """An execution whose step `server` is a service."""

    def __init__(self, folder: Path, *steps: dict[str, Any]) -> None:
        super().__init__(folder, {"id": "server", "run": "serve", "service": True}, *steps)
        shell = Work("shell")
        shell.acts["server"] = self._serve
        self.driver.tools.add(shell)  # type: ignore[attr-defined]
        self.process: Process | None = None

    def _serve(self, call: Call) -> str:
        assert call.contact is not None
        assert call.contact.services is not None
        self.process, self.output = Process(), call.output
        call.contact.services.keep("server", self.process)
        return "ready"


async def test_b5_a_service_is_heard_for_as_long_as_it_runs_and_ends_before_steps_that_do_not_need_it(
    tmp_path: Path,
) -> None:
    world = Served(tmp_path, {"id": "a", "needs": ["server"]}, {"id": "aside"})
    async with world.driven():
        assert world.process is not None
        world.output("stdout", "a request\n")
        world.release("a")
        ended = "the service is ended: the steps that need it have ended\n"
        await wait_until_async(lambda: world.process is not None and world.process.end.done(), "it is ended")
        await settled()
        assert await world.texts("server") == f"a request\n{ended}"
        assert world.statuses()["aside"] == "running"
        world.output("stdout", "another one\n")
        await settled()
        assert await world.texts("server") == f"a request\n{ended}"


async def test_b5_the_end_of_a_service_is_written_while_no_attempt_runs(tmp_path: Path) -> None:
    world = Served(tmp_path, {"id": "a", "needs": ["server"], "retry": {"delay": 3600, "max_delay": 3600}})

    def fail(call: Call) -> None:
        raise ToolError("no answer", category="transient")

    world.work.acts["a"] = fail
    async with world.driven():
        assert world.process is not None
        assert world.state.steps["a"].waiting_for == "retry"
        world.process.end.set_result("exit code 3")
        await settled()
        assert await world.texts("server") == "the service ended while it was needed: exit code 3\n"


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [0.5, 3600.0])
async def test_c8_a_driver_that_waits_does_nothing_until_the_time_limit_of_its_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    monkeypatch.setattr(driver_module, "LONGEST_NAP", 1000.0)
    world = World(tmp_path, {"id": "a"}, limits={"timeout": limit})
    async with world.driven() as driving:
        asked = world.clock.asked
        await settled()
        assert world.clock.asked == asked
        world.clock.advance(limit)
        skip_time(min(limit, driver_module.LONGEST_NAP))
        await wait_until_async(lambda: driving.done(), "its time is over")
    assert world.state.status == "failed"
    assert world.work.stopped == ["a"]


async def test_c8_a_driver_does_nothing_while_a_step_whose_time_has_come_waits_for_room(tmp_path: Path) -> None:
    world = World(tmp_path, {"id": "a", "retry": {"delay": "1m"}}, {"id": "b"}, limits={"parallel": 1})

    def fail(call: Call) -> None:
        raise ToolError("no answer", category="transient")

    world.work.acts["a"] = fail
    async with world.driven():
        assert world.work.began() == ["a", "b"]
        world.clock.advance(100.0)
        world.post("retry", step="b")
        await settled()
        asked = world.clock.asked
        await settled()
        assert world.clock.asked == asked
