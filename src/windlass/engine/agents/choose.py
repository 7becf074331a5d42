"""Which runtime an attempt runs on (A6): the one that is named if it can be used, else the next of its family (A7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from windlass.core.agent import next_in_family
from windlass.engine.agents.guarded import Guarded
from windlass.errors import UNAVAILABLE, Category, Failure, ToolError
from windlass.plan.schema import nearest
from windlass.ports import Health, Runner

__all__ = ["Chosen", "choose"]


class Chosen(NamedTuple):
    runner: Runner
    instead_of: str = ""
    """The runtime that was named and cannot be used."""
    because: str = ""
    version: str = ""
    """The version of the runner's program."""


def any_account(runner: Runner) -> str:
    """For who does not know yet which model is to be called."""
    return ""


async def choose(
    runners: Mapping[str, Runner],
    named: str,
    *,
    fallback: bool,
    given_up: tuple[str, ...] = (),
    account: Callable[[Runner], str] = any_account,
) -> Chosen:
    """The runner for an attempt. Nobody who can take over is said at once, with what to do.

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
        why = "it has nothing to fall back to" if fallback else "falling back is switched off"
        raise _nobody(f"{named} cannot be used: {health.detail}; {why}", health)
    second = await _health(instead, account(instead))
    if not second.ok:
        why = f"{instead.name} cannot take over: {second.detail}"
        raise _nobody(f"{named} cannot be used: {health.detail}; {why}", health, second.advice)
    return Chosen(instead, named, health.detail, second.version)


async def _health(runner: Runner, account: str) -> Health:
    resting = runner.resting(account) if isinstance(runner, Guarded) else None
    return resting or await runner.available()


def _nobody(message: str, health: Health, *advice: str) -> ToolError:
    told = tuple(line for line in (health.advice, *advice, "windlass doctor") if line)
    if health.back_in is not None:
        return ToolError.of(Failure(Category.TRANSIENT, message, advice=told, retry_after=health.back_in))
    return ToolError.of(Failure(Category.CONFIGURATION, message, advice=told, kind=UNAVAILABLE))
