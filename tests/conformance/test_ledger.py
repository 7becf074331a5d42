"""One suite for every ledger: what `ports.Ledger` promises, driven through the real adapters (E1).

A new adapter is one more line in `OPENERS`. What only a file can promise (processes, crashes) is
in `test_ledger_file.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_model import Model

from windlass.core.budget import Amount, ReservationRefused, Scope
from windlass.errors import UsageError
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.ledger import HEADINGS, SqliteLedger
from windlass.journal.memory import MemoryLedger
from windlass.ports import Charge, Ledger, Spending, Usage

AnyLedger = SqliteLedger | MemoryLedger
BERLIN = ZoneInfo("Europe/Berlin")
OPENERS: dict[str, Callable[[Path], AnyLedger]] = {
    "sqlite": lambda folder: SqliteLedger(folder / "windlass.db", tz=BERLIN),
    "memory": lambda _folder: MemoryLedger(tz=BERLIN),
}
NOON = 1794826800.0
"""2026-11-16, 12:00 in Berlin."""
TEN = Scope("day", Amount(usd=10.0))


@pytest.fixture(params=[*OPENERS, "postgres"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyLedger]:
    if request.param == "postgres":
        from windlass.journal.postgres_database import PostgresDatabase

        database = PostgresDatabase(PostgresUrl(request.getfixturevalue("postgres")), alone=3)
        ledger: AnyLedger = SqliteLedger(database, tz=BERLIN)
    else:
        ledger = OPENERS[request.param](tmp_path)
    yield ledger
    await ledger.close()


def charge(execution: str = "x", step: str = "a", attempt: int = 1, **more: str) -> Charge:
    return Charge(execution, step, attempt, **more)


def cost(usd: float | None, tokens: int = 0, model: str = "") -> Usage:
    return Usage(tokens, 0, usd=usd, source="unknown" if usd is None else "runtime", model=model)


async def stands(ledger: AnyLedger, scope: Scope = TEN) -> tuple[float, float]:
    """Dollars spent, and set aside."""
    ((_, spent, reserved),) = await ledger.standing([scope])
    assert spent.usd is not None
    assert reserved.usd is not None
    return spent.usd, reserved.usd


def as_port(ledger: AnyLedger) -> Ledger:
    """The type checker's proof that both are what the port says."""
    return ledger


# -- reserve -----------------------------------------------------------------------------------------


async def test_e1_reservations_are_made_while_there_is_room(ledger: AnyLedger) -> None:
    for number in (1, 2, 3):
        assert await ledger.reserve(charge(attempt=number), NOON, Amount(usd=3.0), [TEN]) is None
    refused = await ledger.reserve(charge(attempt=4), NOON, Amount(usd=3.0), [TEN])
    assert refused == ReservationRefused("day", "usd", 10.0, 0.0, 9.0, 3.0)
    assert refused.busy
    assert await stands(ledger) == (0.0, 9.0)
    assert await ledger.reserve(charge(attempt=4), NOON, Amount(usd=1.0), [TEN]) is None


async def test_e1_asked_again_a_reservation_replaces_the_earlier_one(ledger: AnyLedger) -> None:
    assert await ledger.reserve(charge(), NOON, Amount(usd=6.0), [TEN]) is None
    assert await ledger.reserve(charge(), NOON, Amount(usd=9.0), [TEN]) is None
    assert await stands(ledger) == (0.0, 9.0)
    refused = await ledger.reserve(charge(), NOON, Amount(usd=11.0), [TEN])
    assert refused is not None
    assert refused.reserved == 0.0
    assert await stands(ledger) == (0.0, 9.0), "a refusal leaves what was set aside"


async def test_e1_a_reservation_asked_again_counts_in_the_day_that_admitted_it(ledger: AnyLedger) -> None:
    today = Scope("day", Amount(usd=10.0), since=NOON)
    await ledger.reserve(charge(), NOON - 1, Amount(usd=6.0), [TEN])
    assert await stands(ledger, today) == (0.0, 0.0)
    await ledger.reserve(charge(), NOON + 1, Amount(usd=7.0), [today])
    assert await stands(ledger, today) == (0.0, 7.0)


async def test_e1_scopes_count_only_what_is_theirs(ledger: AnyLedger) -> None:
    await ledger.reserve(charge("x", "a"), NOON - 10, Amount(1.0, 10), [])
    await ledger.reserve(charge("x", "b"), NOON, Amount(2.0, 20), [])
    await ledger.reserve(charge("y", "a"), NOON + 10, Amount(4.0, 40), [])
    await ledger.settle(charge("y", "a"), NOON + 20, cost(4.0, 40))
    limit = Amount(100.0)
    found = await ledger.standing(
        [
            Scope("step", limit, execution="x", step="a"),
            Scope("step", limit, execution="y", step="a"),
            Scope("execution", limit, execution="x"),
            Scope("day", limit, since=NOON),
            Scope("month", limit),
            Scope("execution", limit, since=NOON, execution="x"),
        ]
    )
    assert [(spent, reserved) for _, spent, reserved in found] == [
        ((0.0, 0), (1.0, 10)),
        ((4.0, 40), (0.0, 0)),
        ((0.0, 0), (3.0, 30)),
        ((4.0, 40), (2.0, 20)),
        ((4.0, 40), (3.0, 30)),
        ((0.0, 0), (2.0, 20)),
    ]


async def test_e1_the_first_scope_without_room_is_named_and_nothing_is_set_aside(ledger: AnyLedger) -> None:
    scopes = [Scope("step", Amount(5.0), execution="x", step="a"), Scope("month", Amount(tokens=100))]
    refused = await ledger.reserve(charge(), NOON, Amount(1.0, 101), scopes)
    assert refused == ReservationRefused("month", "tokens", 100, 0, 0, 101)
    assert await ledger.spent("execution") == []


async def test_e1_parallel_attempts_cannot_overrun_together(ledger: AnyLedger) -> None:
    answers = await asyncio.gather(
        *(ledger.reserve(charge(attempt=number), NOON, Amount(usd=0.5), [TEN]) for number in range(50))
    )
    assert answers.count(None) == 20
    assert await stands(ledger) == (0.0, 10.0)


# -- settle ------------------------------------------------------------------------------------------


async def test_e1_settling_replaces_what_was_set_aside_and_gives_the_rest_back(ledger: AnyLedger) -> None:
    await ledger.reserve(charge(), NOON, Amount(usd=9.0), [TEN])
    await ledger.settle(charge(), NOON + 5, cost(2.5))
    assert await stands(ledger) == (2.5, 0.0)
    assert await ledger.reserve(charge(attempt=2), NOON, Amount(usd=7.5), [TEN]) is None


async def test_e1_what_was_spent_beyond_the_reservation_counts_too(ledger: AnyLedger) -> None:
    await ledger.reserve(charge(), NOON, Amount(usd=0.5), [TEN])
    await ledger.settle(charge(), NOON + 5, cost(12.0))
    refused = await ledger.reserve(charge(attempt=2), NOON, Amount(usd=0.5), [TEN])
    assert refused == ReservationRefused("day", "usd", 10.0, 12.0, 0.0, 0.5)
    assert not refused.busy


async def test_e1_settled_again_the_last_word_stands(ledger: AnyLedger) -> None:
    await ledger.reserve(charge(), NOON, Amount(usd=4.0), [TEN])
    for usd, counts in ((1.0, 1.0), (3.0, 3.0), (None, 4.0), (2.0, 2.0)):
        await ledger.settle(charge(), NOON + 5, cost(usd))
        assert await stands(ledger) == (counts, 0.0)
    (one,) = await ledger.spent("execution")
    assert (one.usd, one.unknown, one.attempts) == (2.0, 0, 1)


async def test_e1_unknown_cost_is_shown_as_unknown_and_counts_as_set_aside(ledger: AnyLedger) -> None:
    await ledger.reserve(charge(), NOON, Amount(4.0, 1000), [TEN])
    await ledger.settle(charge(), NOON + 5, cost(None))
    assert await ledger.spent("execution") == [Spending("x", 0.0, 1, 0, 0, 1)]
    ((_, spent, reserved),) = await ledger.standing([TEN])
    assert (spent, reserved) == ((4.0, 1000), (0.0, 0))
    refused = await ledger.reserve(charge(attempt=2), NOON, Amount(usd=7.0), [TEN])
    assert refused is not None
    assert refused.spent == 4.0


async def test_e1_what_nobody_reserved_is_spent_all_the_same(ledger: AnyLedger) -> None:
    await ledger.settle(charge(), NOON, cost(2.0, 30))
    assert await stands(ledger) == (2.0, 0.0)
    assert await ledger.spent("day") == [Spending("2026-11-16", 2.0, 0, 30, 0, 1)]


async def test_e1_an_attempt_that_runs_again_adds_to_what_it_spent_before(ledger: AnyLedger) -> None:
    """A restored execution counts its attempts from where the checkpoint stood."""
    await ledger.reserve(charge(), NOON, Amount(usd=4.0), [TEN])
    await ledger.settle(charge(), NOON + 5, cost(3.0))
    await ledger.reserve(charge(), NOON + 9, Amount(usd=4.0), [TEN])
    assert await stands(ledger) == (3.0, 4.0)
    await ledger.release(charge())
    assert await stands(ledger) == (3.0, 0.0)
    await ledger.reserve(charge(), NOON + 9, Amount(usd=4.0), [TEN])
    await ledger.settle(charge(), NOON + 12, cost(1.0))
    await ledger.settle(charge(), NOON + 12, cost(2.0))
    assert await stands(ledger) == (5.0, 0.0)


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -5.0])
async def test_e1_a_cost_that_cannot_be_one_is_kept_as_unknown(ledger: AnyLedger, usd: float) -> None:
    await ledger.reserve(charge(), NOON, Amount(usd=4.0), [TEN])
    await ledger.settle(charge(), NOON, cost(usd))
    (one,) = await ledger.spent("execution")
    assert (one.usd, one.unknown) == (0.0, 1)
    assert await stands(ledger) == (4.0, 0.0)


async def test_e1_what_a_running_attempt_has_used_is_spent_and_nobody_waits_for_it(ledger: AnyLedger) -> None:
    await ledger.reserve(charge(), NOON, Amount(6.0, 600), [TEN], Amount(4.0, 400))
    assert await stands(ledger) == (4.0, 2.0)
    (row,) = await ledger.spent("execution")
    assert (row.usd, row.reserved_usd, row.reserved_tokens) == (4.0, 2.0, 200)
    waiting = await ledger.reserve(charge(attempt=2), NOON, Amount(5.0), [TEN])
    assert waiting is not None
    assert (waiting.spent, waiting.reserved, waiting.busy) == (4.0, 2.0, True)
    await ledger.reserve(charge(), NOON, Amount(6.0, 600), [TEN], Amount(6.0, 600))
    waiting = await ledger.reserve(charge(attempt=2), NOON, Amount(5.0), [TEN])
    assert waiting is not None
    assert not waiting.busy, "there is nothing to wait for"
    await ledger.abandon("x", NOON)
    (row,) = await ledger.spent("execution")
    assert (row.usd, row.unknown) == (6.0, 1), "what was known stays known"


async def test_e1_what_a_running_attempt_reported_stays_known_when_its_process_dies(ledger: AnyLedger) -> None:
    limit = Scope("day", Amount(tokens=1000))
    told = Usage(40, 5, 30, 2, 0.5, "prices", "claude-haiku-9")
    await ledger.reserve(charge(model="haiku"), NOON, Amount(0.5, 45), [], Amount(0.5, 45), told)
    await ledger.reserve(charge(step="b"), NOON, Amount(1.0, 300), [limit], Amount(0.5, 45), told)
    running = Spending("claude-haiku-9", 1.0, 0, 80, 10, 2, 0.5, 255)
    assert await ledger.spent("model") == [running]
    await ledger.abandon("x", NOON + 60)
    assert await ledger.spent("model") == [running._replace(unknown=2, reserved_usd=0.0, reserved_tokens=0)]
    ((_, spent, reserved),) = await ledger.standing([limit])
    assert (spent.tokens, reserved.tokens) == (345, 0), "what was reserved for the call under way counts, too"


async def test_e1_the_items_of_a_step_count_with_it(ledger: AnyLedger) -> None:
    for step in ("each", "each[0]", "each[12]", "eachother", "each2[0]"):
        await ledger.settle(charge("x", step), NOON, cost(1.0))
    assert await stands(ledger, Scope("step", Amount(usd=9.0), execution="x", step="each")) == (3.0, 0.0)


# -- release -----------------------------------------------------------------------------------------


async def test_e1_release_gives_up_what_an_attempt_holds_and_nothing_else(ledger: AnyLedger) -> None:
    await ledger.reserve(charge("x", "a"), NOON, Amount(usd=1.0), [])
    await ledger.reserve(charge("x", "b"), NOON, Amount(usd=2.0), [])
    await ledger.settle(charge("x", "b"), NOON, cost(1.5))
    await ledger.reserve(charge("x", "c"), NOON, Amount(usd=8.0), [])
    await ledger.reserve(charge("y", "a"), NOON, Amount(usd=4.0), [])
    await ledger.release(charge("x", "a"))
    assert await stands(ledger) == (1.5, 12.0)
    for other in (charge("x", "a"), charge("x", "b"), charge("nobody")):
        await ledger.release(other)
    assert await stands(ledger) == (1.5, 12.0)
    assert [one.heading for one in await ledger.spent("execution")] == ["x", "y"]


async def test_e1_what_the_dead_have_left_is_unknown_and_no_longer_waited_for(ledger: AnyLedger) -> None:
    await ledger.reserve(charge("x", "a"), NOON, Amount(6.0, 500), [TEN])
    await ledger.reserve(charge("x", "b"), NOON, Amount(usd=1.0), [TEN])
    await ledger.settle(charge("x", "b"), NOON, cost(1.0))
    await ledger.reserve(charge("y", "a"), NOON, Amount(usd=2.0), [TEN])
    waiting = await ledger.reserve(charge("z"), NOON, Amount(usd=7.0), [TEN])
    assert waiting is not None
    assert waiting.busy
    await ledger.abandon("x", NOON + 60)
    assert await stands(ledger) == (7.0, 2.0), "it counts as before"
    waiting = await ledger.reserve(charge("z"), NOON, Amount(usd=7.0), [TEN])
    assert waiting is not None
    assert not waiting.busy
    assert [one[:3] for one in await ledger.spent("execution")] == [("x", 1.0, 1), ("y", 0.0, 0)]
    await ledger.release(charge("x", "a"))
    assert await stands(ledger) == (7.0, 2.0)
    await ledger.settle(charge("x", "a"), NOON + 90, cost(0.5))
    assert await stands(ledger) == (1.5, 2.0), "somebody found out after all"


# -- spent -------------------------------------------------------------------------------------------


async def test_e1_spending_is_listed_under_every_heading(ledger: AnyLedger) -> None:
    one = charge("x", "a", runtime="claude-code", model="opus", role="developer")
    two = charge("x", "b", runtime="open-code", model="sonnet", role="developer")
    three = charge("y", "a", runtime="open-code", model="sonnet", role="reviewer")
    for which in (one, two, three):
        assert await ledger.reserve(which, NOON, Amount(1.0, 500), []) is None
    await ledger.settle(one, NOON, Usage(100, 10, 40, 5, 0.25, "runtime", "claude-opus-9"))
    await ledger.settle(two, NOON, Usage(200, 20))
    held = (1.0, 500)
    assert await ledger.spent("model") == [
        Spending("claude-opus-9", 0.25, 0, 100, 10, 1),
        Spending("sonnet", 0.0, 1, 200, 20, 2, *held),
    ]
    assert await ledger.spent("runtime") == [
        Spending("claude-code", 0.25, 0, 100, 10, 1),
        Spending("open-code", 0.0, 1, 200, 20, 2, *held),
    ]
    assert await ledger.spent("role") == [
        Spending("developer", 0.25, 1, 300, 30, 2),
        Spending("reviewer", 0.0, 0, 0, 0, 1, *held),
    ]
    assert await ledger.spent("execution") == [
        Spending("x", 0.25, 1, 300, 30, 2),
        Spending("y", 0.0, 0, 0, 0, 1, *held),
    ]
    everything = Spending("2026-11-16", 0.25, 1, 300, 30, 3, *held)
    headings = ("day", "model", "runtime")
    assert await ledger.spent_by(headings) == {by: await ledger.spent(by) for by in headings}
    assert await ledger.spent("day") == [everything]
    assert await ledger.spent("month") == [everything._replace(heading="2026-11")]


async def test_e1_days_and_months_are_the_users_own_and_newest_first(ledger: AnyLedger) -> None:
    quarter_past_midnight = 1792880100.0  # 2026-10-25 00:15 in Berlin, still the day before in UTC; 25 hours follow
    for number, hours in enumerate((-1, 0, 24.5, 25, 24 * 7)):
        await ledger.settle(charge(attempt=number), quarter_past_midnight + hours * 3600, cost(1.0))
    assert [(one.heading, one.usd) for one in await ledger.spent("day")] == [
        ("2026-10-31", 1.0),
        ("2026-10-26", 1.0),
        ("2026-10-25", 2.0),
        ("2026-10-24", 1.0),
    ]
    assert [(one.heading, one.usd) for one in await ledger.spent("month")] == [("2026-10", 5.0)]
    since = await ledger.spent("day", quarter_past_midnight + 25 * 3600)
    assert [one.heading for one in since] == ["2026-10-31", "2026-10-26"]


async def test_e1_an_unknown_heading_is_refused_with_those_that_there_are(ledger: AnyLedger) -> None:
    with pytest.raises(UsageError, match="'week'; there are day, month, model, runtime, role, execution"):
        await ledger.spent("week")


# -- against a model ---------------------------------------------------------------------------------

_CHARGES = [
    charge(execution, step, attempt, runtime="r", model=f"m{attempt}", role=step)
    for execution, step, attempt in itertools.product("xy", "ab", (1, 2))
]
_amounts = st.builds(
    Amount, st.none() | st.integers(0, 40).map(lambda n: n / 8), st.none() | st.integers(0, 400)
)  # eighths: sums of them are exact, in whatever order
_scopes = st.lists(
    st.builds(
        Scope,
        st.sampled_from(["step", "execution", "day", "month"]),
        st.builds(Amount, st.none() | st.integers(0, 20).map(float), st.none() | st.integers(0, 1500)),
        since=st.sampled_from([0.0, NOON, NOON + 40_000]),
        execution=st.sampled_from([None, "x", "y"]),
        step=st.sampled_from([None, "a", "b"]),
    ),
    max_size=3,
)
_usages = st.builds(
    Usage, st.integers(0, 300), st.integers(0, 100), usd=st.none() | st.integers(0, 60).map(lambda n: n / 8)
)
_charges, _times = st.sampled_from(_CHARGES), st.integers(-90_000, 90_000).map(lambda n: NOON + n)
_acts = st.one_of(
    st.tuples(st.just("reserve"), _charges, _times, _amounts, _scopes),
    st.tuples(st.just("settle"), _charges, _times, _usages),
    st.tuples(st.just("release"), _charges),
    st.tuples(st.just("abandon"), st.sampled_from("xy"), _times),
)


@given(acts=st.lists(_acts, max_size=25))
def test_e1_ledgers_agree_with_a_simple_model_whatever_is_done(acts: list[Any]) -> None:
    async def play(folder: Path) -> None:
        ledgers, model = [open_ledger(folder) for open_ledger in OPENERS.values()], Model(BERLIN)
        for name, *arguments in acts:
            expected = getattr(model, name)(*arguments)
            for ledger in ledgers:
                assert await getattr(ledger, name)(*arguments) == expected
        for ledger in ledgers:
            for by, since in itertools.product(HEADINGS, (0.0, NOON)):
                assert sorted(await ledger.spent(by, since)) == sorted(model.spent(by, since))
            await ledger.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
