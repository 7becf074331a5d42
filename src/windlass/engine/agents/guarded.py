"""A runtime behind its breaker (C4): one that fails again and again is left alone for a while; another takes over."""

from __future__ import annotations

import msgspec

from windlass.clock import Clock
from windlass.engine.gates.circuit import CircuitOfUse, NotBegun
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
            return Health(False, detail, "windlass tools check", back_in=rest)
        return await self._runner.available()

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        circuit = CircuitOfUse(self._book, self.circuit, self._clock)
        try:
            circuit.enter()
        except NotBegun as error:  # it opened, or somebody else began to try it, since it was called available
            return AgentResult(failure=msgspec.structs.replace(error.failure, elsewhere=True))
        try:
            result = await self._runner.run(request, host)
        except BaseException:
            circuit.called_off()
            raise
        failure = result.failure
        if result.interrupted:
            circuit.called_off()
        elif failure is None or failure.resets_at is not None or result.metadata.get("budget"):
            circuit.worked()  # a quota that comes back, or a budget that is used up, is not a runtime that is broken
        else:
            circuit.failed(failure)
        return result

    async def interrupt(self, request: str) -> None:
        await self._runner.interrupt(request)

    async def close(self) -> None:
        await self._runner.close()
