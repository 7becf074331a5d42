"""Time, asked for and never taken: pass a `Clock`, so tests can hand in another one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "iso"]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch: what is journalled and compared with journalled times."""
        ...


class SystemClock:
    """Wall time at its making, carried on by a clock that nobody can set.

    Somebody setting the computer's clock an hour back must not hold up a retry for an hour, nor set off all
    of them at once. BOOTTIME also counts while a laptop sleeps; where it is missing, MONOTONIC serves.
    """

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._base = time.time() - time.clock_gettime(self._source)

    def now(self) -> float:
        return self._base + time.clock_gettime(self._source)


def iso(at: float | None) -> str | None:
    """A journalled time as people and JSON readers expect it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
