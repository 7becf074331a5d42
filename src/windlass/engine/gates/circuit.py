"""The circuit breaker for one use of a tool: checked before the use begins, updated with its result.

Other processes of the home change the same breakers, and the copy here may be a second old. So a change reads the
breaker anew first, and the one probe of a half-open breaker is counted in the store, which admits only one of two
concurrent requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from windlass.clock import Clock
from windlass.core.breaker import FIRST_REST, Breaker, Circuit, counts
from windlass.errors import Category, Failure, JournalError, ToolError, classify
from windlass.ports import GateStore, Rate

__all__ = ["CircuitOfUse", "NotBegun", "TookTooLong", "cancelled"]

MOST_BREAKERS = 1_000
"""Breakers kept at a time, as any number of hosts may fail: closed ones and the oldest are forgotten first."""
LOOK_AGAIN, LOOKS = 0.05, 100
"""Seconds between two looks at a probe, and the number of looks before a waiting use is refused for now."""
_ONE_PROBE = Rate(1, FIRST_REST)
"""No two probes are closer to each other than the shortest rest."""
_CLOSED = Breaker()
_ADVICE = ("check its health: windlass tools check", "name a substitute in your settings: tools.NAME.fallback")


class TookTooLong(ToolError):
    """The tool's own timeout was over: its outcome is unknown."""


class NotBegun(ToolError):
    """A gate is closed: nothing was done."""


def cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class CircuitOfUse:
    """The circuit breaker for one use."""

    def __init__(self, book: GateStore, name: str | None, clock: Clock) -> None:
        self._book, self._name, self._clock = book, name, clock
        self._probes = False
        """True if this use is the probe."""

    @property
    def closed(self) -> bool:
        return self._name is None or not self._book.breaker(self._name).until

    async def probed(self) -> None:
        """Wait for the result of a probe under way: most uses are over soon."""
        for _ in range(LOOKS):
            if self._name is None or not self._book.breaker(self._name).tried_now(self._clock.now()):
                return
            await asyncio.sleep(LOOK_AGAIN)

    def look(self) -> None:
        """Raises NotBegun while it is open, or while another use probes it."""
        if self._name is not None:
            self._refuse(self._name, self._book.breaker(self._name))

    def enter(self) -> None:
        """Check again, right before the use begins. The first use of a half-open breaker becomes its probe."""
        if self.closed or self._name is None:
            return
        breaker, now = self._anew(self._name), self._clock.now()
        self._refuse(self._name, breaker)
        if breaker.circuit(now) is not Circuit.HALF_OPEN:
            return
        if wait := self._turn(self._name, now):
            raise _refusal(self._name, breaker, wait, probing=True)
        self._book.keep_breaker(self._name, breaker.probe(now))
        self._probes = True

    async def watch(self, use: Awaitable[Any], limit: asyncio.Timeout | None = None) -> Any:
        """Await the use and update the breaker with its result. `limit` is the step's own timeout, if it has one."""
        try:
            value = await use
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if limit is not None and limit.expired():
                self.failed(Failure(Category.RESOURCE, "its step timed out before it finished"))
            elif cancelled() or isinstance(error, asyncio.CancelledError):
                self.called_off()
            else:
                self.failed(classify(error))
            raise
        self.worked()
        return value

    def worked(self) -> None:
        if self._name is not None and (self._probes or self._book.breaker(self._name).failures):
            self._learn(self._name)

    def failed(self, failure: Failure) -> None:
        if self._name is not None and counts(failure):
            self._learn(self._name, failure)
        elif self._name is not None and self._probes:
            self._learn(self._name)  # it answered, if only with a no

    def called_off(self) -> None:
        """It was stopped from outside, which says nothing about it."""
        if self._name is not None and self._probes and (breaker := self._anew(self._name)).probing:
            self._book.keep_breaker(self._name, breaker.called_off())

    def _learn(self, name: str, failure: Failure | None = None) -> None:
        """It failed with that, or it worked."""
        breaker = self._anew(name)
        if breaker.probing and not self._probes:
            return  # it began before the probe, which alone counts now
        after = breaker.worked() if failure is None else breaker.failed(failure, self._clock.now())
        if after != breaker:
            self._book.keep_breaker(name, after)

    def _anew(self, name: str) -> Breaker:
        known = self._book.breakers()
        if len(known) > MOST_BREAKERS:
            oldest = min((other for other in known if other != name), key=lambda other: known[other].until)
            self._book.keep_breaker(oldest, _CLOSED)
        return known.get(name, _CLOSED)

    def _turn(self, name: str, now: float) -> float:
        """0 when the probe is this one; else the seconds until there can be another."""
        try:
            return self._book.take(f"probe of {name}", _ONE_PROBE, now)
        except JournalError:
            return 0.0  # it cannot be counted: better two probes than none

    def _refuse(self, name: str, breaker: Breaker) -> None:
        now = self._clock.now()
        if not breaker.admits(now):
            raise _refusal(name, breaker, breaker.until - now, probing=breaker.probing)


def _refusal(name: str, breaker: Breaker, rest: float, *, probing: bool) -> NotBegun:
    why = f"circuit open after {breaker.failures} failures (last: {breaker.because})"
    probe = "another use is probing it, " if probing else ""
    return NotBegun(
        f"{name}: {why}; {probe}retry in {rest:.0f} s",
        category=Category.TRANSIENT,
        advice=_ADVICE,
        retry_after=rest,
    )
