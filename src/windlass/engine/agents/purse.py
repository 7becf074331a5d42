"""Minds the budget of one attempt: set aside before, watched while it runs, settled after (E1).

An attempt sets aside a small amount and asks for more as it spends, so that attempts in parallel share what there is
and cannot overrun together by more than the call each is in. What others hold comes free again: that is waited for.
What is spent does not: then a person is asked, or it goes on with a warning where the settings say so (E3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.agent import Cost
from windlass.core.budget import Amount, Refusal, Scope, day_start, month_start
from windlass.engine.perform import Held
from windlass.plan.model import Budget
from windlass.ports import Charge, Contact, Ledger, Usage
from windlass.settings import BudgetSettings, LimitSettings

__all__ = ["Purse"]

LEAST_USD = 0.001
"""Room below this is none: no model call costs less."""
TOKENS_AT_A_TIME = 20_000
LOOK_AGAIN = 0.5
"""Seconds between looks at whether others have settled."""
LOOK_LATER = 60.0
"""The same when one of them waits for a person."""


@dataclass(slots=True)
class Purse:
    """One attempt's money."""

    ledger: Ledger
    limits: BudgetSettings
    clock: Clock
    contact: Contact
    charge: Charge
    bury: Callable[[], Awaitable[None]]
    held: Amount = field(default_factory=Amount)
    """What is set aside."""
    seen_usd: float = 0.0
    """What the attempt has cost so far, as far as anybody told."""
    warned: bool = False

    @property
    def _on_overrun(self) -> str:
        """Who started the execution may have said; else the settings do."""
        return self.contact.state.on_overrun or self.limits.on_overrun

    def scopes(self) -> list[Scope]:
        """The limits that hold for this attempt; a person's later word comes before the plan's and the settings'."""
        state, step, now = self.contact.state, self.contact.step, self.clock.now()
        allowed, execution = state.allowed, self.charge.execution
        of_step = _limit(allowed.get(f"step:{step.id}"), step.spec.budget or self.limits.step)
        of_execution = _limit(allowed.get("execution"), state.plan.budget or self.limits.execution)
        scopes = [
            Scope("step", of_step, execution=execution, step=step.id),
            Scope("execution", of_execution, execution=execution),
            Scope("day", _limit(allowed.get("day"), self.limits.day), since=day_start(now)),
            Scope("month", _limit(allowed.get("month"), self.limits.month), since=month_start(now)),
        ]
        return [scope for scope in scopes if scope.limit]

    async def open(self) -> Amount:
        """Set something aside before the attempt begins, and say what it may spend at most. Raises `Held`."""
        scopes = self.scopes()
        if not scopes:
            return Amount()
        while True:
            refusal = await self._grow(Amount(0.0, 0), scopes)
            if refusal is None:
                break
            if _spent_up(refusal):
                self._proceed_or_ask(refusal)
                return Amount()
            await self.bury()
            if (until := self._held_by_who_asks(refusal)) is not None:
                raise Held("budget", _told(refusal), until=until, scope=refusal.scope)
            await asyncio.sleep(LOOK_AGAIN)
        if self._on_overrun == "proceed":
            return Amount()  # a runtime that holds itself to a limit would not go on
        return _least([self._left(scope) for scope in scopes])

    def _held_by_who_asks(self, refusal: Refusal) -> float | None:
        """Until when to wait for room when all others here wait for a person's word, who need not be there.

        In a day's limit other executions have a share: what they hold comes free without that person.
        """
        others = [step for step in self.contact.state.active.values() if step.id != self.charge.step]
        if not others or not all(step.asks_in_attempt for step in others):
            return None
        own = refusal.scope in ("step", "execution")
        closing = [step.approval.expires_at for step in others if step.approval is not None]
        return min(closing) if own else self.clock.now() + LOOK_LATER

    def run_out(self, message: str) -> Held | None:
        """The runtime held itself to its allowance: the limit that this came from, or None when it was none of ours."""
        left = [(self._left(scope).usd, scope) for scope in self.scopes() if scope.limit.usd is not None]
        if not left:
            return None
        scope = min(left, key=lambda one: one[0] or 0.0)[1]
        limit = scope.limit.usd or 0.0
        needed = limit + (limit or self.limits.reserve_usd)
        return Held("budget", message, scope=scope.name, needed=needed)

    def _left(self, scope: Scope) -> Amount:
        """What this execution's own spending leaves of a limit; a day's or month's is watched in the ledger alone."""
        step = self.contact.step
        match scope.name:
            case "step":
                cost = step.agent.cost if step.agent is not None else Cost()
            case "execution":
                cost = self.contact.state.cost
            case _:
                cost = Cost()
        usd = None if scope.limit.usd is None else max(LEAST_USD, scope.limit.usd - cost.usd)
        return Amount(usd, None if scope.limit.tokens is None else max(1, scope.limit.tokens - cost.tokens))

    async def cover(self, usage: Usage) -> Held | None:
        """Set aside enough for what is used by now and a bit more. A `Held` says that it must stop."""
        self.seen_usd = max(self.seen_usd, usage.usd or 0.0)
        used = Amount(usage.usd or 0.0, usage.tokens_in + usage.tokens_out)
        if not self.held or (
            (used.usd or 0.0) < (self.held.usd or 0.0) and (used.tokens or 0) < (self.held.tokens or 0)
        ):
            return None
        scopes = self.scopes()
        refusal = await self._grow(used, scopes)
        if refusal is None or not _passed(refusal, used):
            return None
        refusal = refusal._replace(spent=refusal.spent + _of_unit(used, refusal.unit))
        if not _spent_up(refusal):
            return Held("budget", _told(refusal), until=self.clock.now() + LOOK_AGAIN, scope=refusal.scope)
        try:
            self._proceed_or_ask(refusal)
        except Held as held:
            return held
        return None

    async def put_back(self) -> None:
        """The attempt never began: give up what was set aside for it, also what was only asked for by then."""
        if self.scopes():
            await self.ledger.release(self.charge)

    async def settle(self, usage: Usage) -> None:
        """What it cost in the end. An unknown cost counts with what was set aside: at least what was seen of it."""
        now = self.clock.now()
        if usage.usd is None and self.seen_usd > (self.held.usd or 0.0):
            self.held = Amount(self.seen_usd, self.held.tokens)
            await self.ledger.reserve(self.charge, now, self.held, ())
        await self.ledger.settle(self.charge, now, usage)

    async def _grow(self, used: Amount, scopes: Sequence[Scope]) -> Refusal | None:
        """Set aside what is used and the next bit; less than that where there is less room."""
        want = Amount((used.usd or 0.0) + self.limits.reserve_usd, (used.tokens or 0) + TOKENS_AT_A_TIME)
        for _ in range(4):  # each refusal makes one of the two smaller
            refusal = await self.ledger.reserve(self.charge, self.clock.now(), want, scopes)
            if refusal is None:
                self.held = want
                return None
            room = refusal.limit - refusal.spent - refusal.reserved
            if refusal.unit == "usd" and room >= max(LEAST_USD, used.usd or 0.0):
                want = Amount(room, want.tokens)
            elif refusal.unit == "tokens" and room >= max(1, used.tokens or 0):
                want = Amount(want.usd, int(room))
            else:
                return refusal
        return refusal

    def _proceed_or_ask(self, refusal: Refusal) -> None:
        if self._on_overrun == "ask":
            more = refusal.limit or (self.limits.reserve_usd if refusal.unit == "usd" else TOKENS_AT_A_TIME)
            needed = max(refusal.limit, refusal.spent) + more
            raise Held("budget", _told(refusal), scope=refusal.scope, needed=needed, unit=refusal.unit)
        if not self.warned:
            self.warned = True
            said = "it was started with" if self.contact.state.on_overrun else "the settings say"
            message = f"{_told(refusal)}; it goes on, as {said}"
            self.contact.tell(ev.BudgetWarned(self.clock.now(), self.charge.step, message))


def _spent_up(refusal: Refusal) -> bool:
    """There is no room even once all others have settled."""
    return refusal.limit - refusal.spent < (LEAST_USD if refusal.unit == "usd" else 1)


def _passed(refusal: Refusal, used: Amount) -> bool:
    """What is used already does not fit: it is more than a wish for the next call."""
    return refusal.spent + refusal.reserved + _of_unit(used, refusal.unit) > refusal.limit


def _of_unit(amount: Amount, unit: str) -> float:
    return (amount.usd if unit == "usd" else amount.tokens) or 0


def _limit(said: Budget | None, named: Budget | LimitSettings) -> Amount:
    """A person's word on dollars leaves the limit on tokens as it was; one without a number lifts both."""
    if said is None:
        return Amount(named.usd, named.tokens)
    if said.usd is None and said.tokens is None:
        return Amount()
    return Amount(named.usd if said.usd is None else said.usd, named.tokens if said.tokens is None else said.tokens)


def _least(limits: Sequence[Amount]) -> Amount:
    usd = [limit.usd for limit in limits if limit.usd is not None]
    tokens = [limit.tokens for limit in limits if limit.tokens is not None]
    return Amount(min(usd, default=None), min(tokens, default=None))


_OF = {"step": "this step", "execution": "this execution", "day": "today", "month": "this month"}


def _told(refusal: Refusal) -> str:
    limit, spent = _shown(refusal.limit, refusal.unit), _shown(refusal.spent, refusal.unit)
    others = f", and {_shown(refusal.reserved, refusal.unit)} set aside by others" if refusal.reserved else ""
    verb = "is" if refusal.unit == "usd" else "are"
    return f"the budget for {_OF[refusal.scope]} is {limit}; {spent} {verb} spent{others}"


def _shown(value: float, unit: str) -> str:
    return f"${value:,.2f}" if unit == "usd" else f"{value:,.0f} tokens"
