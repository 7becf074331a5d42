"""Holds one attempt to the budget: reserves before each call of a model, settles at the end (E1).

A reservation covers the usage so far and the most that the next call can cost. `open` makes it before the attempt
begins, `afford` before each call of a runtime that asks first, `cover` after each report of one that does not. So
agents in parallel pass a limit by no more than the call each is in, and `settle` reports it when they did.

Without a limit nothing is reserved beyond the usage so far, which the ledger has all the same: it counts for limits
that are set later, and also if the process dies.

Room that others hold comes free again: the attempt waits for it, and reports the wait. Spent money does not: then a
person is asked, or it goes on with a warning if the settings allow that (E3). An attempt may begin a call with less
room than it needs if no other holds any; otherwise a limit below the price of one call would let nothing begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.agent import Cost
from windlass.core.budget import (
    NOTHING,
    Amount,
    ReservationRefused,
    Scope,
    ScopeName,
    Standing,
    known_part,
    shown,
)
from windlass.engine.perform import Held
from windlass.engine.spending import scopes_of
from windlass.errors import Category, ToolError
from windlass.ports import Charge, Contact, Ledger, Usage
from windlass.settings import BudgetSettings

__all__ = ["BudgetReservation"]

LEAST = {"usd": 0.001, "tokens": 1}
"""Room below this is none: no model call takes less."""
MARGIN = 1.25
"""By how much the next call may be dearer than the dearest so far."""
LOOK_AGAIN = 0.5
"""Seconds between tries while others hold the room."""
LOOK_LATER = 60.0
"""The same when one of them waits for a person."""
LOOKS_FOR_THE_DEAD = 20
"""Looks between two searches for reservations of dead processes: each reads the whole ledger."""


@dataclass(slots=True)
class BudgetReservation:
    """One attempt's money."""

    ledger: Ledger
    limits: BudgetSettings
    clock: Clock
    contact: Contact
    charge: Charge
    release_dead: Callable[[], Awaitable[None]]
    call_cost: Callable[[int], Amount]
    """The most that one call can use, by the tokens of its prompt; `usd` None: no price is known."""
    note: Callable[[str], None]
    held: Amount = field(default_factory=Amount)
    """The reserved amount."""
    used: Usage = field(default_factory=lambda: Usage(usd=0.0))
    """The last report."""
    assumed: Amount = NOTHING
    """Amount counted for calls without a measured usage: as much as was reserved for them."""
    prompt: int = 0
    """Tokens of the longest prompt so far."""
    dearest: float = 0.0
    """Dollars of the dearest call so far."""
    by_call: bool = False
    """The runtime asks before each call: between two calls only the usage so far is reserved."""
    warned: bool = False
    noted: bool = False
    refusal: ReservationRefused | None = None
    """The limit that a person is asked about."""

    @property
    def _proceeds(self) -> bool:
        """True to go on at a limit, as the execution's start says, else the settings."""
        return (self.contact.state.on_overrun or self.limits.on_overrun) == "proceed"

    @property
    def _spent(self) -> Amount:
        return _plus(Amount(known_part(self.used), _tokens(self.used)), self.assumed)

    def scopes(self) -> list[Scope]:
        """The limits that hold for this attempt; a person's later answer comes before the plan's and the settings'."""
        return scopes_of(self.contact.state, self.contact.step, self.limits, self.clock.now())

    # -- before ----------------------------------------------------------------------------------

    async def open(self, prompt: int) -> Amount:
        """Reserve the first call, with a prompt of so many tokens; gives the attempt's limit. Raises `Held`."""
        self.used, self.assumed = Usage(usd=0.0), NOTHING
        scopes = self.scopes()
        if not scopes:
            await self._take_anyway(NOTHING)
            return Amount()
        await self._make_room(await self._next_call(prompt, scopes), scopes)
        if self._proceeds:
            return Amount()  # a runtime that holds itself to a limit would not go on
        return _least([self._left(scope) for scope in scopes])

    async def afford(self, prompt: int) -> Held | None:
        """Reserve the next call before it is made; waits for room. A `Held` says that it may not be made."""
        self.by_call = True
        scopes = self.scopes()
        if not scopes:
            return None
        try:
            await self._make_room(await self._next_call(prompt, scopes), scopes)
        except Held as held:
            return held
        return None

    async def _next_call(self, prompt: int, scopes: Sequence[Scope]) -> Amount:
        """The most that the next call can cost, by the runtime's estimate and by the calls so far."""
        # In a thread: the first look at the price lists imports them, which holds up other steps for a while.
        usd, tokens = await asyncio.to_thread(self.call_cost, max(prompt, self.prompt))
        if usd is None:
            usd = 0.0
            self._no_price(scopes)
        if self.limits.reserve_usd is not None:
            usd = self.limits.reserve_usd
        return Amount(max(usd, self.dearest * MARGIN), tokens)

    def _no_price(self, scopes: Sequence[Scope]) -> None:
        """Refuse a limit in dollars for a model of unknown price, or warn and go on: it cannot be held."""
        dollars = [scope for scope in scopes if scope.limit.usd is not None]
        if not dollars:
            return
        model = self.used.model or self.charge.model or "the model"
        text = f"no price is known for {model}, so the limit of {_of(dollars[0], 'usd')} cannot be enforced"
        if self._proceeds:
            self._warn(f"{text}; continuing without counting its dollars")
            return
        name = model.rpartition("/")[2].rpartition(":")[2]
        advice = [
            f'in your own config.toml, in dollars per million tokens: [prices."{name}"] input = 1.00, output = 4.00'
            " (0 for a model of your own)"
        ]
        if {scope.name for scope in dollars} <= {"step", "execution"}:
            advice.append(
                "or limit tokens in place of dollars: `budget: {tokens: N}` in the plan, or `budget_tokens` of the run"
            )
        raise ToolError(text, category=Category.CONFIGURATION, advice=tuple(advice))

    async def _make_room(self, call: Amount, scopes: Sequence[Scope]) -> None:
        """Reserve one more call, and wait while others hold the room for it. Raises `Held` at a limit."""
        refusal = await self._take(call, scopes)
        if refusal is None:
            return
        if self._proceeds:
            await self._take_anyway(call)
            if self._is_reached(refusal):
                self._warn_of(refusal)
            return
        looks = 0
        with self.contact.unclocked():
            while refusal is not None:
                if self._is_reached(refusal):
                    raise self._question(refusal)
                if looks % LOOKS_FOR_THE_DEAD == 0:
                    await self.release_dead()
                if (until := self._held_by_who_asks(refusal)) is not None:
                    raise Held("budget", _waits(refusal), until=until, scope=refusal.scope)
                if looks == 0 and self.by_call:
                    await self._take_anyway(NOTHING)  # two that wait must not keep the room from each other
                if looks == 1:  # the first look may have found that the others were dead
                    self._tell_wait(_waits(refusal))
                if looks:
                    await asyncio.sleep(LOOK_AGAIN)
                looks += 1
                refusal = await self._take(call, scopes)
        if looks > 1:
            self._tell_wait("")

    async def _take(self, call: Amount, scopes: Sequence[Scope], *, beside: bool = False) -> ReservationRefused | None:
        """Reserve the usage so far and one more call; less than a call if no other attempt holds anything.

        With `beside`, less also if others hold room: the call cannot be prevented.
        """
        used = self._spent
        want = _plus(used, call)
        for _ in range(2 * len(scopes) + 1):  # each round makes it fit one limit more
            refusal = await self.ledger.reserve(self.charge, self.clock.now(), want, scopes, used, self.used)
            if refusal is None:
                self.held = want
                return None
            if refusal.reserved and not beside:
                return refusal
            room = refusal.limit - refusal.spent - refusal.reserved
            if room - _in(used, refusal.unit) < (0 if beside else LEAST[refusal.unit]):
                return refusal
            self._tell_worst_case(call, refusal)
            want = Amount(room, want.tokens) if refusal.unit == "usd" else Amount(want.usd, int(room))
        return refusal

    async def _take_anyway(self, call: Amount) -> None:
        used = self._spent
        self.held = _plus(used, call)
        await self.ledger.reserve(self.charge, self.clock.now(), self.held, (), used, self.used)

    def _held_by_who_asks(self, refusal: ReservationRefused) -> float | None:
        """The time until which to wait if all other attempts here wait for a person, who may be away; else None.

        Other executions share a day's limit: their reservations come free without that person.
        """
        others = [step for step in self.contact.state.active.values() if step.id != self.charge.step]
        if not others or not all(step.asks_in_attempt for step in others):
            return None
        own = refusal.scope in ("step", "execution")
        closing = [step.approval.expires_at for step in others if step.approval is not None]
        return min(closing) if own else self.clock.now() + LOOK_LATER

    def _left(self, scope: Scope) -> Amount:
        """Room that this execution's own spending leaves in a limit; only the ledger watches a day's or month's."""
        step = self.contact.step
        match scope.name:
            case "step":
                cost = step.agent.cost if step.agent is not None else Cost()
            case "execution":
                cost = self.contact.state.cost
            case _:
                cost = Cost()
        usd = None if scope.limit.usd is None else max(LEAST["usd"], scope.limit.usd - cost.usd)
        return Amount(usd, None if scope.limit.tokens is None else max(1, scope.limit.tokens - cost.tokens))

    # -- while it runs ---------------------------------------------------------------------------

    async def cover(self, usage: Usage) -> Held | ToolError | None:
        """Reserve the usage so far and the next call. Returns the reason if the attempt must stop."""
        self._see(usage)
        scopes = self.scopes()
        if self.by_call or not scopes:
            await self._take_anyway(NOTHING)  # no call is under way: the rest is free for others until the next
            return None
        try:
            call = await self._next_call(0, scopes)
            if usage.usd is None and not usage.at_least and (usage.tokens_in or usage.tokens_out):
                self._no_price(scopes)
        except ToolError as error:
            return error
        refusal = await self._take(call, scopes, beside=True)
        if refusal is None:
            return None
        await self._take_anyway(call)  # it may be under way
        if not self._is_reached(refusal):
            until = self.clock.now() + LOOK_AGAIN
            return None if self._proceeds else Held("budget", _waits(refusal), until=until, scope=refusal.scope)
        if self._proceeds:
            self._warn_of(refusal)
            return None
        return self._question(refusal)

    def _see(self, usage: Usage) -> None:
        if self.by_call and usage.usd is None:
            spent = self._spent
            usd = 0.0 if known_part(usage) > known_part(self.used) else _in(self.held, "usd") - _in(spent, "usd")
            tokens = 0.0 if _tokens(usage) > _tokens(self.used) else _in(self.held, "tokens") - _in(spent, "tokens")
            self.assumed = _plus(self.assumed, Amount(max(0.0, usd), max(0, int(tokens))))
        self.prompt = max(self.prompt, usage.tokens_in - self.used.tokens_in)
        self.dearest = max(self.dearest, known_part(usage) - known_part(self.used))
        self.used = usage

    # -- after -----------------------------------------------------------------------------------

    async def put_back(self) -> None:
        """Release the reservation of an attempt that never began, also one that was only requested by then."""
        await self.ledger.release(self.charge)

    async def settle(self, usage: Usage) -> None:
        """Record the attempt's cost, and say which limits are passed by now."""
        await self.ledger.settle(self.charge, self.clock.now(), usage)
        scopes = self.scopes()
        if scopes and (usage.tokens_in or usage.tokens_out or usage.usd != 0.0):
            for standing in await self.ledger.standing(scopes):
                self._tell_overrun(standing)

    def restated(self, held: Held | ToolError, used: Usage) -> Held | ToolError:
        """Give the question with all that the attempt has cost: a call may have been under way when it was asked."""
        self.used = used
        if self.refusal is None or not isinstance(held, Held) or held.until is not None:
            return held
        return self._question(self.refusal)

    async def run_out(self, message: str) -> Held | None:
        """The runtime held itself to its allowance: the limit that this came from, or None when it was none of ours."""
        standings = await self.ledger.standing(self.scopes())
        for scope, spent, _ in standings:
            tokens = scope.limit.tokens
            if tokens is not None and tokens - _in(spent, "tokens") < LEAST["tokens"]:
                return _held_at(message, scope.name, "tokens", tokens, _in(spent, "tokens"))
        dollars = [one for one in standings if one.scope.limit.usd is not None]
        if not dollars:
            return None
        scope, spent, _ = min(dollars, key=lambda one: self._left(one.scope).usd or 0.0)
        return _held_at(message, scope.name, "usd", _in(scope.limit, "usd"), _in(spent, "usd"))

    # -- texts -----------------------------------------------------------------------------------

    def _is_reached(self, refusal: ReservationRefused) -> bool:
        """There is no room even once all others have settled."""
        return refusal.limit - refusal.spent - _in(self._spent, refusal.unit) < LEAST[refusal.unit]

    def _question(self, refusal: ReservationRefused) -> Held:
        self.refusal = refusal
        spent = refusal.spent + _in(self._spent, refusal.unit)
        return _held_at(_reached(refusal, spent), refusal.scope, refusal.unit, refusal.limit, spent)

    def _warn_of(self, refusal: ReservationRefused) -> None:
        said = "it was started to do" if self.contact.state.on_overrun else "the settings say"
        spent = refusal.spent + _in(self._spent, refusal.unit)
        self._warn(f"{_reached(refusal, spent)}; continuing, as {said}")

    def _warn(self, message: str) -> None:
        if not self.warned:
            self.warned = True
            self.contact.tell(ev.BudgetWarned(self.clock.now(), self.charge.step, message))

    def _tell_wait(self, message: str) -> None:
        self.contact.tell(ev.BudgetWaited(self.clock.now(), self.charge.step, self.charge.attempt, message))

    def _tell_worst_case(self, call: Amount, refusal: ReservationRefused) -> None:
        if not self.noted and not self._proceeds:
            self.noted = True
            most, left = _in(call, refusal.unit), refusal.limit - refusal.spent - _in(self._spent, refusal.unit)
            limit = (
                f"{shown(max(0.0, left), refusal.unit)} is left of the limit of {shown(refusal.limit, refusal.unit)}"
            )
            self.note(f"one call can cost up to {shown(most, refusal.unit)}, and {limit} for {_FOR[refusal.scope]}")

    def _tell_overrun(self, standing: Standing) -> None:
        scope, spent, _ = standing
        units: tuple[Literal["usd", "tokens"], ...] = ("usd", "tokens")
        for unit in units:
            limit, amount = scope.limit._asdict()[unit], _in(spent, unit)
            if limit is None or amount - limit < LEAST[unit]:
                continue
            over = f"{shown(amount, unit)} spent, {shown(amount - limit, unit)} over"
            message = f"the limit of {_of(scope, unit)} is exceeded: {over}"
            event = ev.BudgetWarned(
                self.clock.now(), self.charge.step, message, scope.name, unit, limit, round(amount, 9)
            )
            self.contact.tell(event)


def _held_at(text: str, scope: ScopeName, unit: Literal["usd", "tokens"], limit: float, spent: float) -> Held:
    """Ask a person for the limit once more, on top of what is spent."""
    more = limit or (1.0 if unit == "usd" else 100_000)
    needed = max(max(limit, spent) + more, spent + LEAST[unit])
    return Held("budget", text, scope=scope, needed=needed, unit=unit)


def _in(amount: Amount, unit: str) -> float:
    return (amount.usd if unit == "usd" else amount.tokens) or 0


def _tokens(usage: Usage) -> int:
    return usage.tokens_in + usage.tokens_out


def _plus(one: Amount, other: Amount) -> Amount:
    return Amount((one.usd or 0.0) + (other.usd or 0.0), (one.tokens or 0) + (other.tokens or 0))


def _least(limits: Sequence[Amount]) -> Amount:
    usd = [limit.usd for limit in limits if limit.usd is not None]
    tokens = [limit.tokens for limit in limits if limit.tokens is not None]
    return Amount(min(usd, default=None), min(tokens, default=None))


_FOR = {"step": "this step", "execution": "this execution", "day": "today", "month": "this month"}


def _of(scope: Scope, unit: str) -> str:
    return f"{shown(_in(scope.limit, unit), unit)} for {_FOR[scope.name]}"


def _reached(refusal: ReservationRefused, spent: float) -> str:
    limit = f"{shown(refusal.limit, refusal.unit)} for {_FOR[refusal.scope]}"
    if not spent and refusal.limit:
        least = shown(LEAST[refusal.unit], refusal.unit)
        return f"the limit of {limit} is too small for a call of a model: no call begins with less than {least}"
    word = "is exceeded" if spent - refusal.limit >= LEAST[refusal.unit] else "is reached"
    return f"the limit of {limit} {word} ({shown(spent, refusal.unit)} spent)"


def _waits(refusal: ReservationRefused) -> str:
    """Why it waits for others."""
    spent, held, limit = (shown(one, refusal.unit) for one in (refusal.spent, refusal.reserved, refusal.limit))
    return f"waiting for room in the budget for {_FOR[refusal.scope]}: {spent} spent and {held} reserved of {limit}"
