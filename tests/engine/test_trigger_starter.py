"""What becomes of a firing: started once, taken up where a process died, or refused with its reason (L1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.triggers import DELIVERY, Firing, FiringStatus, TriggerState
from windlass.engine import trigger_starter as module
from windlass.engine.observer import STARTING
from windlass.engine.trigger_starter import TriggerStarter
from windlass.errors import Conflict, JournalError, UsageError
from windlass.plan.triggers import Trigger
from windlass.ports import Amount, Head, Spending
from windlass.ports.triggers import ScheduledPlan, TriggerFiring
from windlass.testing import MemoryJournal

NOW = 1_800_000_000.0
PLAN = ScheduledPlan("/plan.yaml", "/work", NOW)
CRON = Trigger.model_validate({"id": "t", "cron": "0 * * * *"})
HOOK = Trigger.model_validate({"id": "t", "webhook": {"secret": {"from": "SECRET"}, "input": "body"}})
WATCH = Trigger.model_validate({"id": "t", "watch": {"path": "inbox", "files": "*.csv", "input": "file"}})


class World:
    """An engine and a store that note what they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal = MemoryJournal()
        self.living: set[str] = set()
        self.created: list[dict[str, Any]] = []
        self.driven: list[str] = []
        self.settled: list[tuple[str, str]] = []
        self.create_error: Exception | None = None
        self.drive_error: Exception | None = None
        self.bodies: dict[str, bytes] = {}
        self.spent: list[Spending] = []
        world = self

        class Request:
            def __init__(self, **given: Any) -> None:
                self.given = given

            async def create(self, engine: Any, id: str) -> None:
                if world.create_error is not None:
                    raise world.create_error
                world.created.append({**self.given, "id": id})
                await world.there("pending")

        monkeypatch.setattr(module, "RunRequest", Request)
        engine: Any = SimpleNamespace(
            journal=self.journal,
            driven=lambda head: head.status == "running" and head.driver in self.living,
            ledger=SimpleNamespace(spent=self.spent_by),
        )
        deliveries = SimpleNamespace(body=self.body)
        store: Any = SimpleNamespace(settle=self.settle, deliveries=deliveries, executions=self.executions)
        self.starter = TriggerStarter(engine, store, self.drive, lambda: NOW)

    async def settle(self, claimed: TriggerFiring, status: FiringStatus, reason: str) -> None:
        self.settled.append((status.value, reason))

    async def body(self, plan: str, trigger: str, delivery: str) -> bytes | None:
        return self.bodies.get(delivery)

    async def executions(self, plan: str, trigger: str, since: float) -> set[str]:
        self.since = since
        return {"x", "y"}

    async def spent_by(self, by: str, since: float) -> list[Spending]:
        assert by == "execution"
        return self.spent

    async def drive(self, execution: str) -> None:
        self.driven.append(execution)
        if self.drive_error is not None:
            raise self.drive_error

    async def there(self, status: str, driver: str = "d", name: str = "x", at: float = NOW) -> None:
        head = Head(name, "p", status, at, at, driver)
        entries = await self.journal.read(name)
        await self.journal.append(name, len(entries), [ev.ExecutionStarted(NOW, driver)], head=head)

    async def start(self, trigger: Trigger | None = CRON, key: str = "time") -> tuple[str, str]:
        claimed = TriggerFiring(PLAN.path, "t", Firing(key, NOW, "x", FiringStatus.DUE))
        found = await self.starter.start(claimed, PLAN, {"t": trigger} if trigger is not None else {})
        assert self.settled[-1] == (found.firing.status.value, found.firing.reason)
        return self.settled[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_l1_a_firing_is_created_by_its_id_and_driven(world: World) -> None:
    assert await world.start() == ("started", "")
    assert world.created == [{"plan_file": "/plan.yaml", "workdir": "/work", "inputs": {}, "id": "x"}]
    assert world.driven == ["x"]


@pytest.mark.parametrize(("status", "driven"), [("pending", ["x"]), ("running", ["x"]), ("completed", [])])
async def test_l1_an_execution_that_was_created_before_a_crash_is_not_created_again(
    world: World, status: str, driven: list[str]
) -> None:
    await world.there(status)
    assert await world.start() == ("started", "")
    assert (world.created, world.driven) == ([], driven)


async def test_l1_an_execution_that_somebody_drives_is_left_alone(world: World) -> None:
    world.living.add("d")
    await world.there("running")
    assert await world.start() == ("started", "")
    assert world.driven == []


async def test_l1_a_start_that_is_refused_says_why_with_the_advice_that_a_trigger_can_follow(world: World) -> None:
    world.create_error = UsageError("no such program", advice=("install it", "start it all the same: `anyway`"))
    assert await world.start() == ("refused", "no such program\n→ install it")
    world.create_error = ZeroDivisionError("a mistake")
    assert await world.start() == ("refused", "unexpected error: ZeroDivisionError: a mistake")
    world.create_error = None
    assert await world.start(None) == ("refused", "/plan.yaml has no trigger t any more")
    assert world.driven == []


async def test_l1_a_journal_in_trouble_leaves_the_firing_for_the_next_tick(world: World) -> None:
    world.create_error = JournalError("the database is locked")
    with pytest.raises(JournalError):
        await world.start()
    world.create_error, world.drive_error = None, JournalError("the database is locked")
    with pytest.raises(JournalError):
        await world.start()
    assert world.settled == []


async def test_l1_of_two_processes_that_create_a_firing_the_second_finds_it_made(world: World) -> None:
    world.create_error = Conflict("it is there")
    assert await world.start() == ("started", "")
    assert world.driven == ["x"]


async def test_l1_trouble_with_driving_is_told_unless_the_execution_went_on_all_the_same(world: World) -> None:
    world.drive_error = UsageError("no worker")
    assert await world.start() == ("started", "no worker")

    class Gone(World):
        async def drive(self, execution: str) -> None:
            await self.there(self.becomes)
            raise UsageError("is running already")

        becomes = "completed"

    with pytest.MonkeyPatch.context() as patch:
        assert await Gone(patch).start() == ("started", "")
        driven = Gone(patch)
        driven.becomes = "running"
        driven.living.add("d")
        assert await driven.start() == ("started", "")


async def test_l1_a_delivery_and_a_file_are_inputs_of_their_execution(world: World) -> None:
    world.bodies["one"] = b'{"ref": "main"}'
    assert await world.start(HOOK, f"{DELIVERY} one") == ("started", "")
    assert world.created[-1]["inputs"] == {"body": {"ref": "main"}}
    await world.journal.remove("x")
    assert await world.start(HOOK, f"{DELIVERY} two") == ("refused", "the body of delivery two is gone")
    assert await world.start(WATCH, "file a.csv") == ("started", "")
    assert world.created[-1]["inputs"] == {"file": "inbox/a.csv"}


async def test_l1_what_became_of_started_executions_is_found_by_their_ids(world: World) -> None:
    world.living.add("alive")
    for name, status, driver, at in (
        ("done", "completed", "d", NOW),
        ("lost", "running", "d", NOW),
        ("runs", "running", "alive", NOW),
        ("waits", "paused", "d", NOW),
        ("begins", "pending", "d", NOW - STARTING),
        ("stuck", "pending", "d", NOW - STARTING - 1),
    ):
        await world.there(status, driver, name, at)
    names = ("done", "lost", "runs", "waits", "begins", "stuck", "gone")
    firings = [Firing(name, NOW, name, FiringStatus.STARTED) for name in names]
    other = Firing("other", NOW, "done", FiringStatus.WAITING)
    state = TriggerState(NOW, "s", (*firings, other))
    assert await world.starter.became(state, NOW) == {
        "done": "completed",
        "lost": "cut off",
        "runs": "",
        "waits": "",
        "begins": "",
        "stuck": "cut off",
        "gone": "removed",
    }


async def test_l1_the_spending_of_a_trigger_is_that_of_its_own_executions(world: World) -> None:
    assert await world.starter.spent(PLAN, CRON, NOW) == Amount(0.0, 0)
    limited = Trigger.model_validate({"id": "t", "cron": "0 * * * *", "budget": 2})
    world.spent = [
        Spending("x", 0.5, 0, 100, 10, 1),
        Spending("y", 0.25, 0, 5, 1, 1),
        Spending("of somebody else", 9.0, 0, 9, 9, 1),
    ]
    assert await world.starter.spent(PLAN, limited, NOW) == Amount(0.75, 116)
    assert NOW - 32 * 86400 < world.since < NOW - 29 * 86400
