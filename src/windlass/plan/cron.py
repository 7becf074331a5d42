"""Times of cron expressions in a time zone.

At a change of the clock they are those of Debian's cron: a fixed time in the hour that is left out comes right after
it, a fixed time in the hour that is repeated comes once, and `*` in hours or minutes follows the time that passes.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["cron_problem", "next_time", "zone_problem"]

_FIELDS = 5


def zone_problem(zone: str) -> str:
    """Return the problem of a time zone's name; empty if there is such a zone."""
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return f"{zone!r} is not a time zone of this machine: write it like Europe/Berlin or UTC"
    return ""


def cron_problem(cron: str) -> str:
    """Return the problem of a cron expression; empty if it is one."""
    from cronsim import CronSim, CronSimError

    if len(cron.split()) != _FIELDS:
        return f"{cron!r} is not a cron expression: it has minute, hour, day of month, month and day of week"
    try:
        CronSim(cron, datetime(2000, 1, 1))
    except CronSimError as error:
        return f"{cron!r} is not a cron expression: {str(error)[:1].lower()}{str(error)[1:]}"
    return ""


def next_time(cron: str, zone: str, after: float) -> float | None:
    """The first time of a valid expression after a moment; None if there is none."""
    from cronsim import CronSim

    # In the second pass of a repeated hour it begins with the times of the first pass, which are past.
    times = CronSim(cron, datetime.fromtimestamp(after, ZoneInfo(zone)))
    return next((at for at in (time.timestamp() for time in times) if at > after), None)
