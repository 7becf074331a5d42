"""Rules of budgets: room for a reservation, the amount a charge counts, the start of a day (E1). Pure: the ledgers call
them inside their own transaction.

A scope is a limit with the amounts that count against it. Reservations of other running attempts count like spending,
so that attempts in parallel cannot overrun together; but they come free again, so such a refusal is `busy`: wait.
Spending without a known price counts with its reservation.

Days and months are those of the user's own calendar: `tz` None is the time zone of this computer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Literal, NamedTuple, Protocol

from windlass.core.events import Usage

__all__ = [
    "NOTHING",
    "Amount",
    "ReservationRefused",
    "Scope",
    "ScopeName",
    "Standing",
    "admit",
    "at_least_money",
    "counted",
    "day_of",
    "day_start",
    "known_cost",
    "known_part",
    "limit_of",
    "money",
    "month_of",
    "month_start",
    "plus",
    "shown",
    "tokens_of",
    "tokens_of_bytes",
]

ScopeName = Literal["step", "execution", "day", "month"]

_ROUNDING = 1e-9
"""Dollars that sums of many small amounts may be off: a limit of $1.00 holds ten times $0.10."""


class Amount(NamedTuple):
    """Dollars and tokens; None is no limit, or nothing to say."""

    usd: float | None = None
    tokens: int | None = None

    def __bool__(self) -> bool:
        return self.usd is not None or self.tokens is not None


NOTHING = Amount(0.0, 0)


class BudgetLimit(Protocol):
    """A limit as a plan, the settings or a person names it."""

    @property
    def usd(self) -> float | None: ...
    @property
    def tokens(self) -> int | None: ...


def limit_of(said: BudgetLimit | None, named: BudgetLimit) -> Amount:
    """The limit after a person's answer: dollars alone leave the tokens as they were; no number lifts both."""
    if said is None:
        return Amount(named.usd, named.tokens)
    if said.usd is None and said.tokens is None:
        return Amount()
    return Amount(named.usd if said.usd is None else said.usd, named.tokens if said.tokens is None else said.tokens)


class Scope(NamedTuple):
    """One limit to hold."""

    name: ScopeName
    limit: Amount
    since: float = 0.0
    """Charges that began before this do not count (the start of the day or month)."""
    execution: str | None = None
    """Only this execution's charges count."""
    step: str | None = None
    """Only this step's charges count, with those of its items."""


class Standing(NamedTuple):
    """Amounts in a ledger that count against a scope."""

    scope: Scope
    spent: Amount
    """By ended attempts, with their reservation where the cost is unknown; and by running ones so far."""
    reserved: Amount
    """By running attempts, beyond their usage so far: it may come free again."""


class ReservationRefused(NamedTuple):
    """Why a reservation was not made."""

    scope: ScopeName
    unit: Literal["usd", "tokens"]
    limit: float
    spent: float
    reserved: float
    """By other attempts that still run."""
    wanted: float

    @property
    def busy(self) -> bool:
        """True if there is room once others have settled: wait, and ask again."""
        return self.reserved > 0 and _fits(self.spent, self.wanted, self.limit)


def admit(want: Amount, scopes: Sequence[tuple[Scope, Amount, Amount]]) -> ReservationRefused | None:
    """The first scope without room for `want`. Each comes with the amounts spent and reserved by others.

    None in `want` is an unknown amount: refused only where nothing is left.
    """
    for scope, spent, reserved in scopes:
        if scope.limit.usd is not None:
            used, held = spent.usd or 0.0, reserved.usd or 0.0
            if not _has_room(used + held, want.usd, scope.limit.usd):
                return ReservationRefused(scope.name, "usd", scope.limit.usd, used, held, want.usd or 0.0)
        if scope.limit.tokens is not None:
            count, kept = spent.tokens or 0, reserved.tokens or 0
            if not _has_room(count + kept, want.tokens, scope.limit.tokens):
                return ReservationRefused(scope.name, "tokens", scope.limit.tokens, count, kept, want.tokens or 0)
    return None


def _has_room(used: float, wanted: float | None, limit: float) -> bool:
    return used < limit - _ROUNDING if wanted is None else _fits(used, wanted, limit)


def _fits(used: float, wanted: float, limit: float) -> bool:
    return used + wanted <= limit + _ROUNDING


def known_cost(usage: Usage) -> float | None:
    """The cost of an attempt; None if unknown, negative or not a finite number."""
    usd = usage.usd
    return usd if usd is not None and math.isfinite(usd) and usd >= 0 else None


def known_part(usage: Usage) -> float:
    """The known dollars of an attempt: its cost, or the least that it cost."""
    usd = known_cost(usage)
    if usd is not None:
        return usd
    return max(0.0, usage.at_least) if math.isfinite(usage.at_least) else 0.0


def plus(one: Usage, other: Usage) -> Usage:
    """The usage of two turns of one attempt."""
    known = one.usd is not None and other.usd is not None
    dollars = known_part(one) + known_part(other)
    return Usage(
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        usd=dollars if known else None,
        source=other.source,
        model=other.model or one.model,
        at_least=0.0 if known else dollars,
    )


def counted(usage: Usage, reserved: Amount) -> Amount:
    """The amount that an ended attempt counts against limits.

    An unknown cost counts with its reservation, and no less than its known part: the best guess there is, and one that
    does not let unpriced attempts go round a limit. Reported tokens are known even without a price.
    """
    usd, tokens = known_cost(usage), usage.tokens_in + usage.tokens_out
    if usd is None:
        return Amount(max(reserved.usd or 0.0, known_part(usage)), tokens or reserved.tokens or 0)
    return Amount(usd, tokens)


def tokens_of(text: str | bytes) -> int:
    """Tokens that a text has at most, or nearly: English has one for four bytes, code and other languages for three."""
    return tokens_of_bytes(len(text.encode() if isinstance(text, str) else text))


def tokens_of_bytes(count: int) -> int:
    """The same of a text of so many bytes."""
    return count // 3 + 1


def money(usd: float) -> str:
    """`$1.12`, `$0.0042` for less than a dollar's hundredth, never `$0.00` for something."""
    if 0 < usd < 0.0001:
        return "less than $0.0001"
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def at_least_money(usd: float) -> str:
    """The known part of a cost of which not all is known."""
    return f"at least {money(usd)}" if usd == 0 or usd >= 0.0001 else "more than $0.00"


def shown(value: float, unit: str) -> str:
    """An amount in its unit."""
    return money(value) if unit == "usd" else f"{value:,.0f} token{'' if value == 1 else 's'}"


def day_of(at: float, tz: tzinfo | None = None) -> str:
    """`2026-11-15`"""
    return datetime.fromtimestamp(at, tz).strftime("%Y-%m-%d")


def month_of(at: float, tz: tzinfo | None = None) -> str:
    """`2026-11`"""
    return datetime.fromtimestamp(at, tz).strftime("%Y-%m")


def day_start(now: float, tz: tzinfo | None = None) -> float:
    """The first moment of the day.

    The wall clock is set to midnight and asked which moment that was: on days of 23 or 25 hours, counting hours back
    would miss it. Where midnight was skipped, this is the moment of the skip; where it came twice, the first of them.
    """
    local = datetime.fromtimestamp(now, tz)
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()


def month_start(now: float, tz: tzinfo | None = None) -> float:
    """The first moment of the month."""
    local = datetime.fromtimestamp(now, tz)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()
