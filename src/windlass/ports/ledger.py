"""The seam towards money: reservations and spending of every execution of a home (E1).

An attempt reserves before it begins and settles after it ended. Reservations of all processes stand in one place, so
that two executions cannot together pass a limit of the day. Spending without a known price is kept as unknown.
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
    """The part with a known price."""
    unknown: int
    """Attempts of unknown cost."""
    tokens_in: int
    tokens_out: int
    attempts: int
    reserved_usd: float = 0.0
    """Set aside by attempts that still run."""
    reserved_tokens: int = 0


class Ledger(Protocol):
    """Reserve → settle, atomically among all processes of a home."""

    async def reserve(
        self,
        charge: Charge,
        at: float,
        want: Amount,
        scopes: Sequence[Scope],
        used: Amount = NOTHING,
        reported: Usage | None = None,
    ) -> ReservationRefused | None:
        """Reserve `want` for an attempt, or give the scope without room. Called again, it replaces the earlier one.

        The earlier reservation of `charge` does not count against it. `used` is the part of `want` that is spent:
        it does not come free again, so no attempt waits for it. `reported` is the attempt's usage so far, by its own
        report: it stays known if the process dies.
        """
        ...

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        """Replace the reservation by the usage. Called again, the last call counts."""
        ...

    async def release(self, charge: Charge) -> None:
        """Release the open reservation of an attempt that never began and cost nothing."""
        ...

    async def abandon(self, execution: str, at: float, step: str = "") -> None:
        """Count the open reservations of an execution, or of one step of it, as spent, at an unknown cost.

        The process of their attempts is dead. The usage that they reported stays known.
        """
        ...

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]:
        """Sum up the amounts that count against each scope now."""
        ...

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]:
        """Totals by `day`, `month`, `model`, `runtime`, `role` or `execution`, newest or largest first."""
        ...

    async def spent_by(self, headings: Sequence[str], since: float = 0.0) -> dict[str, list[Spending]]:
        """The same totals by each of several headings, out of one pass."""
        ...

    async def close(self) -> None: ...
