"""A `GateStore` for one process alone, which keeps nothing when it ends."""

from __future__ import annotations

from typing import Any

from windlass.core.breaker import Breaker
from windlass.ports import Rate

__all__ = ["MemoryGateStore"]

MOST_KEPT = 1_000
_CLOSED = Breaker()


class MemoryGateStore:
    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._breakers: dict[str, Breaker] = {}
        self._known: dict[str, tuple[Any, float]] = {}

    def take(self, name: str, rate: Rate, now: float) -> float:
        due, wait = rate.next(self._due.get(name, now), now)
        self._due[name] = due
        return wait

    def breaker(self, name: str) -> Breaker:
        return self._breakers.get(name, _CLOSED)

    def keep_breaker(self, name: str, breaker: Breaker) -> None:
        if breaker == _CLOSED:
            self._breakers.pop(name, None)
        else:
            self._breakers[name] = breaker

    def breakers(self) -> dict[str, Breaker]:
        return dict(self._breakers)

    def known(self, key: str, now: float, longest: float) -> tuple[Any] | None:
        found = self._known.get(key)
        return (found[0],) if found is not None and now < found[1] <= now + longest else None

    def learn(self, key: str, value: Any, until: float) -> None:
        self._known.pop(key, None)
        self._known[key] = (value, until)
        while len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]

    def close(self) -> None:
        """There is nothing to let go of."""
