"""Executions that this process drives: begun, handed over, taken over by others, and let go (D2, D3, D6, J2)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld, agent, done, plan
from waiting import settled, wait_until_async

from windlass import Call, Step, tool
from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.state import fold
from windlass.engine import drivers as module
from windlass.engine import forecasts
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import Launcher, LocalDrivers, environment_of
from windlass.errors import Conflict, JournalError, UsageError
from windlass.plan.model import Plan
from windlass.ports import Message, RunnerHooks
from windlass.testing import FakeClock, MemoryJournal, ScriptedRunner

if TYPE_CHECKING:
    from conftest import Project

    from windlass.engine.engine import Engine


class World(AgentWorld):
    """An engine with a tool that waits to be let go."""

    def __init__(self, project: Project, *runners: ScriptedRunner, **more: Any) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()

        @tool(effect="repeatable")
        async def hang(call: Call) -> str:
            self.began.set()
            await self.go.wait()
            return call.step

        super().__init__(project, *runners, tools=[hang], **more)


PLAN = Plan(name="p", steps=[Step(id="a", tool="hang")])
ASKS = Plan(name="p", steps=[Step(id="a", tool="hang", approve="always")])


def drivers_of(engine: Engine) -> LocalDrivers:
    found = engine._drivers
    assert isinstance(found, LocalDrivers)
    return found


async def test_d6_an_execution_is_driven_here_from_its_beginning_on_disk_to_its_end(project: Project) -> None:
    world = World(project)
    async with world.engine() as engine:
        drivers, told = drivers_of(engine), list[tuple[str, int, int]]()
        drivers.commits.subscribe(lambda execution, events, seq: told.append((execution, len(events), seq)))
        execution = await engine.start(PLAN)
        await world.began.wait()
        head = await engine.find(execution.id)
        assert (len(drivers), execution.id in drivers, drivers.alive(head)) == (1, True, True)
        assert head.driver == drivers.name == drivers.name
        assert world.journal.alive(drivers.name)
        assert drivers.driven_state(execution.id) is drivers.driven_states()[0]
        task = drivers.task(execution.id)
        assert task is not None
        world.go.set()
        await task
        assert (len(drivers), drivers.alive(head), drivers.task(execution.id)) == (0, False, None)
        assert drivers.driven_state(execution.id) is None
    written = len(await world.events(execution.id))
    assert told[-1] == (execution.id, 0, written), "followers learn that its driver has let go"
    assert told[-2][2] == written


async def test_d3_a_message_to_a_driver_here_is_acted_on_when_it_is_acknowledged(project: Project) -> None:
    world = World(project)
    await world.journal.send("other", NOW, {"kind": "pause"})
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        pause = {"kind": "pause", "by": "ann"}
        assert await drivers_of(engine).deliver(execution.id, pause)
        assert any(isinstance(one, ev.ControlRequested) for one in await world.events(execution.id))
        assert (await engine.state(execution.id)).status == "running", "its attempt finishes first"
        world.go.set()
        assert (await execution.wait()).paused_for == "pause"
        assert [message.execution for message in await world.journal.receive()] == ["other"]


class Full(MemoryJournal):
    """A journal that can write nothing when its disk is full."""

    full = False

    async def append(self, *args: Any, **more: Any) -> None:
        await settled()  # a write takes its time
        if self.full:
            raise JournalError("no space left")
        await super().append(*args, **more)


async def test_d3_a_message_whose_effect_cannot_be_written_fails_with_the_reason(project: Project) -> None:
    journal = Full()
    world = World(project, journal=journal)
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        journal.full = True
        with pytest.raises(JournalError, match="no space left"):
            await drivers_of(engine).deliver(execution.id, {"kind": "pause"})


async def test_d3_closing_interrupts_what_runs_and_keeps_the_reason(project: Project) -> None:
    world = World(project, journal=Full(), checkpoints="off")
    await world.journal.send("other", NOW, {"kind": "pause"})
    async with world.engine() as engine:
        before = asyncio.all_tasks()
        execution = await engine.start(PLAN)
        await world.began.wait()
        await drivers_of(engine).close("restart")
        assert len(drivers_of(engine)) == 0
        assert asyncio.all_tasks() <= before, "nothing goes on"
        with pytest.raises(UsageError, match="this engine is closed: nothing was done"):
            await engine.start(PLAN)
    state = fold(await world.events(execution.id))
    assert (state.status, state.paused_for) == ("paused", "restart")
    assert [message.execution for message in await world.journal.receive()] == ["other"]


def second_start(here: str) -> list[ev.Event]:
    return []


def resume_that_comes_late(here: str) -> list[ev.Event]:
    return [ev.ExecutionStarted(NOW, here), ev.ExecutionPaused(NOW, "me")]


def driven_by_another(here: str) -> list[ev.Event]:
    return [ev.ExecutionStarted(NOW, "other")]


@pytest.mark.parametrize("history", [second_start, resume_that_comes_late, driven_by_another])
async def test_d5_an_execution_that_runs_here_gets_no_second_driver(
    project: Project, history: Callable[[str], list[ev.Event]]
) -> None:
    world = World(project)
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        drivers, launcher = drivers_of(engine), engine._control._launcher
        first, (created, *_) = drivers[execution.id], await world.events(execution.id)
        state = fold([created, *history(drivers.name)], PLAN)
        with pytest.raises(Conflict, match=f"there is an execution {execution.id} already, which runs here"):
            await drivers.drive(launcher.driver(state, hold=False), [launcher.opening(state)])
        assert drivers[execution.id] is first
        world.go.set()
        assert (await execution.wait()).status == "completed"


async def test_d5_an_execution_that_runs_here_can_be_taken_over_here(project: Project) -> None:
    world = World(project)
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        first = drivers_of(engine)[execution.id]
        second = await engine.resume(execution.id, take_over=True)
        assert drivers_of(engine)[execution.id] is not first
        world.go.set()
        assert (await second.wait()).status == "completed"


async def test_d7_an_execution_that_runs_here_is_forecast(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "FIRST", 0.0)
    world = World(project)
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await wait_until_async(lambda: engine._forecasts.latest(execution.id), "there is a forecast")


async def test_a1_the_runtime_of_an_agent_can_prepare_itself_before_the_agent_begins(project: Project) -> None:
    prepared: list[str | None] = []

    class Runtime(ScriptedRunner, RunnerHooks):
        def prepare(self, model: str | None) -> None:
            prepared.append(model)

    world = World(project, Runtime([done()], name="cli"), runtime="cli")
    assert (await world.run(plan(agent(model="m")))).status == "completed"
    assert prepared == ["m"]


async def test_d2_only_a_driver_whose_execution_another_process_took_over_is_made_to_end(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAKEOVER_CHECK", 0.0)
    monkeypatch.setattr(module._log, "disabled", True)  # a record that is kept would keep the error
    world, troubles = World(project), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: troubles.append(about))
    async with world.engine() as engine:
        kept, lost = [(await engine.start(ASKS)).id for _ in range(2)]
        before = await engine.state(lost)
        other = world.journal.enlist("other")
        taken = ev.ExecutionResumed(NOW, other)
        head = (await engine.find(lost))._replace(driver=other)
        await world.journal.append(lost, before.seq, [taken], head=head)
        await wait_until_async(lambda: lost not in drivers_of(engine))
        assert kept in drivers_of(engine)
        assert not any(isinstance(one, ev.ControlRequested) for one in await world.events(kept))
        assert (await world.events(lost))[-1] == taken, "it wrote nothing more"
        await settled()
        gc.collect()
        assert troubles == [], "nobody has to fetch the error"


async def test_d3_messages_of_other_processes_arrive_though_the_inbox_could_not_be_read_for_a_while(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    class Troubled(MemoryJournal):
        troubles: list[Exception] = [JournalError("the database is locked"), ZeroDivisionError("a mistake")]

        async def receive(self, after: int = 0) -> list[Message]:
            if self.troubles:
                raise self.troubles.pop()
            return await super().receive(after)

    world = World(project, journal=Troubled())
    async with world.engine() as engine:
        first, second = [await engine.start(ASKS) for _ in range(2)]
        for execution in (first.id, "unknown", second.id):
            await world.journal.send(execution, NOW, {"kind": "cancel", "by": "ann"})
        for one in (first, second):
            assert (await one.wait()).status == "cancelled"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "messages could not be delivered; trying again"
    ]


class Telling(MemoryJournal):
    """A journal that tells of news, and is not looked at without."""

    poll = 3600.0

    def __init__(self) -> None:
        super().__init__()
        self.tell: dict[str, Callable[[], None]] = {}
        self.looks = 0

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        self.tell[name] = told
        return lambda: None

    async def receive(self, after: int = 0) -> list[Message]:
        self.looks += 1
        return await super().receive(after)


async def test_d3_messages_are_looked_for_once_each_time_that_the_journal_tells_of_some(project: Project) -> None:
    journal = Telling()
    world = World(project, journal=journal)
    async with world.engine() as engine:
        execution = await engine.start(ASKS)
        await settled()
        looks, tell = journal.looks, journal.tell[drivers_of(engine).name]
        tell()
        await settled()
        assert journal.looks == looks + 1
        await journal.send(execution.id, NOW, {"kind": "cancel"})
        tell()
        assert (await execution.wait()).status == "cancelled"


async def test_d2_an_execution_that_cannot_be_begun_is_not_driven_and_says_why(project: Project) -> None:
    world = World(project, journal=(journal := Full()))
    journal.full = True
    async with world.engine() as engine:
        with pytest.raises(JournalError, match="no space left"):
            await engine.start(PLAN)
        assert len(drivers_of(engine)) == 0


# -- the workers of a cluster ------------------------------------------------------------------------


class Workers:
    """A cluster without workers: it notes what it is asked."""

    driver = "workers"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def connect(self) -> None:
        self.asked.append("connect")

    async def start(self, execution: str, *, hold: bool) -> None:
        self.asked.append((execution, hold))

    async def close(self) -> None: ...


def launcher_of(journal: MemoryJournal, workers: Workers | None) -> Launcher:
    none: Any = None
    drivers = LocalDrivers(journal, FakeClock(NOW))
    return Launcher(drivers, Policy(), none, None, None, none, cluster=workers)


def created_of(plan: Plan) -> ev.ExecutionCreated:
    return ev.ExecutionCreated(NOW, "x", msgspec.Raw(plan.encoded), {}, "/")


async def test_j2_a_new_execution_is_written_under_the_name_of_the_workers_before_they_are_told_of_it() -> None:
    journal, workers = MemoryJournal(), Workers()
    launcher, created = launcher_of(journal, workers), created_of(PLAN)
    state = fold([created], PLAN)
    opening = launcher.opening(state)
    assert opening == ev.ExecutionStarted(NOW, "workers")
    assert await launcher.launch(state, [opening], hold=True, created=created) is None
    assert [entry.event for entry in await journal.read("x")] == [created, opening]
    assert [head.driver for head in await journal.heads()] == ["workers"]
    assert workers.asked == ["connect", ("x", True)]


async def test_j2_an_execution_that_goes_on_with_the_workers_leaves_old_pauses_behind_and_no_answers() -> None:
    journal, workers = MemoryJournal(), Workers()
    launcher, created = launcher_of(journal, workers), created_of(PLAN)
    history = [created, ev.ExecutionStarted(NOW, "gone"), ev.ExecutionPaused(NOW, "me")]
    state = fold(history, PLAN)
    await journal.append("x", 0, history, head=head_of(state))
    for kind in ("pause", "approve", "interrupt"):
        await journal.send("x", NOW, {"kind": kind})
    messages = await journal.receive()
    await launcher.launch(state, [launcher.opening(state)], hold=False, messages=messages)
    assert [message.body["kind"] for message in await journal.receive()] == ["approve"]
    assert [entry.seq for entry in await journal.read("x")] == [1, 2, 3, 4]
    assert workers.asked == ["connect", ("x", False)]


@pytest.mark.parametrize(
    ("names", "said"), [(("b",), "the service b of plan p cannot"), (("c", "b"), "the services b, c of plan p cannot")]
)
def test_j2_services_cannot_run_where_workers_share_the_steps(names: tuple[str, ...], said: str) -> None:
    services = [{"id": name, "run": "serve", "service": {"line": "up"}} for name in names]
    plan = Plan.model_validate({"name": "p", "steps": services})
    state = fold([created_of(plan)], plan)
    with pytest.raises(UsageError, match=said):
        launcher_of(MemoryJournal(), Workers()).check(state)
    launcher_of(MemoryJournal(), None).check(state)


def test_d5_a_resume_notes_the_versions_here_only_if_they_are_others() -> None:
    launcher = launcher_of(MemoryJournal(), None)
    state = fold([created_of(PLAN), ev.ExecutionStarted(NOW, "d"), ev.ExecutionPaused(NOW, "me")], PLAN)
    resumed = launcher.opening(state)
    assert isinstance(resumed, ev.ExecutionResumed)
    assert resumed.environment == environment_of(None)
    assert {"windlass", "python"} == resumed.environment.keys()
    state.environment = environment_of(None)
    same = launcher.opening(state, "/elsewhere")
    assert isinstance(same, ev.ExecutionResumed)
    assert (same.environment, same.workdir) == ({}, "/elsewhere")
    pending = fold([created_of(PLAN)], PLAN)
    assert isinstance(launcher.opening(pending), ev.ExecutionStarted)
    assert isinstance(launcher.opening(pending, "/elsewhere"), ev.ExecutionResumed), "the start has no folder"


def test_d5_an_execution_that_is_steered_here_is_never_handed_to_the_workers() -> None:
    launcher = launcher_of(MemoryJournal(), Workers())
    pending = fold([created_of(PLAN)], PLAN)
    here = launcher.opening(pending, local=True)
    assert isinstance(here, ev.ExecutionStarted)
    assert here.driver != "workers"
