"""The terms on which a tool is used, and its estimate of a use (H1, C8).

A tool without terms is used at once, for as long as it takes and as often as it is asked for. The user's settings come
before the tool's own terms. `GateStore` is the seam towards the gates' state that the processes of a home share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from windlass.core.breaker import Breaker

__all__ = ["Estimate", "GateStore", "Rate", "Terms"]

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


@dataclass(frozen=True, slots=True)
class Terms:
    """Limits and rules for every use of a tool."""

    timeout: float | None = None
    """Seconds that one use may take."""
    rate: Rate | None = None
    concurrent: int | None = None
    """Uses at the same time, by all executions of a home together."""
    cache: float | None = None
    """Seconds for which a result may be reused; only for uses without an effect."""
    fallback: str | None = None
    """The tool that takes its place when it cannot be used. It must take the same arguments."""
    sensitive: bool = False
    """A person is asked before it is used, unless the plan says `approve: never`."""


class Estimate(NamedTuple):
    """The time and money that a use will probably take."""

    seconds: float | None = None
    usd: float | None = None


class GateStore(Protocol):
    """Shared state of the gates, which may be lost at any time. Each use of a tool calls it: methods must be fast."""

    def take(self, name: str, rate: Rate, now: float) -> float:
        """Count one use, if there is room: 0. Else nothing is counted: the seconds until there is some."""
        ...

    def breaker(self, name: str) -> Breaker: ...

    def keep_breaker(self, name: str, breaker: Breaker) -> None: ...

    def breakers(self) -> dict[str, Breaker]:
        """All breakers that are not closed, or have failures."""
        ...

    def known(self, key: str, now: float) -> tuple[Any] | None:
        """A result that is still good, in a tuple of one."""
        ...

    def learn(self, key: str, value: Any, until: float) -> None: ...

    def close(self) -> None: ...
