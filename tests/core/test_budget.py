"""Whether a reservation fits, what a charge counts, and when days and months begin (E1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.budget import (
    NOTHING,
    Amount,
    Scope,
    admit,
    at_least_money,
    counted,
    day_of,
    day_start,
    known_cost,
    known_part,
    limit_of,
    money,
    month_of,
    month_start,
    plus,
    shown,
    tokens_of,
)
from windlass.core.events import Usage

DAY = Scope("day", Amount(usd=10.0))


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# -- admission ---------------------------------------------------------------------------------------


def test_e1_what_fits_exactly_is_admitted_and_a_cent_more_is_not() -> None:
    assert admit(Amount(usd=4.0), [(DAY, Amount(5.0), Amount(1.0))]) is None
    refusal = admit(Amount(usd=4.01), [(DAY, Amount(5.0), Amount(1.0))])
    assert refusal is not None
    assert refusal == ("day", "usd", 10.0, 5.0, 1.0, 4.01)


def test_e1_ten_times_ten_cents_fit_into_a_dollar() -> None:
    scope, spent = Scope("day", Amount(usd=1.0)), 0.0
    for _ in range(10):
        assert admit(Amount(usd=0.1), [(scope, Amount(spent), NOTHING)]) is None
        spent += 0.1
    assert admit(Amount(usd=0.1), [(scope, Amount(spent), NOTHING)]) is not None


def test_e1_tokens_are_held_like_dollars() -> None:
    scope = Scope("step", Amount(tokens=100))
    assert admit(Amount(tokens=40), [(scope, Amount(tokens=50), Amount(tokens=10))]) is None
    refusal = admit(Amount(tokens=41), [(scope, Amount(tokens=50), Amount(tokens=10))])
    assert refusal is not None
    assert refusal == ("step", "tokens", 100, 50, 10, 41)
    assert admit(Amount(tokens=100), [(scope, Amount(usd=1.0), Amount(usd=1.0))]) is None
    unknown = admit(Amount(usd=1.0), [(scope, Amount(tokens=100), NOTHING)])
    assert unknown == ("step", "tokens", 100, 100, 0, 0), "nobody knows how many it wants"


def test_e1_every_scope_and_unit_must_have_room_and_the_first_without_is_named() -> None:
    roomy, narrow = Scope("execution", Amount(100.0, 1000)), Scope("month", Amount(100.0, 10))
    want = Amount(1.0, 11)
    assert admit(want, [(roomy, NOTHING, NOTHING)]) is None
    refusal = admit(want, [(roomy, NOTHING, NOTHING), (narrow, NOTHING, NOTHING)])
    assert refusal is not None
    assert (refusal.scope, refusal.unit) == ("month", "tokens")


def test_e1_a_refusal_is_busy_only_while_others_hold_the_room() -> None:
    waits = admit(Amount(usd=4.0), [(DAY, Amount(5.0), Amount(2.0))])
    hopeless = admit(Amount(usd=4.0), [(DAY, Amount(7.0), Amount(2.0))])
    alone = admit(Amount(usd=11.0), [(DAY, NOTHING, NOTHING)])
    assert waits is not None
    assert hopeless is not None
    assert alone is not None
    assert (waits.busy, hopeless.busy, alone.busy) == (True, False, False)


def test_e1_rounding_makes_no_refusal_final_that_others_only_hold_up() -> None:
    scope = Scope("day", Amount(usd=0.3))
    refusal = admit(Amount(usd=0.2), [(scope, Amount(0.1), Amount(0.1))])  # 0.1 + 0.2 > 0.3 for a computer
    assert refusal is not None
    assert refusal.busy


@pytest.mark.parametrize("limit", [0.0, 10.0])
def test_e1_who_cannot_say_how_much_is_refused_where_nothing_is_left(limit: float) -> None:
    scope = Scope("day", Amount(usd=limit))
    refusal = admit(Amount(tokens=5), [(scope, Amount(limit), NOTHING)])
    assert refusal is not None
    assert not refusal.busy
    assert admit(Amount(usd=0.0), [(scope, Amount(limit), NOTHING)]) is None, "what costs nothing always fits"
    assert admit(Amount(tokens=5), [(Scope("day", Amount(usd=limit + 0.5)), Amount(limit), NOTHING)]) is None


def test_e1_an_amount_that_is_no_number_is_never_admitted() -> None:
    assert admit(Amount(usd=float("nan")), [(DAY, NOTHING, NOTHING)]) is not None
    assert admit(Amount(usd=float("inf")), [(DAY, NOTHING, NOTHING)]) is not None


_money = st.integers(0, 2000).map(lambda cents: cents / 64)


@given(limit=_money, spent=_money, held=_money, want=_money)
def test_e1_admitted_means_within_the_limit_and_busy_means_admitted_once_the_others_are_done(
    limit: float, spent: float, held: float, want: float
) -> None:
    scope = Scope("day", Amount(usd=limit))
    refusal = admit(Amount(usd=want), [(scope, Amount(spent), Amount(held))])
    assert (refusal is None) == (spent + held + want <= limit)
    if refusal is not None:
        alone = admit(Amount(usd=want), [(scope, Amount(spent), NOTHING)])
        assert refusal.busy == (alone is None)


# -- what a charge counts ----------------------------------------------------------------------------


def test_e1_a_known_cost_counts_whatever_was_set_aside() -> None:
    assert counted(Usage(100, 20, usd=3.0, source="runtime"), Amount(1.0, 50)) == (3.0, 120)
    assert counted(Usage(0, 0, usd=0.0, source="prices"), Amount(1.0, 50)) == (0.0, 0)


def test_e1_an_unknown_cost_counts_with_what_was_set_aside() -> None:
    assert counted(Usage(), Amount(1.0, 50)) == (1.0, 50)
    assert counted(Usage(100, 20), Amount(1.0, 50)) == (1.0, 120), "reported tokens are known all the same"
    assert counted(Usage(), Amount()) == (0.0, 0)


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -0.01, None])
def test_e1_a_cost_that_cannot_be_one_is_unknown(usd: float | None) -> None:
    usage = Usage(1, 1, usd=usd, source="runtime")
    assert known_cost(usage) is None
    assert counted(usage, Amount(2.0)).usd == 2.0


def test_e1_the_known_part_of_an_unknown_cost_counts_at_least() -> None:
    assert counted(Usage(at_least=3.0), Amount(1.0, 50)) == (3.0, 50)
    assert counted(Usage(at_least=3.0), Amount(5.0)) == (5.0, 0)
    parts = [known_part(Usage(usd=usd, at_least=least)) for usd, least in ((2.0, 9.0), (None, 9.0), (-1.0, 9.0))]
    assert parts == [2.0, 9.0, 9.0]
    assert [known_part(Usage(at_least=least)) for least in (0.5, 0.0, -0.5, float("inf"), float("nan"))] == [
        0.5,
        *[0.0] * 4,
    ]


def test_e1_two_turns_cost_their_sum_and_an_unknown_one_makes_it_a_least() -> None:
    one = Usage(1, 10, 100, 1000, 0.5, "prices", "first")
    known = plus(one, Usage(2, 20, 200, 2000, 0.25, "runtime"))
    assert known == Usage(3, 30, 300, 3000, 0.75, "runtime", "first")
    assert plus(one, Usage(model="second")) == Usage(1, 10, 100, 1000, None, "unknown", "second", at_least=0.5)
    assert plus(Usage(at_least=0.125), one).at_least == 0.625


# -- days and months ---------------------------------------------------------------------------------

BERLIN, HAVANA = ZoneInfo("Europe/Berlin"), ZoneInfo("America/Havana")
SAO_PAULO, KOLKATA, APIA = ZoneInfo("America/Sao_Paulo"), ZoneInfo("Asia/Kolkata"), ZoneInfo("Pacific/Apia")


@pytest.mark.parametrize(
    ("now", "tz", "start"),
    [
        ("2026-11-15T05:00:00+00:00", UTC, "2026-11-15T00:00:00+00:00"),
        ("2026-11-15T20:00:00+00:00", KOLKATA, "2026-11-15T18:30:00+00:00"),
        # 23 hours: clocks go from 2 to 3
        ("2026-03-29T23:59:59+02:00", BERLIN, "2026-03-29T00:00:00+01:00"),
        ("2026-03-29T00:30:00+01:00", BERLIN, "2026-03-29T00:00:00+01:00"),
        ("2026-03-30T00:00:00+02:00", BERLIN, "2026-03-30T00:00:00+02:00"),
        # 25 hours: from 3 back to 2
        ("2026-10-25T23:59:59+01:00", BERLIN, "2026-10-25T00:00:00+02:00"),
        ("2026-10-25T02:30:00+01:00", BERLIN, "2026-10-25T00:00:00+02:00"),
        # midnight comes twice: from 1 back to 0
        ("2026-11-01T00:30:00-04:00", HAVANA, "2026-11-01T00:00:00-04:00"),
        ("2026-11-01T00:30:00-05:00", HAVANA, "2026-11-01T00:00:00-04:00"),
        ("2026-11-01T12:00:00-05:00", HAVANA, "2026-11-01T00:00:00-04:00"),
        # there is no midnight: from 0 to 1
        ("2018-11-04T15:00:00-02:00", SAO_PAULO, "2018-11-04T01:00:00-02:00"),
        # the day before was left out
        ("2011-12-31T08:00:00+14:00", APIA, "2011-12-31T00:00:00+14:00"),
    ],
)
def test_e1_a_day_begins_at_the_users_midnight(now: str, tz: tzinfo, start: str) -> None:
    assert day_start(moment(now), tz) == moment(start)


@pytest.mark.parametrize(
    ("now", "tz", "start"),
    [
        ("2026-11-15T05:00:00+00:00", UTC, "2026-11-01T00:00:00+00:00"),
        ("2026-10-31T23:00:00+01:00", BERLIN, "2026-10-01T00:00:00+02:00"),
        ("2026-03-31T12:00:00+02:00", BERLIN, "2026-03-01T00:00:00+01:00"),
        ("2026-11-30T12:00:00-05:00", HAVANA, "2026-11-01T00:00:00-04:00"),
        ("2026-10-31T20:00:00+00:00", KOLKATA, "2026-10-31T18:30:00+00:00"),
    ],
)
def test_e1_a_month_begins_with_its_first_day(now: str, tz: tzinfo, start: str) -> None:
    assert month_start(moment(now), tz) == moment(start)


@given(
    now=st.integers(631152000, 2082758400),  # 1990 to 2035
    tz=st.sampled_from([UTC, BERLIN, HAVANA, SAO_PAULO, KOLKATA, timezone(timedelta(hours=-9, minutes=-30))]),
)
def test_e1_a_day_and_a_month_hold_all_their_moments_and_no_other(now: int, tz: tzinfo) -> None:
    start = day_start(now, tz)
    assert start <= now
    assert day_of(start, tz) == day_of(now, tz) != day_of(start - 1, tz)
    assert day_start(start, tz) == start
    first = month_start(now, tz)
    assert first <= start
    assert month_of(first, tz) == month_of(now, tz) != month_of(first - 1, tz)
    assert day_of(first, tz) == month_of(now, tz) + "-01"
    assert first % 900 == start % 900 == 0, "the ledger adds up by quarters of an hour"


@pytest.fixture
def in_havana(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This computer is in Cuba."""
    monkeypatch.setenv("TZ", "America/Havana")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_havana")
def test_e1_without_a_time_zone_it_is_that_of_the_computer() -> None:
    for text in ("2026-11-01T00:30:00-05:00", "2026-03-08T15:00:00-04:00", "2026-07-01T01:00:00-04:00"):
        now = moment(text)
        assert day_start(now) == day_start(now, HAVANA)
        assert month_start(now) == month_start(now, HAVANA)
        assert (day_of(now), month_of(now)) == (text[:10], text[:7])


def test_e1_a_persons_limit_replaces_the_unit_it_names_and_one_without_a_number_lifts_both() -> None:
    named = Amount(usd=2.0, tokens=100)
    assert limit_of(None, named) == (2.0, 100)
    assert limit_of(Amount(usd=5.0), named) == (5.0, 100)
    assert limit_of(Amount(tokens=7), named) == (2.0, 7)
    assert limit_of(Amount(), named) == (None, None)
    assert [bool(amount) for amount in (Amount(), NOTHING, Amount(usd=0.0), Amount(tokens=0))] == [
        False,
        True,
        True,
        True,
    ]
    assert NOTHING == (0.0, 0)


def test_e1_an_amount_is_shown_in_its_unit_and_never_as_nothing_for_something() -> None:
    shown_dollars = [money(usd) for usd in (0, 0.00005, 0.0001, 0.0042, 0.01, 1.0, 1234.5)]
    assert shown_dollars == ["$0.00", "less than $0.0001", "$0.0001", "$0.0042", "$0.01", "$1.00", "$1,234.50"]
    parts = [at_least_money(usd) for usd in (0, 0.00005, 0.0001, 2.0)]
    assert parts == ["at least $0.00", "more than $0.00", "at least $0.0001", "at least $2.00"]
    assert [shown(count, "tokens") for count in (1, 2, 1500)] == ["1 token", "2 tokens", "1,500 tokens"]
    assert shown(2, "usd") == "$2.00"


def test_e1_a_text_has_a_token_for_three_bytes_and_never_none() -> None:
    assert [tokens_of(text) for text in ("", "abc", b"abcdef", "ü" * 3)] == [1, 2, 3, 3]
