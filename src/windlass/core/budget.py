"""Whether a reservation fits (E1). Pure: the ledgers ask `admit` inside their own transaction.

A scope is a limit and what already counts against it. What other running attempts have set aside counts like what was
spent, so that attempts in parallel cannot overrun together; but it comes free again, so such a refusal is `busy`: wait.
Spending that nobody could price counts with what was set aside for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["Amount", "Refusal", "Scope", "ScopeName", "admit"]

ScopeName = Literal["step", "execution", "day", "month"]


class Amount(NamedTuple):
    """Dollars and tokens; None is no limit, or nothing to say."""

    usd: float | None = None
    tokens: int | None = None

    def __bool__(self) -> bool:
        return self.usd is not None or self.tokens is not None


class Scope(NamedTuple):
    """One limit to hold."""

    name: ScopeName
    limit: Amount
    since: float = 0.0
    """Charges that began before this do not count (the start of the day or month)."""
    execution: str | None = None
    """Only this execution's charges count."""
    step: str | None = None
    """Only this step's charges count."""
    before_usd: float = 0.0
    """Spent before the ledger knew of it (a restored or forked execution)."""
    before_tokens: int = 0


class Refusal(NamedTuple):
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
        """There is room once others have settled: wait, and ask again."""
        return self.spent + self.wanted <= self.limit


def admit(want: Amount, scopes: Sequence[tuple[Scope, Amount, Amount]]) -> Refusal | None:
    """The first scope without room for `want`. Each comes with what was spent and what others have set aside."""
    for scope, spent, reserved in scopes:
        if scope.limit.usd is not None:
            used, held = (spent.usd or 0.0) + scope.before_usd, reserved.usd or 0.0
            if used + held + (want.usd or 0.0) > scope.limit.usd + 1e-9:
                return Refusal(scope.name, "usd", scope.limit.usd, used, held, want.usd or 0.0)
        if scope.limit.tokens is not None:
            count, kept = (spent.tokens or 0) + scope.before_tokens, reserved.tokens or 0
            if count + kept + (want.tokens or 0) > scope.limit.tokens:
                return Refusal(scope.name, "tokens", scope.limit.tokens, count, kept, want.tokens or 0)
    return None
