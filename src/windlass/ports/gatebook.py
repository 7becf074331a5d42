"""The seam towards the gates' shared state in a home: rates, circuit breakers and cached results of tools."""

from __future__ import annotations

from typing import Any, Protocol

from windlass.core.breaker import Breaker
from windlass.ports.terms import Rate

__all__ = ["GateStore"]


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
