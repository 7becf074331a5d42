"""Workers share executions with others who are faster, slower, or gone: in one process, on one journal (D2, J2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld
from waiting import settled, wait_until_async

from windlass import AgentRequest, AgentResult, Call, Host, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine import shared
from windlass.engine.commit_writer import head_of
from windlass.engine.engine import Engine
from windlass.engine.shared import DueAttempt
from windlass.errors import Category, Conflict
from windlass.ports import Entry, Note
from windlass.ports.notify import Watch
from windlass.testing import FakeClock, MemoryJournal, ScriptedRunner

if TYPE_CHECKING:
    from conftest import Project

DRIVER = "temporal"
A, B = Step(id="a", tool="work"), Step(id="b", tool="work", needs=["a"])
HANGS, BESIDE = Step(id="a", tool="hang"), Step(id="c", tool="hang")
FIX = Step(id="fix", agent="developer", prompt="Mend it.", runtime="cli")
ASKS = Step(id="asks", tool="work", approve="always")


class Contested(MemoryJournal):
    """A journal in which others may be faster: it notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.rivals: Iterator[ev.Event] = iter(())
        """What others write, one right before each append."""
        self.asked: list[tuple[str | None, int]] = []

    async def append(self, execution: str, after: int, events: Iterable[ev.Event], **more: Any) -> None:
        if (rival := next(self.rivals, None)) is not None:
            await super().append(execution, self._last[execution], [rival])
        await super().append(execution, after, list(events), **more)

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        self.asked.append((execution, after))
        return await super().read(execution, after, limit)


class Talking(ScriptedRunner):
    """An agent that asks a person something, and says what it was answered and what it is told after that."""

    takes_messages = True

    def __init__(self) -> None:
        super().__init__([], name="cli")
        self.answered, self.enough = asyncio.Event(), asyncio.Event()
        """Somebody has answered; it waits no longer for an answer."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        asking = asyncio.ensure_future(host.ask("Bash", {"command": "make"}))
        waiting = asyncio.ensure_future(self.enough.wait())
        await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not asking.done():
            asking.cancel()
            return AgentResult("nobody answered", interrupted=bool(self.interrupts))
        self.answered.set()
        await host.wait_told()
        (told,) = host.told()
        await host.heard([told.id], "steer")
        return AgentResult(f"{'yes' if (await asking).allow else 'no'}, {told.text}")

    async def interrupt(self, request: str) -> None:
        await super().interrupt(request)
        self.enough.set()


class Workers(AgentWorld):
    """Two workers, with a clock that stands still and tools that note what they do."""

    def __init__(self, project: Project) -> None:
        self.performed: list[str] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()

        @tool
        async def work(call: Call) -> str:
            self.performed.append(f"{call.step} {call.attempt}")
            call.output("stdout", "working\n")
            return call.step

        @tool(effect="repeatable")
        async def hang(call: Call) -> str:
            self.performed.append(f"{call.step} {call.attempt}")
            call.output("stdout", "waiting\n")
            self.began.set()
            await self.go.wait()
            return call.step

        @tool
        async def fail(call: Call) -> str:
            raise ToolError("it is broken", category=Category.LOGIC)

        self.time = FakeClock(NOW)
        self.contested = Contested()
        self.runner = Talking()
        super().__init__(project, self.runner, journal=self.contested, clock=self.time, tools=[work, hang, fail])

    def open(self, engine: Engine) -> None:
        self.person = engine
        self.one, self.two = engine.shared(DRIVER, "one"), engine.shared(DRIVER, "two")

    async def begin(self, *steps: Step, driver: str = DRIVER, **plan: Any) -> str:
        """Write an execution down, as begun by the workers."""
        id = await self.person.create(Plan(name="shared", steps=steps, **plan))
        await self.write(id, ev.ExecutionStarted(self.time.now(), driver))
        return id

    async def write(self, id: str, *events: ev.Event) -> None:
        """Write events, as others do."""
        state = await self.person.state(id)
        after = state.seq
        for event in events:
            state.apply(event)
        await self.contested.append(id, after, events, head=head_of(state))

    async def of(self, id: str, kind: type[ev.Event]) -> list[Any]:
        return [event for event in await self.events(id) if isinstance(event, kind)]

    async def ask(self, id: str, kind: str, /, **body: Any) -> None:
        """Put a request into the execution's inbox."""
        await self.contested.send(id, self.time.now(), {"kind": kind, "by": "ann", **body})

    async def to_the_end(self, id: str) -> State:
        while not (turn := await self.one.turn(id, hold=False)).over:
            for due in turn.active:
                await self.one.attempt(id, due.step, due.attempt)
        return await self.person.state(id)

    def output(self) -> ev.OutputWritten:
        """What some other process writes meanwhile."""
        return ev.OutputWritten(self.time.now(), "a", 1, "note", "by another one\n")


@pytest.fixture
async def world(project: Project) -> AsyncIterator[Workers]:
    made = Workers(project)
    async with made.engine() as engine:
        made.open(engine)
        yield made


async def test_d6_workers_leave_an_execution_of_another_driver_alone(world: Workers) -> None:
    id = await world.begin(A, driver="another")
    before = await world.events(id)
    assert await world.one.turn(id, hold=False) == (True, [], None)
    await world.write(id, ev.AttemptStarted(NOW, "a", 1, "work", {}, "none"))
    await world.one.attempt(id, "a", 1)
    assert len(await world.events(id)) == len(before) + 1
    assert world.performed == []


async def test_d2_a_turn_acts_on_the_messages_of_its_own_execution_alone(world: Workers) -> None:
    first, second = await world.begin(A), await world.begin(A)
    await world.ask(second, "pause")
    assert not (await world.one.turn(first, hold=False)).over
    assert [message.execution for message in await world.contested.receive()] == [second]
    assert (await world.one.turn(second, hold=False)).over
    assert await world.contested.receive() == []
    assert (await world.person.state(second)).status == "paused"


async def test_d2_a_turn_that_others_were_faster_than_is_taken_anew(world: Workers) -> None:
    id = await world.begin(A, B)
    world.contested.rivals = iter([world.output()])
    assert (await world.one.turn(id, hold=False)).active == [DueAttempt("a", 1, "")]
    assert [type(event) for event in (await world.events(id))[2:]] == [ev.OutputWritten, ev.AttemptStarted]
    assert (await world.to_the_end(id)).status == "completed"
    assert world.performed == ["a 1", "b 1"]


async def test_d2_an_attempt_that_others_were_faster_than_is_performed_once(world: Workers) -> None:
    id = await world.begin(A, B)
    await world.one.turn(id, hold=False)
    world.contested.rivals = iter([world.output()])
    await world.one.attempt(id, "a", 1)
    assert world.performed == ["a 1"]
    world.contested.rivals = iter([world.output()])
    assert (await world.to_the_end(id)).status == "completed"
    assert world.performed == ["a 1", "b 1"]


async def test_d2_an_attempt_whose_end_others_were_faster_to_write_is_not_performed(world: Workers) -> None:
    id = await world.begin(A)
    await world.one.turn(id, hold=False)
    world.contested.rivals = iter([ev.AttemptStopped(NOW, "a", 1, "lost")])
    await world.one.attempt(id, "a", 1)
    assert world.performed == []


async def test_d2_whoever_is_never_fast_enough_says_so_and_has_written_nothing(world: Workers) -> None:
    id = await world.begin(A)
    message = f"other processes kept writing to execution {id}; this one wrote nothing"
    world.contested.rivals = repeat(world.output())
    with pytest.raises(Conflict, match=message):
        await world.one.turn(id, hold=False)
    world.contested.rivals = iter(())
    assert await world.of(id, ev.AttemptStarted) == []
    await world.one.turn(id, hold=False)
    world.contested.rivals = repeat(world.output())
    with pytest.raises(Conflict, match=message):
        await world.one.attempt(id, "a", 1)
    assert await world.of(id, ev.AttemptPlaced) == []
    assert world.performed == []


async def test_d2_an_attempt_that_is_not_current_is_not_performed(world: Workers) -> None:
    id = await world.begin(A, BESIDE, B)
    await world.one.turn(id, hold=False)
    before = len(await world.events(id))
    for step, attempt in (("a", 2), ("a", 0), ("b", 0), ("b", 1), ("missing", 1)):
        await world.one.attempt(id, step, attempt)
    assert len(await world.events(id)) == before
    await world.one.attempt(id, "a", 1)
    before = len(await world.events(id))
    await world.one.attempt(id, "a", 1)
    assert len(await world.events(id)) == before
    assert world.performed == ["a 1"]


async def test_j2_a_worker_reads_only_what_came_since_its_last_turn_or_attempt(world: Workers) -> None:
    id = await world.begin(A, B)
    await world.one.turn(id, hold=False)
    for step in ("a", "b"):
        world.contested.asked.clear()
        await world.one.attempt(id, step, 1)
        since = {"a": 0, "b": 6}[step]
        assert world.contested.asked[0] == (id, since), "with the end of attempt a, it has six events"
        assert all(after > since for _, after in world.contested.asked[1:])
        world.contested.asked.clear()
        await world.one.turn(id, hold=False)
        assert world.contested.asked == [(id, {"a": 3, "b": 7}[step])]
    assert (await world.person.state(id)).status == "completed"


async def test_j2_a_worker_knows_what_it_wrote_itself_during_an_attempt(world: Workers) -> None:
    id = await world.begin(HANGS, B)
    await world.one.turn(id, hold=False)
    attempt = asyncio.ensure_future(world.one.attempt(id, "a", 1))

    async def written() -> bool:
        return bool(await world.of(id, ev.OutputWritten))

    await wait_until_async(written)
    world.go.set()
    await attempt
    await world.one.turn(id, hold=False)
    world.contested.asked.clear()
    await world.one.attempt(id, "b", 1)
    assert world.contested.asked[0] == (id, 6), "its start, its place, its output and its end are the last four"
    assert world.performed == ["a 1", "b 1"]


async def test_j2_a_worker_keeps_the_states_of_the_executions_it_saw_last(
    world: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MOST_STATES", 2)
    ids = [await world.begin(HANGS) for _ in range(3)]
    for id in ids:
        await world.one.turn(id, hold=False)
    for id, seq in ((ids[2], 3), (ids[1], 3), (ids[0], 0)):
        world.contested.asked.clear()
        await world.one.turn(id, hold=False)
        assert world.contested.asked == [(id, seq)]


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        ("interrupt", {}, "paused"),
        ("cancel", {}, "cancelled"),
        ("skip", {"step": "a"}, "skipped"),
    ],
)
async def test_d3_an_attempt_that_is_to_be_stopped_before_it_is_placed_never_begins(
    world: Workers, kind: str, more: dict[str, Any], reason: str
) -> None:
    id = await world.begin(A, BESIDE)
    await world.one.turn(id, hold=False)
    await world.ask(id, kind, **more)
    await world.one.turn(id, hold=False)
    await world.two.attempt(id, "a", 1)
    assert [(event.step, event.reason) for event in await world.of(id, ev.AttemptStopped)] == [("a", reason)]
    assert world.performed == []


async def test_d3_an_attempt_of_a_plan_whose_time_is_up_never_begins(world: Workers) -> None:
    id = await world.begin(A, limits={"timeout": 10})
    assert (await world.one.turn(id, hold=False)).wake == pytest.approx(10.0)
    world.time.advance(4.0)
    assert (await world.one.turn(id, hold=False)).wake == pytest.approx(6.0)
    world.time.advance(6.5)
    await world.two.attempt(id, "a", 1)
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["timeout"]
    assert world.performed == []


async def test_c2_an_attempt_beside_a_critical_step_that_failed_never_begins(world: Workers) -> None:
    id = await world.begin(A, Step(id="base", tool="fail", importance="critical", retry=0))
    await world.one.turn(id, hold=False)
    await world.one.attempt(id, "base", 1)
    await world.one.turn(id, hold=False)
    await world.two.attempt(id, "a", 1)
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["critical"]
    assert world.performed == []


async def test_d3_requests_reach_an_attempt_at_work(world: Workers) -> None:
    id = await world.begin(HANGS)
    await world.one.turn(id, hold=False)
    attempt = asyncio.ensure_future(world.one.attempt(id, "a", 1))
    await world.began.wait()
    await world.ask(id, "interrupt")
    await world.two.turn(id, hold=False)
    await attempt
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["paused"]
    assert (await world.two.turn(id, hold=False)).over
    assert (await world.person.state(id)).status == "paused"


async def test_d2_the_time_until_a_worker_took_an_attempt_is_no_time_of_its_work(world: Workers) -> None:
    id = await world.begin(A, B)
    await world.one.turn(id, hold=False)
    world.time.advance(1000.0)
    assert (await world.to_the_end(id)).status == "completed"
    first, second = [event.queued for event in await world.of(id, ev.AttemptFinished)]
    assert 1000.0 <= first < 1060.0, "and the moment that it may have waited at a gate"
    assert second < 60.0


async def test_d2_a_clock_that_runs_behind_makes_no_wait_shorter_than_none(world: Workers) -> None:
    id = await world.begin(A)
    await world.one.turn(id, hold=False)
    world.time.set(NOW - 1000.0)
    await world.one.attempt(id, "a", 1)
    (finished,) = await world.of(id, ev.AttemptFinished)
    assert 0.0 <= finished.queued < 60.0


async def test_d2_output_and_events_of_others_during_an_attempt_are_all_in_the_journal(world: Workers) -> None:
    id = await world.begin(A)
    await world.one.turn(id, hold=False)
    await world.write(id, ev.AttemptPlaced(NOW, "a", 1, "two"))
    state = await world.person.state(id)
    assert state.steps["a"].worker == "two"
    await world.one.attempt(id, "a", 1)
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["lost"], "two has it, or is gone"
    assert world.performed == []
    await world.one.turn(id, hold=False)
    world.contested.rivals = iter([world.output()] * 4)
    await world.one.attempt(id, "a", 2)
    assert world.performed == ["a 2"]
    texts = [(event.attempt, event.text) for event in await world.of(id, ev.OutputWritten)]
    assert sorted(texts) == [*[(1, "by another one\n")] * 4, (2, "working\n")]
    assert len(await world.of(id, ev.AttemptFinished)) == 1


async def test_j2_an_attempt_ends_with_the_trouble_of_a_journal_that_never_takes_its_events(world: Workers) -> None:
    id = await world.begin(HANGS)
    await world.one.turn(id, hold=False)
    attempt = asyncio.ensure_future(world.one.attempt(id, "a", 1))
    await world.began.wait()

    async def refuse(execution: str, after: int, events: Iterable[ev.Event], **more: Any) -> None:
        raise Conflict("it has other events, and shows none")

    world.contested.append = refuse  # type: ignore[method-assign]
    world.go.set()
    with pytest.raises(Conflict, match="shows none"):
        await attempt


async def test_c6_a_question_pauses_the_execution_in_the_turn_that_asks_where_nobody_answers(world: Workers) -> None:
    id = await world.begin(ASKS, A)
    await world.one.turn(id, hold=False)
    await world.one.attempt(id, "a", 1)
    turn = await world.one.turn(id, hold=False)
    assert (turn.over, turn.active) == (True, [])
    state = await world.person.state(id)
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert [one.question.step for one in await world.contested.questions()] == ["asks"]


async def test_c6_where_somebody_may_answer_a_turn_waits_for_the_question_to_expire(world: Workers) -> None:
    id = await world.begin(Step(id="asks", tool="work", approve="always", approve_within=30.0))
    turn = await world.one.turn(id, hold=True)
    assert (turn.over, turn.active, turn.wake) == (False, [], pytest.approx(30.0))
    world.time.advance(40.0)
    turn = await world.two.turn(id, hold=True)
    assert turn.over
    assert (await world.person.state(id)).status == "failed"


async def test_c6_the_questions_of_a_step_are_listed_while_another_one_begins_and_ends(world: Workers) -> None:
    id = await world.begin(ASKS, A)
    await world.one.turn(id, hold=True)
    await world.one.attempt(id, "a", 1)
    assert [one.question.step for one in await world.contested.questions()] == ["asks"]
    (asked,) = await world.of(id, ev.ApprovalAsked)
    await world.ask(id, "approve", step="asks", digest=asked.digest, allow=True)
    await world.two.turn(id, hold=True)
    assert await world.contested.questions() == []
    assert (await world.to_the_end(id)).status == "completed"


async def test_j2_the_next_attempt_of_an_agent_is_for_its_worker_for_a_moment(world: Workers) -> None:
    id = await world.begin(Step(id="fix", agent="developer", prompt="Mend it.", retry=3))
    began = ev.AgentBegan(NOW, "fix", 1, "cli", "developer", "", "Mend it.")
    started = ev.AttemptStarted(NOW, "fix", 1, "agent", {}, "none")
    await world.write(id, started, ev.AttemptPlaced(NOW, "fix", 1, "one"), began)
    assert (await world.two.turn(id, hold=True)).active == [DueAttempt("fix", 1, "")], "it is placed"
    world.time.advance(1.0)
    await world.write(id, ev.AttemptStopped(NOW + 1.0, "fix", 1, "paused"))
    assert (await world.two.turn(id, hold=True)).active == [DueAttempt("fix", 2, "", "one")]
    world.time.advance(shared.PREFERRED - 0.5)
    assert (await world.two.turn(id, hold=True)).active == [DueAttempt("fix", 2, "", "one")]
    world.time.advance(0.5)
    assert (await world.two.turn(id, hold=True)).active == [DueAttempt("fix", 2, "")]


async def test_j2_a_step_of_a_tool_that_the_turn_does_not_have_may_happen_only_once(
    world: Workers, project: Project
) -> None:
    id = await world.begin(A, Step(id="c", tool="work", effect="none"), Step(id="files", tool="files.list"))
    async with AgentWorld(project, journal=world.contested, clock=world.time).engine() as elsewhere:
        await elsewhere.shared(DRIVER, "three").turn(id, hold=False)
    effects = {event.step: event.effect for event in await world.of(id, ev.AttemptStarted)}
    assert effects == {"a": "once", "c": "none", "files": "none"}


async def test_j2_what_a_worker_lacks_is_said_by_the_step(world: Workers) -> None:
    id = await world.begin(Step(id="fix", agent="developer", prompt="Mend it.", retry=0))
    await world.one.turn(id, hold=False)
    await world.write(id, ev.FilesKept(NOW, "fix", 0, "0" * 64, 1, 1))
    await world.one.attempt(id, "fix", 1)
    (failed,) = await world.of(id, ev.AttemptFailed)
    assert failed.failure.category == Category.CONFIGURATION
    assert failed.failure.message.endswith(
        "the files of step fix are in a store, and worker one has no setting `store`"
    )


async def test_d6_a_worker_that_leaves_gives_its_attempt_back(world: Workers) -> None:
    id = await world.begin(HANGS)
    await world.one.turn(id, hold=False)
    leaving = asyncio.Event()
    attempt = asyncio.ensure_future(world.one.attempt(id, "a", 1, leaving.wait))
    await world.began.wait()
    leaving.set()
    await attempt
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["lost"]
    world.go.set()
    assert (await world.to_the_end(id)).status == "completed"
    assert world.performed == ["a 1", "a 2"]


async def test_d6_waiting_for_a_worker_to_leave_ends_with_its_attempt(world: Workers) -> None:
    id = await world.begin(A)
    await world.one.turn(id, hold=False)
    ended = asyncio.Event()

    async def leave() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await world.one.attempt(id, "a", 1, leave)
    await wait_until_async(ended.is_set)


async def test_c6_k1_a_persons_words_reach_an_agent_on_another_worker(world: Workers) -> None:
    id = await world.begin(FIX, ASKS)
    await world.one.turn(id, hold=True)
    attempt = asyncio.ensure_future(world.one.attempt(id, "fix", 1))

    async def both_ask() -> bool:
        return await world.contested.count_questions() == 2

    await wait_until_async(both_ask)
    asked = {event.step: event.digest for event in await world.of(id, ev.ApprovalAsked)}
    for step, allow in (("asks", False), ("fix", True)):
        await world.ask(id, "approve", step=step, digest=asked[step], allow=allow)
        await world.two.turn(id, hold=True)
    await world.runner.answered.wait()
    await world.ask(id, "say", step="fix", id="m1", text="be quick")
    await world.two.turn(id, hold=True)
    await attempt
    assert (await world.to_the_end(id)).steps["fix"].output == "yes, be quick"
    assert [event.ids for event in await world.of(id, ev.AgentHeard)] == [("m1",)]


class Notes:
    """A notifier that has a note of each question, and notes how many were on disk when it heard of one."""

    def __init__(self, journal: MemoryJournal) -> None:
        self.journal = journal
        self.heard: list[tuple[int, int]] = []

    def watch(self, state: State) -> Watch:
        return lambda events: [
            Note("key", state.id, "approval", "bell", "", 1.0, 1.0, 9.0, "a question", "", {}, "me")
            for event in events
            if isinstance(event, ev.ApprovalAsked)
        ]

    def committed(self, notes: Sequence[Note]) -> None:
        self.heard.append((len(notes), len(self.journal.notes)))


async def test_i8_of_an_agents_question_on_a_worker_people_are_told_once_it_is_on_disk(world: Workers) -> None:
    notes = Notes(world.contested)
    one = world.person.shared(DRIVER, "one")
    one._world = msgspec.structs.replace(one._world, notifier=cast(Any, notes))
    id = await world.begin(FIX)
    await one.turn(id, hold=True)
    attempt = asyncio.ensure_future(one.attempt(id, "fix", 1))
    await wait_until_async(lambda: notes.heard)
    assert notes.heard == [(1, 1)]
    (asked,) = await world.of(id, ev.ApprovalAsked)
    await world.ask(id, "approve", step="fix", digest=asked.digest, allow=True)
    await world.ask(id, "say", step="fix", id="m1", text="be quick")
    await world.two.turn(id, hold=True)
    await attempt
    assert notes.heard == [(1, 1)], "nobody is told of what has none"


async def asked_by_the_agent(world: Workers) -> tuple[str, asyncio.Future[None]]:
    """An execution whose agent asks a person on a worker, and its attempt."""
    id = await world.begin(FIX)
    await world.one.turn(id, hold=True)
    attempt = asyncio.ensure_future(world.one.attempt(id, "fix", 1))
    await wait_until_async(world.contested.count_questions)
    return id, attempt


async def test_c6_a_question_of_an_agent_that_ends_without_the_answer_is_listed_no_more(world: Workers) -> None:
    id, attempt = await asked_by_the_agent(world)
    world.runner.enough.set()
    await attempt
    assert await world.contested.count_questions() == 0
    assert (await world.to_the_end(id)).steps["fix"].output == "nobody answered"


async def test_c6_an_agent_that_asks_where_nobody_answers_is_stopped_and_its_question_stays(world: Workers) -> None:
    id, attempt = await asked_by_the_agent(world)
    assert not (await world.two.turn(id, hold=False)).over, "it is to be stopped first"
    await attempt
    assert [event.reason for event in await world.of(id, ev.AttemptStopped)] == ["paused"]
    assert (await world.two.turn(id, hold=False)).over
    state = await world.person.state(id)
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert [one.asked for one in await world.contested.questions()] == await world.of(id, ev.ApprovalAsked)


async def test_j2_an_attempt_that_waits_looks_at_the_journal_now_and_then_and_not_all_the_time(
    world: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "LOOK", 1000.0)
    id = await world.begin(HANGS)
    await world.one.turn(id, hold=False)
    attempt = asyncio.ensure_future(world.one.attempt(id, "a", 1))
    await world.began.wait()
    await settled()
    world.contested.asked.clear()
    await settled(50)
    assert len(world.contested.asked) <= 2
    world.go.set()
    await attempt
