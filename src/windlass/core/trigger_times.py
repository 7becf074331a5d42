"""Nominal times of a `cron` trigger since its last turn: those that are due, and those that are missed (L1). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from windlass.ids import derived_id
from windlass.plan.cron import next_time
from windlass.plan.triggers import Trigger

__all__ = ["MissedTimes", "TimesSince", "id_of_time", "shown_time", "times_since"]

LATE = 120.0
"""Seconds that a start may be late in any case: a tick comes once a minute."""
MOST_CAUGHT_UP = 100
"""Times that one turn catches up with, the newest ones."""
MOST_COUNTED = 1000
"""Missed times that are counted one by one: there may be very many."""


class MissedTimes(NamedTuple):
    """Times in a row that start nothing."""

    first: float
    last: float
    number: int
    """The number of times; above `MOST_COUNTED`, there are more than that."""

    def counted(self, zone: str) -> str:
        """Their number and their last one, before a reason; empty for a single one, which its line has."""
        if self.number > MOST_COUNTED:
            return f"more than {MOST_COUNTED:,} times: "
        return f"{self.number:,} times, the last at {shown_time(self.last, zone)}: " if self.number > 1 else ""


class TimesSince(NamedTuple):
    """The times of a trigger that have come since its last turn."""

    due: Sequence[float]
    """Oldest first."""
    until: float
    """The last time that is decided on."""
    window: float
    """Seconds that a start may be late."""
    missed: MissedTimes | None
    """Times that are too late."""
    left_out: MissedTimes | None
    """Times that are not too late, and more than a turn catches up with."""


def times_since(trigger: Trigger, cron: str, plan: str, since: float, now: float) -> TimesSince:
    """Find all nominal times after `since` whose time to start has come."""
    window = max(trigger.catch_up, LATE)
    border = now - window - trigger.jitter  # whatever is before it is missed
    until, due, missed = since, list[float](), list[float]()
    at = next_time(cron, trigger.zone, since)
    while at is not None and (starts := _starts(trigger, plan, at)) <= now:
        until = at
        if starts >= now - window:
            due.append(at)
        else:
            missed.append(at)
            if len(missed) > MOST_COUNTED and at < border - 1:
                until = at = border - 1
        at = next_time(cron, trigger.zone, at)
    return TimesSince(due[-MOST_CAUGHT_UP:], until, window, _row(missed), _row(due[:-MOST_CAUGHT_UP]))


def _row(times: Sequence[float]) -> MissedTimes | None:
    return MissedTimes(times[0], times[-1], len(times)) if times else None


def id_of_time(trigger: Trigger, plan: str, at: float) -> str:
    """The id of the execution of a nominal time: always the same, whoever asks."""
    return derived_id(at, plan, trigger.id, f"{at:.0f}")


def _starts(trigger: Trigger, plan: str, at: float) -> float:
    """The time at which it is to be started: for one nominal time always the same, whoever asks."""
    part = int(id_of_time(trigger, plan, at).replace("-", "")[-8:], 16) / 2**32
    return at + part * trigger.jitter


def shown_time(at: float, zone: str) -> str:
    """A time in a zone, for people."""
    return datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat(sep=" ", timespec="minutes")
