"""The runtime of an attempt: the one that is named if it can be used (A6), else the next of its family (A7).

`GuardedRunner` is a runtime behind its breakers (C4): one that keeps failing rests for a while, and another takes over.
There is a breaker for each account of a model provider that the runtime is used with: an outage of one provider is
none of another, and the program that calls them is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from windlass.clock import Clock
from windlass.core.agent import next_in_family
from windlass.core.breaker import Breaker
from windlass.engine.gates.circuit import CircuitOfUse, NotBegun
from windlass.errors import MODEL_API, UNAVAILABLE, Category, Failure, ToolError
from windlass.plan.schema import nearest
from windlass.ports import (
    AgentRequest,
    AgentResult,
    Amount,
    GateStore,
    Health,
    Host,
    Runner,
    RunnerHooks,
    hooks_of,
)

__all__ = ["Chosen", "GuardedRunner", "choose"]


class GuardedRunner(RunnerHooks):
    """A runner behind its circuit breakers, which all executions of a home share."""

    def __init__(self, runner: Runner, book: GateStore, clock: Clock) -> None:
        self._runner, self._book, self._clock = runner, book, clock
        self.name = runner.name
        hooks = hooks_of(runner)
        for hook in vars(RunnerHooks):
            if not hook.startswith("_"):
                setattr(self, hook, getattr(hooks, hook))

    def circuit(self, account: str) -> str:
        """The name of the breaker: `runtime cli (openai, account 3fa1b2c4)`; of the runtime alone where unknown."""
        return f"runtime {self.name} ({account})" if account else f"runtime {self.name}"

    async def available(self) -> Health:
        return await self._runner.available()

    def resting(self, account: str) -> Health | None:
        """Why it cannot be used with that account just now. When the rest is over, the next attempt finds out."""
        breaker, now = self._book.breaker(self.circuit(account)), self._clock.now()
        if breaker.admits(now):
            return None
        rest, whose = breaker.until - now, f" with {account}" if account else ""
        detail = (
            f"circuit open{whose} after {breaker.failures} failures (last: {breaker.because}), retry in {rest:.0f} s"
        )
        return Health(False, detail, "check its health: windlass tools check", back_in=rest)

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        return self._runner.call_cost(model, prompt)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        account = self.account(request.model, request.env)
        circuit = CircuitOfUse(self._book, self.circuit(account), self._clock)
        try:
            circuit.enter()
        except NotBegun as error:  # it opened, or another probe began, since it was chosen
            return AgentResult(failure=msgspec.structs.replace(error.failure, elsewhere=True, kind=MODEL_API))
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
            self._forget_older(account)
        else:
            circuit.failed(failure)
        return result

    def _forget_older(self, account: str) -> None:
        """Close the breaker that an earlier version kept for the runtime as a whole: nothing else does."""
        if account and self._book.breaker(self.circuit("")) != Breaker():
            self._book.keep_breaker(self.circuit(""), Breaker())

    async def interrupt(self, request: str) -> None:
        await self._runner.interrupt(request)

    async def close(self) -> None:
        await self._runner.close()


class Chosen(NamedTuple):
    runner: Runner
    instead_of: str = ""
    """The runtime that was named and cannot be used."""
    because: str = ""
    version: str = ""
    """The version of the runner's program."""


def any_account(runner: Runner) -> str:
    """The empty account, for callers that do not know the model yet."""
    return ""


async def choose(
    runners: Mapping[str, Runner],
    named: str,
    *,
    fallback: bool,
    given_up: tuple[str, ...] = (),
    account: Callable[[Runner], str] = any_account,
) -> Chosen:
    """Choose the runner for an attempt. Raises at once, with advice, if none can be used.

    `account` names the account of a model provider that a runner would use: its breaker may be open.
    """
    runner = runners.get(named)
    if runner is None:
        near = nearest(named, runners)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(runners)}"
        raise ToolError(f"there is no runtime {named!r}; {hint}", category=Category.CONFIGURATION)
    health = await _health(runner, account(runner))
    if health.ok:
        return Chosen(runner, version=health.version)
    other = next_in_family(named, given_up) if fallback else None
    instead = runners.get(other) if other is not None else None
    if instead is None and given_up:
        raise _nobody(f"{named} could not take over: {health.detail}", health)
    if instead is None:
        why = "it has no fallback" if fallback else "fallback is disabled"
        raise _nobody(f"{named} cannot be used: {health.detail}; {why}", health)
    second = await _health(instead, account(instead))
    if not second.ok:
        why = f"{instead.name} cannot take over: {second.detail}"
        raise _nobody(f"{named} cannot be used: {health.detail}; {why}", health, second.advice)
    return Chosen(instead, named, health.detail, second.version)


async def _health(runner: Runner, account: str) -> Health:
    resting = runner.resting(account) if isinstance(runner, GuardedRunner) else None
    return resting or await runner.available()


def _nobody(message: str, health: Health, *advice: str) -> ToolError:
    told = tuple(line for line in (health.advice, *advice, "windlass doctor") if line)
    if health.back_in is not None:
        failure = Failure(Category.TRANSIENT, message, advice=told, retry_after=health.back_in, kind=MODEL_API)
        return ToolError.of(failure)
    return ToolError.of(Failure(Category.CONFIGURATION, message, advice=told, kind=UNAVAILABLE))
