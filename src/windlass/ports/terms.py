"""The terms on which a tool is used, and its estimate of a use (H1, C8).

A tool without terms is used at once, for as long as it takes and as often as it is asked for. The user's settings come
before the tool's own terms. `GateStore` is the seam towards the gates' state that the processes of a home share.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.core.breaker import Breaker
from windlass.rate import Rate

__all__ = ["Estimate", "GateStore", "Rate", "Terms"]


class Terms(msgspec.Struct, frozen=True):
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

    def known(self, key: str, now: float, longest: float) -> tuple[Any] | None:
        """A result that is still good, in a tuple of one. One that is so for more than the `longest` seconds is not: it
        is of a clock that was ahead."""
        ...

    def learn(self, key: str, value: Any, until: float) -> None: ...

    def close(self) -> None: ...
