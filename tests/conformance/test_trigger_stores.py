"""One suite for every store of triggers: a turn is written once, and a firing is claimed by one process (L1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from windlass.core.triggers import Firing, FiringStatus, TriggerState, delivery_of
from windlass.journal.stores import HomeStores
from windlass.journal.triggers import KEPT, SHOWN
from windlass.ports.deliveries import HookDelivery, HookRefusal
from windlass.ports.triggers import ScheduledPlan, TriggerFiring, TriggerStore, WatchedFile

PLAN, NAME = "/a/plan.yaml", "nightly"
DUE, STARTED, SKIPPED = FiringStatus.DUE, FiringStatus.STARTED, FiringStatus.SKIPPED


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> HomeStores:
    return HomeStores(tmp_path, request.getfixturevalue("postgres") if request.param == "postgres" else None)


@pytest_asyncio.fixture
async def store(stores: HomeStores) -> AsyncIterator[TriggerStore]:
    made = stores.triggers()
    yield made
    await made.close()


def firing(number: int, status: FiringStatus = DUE, at: float | None = None) -> Firing:
    return Firing(str(number), at or float(number), f"id-{number}", status, "because", 7.0, 0)


async def begun(store: TriggerStore, *firings: Firing) -> TriggerState:
    """A trigger that has taken one turn with these firings."""
    assert await store.write(PLAN, NAME, TriggerState(1.0, "0 3 * * * UTC"), ())
    assert await store.write(PLAN, NAME, TriggerState(9.0, "0 3 * * * UTC", version=1), firings)
    found = await store.state(PLAN, NAME)
    assert found is not None
    return found


async def test_l1_plans_are_kept_changed_and_removed(store: TriggerStore) -> None:
    await store.add_plan(ScheduledPlan(PLAN, "/a", 1.0))
    await store.add_plan(ScheduledPlan(PLAN, "/b", 2.0))
    await store.note_trouble(PLAN, "broken")
    await store.note_trouble("/other.yaml", "not scheduled")
    assert await store.plans() == [ScheduledPlan(PLAN, "/b", 2.0, "broken")]
    await begun(store, firing(3))
    assert await store.remove_plan(PLAN)
    assert not await store.remove_plan(PLAN)
    assert await store.plans() == []
    assert await store.state(PLAN, NAME) is None
    assert await store.claim("me", lambda _: False) == []


async def test_l1_a_state_is_read_as_it_was_written_newest_first(store: TriggerStore) -> None:
    assert await store.state(PLAN, NAME) is None
    found = await begun(store, firing(3), firing(4, SKIPPED))
    assert found == TriggerState(9.0, "0 3 * * * UTC", (firing(4, SKIPPED), firing(3)), 1)


async def test_l1_of_two_processes_that_take_a_turn_one_writes_it(stores: HomeStores, store: TriggerStore) -> None:
    await begun(store)
    other = stores.triggers()
    turn = TriggerState(10.0, "", version=2)
    assert await other.write(PLAN, NAME, turn, [firing(5)])
    assert not await store.write(PLAN, NAME, turn, [firing(6)])
    assert not await store.write(PLAN, NAME, TriggerState(1.0, ""), ()), "it exists already"
    await other.close()
    found = await store.state(PLAN, NAME)
    assert found is not None
    assert [one.key for one in found.firings] == ["5"]


async def test_l1_a_firing_is_claimed_once_while_its_process_lives(stores: HomeStores, store: TriggerStore) -> None:
    await begun(store, firing(3), firing(4, SKIPPED))
    mine = [TriggerFiring(PLAN, NAME, firing(3))]
    assert await store.claim("me", lambda _: True) == mine
    other = stores.triggers()
    assert await other.claim("other", lambda _: True) == []
    assert await store.claim("me", lambda _: True) == mine, "what this process could not finish, it takes up itself"
    assert await other.claim("other", lambda name: name != "me") == mine, "the claim of a dead process is taken over"
    await other.settle(mine[0], STARTED, "gone on")
    await store.settle(mine[0], FiringStatus.REFUSED, "too late")
    await other.close()
    found = await store.state(PLAN, NAME)
    assert found is not None
    assert [(one.status, one.reason) for one in found.of(STARTED)] == [(STARTED, "gone on")]
    assert await store.claim("me", lambda _: False) == []


async def test_l1_a_changed_firing_is_free_to_be_claimed(store: TriggerStore) -> None:
    state = await begun(store, firing(3))
    (claimed,) = await store.claim("me", lambda _: True)
    await store.settle(claimed, STARTED)
    again = msgspec.structs.replace(firing(3), tries=1)
    assert await store.write(PLAN, NAME, msgspec.structs.replace(state, version=2, firings=()), [again])
    assert [one.firing.tries for one in await store.claim("other", lambda _: True)] == [1]


async def test_l1_what_comes_a_second_time_changes_nothing(store: TriggerStore) -> None:
    state = await begun(store, firing(3, FiringStatus.COMPLETED))
    again = msgspec.structs.replace(firing(3, at=8.0), execution="id-other")
    assert await store.write(PLAN, NAME, msgspec.structs.replace(state, version=2), [again])
    found = await store.state(PLAN, NAME)
    assert found is not None
    assert found.firings == (firing(3, FiringStatus.COMPLETED),)


async def test_l1_what_was_skipped_is_new_when_it_comes_again_and_one_firing_is_claimed_alone(
    store: TriggerStore,
) -> None:
    state = await begun(store, firing(3, SKIPPED), firing(4))
    again = msgspec.structs.replace(firing(3, at=8.0), execution="id-other")
    assert await store.write(PLAN, NAME, msgspec.structs.replace(state, version=2), [again])
    assert await store.claim("me", lambda _: True, again.key) == [TriggerFiring(PLAN, NAME, again)]
    assert await store.claim("other", lambda _: True) == [TriggerFiring(PLAN, NAME, firing(4))]


async def test_l1_old_firings_are_forgotten_unless_they_are_unfinished(store: TriggerStore) -> None:
    state = await begun(store, firing(3, SKIPPED), firing(4, STARTED))
    late = msgspec.structs.replace(state, until=KEPT + 5.0, version=2, firings=())
    assert await store.write(PLAN, NAME, late, [firing(5, SKIPPED, KEPT)])
    found = await store.state(PLAN, NAME)
    assert found is not None
    assert [one.key for one in found.firings] == ["5", "4"]


async def test_l1_unfinished_and_ended_firings_are_read_behind_many_skipped_ones(store: TriggerStore) -> None:
    many = [firing(number, SKIPPED) for number in range(10, 10 + 2 * SHOWN)]
    found = await begun(store, firing(3, STARTED), firing(4, FiringStatus.FAILED), *many)
    assert len(found.firings) == SHOWN + 2
    assert [one.key for one in found.firings[-2:]] == ["4", "3"]


async def test_l1_a_pause_and_the_executions_of_a_trigger_are_known(store: TriggerStore) -> None:
    state = await begun(store, firing(3), firing(4))
    paused = msgspec.structs.replace(state, version=2, paused="by ana", resumed_at=3.0)
    assert await store.write(PLAN, NAME, paused, ())
    assert await store.state(PLAN, NAME) == paused
    assert await store.executions(PLAN, NAME, 4.0) == {"id-4"}
    assert await store.executions(PLAN, "other", 0.0) == set()


async def test_l1_the_files_of_a_turn_take_the_place_of_those_before(store: TriggerStore) -> None:
    state = await begun(store)
    one, two = WatchedFile(1, 1_800_000_000_123_456_789, "a"), WatchedFile(2, 2, "b")
    for version, files in ((2, {"a.csv": one, "b.csv": two}), (3, {"b.csv": one}), (4, None)):
        turn = msgspec.structs.replace(state, version=version)
        assert await store.write(PLAN, NAME, turn, (), files)
        assert not await store.write(PLAN, NAME, turn, (), {"c.csv": two}), "it is not its turn"
    assert await store.files(PLAN, NAME) == {"b.csv": one}
    assert await store.files(PLAN, "other") == {}


def delivery(name: str, body: bytes = b"{}", at: float = 5.0) -> HookDelivery:
    return HookDelivery(name, at, body.decode() + " digest", "push", body)


async def test_l1_a_delivery_is_kept_once_by_its_id_and_by_its_body(store: TriggerStore) -> None:
    await begun(store)
    first = delivery("d-1")
    assert await store.deliveries.receive(PLAN, NAME, first) == first
    for again in (delivery("d-1", b"[]"), delivery("d-2", at=6.0)):
        assert await store.deliveries.receive(PLAN, NAME, again) == first
    other = delivery("d-1", at=7.0)
    assert await store.deliveries.receive(PLAN, "other", other) == other, "another trigger has its own"
    assert await store.deliveries.undecided(PLAN, NAME, 10) == [first._replace(body=b"")]
    assert await store.deliveries.body(PLAN, NAME, "d-1") == b"{}"
    await store.remove_plan(PLAN)
    assert await store.deliveries.undecided(PLAN, NAME, 10) == []


async def test_l1_the_body_of_a_delivery_is_dropped_when_nothing_waits_to_start_it(store: TriggerStore) -> None:
    state = await begun(store)
    for number, status in enumerate((DUE, SKIPPED, FiringStatus.WAITING, FiringStatus.COMPLETED)):
        await store.deliveries.receive(PLAN, NAME, delivery(f"d-{number}", b"%d" % number, float(number)))
        made = Firing(f"delivery d-{number}", float(number), f"id-{number}", status)
        state = msgspec.structs.replace(state, version=state.version + 1, firings=())
        assert await store.write(PLAN, NAME, state, [made])
    bodies = [await store.deliveries.body(PLAN, NAME, f"d-{number}") for number in range(4)]
    assert bodies == [b"0", None, b"2", None]
    (claimed,) = await store.claim("me", lambda _: True)
    await store.settle(claimed, STARTED)
    assert await store.deliveries.body(PLAN, NAME, "d-0") is None
    assert await store.deliveries.undecided(PLAN, NAME, 10) == []
    again = delivery("d-3", b"3", 9.0)
    assert (await store.deliveries.receive(PLAN, NAME, again)).at == 3.0, "it is known without its body, too"
    late = msgspec.structs.replace(state, until=KEPT + 5.0, version=state.version + 1)
    assert await store.write(PLAN, NAME, late, [firing(5, SKIPPED, KEPT)])
    assert await store.deliveries.undecided(PLAN, NAME, 10) == []
    assert (await store.deliveries.receive(PLAN, NAME, again)).at == 9.0, "forgotten with its firing"


async def test_l1_a_delivery_that_started_nothing_is_new_when_it_comes_again(store: TriggerStore) -> None:
    state = await begun(store)
    kept = {}
    for number, status in enumerate((DUE, STARTED, SKIPPED, FiringStatus.REFUSED)):
        sent = delivery(f"d-{number}", b"%d" % number, 1.0)
        await store.deliveries.receive(PLAN, NAME, sent)
        state = msgspec.structs.replace(state, version=state.version + 1, firings=())
        assert await store.write(PLAN, NAME, state, [Firing(f"delivery d-{number}", 1.0, f"id-{number}", status)])
        kept[status] = (await store.deliveries.receive(PLAN, NAME, sent._replace(at=9.0))).at
    assert kept == {DUE: 1.0, STARTED: 1.0, SKIPPED: 9.0, FiringStatus.REFUSED: 9.0}
    assert [one.id for one in await store.deliveries.undecided(PLAN, NAME, 10)] == ["d-2", "d-3"]


async def received(store: TriggerStore, *firings: FiringStatus) -> TriggerState:
    """A trigger with deliveries d-0, d-1 and so on, with bodies 0, 1 and so on, that these became of."""
    state = await begun(store)
    for number in range(len(firings)):
        await store.deliveries.receive(PLAN, NAME, delivery(f"d-{number}", b"%d" % number))
    made = [Firing(f"delivery d-{number}", 5.0, f"id-{number}", status) for number, status in enumerate(firings)]
    assert await store.write(PLAN, NAME, msgspec.structs.replace(state, version=2), made)
    return state


async def test_l1_no_id_of_a_skipped_delivery_lets_a_body_start_again(store: TriggerStore) -> None:
    await received(store, SKIPPED, STARTED)
    as_skipped, as_started = delivery("d-0", b"1", 9.0), delivery("d-1", b"0", 9.0)
    assert (await store.deliveries.receive(PLAN, NAME, as_skipped)).id == "d-1"
    assert (await store.deliveries.receive(PLAN, NAME, as_started)).id == "d-1"
    assert await store.deliveries.undecided(PLAN, NAME, 10) == []


async def test_l1_a_skipped_body_is_not_new_as_another_event_or_after_its_id_was_used(store: TriggerStore) -> None:
    await received(store, SKIPPED, SKIPPED)
    first = delivery("d-0", b"0")._replace(body=b"")
    for repeated in (delivery("d-0", b"1", 9.0), delivery("d-9", b"0", 9.0)._replace(event="release")):
        assert (await store.deliveries.receive(PLAN, NAME, repeated)).at == 5.0
    assert await store.deliveries.receive(PLAN, NAME, first._replace(event="release")) == first
    assert await store.deliveries.undecided(PLAN, NAME, 10) == []


async def test_l1_a_refused_start_is_known_after_its_delivery_came_again(store: TriggerStore) -> None:
    await received(store, SKIPPED, FiringStatus.REFUSED)
    for number in range(2):
        again = delivery(f"d-{number}", b"%d" % number, 9.0)
        assert await store.deliveries.receive(PLAN, NAME, again) == again
    assert len(await store.deliveries.undecided(PLAN, NAME, 10)) == 2
    state = await store.state(PLAN, NAME)
    assert state is not None
    assert [(delivery_of(one), one.status) for one in state.firings] == [("d-1", FiringStatus.REFUSED)]


async def test_l1_refused_requests_are_counted_with_the_last_reason(store: TriggerStore) -> None:
    await store.deliveries.refuse(PLAN, NAME, HookRefusal(1, 1.0, "unsigned"))
    await store.deliveries.refuse(PLAN, NAME, HookRefusal(3, 2.0, "not the secret"))
    assert await store.deliveries.refusals(PLAN) == {NAME: HookRefusal(4, 2.0, "not the secret")}
    assert await store.deliveries.refusals("/other.yaml") == {}


async def test_l1_the_last_ticks_are_known_by_who_looked(store: TriggerStore) -> None:
    for at in (1.0, 2.0):
        await store.ticked("tick", at)
    await store.ticked("serve", 3.0)
    assert await store.ticks() == {"tick": 2.0, "serve": 3.0}
