"""A clock that a test sets and advances."""

from __future__ import annotations

__all__ = ["FakeClock"]

EPOCH = 1_750_000_000.0
"""Some day in June 2025: a time like those in real journals, and the same in every test."""


class FakeClock:
    """A `Clock` for tests. `advance` lets time pass; `set` also turns it back, as people and time servers do."""

    def __init__(self, at: float = EPOCH) -> None:
        self._now = at

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not pass backwards; use `set` to turn the clock back")
        self._now += seconds

    def set(self, at: float) -> None:
        self._now = at
