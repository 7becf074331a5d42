"""The seam towards money: what was set aside and what was spent, by every execution of a home (E1).

An attempt reserves before it begins and settles after it ended. Reservations of all processes stand in one place, so
that two executions cannot together pass a limit of the day. What was spent and could not be priced is kept as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from windlass.core.budget import NOTHING, Amount, ReservationRefused, Scope, Standing
from windlass.ports.runner import Usage

__all__ = ["Amount", "Charge", "Ledger", "ReservationRefused", "Scope", "Spending", "Standing"]


class Charge(NamedTuple):
    """The attempt that spends."""

    execution: str
    step: str
    attempt: int
    runtime: str = ""
    model: str = ""
    role: str = ""


class Spending(NamedTuple):
    """Spending under one heading."""

    heading: str
    """A day, month, model, runtime or role, as asked for."""
    usd: float
    """The part whose price is known."""
    unknown: int
    """Attempts whose cost nobody knows."""
    tokens_in: int
    tokens_out: int
    attempts: int
    reserved_usd: float = 0.0
    """Set aside by attempts that still run."""
    reserved_tokens: int = 0


class Ledger(Protocol):
    """Reserve → settle, atomically among all processes of a home."""

    async def reserve(
        self, charge: Charge, at: float, want: Amount, scopes: Sequence[Scope], used: Amount = NOTHING
    ) -> ReservationRefused | None:
        """Set `want` aside for an attempt, or say which scope has no room. Asked again, it replaces the earlier one.

        What `charge` itself has set aside so far does not count against it. `used` is the part of `want` that is spent
        already: it does not come free again, and nobody waits for it.
        """
        ...

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        """Replace the reservation by what was used. Called again, the last call counts."""
        ...

    async def release(self, charge: Charge) -> None:
        """Give up what an attempt has set aside and not settled: it never began, and cost nothing."""
        ...

    async def abandon(self, execution: str, at: float) -> None:
        """Its process is dead: what it has set aside and not settled counts as spent, at an unknown cost."""
        ...

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]:
        """Sum up what counts against each scope now."""
        ...

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]:
        """Totals by `day`, `month`, `model`, `runtime`, `role` or `execution`, newest or largest first."""
        ...

    async def close(self) -> None: ...
