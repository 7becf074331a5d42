"""Times of cron expressions: none is lost and none comes twice where the clock changes (L1)."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.plan.cron import cron_problem, next_time, zone_problem

BERLIN = "Europe/Berlin"


def times(cron: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next times after a local one, as local ones."""

    at, found = datetime.fromisoformat(start).timestamp(), []
    for _ in range(count):
        at = next_time(cron, zone, at) or 0.0
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%d %H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("cron", "start", "expected"),
    [
        # 29 March 2026: the hour from 2 to 3 is left out.
        ("30 2 * * *", "2026-03-28T12:00+01:00", ["29 03:00+0200", "30 02:30+0200"]),
        ("0 3 * * *", "2026-03-28T12:00+01:00", ["29 03:00+0200", "30 03:00+0200"]),
        ("*/30 * * * *", "2026-03-29T01:15+01:00", ["29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]),
        # 25 October 2026: the hour from 2 to 3 is repeated.
        ("30 2 * * *", "2026-10-24T12:00+02:00", ["25 02:30+0200", "26 02:30+0100"]),
        ("30 2 * * *", "2026-10-25T02:15+01:00", ["26 02:30+0100"]),
        ("*/30 * * * *", "2026-10-25T02:15+02:00", ["25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
        ("0 12 29 2 *", "2026-01-01T00:00+01:00", ["29 12:00+0100"]),
    ],
)
def test_l1_times_at_a_change_of_the_clock_are_those_of_cron(cron: str, start: str, expected: list[str]) -> None:
    assert times(cron, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # 5 April 2026: the half hour before two is repeated; 4 October: that after two is left out.
        ("*/10 2 * * *", "2026-04-05T01:55+11:00", "2026-04-05T02:00+10:30"),
        ("*/20 0 * * *", "2026-04-05T01:55+11:00", "2026-04-06T00:00+10:30"),
        ("*/20 0 * * *", "2026-10-04T00:40+10:30", "2026-10-05T00:00+11:00"),
        ("*/20 2 * * *", "2026-10-04T00:40+10:30", "2026-10-04T02:40+11:00"),
    ],
)
def test_l1_no_time_is_lost_where_the_clock_changes_by_half_an_hour(cron: str, after: str, expected: str) -> None:
    found = next_time(cron, "Australia/Lord_Howe", datetime.fromisoformat(after).timestamp())
    assert found == datetime.fromisoformat(expected).timestamp()


@given(
    st.sampled_from(["30 2 * * *", "0 * * * *", "*/7 1-3 * * *", "15 2 * * 0", "0 0 * * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
)
def test_l1_the_next_time_is_always_later(cron: str, zone: str, start: datetime) -> None:
    after = start.replace(tzinfo=ZoneInfo("UTC")).timestamp()
    at = next_time(cron, zone, after)
    assert at is not None
    assert after < at <= after + timedelta(days=8).total_seconds()
    assert next_time(cron, zone, at - 1) == at, "whoever looks earlier finds the same time"


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("0 3 * * *", ""),
        ("@daily", "minute, hour, day of month, month and day of week"),
        ("0 0 3 * * *", "minute, hour, day of month, month and day of week"),
        ("61 3 * * *", "is not a cron expression: bad minute"),
        ("0 0 30 2 *", "is not a cron expression: bad day-of-month"),
    ],
)
def test_l1_what_is_no_cron_expression_is_a_problem(cron: str, problem: str) -> None:
    found = cron_problem(cron)
    assert problem in found
    assert bool(found) == bool(problem)


def test_l1_an_unknown_time_zone_is_a_problem() -> None:
    assert zone_problem(BERLIN) == ""
    for name in ("Berlin", "../../etc/passwd", "", "Europe"):
        assert "is not a time zone" in zone_problem(name)
