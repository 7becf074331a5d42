"""A runtime behind its breaker (C4): one that fails again and again is left alone for a while; another takes over."""

from __future__ import annotations

from windlass.clock import Clock
from windlass.core.breaker import Circuit, counts
from windlass.ports import AgentRequest, AgentResult, GateBook, Health, Host, Runner

__all__ = ["Guarded"]


class Guarded:
    """The runner itself, with what is known of its failures, by all executions of a home."""

    def __init__(self, runner: Runner, book: GateBook, clock: Clock) -> None:
        self._runner, self._book, self._clock = runner, book, clock
        self.name = runner.name

    @property
    def circuit(self) -> str:
        return f"runtime {self.name}"

    async def available(self) -> Health:
        """While it is left alone it cannot be used. When that is over, the next attempt tells whether it works."""
        breaker, now = self._book.breaker(self.circuit), self._clock.now()
        if not breaker.admits(now):
            rest = breaker.until - now
            detail = f"it failed again and again ({breaker.because}), and is left alone for {rest:.0f} s more"
            return Health(False, detail, "windlass doctor", back_in=rest)
        return await self._runner.available()

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        breaker, now = self._book.breaker(self.circuit), self._clock.now()
        if breaker.circuit(now) is Circuit.HALF_OPEN:
            self._book.keep_breaker(self.circuit, breaker.probe(now))
        result = await self._runner.run(request, host)
        self._judge(result)
        return result

    def _judge(self, result: AgentResult) -> None:
        breaker, failure = self._book.breaker(self.circuit), result.failure
        if result.interrupted:
            return
        # A quota that comes back, or a budget that is used up, is not a runtime that is broken.
        asked_for_too_much = failure is not None and (failure.resets_at is not None or result.metadata.get("budget"))
        if failure is not None and counts(failure) and not asked_for_too_much:
            self._book.keep_breaker(self.circuit, breaker.failed(failure, self._clock.now()))
        elif breaker.until or breaker.failures:
            self._book.keep_breaker(self.circuit, breaker.worked())

    async def interrupt(self, request: str) -> None:
        await self._runner.interrupt(request)

    async def close(self) -> None:
        await self._runner.close()
