"""The breaker of what one use of a tool is about: asked before it begins, told what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from windlass.clock import Clock
from windlass.core.breaker import Breaker, Circuit, counts
from windlass.errors import Category, Failure, ToolError, classify
from windlass.ports import GateBook

__all__ = ["CircuitOfUse", "NotBegun", "TookTooLong", "cancelled"]

_CLOSED = Breaker()
_ADVICE = ("windlass tools check tells how it is", "name a substitute: tools.NAME.fallback in your settings")


class TookTooLong(ToolError):
    """The tool's own time was over: nobody saw whether it took effect."""


class NotBegun(ToolError):
    """A gate is closed: nothing was done."""


def cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class CircuitOfUse:
    """The breaker of what one use is about."""

    def __init__(self, book: GateBook, name: str | None, clock: Clock) -> None:
        self._book, self._name, self._clock = book, name, clock
        self.before = book.breaker(name) if name is not None else _CLOSED

    def enter(self) -> None:
        """Raises NotBegun while it is open."""
        now = self._clock.now()
        if not self.before.admits(now):
            rest = self.before.until - now
            raise NotBegun(
                f"{self._name} failed again and again ({self.before.because}); it is left alone for {rest:.0f} s more",
                category=Category.TRANSIENT,
                advice=(
                    "windlass tools check tells how it is",
                    "name a substitute in your settings: tools.NAME.fallback",
                ),
                retry_after=rest,
            )
        if self._name is not None and self.before.circuit(now) is Circuit.HALF_OPEN:
            self.before = self.before.probe(now)
            self._book.keep_breaker(self._name, self.before)

    async def watch(self, use: Awaitable[Any]) -> Any:
        try:
            value = await use
        except (Exception, SystemExit) as error:
            if self._name is not None and not cancelled():
                self._failed(self._name, classify(error))
            raise
        if self._name is not None and (self.before.until or self.before.failures):
            self._book.keep_breaker(self._name, self.before.worked())
        return value

    def _failed(self, name: str, failure: Failure) -> None:
        if counts(failure):
            self._book.keep_breaker(name, self._book.breaker(name).failed(failure, self._clock.now()))
        elif self.before.probing:
            self._book.keep_breaker(name, self.before.worked())  # it answered, if only with a no
