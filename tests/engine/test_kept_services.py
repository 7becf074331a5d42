"""The services of one execution: which run, when they are started again, and when they end (B5, A8)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection
from typing import Any

import pytest
from waiting import settled

from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.engine.perform import Held, Outcome
from windlass.engine.services import KeptServices
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.ports import Meter
from windlass.testing import Simulation

GRACE = 7.0
DONE = Outcome.done("done")


class Process:
    """The process of a service, which ends when the test says so or when it is stopped."""

    def __init__(self) -> None:
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stopped: list[float] = []
        """The grace of each stop."""
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def ended(self) -> str:
        return await self._end

    async def stop(self, grace: float) -> None:
        self.stopped.append(grace)
        await self.may_stop.wait()
        if not self._end.done():
            self._end.set_result("it was stopped")

    async def crash(self) -> None:
        self._end.set_result("exit code 3")
        await settled()


class World:
    """An execution whose completed services run, as far as the test had them kept."""

    def __init__(self, *steps: dict[str, Any], asks: Collection[str] = ()) -> None:
        self.run = Simulation(Plan.model_validate({"name": "served", "steps": steps}), hold=True)
        self.run.start()
        self.services = KeptServices(
            self.run.state,
            self.perform,
            lambda step, text: self.notes.append((step.id, text)),
            GRACE,
            lambda step: step.spec.id in asks,
        )
        self.processes: dict[str, Process] = {}
        """The last process of each service."""
        self.starts: list[ev.AttemptStarted] = []
        """Of services that were started again."""
        self.outcomes: dict[str, Outcome] = {}
        """Of services that do not start again."""
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.notes: list[tuple[str, str]] = []
        self.attempts: list[str] = []
        """What became of the attempts of steps, in order."""

    @property
    def state(self) -> State:
        return self.run.state

    async def perform(self, started: ev.AttemptStarted, step: StepState, meter: Meter) -> Outcome:
        self.starts.append(started)
        await self.may_start.wait()
        if step.id in self.outcomes:
            return self.outcomes[step.id]
        self.keep(step.id)
        return Outcome.done({"ready": True})

    def keep(self, step: str) -> Process:
        self.processes[step] = Process()
        self.services.keep(step, self.processes[step])
        return self.processes[step]

    def ready(self, *services: str) -> None:
        """These services are ready: their steps are completed."""
        for name in services:
            self.keep(name)
            self.run.finish(name, {"ready": True})

    def lost(self, *services: str) -> None:
        """The steps of these services are completed, and their processes did not survive the last driver."""
        for name in services:
            self.run.finish(name, {"ready": True})

    def around(self, step: str, attempt: Any = None) -> asyncio.Task[Outcome]:
        return asyncio.ensure_future(self.services.around(self.state.steps[step], attempt or self.work(step)))

    async def work(self, step: str) -> Outcome:
        self.attempts.append(f"{step} ran")
        return DONE

    async def endless(self) -> Outcome:
        """An attempt that ends when it is cancelled."""
        self.attempts.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            self.attempts.append("cancelled")
        raise AssertionError

    def started(self) -> list[str]:
        return [started.step for started in self.starts]


def service(step: str, **more: Any) -> dict[str, Any]:
    return {"id": step, "run": f"serve {step}", "service": True, **more}


def needing(step: str, *needs: str) -> dict[str, Any]:
    return {"id": step, "run": "true", "needs": [*needs]}


@pytest.fixture
async def troubles() -> list[Any]:
    """Errors that nobody caught, as the loop tells of them."""
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: heard.append(about))
    return heard


async def test_b5_a_service_ends_when_all_steps_that_need_it_are_settled() -> None:
    world = World(service("server"), needing("a", "server"), needing("b", "a", "server"), needing("aside"))
    world.ready("server")
    assert world.services.release() == []
    world.run.finish("a")
    assert world.services.release() == []
    assert "server" in world.services
    world.run.finish("b")
    assert world.services.release() == [world.state.steps["server"]]
    assert "server" not in world.services
    await settled()
    assert world.processes["server"].stopped == [GRACE]
    assert world.services.release() == []


async def test_b5_a_service_that_is_ready_does_not_end_before_its_step_has() -> None:
    world = World(service("server"))
    world.keep("server")
    assert world.services.release() == []
    world.run.finish("server")
    assert [step.id for step in world.services.release()] == ["server"]


async def test_b5_a_service_ends_after_the_services_that_need_it() -> None:
    world = World(service("db"), service("app", needs=["db"]), needing("a", "app"))
    world.ready("db", "app")
    db, app = world.processes["db"], world.processes["app"]
    app.may_stop.clear()
    assert world.services.release() == []
    world.run.finish("a")
    assert [step.id for step in world.services.release()] == ["app", "db"]
    await settled()
    assert (app.stopped, db.stopped) == ([GRACE], [])
    app.may_stop.set()
    await settled()
    assert db.stopped == [GRACE]


async def test_b5_the_end_of_a_service_that_is_needed_is_noted_and_what_it_leaves_behind_is_ended() -> None:
    world = World(service("server"), needing("a", "server"))
    world.ready("server")
    await world.processes["server"].crash()
    assert world.notes == [("server", "the service ended while it was needed: exit code 3\n")]
    assert world.processes["server"].stopped == [GRACE]
    assert "server" not in world.services
    assert world.services.release() == []


async def test_b5_nothing_is_noted_of_a_service_that_is_ended_or_has_another_process(troubles: list[Any]) -> None:
    world = World(service("server"), needing("a", "server"))
    earlier = world.keep("server")
    world.ready("server")
    await earlier.crash()
    assert "server" in world.services, "its present process runs"
    world.run.finish("a")
    world.services.release()
    await world.services.close()
    await settled()
    assert world.notes == []
    assert troubles == []


async def test_b5_an_attempt_begins_at_once_where_its_services_run() -> None:
    world = World(service("server"), needing("a", "server"), needing("aside"))
    world.ready("server")
    assert await world.around("a") == await world.around("aside") == DONE
    assert (world.starts, world.notes) == ([], [])


async def test_b5_a_service_that_does_not_run_is_started_again_before_the_attempt() -> None:
    world = World(service("server"), needing("a", "server"))
    world.lost("server")
    world.may_start.clear()
    attempt = world.around("a")
    await settled()
    assert ("server" in world.services, world.attempts) == (True, [])
    world.may_start.set()
    assert await attempt == DONE
    (started,) = world.starts
    assert (started.step, started.attempt, started.tool) == ("server", 1, "shell")
    assert started.input == world.run.performed[0].input
    assert world.notes == [("server", "starting the service again\n")]
    assert world.attempts == ["a ran"]
    assert "server" in world.services


async def test_b5_steps_that_need_a_service_at_once_share_its_start_and_a_later_one_starts_it_anew() -> None:
    world = World(service("server"), needing("a", "server"), needing("b", "server"))
    world.lost("server")
    assert [*await asyncio.gather(world.around("a"), world.around("b"))] == [DONE, DONE]
    assert world.started() == ["server"]
    await world.processes["server"].crash()
    assert await world.around("a") == DONE
    assert world.started() == ["server", "server"]


async def test_b5_a_service_is_started_again_after_the_services_that_it_needs() -> None:
    world = World(service("db"), service("app", needs=["db"]), needing("a", "app"))
    world.lost("db", "app")
    assert await world.around("a") == DONE
    assert world.started() == ["db", "app"]


async def test_b5_a_service_that_was_skipped_or_is_not_ready_is_not_started_for_a_step() -> None:
    skipped = service("skipped", when="{{ 1 == 2 }}")
    optional = service("failed", importance="optional")
    world = World(
        skipped, optional, service("server"), needing("plain"), needing("a", "skipped", "failed", "server", "plain")
    )
    world.run.fail("failed", Failure(Category.LOGIC, "it broke"))
    world.run.finish("plain")
    world.lost("server")
    assert str(world.state.steps["skipped"].status) == "skipped"
    assert await world.around("a") == DONE
    assert world.started() == ["server"]


async def test_b5_a_service_is_not_started_again_before_its_own_process_has_ended() -> None:
    world = World(service("server"), needing("a", "server"))
    world.ready("server")
    earlier = world.processes["server"]
    earlier.may_stop.clear()
    await earlier.crash()
    attempt = world.around("a")
    await settled()
    assert world.starts == []
    earlier.may_stop.set()
    assert await attempt == DONE
    assert world.started() == ["server"]
    assert world.processes["server"] is not earlier


async def test_b5_the_end_of_a_service_cuts_off_the_attempt_that_needs_it() -> None:
    world = World(service("server"), needing("a", "server"))
    world.ready("server")
    attempt = world.around("a", world.endless())
    await settled()
    await world.processes["server"].crash()
    outcome = await attempt
    assert world.attempts == ["began", "cancelled"]
    assert outcome.cut_off
    assert outcome.failure is not None
    assert outcome.failure.message == "the service server ended while this step needed it: exit code 3"
    assert outcome.failure.advice == (
        "see its output: windlass logs simulated --step server",
        "mend it, then retry this step, which starts it again: windlass retry simulated a",
    )


async def test_b5_an_attempt_that_comes_to_its_own_end_as_its_service_ends_keeps_its_result() -> None:
    world = World(service("server"), needing("a", "server"))
    world.ready("server")

    async def quick() -> Outcome:
        try:
            return await world.endless()
        except asyncio.CancelledError:
            return DONE

    attempt = world.around("a", quick())
    await settled()
    await world.processes["server"].crash()
    assert await attempt == DONE


async def test_a8_an_attempt_that_is_stopped_is_stopped_with_all_that_it_does() -> None:
    world = World(service("server"), needing("a", "server"))
    world.ready("server")
    attempt = world.around("a", world.endless())
    await settled()
    attempt.cancel()
    await asyncio.wait({attempt})
    assert attempt.cancelled()
    assert world.attempts == ["began", "cancelled"]
    assert "server" in world.services, "another step may need it"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.failed(Failure(Category.RESOURCE, "no memory")), "no memory"),
        (Outcome(held=Held("budget", "the budget is used up")), "the budget is used up"),
    ],
)
async def test_b5_a_step_fails_without_an_attempt_where_its_service_cannot_be_started(
    outcome: Outcome, reason: str
) -> None:
    world = World(service("server"), needing("a", "server"))
    world.lost("server")
    world.outcomes["server"] = outcome
    attempt = world.work("a")
    found = await world.around("a", attempt)
    assert inspect.getcoroutinestate(attempt) == inspect.CORO_CLOSED
    assert (world.attempts, found.cut_off) == ([], False)
    assert found.failure is not None
    assert found.failure.message == f"the service server could not be started again: {reason}"
    assert len(found.failure.advice) == 2
    assert not found.failure.final


async def test_b5_a_step_fails_whose_service_needs_one_that_cannot_be_started() -> None:
    world = World(service("db"), service("app", needs=["db"]), needing("a", "app"))
    world.lost("db", "app")
    world.outcomes["db"] = Outcome.failed(Failure(Category.LOGIC, "no disk"))
    found = await world.around("a")
    assert found.failure is not None
    assert found.failure.message == "the service db could not be started again: no disk"
    assert world.started() == ["db"]


async def test_b5_a_step_fails_without_an_attempt_where_a_service_ended_while_another_one_started() -> None:
    world = World(service("first"), service("second"), needing("a", "first", "second"))
    world.ready("first")
    world.lost("second")
    world.may_start.clear()
    attempt = world.around("a")
    await settled()
    await world.processes["first"].crash()
    world.may_start.set()
    found = await attempt
    assert found.failure is not None
    assert found.failure.message == "the service first ended before the step that needs it began"
    assert world.attempts == []


async def test_c6_a_service_is_started_again_with_the_command_that_a_person_allowed() -> None:
    world = World(service("server", approve="always"), needing("a", "server"), asks=["server"])
    world.run.approve("server")
    world.lost("server")
    assert await world.around("a") == DONE


@pytest.mark.parametrize("outdated", [False, True], ids=["never allowed", "changed since"])
async def test_c6_a_service_that_a_person_has_not_allowed_as_it_is_now_is_not_started_again(outdated: bool) -> None:
    world = World(service("server"), needing("a", "server"), asks=[] if outdated else ["server"])
    world.lost("server")
    world.outcomes["server"] = Outcome(outdated=("the file a changed", "the file b changed"))
    found = await world.around("a")
    changed = "since it was approved, the file a changed; the file b changed"
    reason = changed if outdated else "its present command was not approved in this execution"
    again = "have it asked about in a new execution, which keeps what is done: windlass fork simulated"
    message = f"the service server could not be started again: {reason}"
    assert found.failure == Failure(Category.PERMISSION, message, advice=(again,), final=True)
    assert (world.started(), world.attempts) == (["server"] if outdated else [], [])


async def test_a8_the_end_of_a_driver_ends_all_services_and_those_that_are_being_started() -> None:
    world = World(service("db"), service("app", needs=["db"]), service("late"), needing("a", "app", "late"))
    world.ready("db", "app")
    world.lost("late")
    world.may_start.clear()
    work = world.work("a")
    attempt = world.around("a", work)
    await settled()
    attempt.cancel()
    await asyncio.wait({attempt})
    assert attempt.cancelled()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    await world.services.close()
    assert [world.processes[name].stopped for name in ("db", "app")] == [[GRACE], [GRACE]]
    assert all(name not in world.services for name in ("db", "app", "late"))
    world.may_start.set()
    await settled()
    assert set(world.processes) == {"db", "app"}, "nothing is started after the end"
    await world.services.close()
