"""Executions that this process drives: begun, handed over, taken over by others, and let go (D2, D3, D6, J2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld
from waiting import wait_until_async

from windlass import Call, Step, tool
from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.state import fold
from windlass.engine import drivers as module
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import Launcher, LocalDrivers, environment_of
from windlass.errors import JournalError, UsageError
from windlass.plan.model import Plan
from windlass.ports import Message
from windlass.testing import FakeClock, MemoryJournal

if TYPE_CHECKING:
    from conftest import Project

    from windlass.engine.engine import Engine


class World(AgentWorld):
    """An engine with a tool that waits to be let go."""

    def __init__(self, project: Project, **more: Any) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()

        @tool(effect="repeatable")
        async def hang(call: Call) -> str:
            self.began.set()
            await self.go.wait()
            return call.step

        super().__init__(project, tools=[hang], **more)


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
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        pause = {"kind": "pause", "by": "ann"}
        assert await drivers_of(engine).deliver(execution.id, pause)
        assert any(isinstance(one, ev.ControlRequested) for one in await world.events(execution.id))
        assert (await engine.state(execution.id)).status == "running", "its attempt finishes first"
        world.go.set()
        assert (await execution.wait()).paused_for == "pause"


async def test_d3_closing_interrupts_what_runs_and_keeps_the_reason(project: Project) -> None:
    world = World(project)
    async with world.engine() as engine:
        execution = await engine.start(PLAN)
        await world.began.wait()
        await drivers_of(engine).close("restart")
        assert len(drivers_of(engine)) == 0
    state = fold(await world.events(execution.id))
    assert (state.status, state.paused_for) == ("paused", "restart")


async def test_d2_only_a_driver_whose_execution_another_process_took_over_is_made_to_end(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAKEOVER_CHECK", 0.0)
    world = World(project)
    async with world.engine() as engine:
        kept, lost = [await engine.start(ASKS) for _ in range(2)]
        before = await engine.state(lost.id)
        other = world.journal.enlist("other")
        taken = ev.ExecutionResumed(NOW, other)
        head = (await engine.find(lost.id))._replace(driver=other)
        await world.journal.append(lost.id, before.seq, [taken], head=head)
        await wait_until_async(lambda: lost.id not in drivers_of(engine))
        assert kept.id in drivers_of(engine)
        assert not any(isinstance(one, ev.ControlRequested) for one in await world.events(kept.id))
        assert (await world.events(lost.id))[-1] == taken, "it wrote nothing more"


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
        execution = await engine.start(ASKS)
        await world.journal.send("unknown", NOW, {"kind": "cancel"})
        await world.journal.send(execution.id, NOW, {"kind": "cancel", "by": "ann"})
        assert (await execution.wait()).status == "cancelled"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "messages could not be delivered; trying again"
    ]


async def test_d2_an_execution_that_cannot_be_begun_is_not_driven_and_says_why(project: Project) -> None:
    class Full(MemoryJournal):
        async def append(self, *args: Any, **more: Any) -> None:
            raise JournalError("no space left")

    world = World(project, journal=Full())
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
