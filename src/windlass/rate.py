"""Rates as people write them: `10/s`, `100/15m`."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Rate"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([smhd])")


class Rate(NamedTuple):
    """So many uses in so many seconds, by all executions of a home together."""

    uses: int
    seconds: float

    @classmethod
    def of(cls, text: str) -> Rate:
        """From `10/s`, `60/m`, `100/15m`, `1000/d`."""
        found = _RATE.fullmatch(text.strip())
        if found is None or not int(found[1]) or (found[2] and not float(found[2])):
            raise ValueError(f"{text!r} is not a rate: write it like 10/s, 60/m, 100/15m, 1000/d")
        return cls(int(found[1]), float(found[2] or 1) * _UNITS[found[3]])

    def next(self, due: float, now: float) -> tuple[float, float]:
        """The time when all uses, with one more, will have drained; and the seconds that this one has to wait.

        This is the generic cell rate algorithm: one number is all there is to keep. A clock that was set back must not
        close the gate for longer than one period.
        """
        each = self.seconds / self.uses
        after = max(due, now) + each
        wait = after - now - self.seconds
        if wait > self.seconds:
            return now + each, 0.0
        return (due, wait) if wait > 1e-6 else (after, 0.0)

    def __str__(self) -> str:
        return f"{self.uses}/{self.seconds:g}s"
