"""The ledger in memory, with the same promises but the disk: for tests, simulations and homes that do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from windlass.core.budget import (
    NOTHING,
    Amount,
    Refusal,
    Scope,
    Standing,
    admit,
    counted,
    day_of,
    known_cost,
    known_part,
    month_of,
)
from windlass.journal.ledger import checked_heading, in_order
from windlass.ports import Charge, Spending, Usage

__all__ = ["MemoryLedger"]


@dataclass(slots=True)
class _Row:
    charge: Charge
    began: float
    reserved: Amount
    used: Amount = NOTHING
    """Of the reservation, while the attempt runs."""
    usage: Usage | None = None
    """None while the attempt runs."""

    @property
    def counts(self) -> Amount:
        return self.reserved if self.usage is None else counted(self.usage, self.reserved)

    @property
    def held(self) -> Amount:
        """Set aside and not used yet."""
        (usd, tokens), used = self.reserved, self.used
        return Amount((usd or 0.0) - (used.usd or 0.0), (tokens or 0) - (used.tokens or 0))


class MemoryLedger:
    def __init__(self, *, tz: tzinfo | None = None) -> None:
        self._tz = tz
        self._rows: list[_Row] = []

    async def reserve(
        self, charge: Charge, at: float, want: Amount, scopes: Sequence[Scope], used: Amount = NOTHING
    ) -> Refusal | None:
        own = self._latest(charge)
        if own is not None and own.usage is not None:
            own = None  # settled before: what it spent then stays
        refusal = admit(want, [self._standing(scope, own) for scope in scopes])
        if refusal is None:
            if own is not None:
                self._rows.remove(own)
            self._rows.append(_Row(charge, at, want, used))
        return refusal

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        row = self._latest(charge)
        if row is None:
            row = _Row(charge, at, Amount())
            self._rows.append(row)
        row.charge = charge._replace(model=usage.model or charge.model)
        row.usage = usage

    async def release(self, charge: Charge) -> None:
        self._rows = [row for row in self._rows if row.charge[:3] != charge[:3] or row.usage is not None]

    async def abandon(self, execution: str, at: float) -> None:
        """Whoever ran its attempts is dead: what they spent will never be known."""
        for row in self._rows:
            if row.charge.execution == execution and row.usage is None:
                row.usage = Usage(at_least=row.used.usd or 0.0)

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]:
        checked_heading(by)
        found: dict[str, Spending] = {}
        for row in self._rows:
            if row.began >= since:
                name = self._heading(by, row)
                sofar = found.get(name, Spending(name, 0.0, 0, 0, 0, 0))
                found[name] = _added(sofar, row)
        return in_order(by, list(found.values()))

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]:
        """What counts against each scope at this moment, to be shown."""
        return [self._standing(scope, None) for scope in scopes]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _latest(self, charge: Charge) -> _Row | None:
        """The last run of an attempt."""
        return next((row for row in reversed(self._rows) if row.charge[:3] == charge[:3]), None)

    def _standing(self, scope: Scope, without: _Row | None) -> Standing:
        rows = [
            row
            for row in self._rows
            if row is not without
            and row.began >= scope.since
            and scope.execution in (None, row.charge.execution)
            and scope.step in (None, row.charge.step, row.charge.step.partition("[")[0])
        ]
        running = [row for row in rows if row.usage is None]
        spent = [row.counts for row in rows if row.usage is not None] + [row.used for row in running]
        return Standing(scope, _sum(spent), _sum([row.held for row in running]))

    def _heading(self, by: str, row: _Row) -> str:
        if by in ("day", "month"):
            return (day_of if by == "day" else month_of)(row.began, self._tz)
        return str(getattr(row.charge, by))


def _sum(amounts: list[Amount]) -> Amount:
    return Amount(sum(amount.usd or 0.0 for amount in amounts), sum(amount.tokens or 0 for amount in amounts))


def _added(sofar: Spending, row: _Row) -> Spending:
    if row.usage is None:
        return sofar._replace(
            usd=sofar.usd + (row.used.usd or 0.0),
            attempts=sofar.attempts + 1,
            reserved_usd=sofar.reserved_usd + (row.held.usd or 0.0),
            reserved_tokens=sofar.reserved_tokens + (row.held.tokens or 0),
        )
    return sofar._replace(
        usd=sofar.usd + known_part(row.usage),
        unknown=sofar.unknown + (known_cost(row.usage) is None),
        tokens_in=sofar.tokens_in + row.usage.tokens_in,
        tokens_out=sofar.tokens_out + row.usage.tokens_out,
        attempts=sofar.attempts + 1,
    )
