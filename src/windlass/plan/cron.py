"""Times of cron expressions in a time zone.

At a change of the clock they are those of Debian's cron: a fixed time in the hour that is left out comes right after
it, a fixed time in the hour that is repeated comes once, and `*` in hours or minutes follows the time that passes.
"""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

__all__ = ["cron_problem", "next_time", "zone_problem"]

_FIELDS = 5
_HOUR, _DAY = 3600.0, 86400.0


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
    place = ZoneInfo(zone)
    found = _first(cron, place, after)
    if found is None or not any(field.startswith("*") for field in cron.split()[:2]):
        return found
    # CronSim steps by whole hours: where the clock changes by half an hour, it steps past times of the hours after it.
    since = max(after, found - _DAY) - _HOUR
    if _offset(place, since) != _offset(place, found):
        change = _change(place, since, found)
        whole = change + -(change + _offset(place, change)) % _HOUR
        others = [_first(cron, place, start) for start in (change - 1, whole - 1) if start > after]
        found = min([found, *(other for other in others if other is not None)])
    return found


def _first(cron: str, place: ZoneInfo, after: float) -> float | None:
    from cronsim import CronSim

    # In the second pass of a repeated hour it begins with the times of the first pass, which are past.
    times = CronSim(cron, datetime.fromtimestamp(after, place))
    return next((at for at in (time.timestamp() for time in times) if at > after), None)


def _offset(place: ZoneInfo, at: float) -> float:
    """Seconds by which the zone's clock is ahead of UTC."""
    ahead = datetime.fromtimestamp(at, place).utcoffset()
    return ahead.total_seconds() if ahead is not None else 0.0


def _change(place: ZoneInfo, before: float, after: float) -> float:
    """The moment between two others, a whole second, from which on the clock is as it is at the second one."""
    first, last = math.floor(before), math.ceil(after)
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(place, middle) == _offset(place, after):
            last = middle
        else:
            first = middle
    return float(last)
