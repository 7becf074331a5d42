"""Limits, spending and the rest of the budget (E1), for every surface the same. Reads the ledger, never changes it.

`look_up` gathers, `as_json` shows it to programs. An unknown cost is named beside the known ones; the rest is the
amount that the ledger would still admit, where unknown costs count with their reservations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from windlass.core.budget import Amount, Scope, ScopeName, Standing, day_of, day_start, limit_of, month_of, month_start
from windlass.core.state import State, StepState
from windlass.ports import Spending
from windlass.settings import BudgetSettings

__all__ = [
    "RECENT_DAYS",
    "By",
    "ChargeReader",
    "Page",
    "Period",
    "as_json",
    "limits_of",
    "look_up",
    "row_json",
    "scopes_of",
]

RECENT_DAYS, RECENT_MONTHS = 7, 12


class By(StrEnum):
    """The headings of a ledger."""

    DAY = "day"
    MONTH = "month"
    MODEL = "model"
    RUNTIME = "runtime"
    ROLE = "role"
    EXECUTION = "execution"


class ChargeReader(Protocol):
    """The part of a ledger that this needs."""

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]: ...

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]: ...


class Period(NamedTuple):
    """The day or the month."""

    name: str
    """`2026-11-15` or `2026-11`."""
    known: Spending
    standing: Standing

    @property
    def left(self) -> Amount:
        """The amount that the ledger would still admit; None where there is no limit."""
        scope, spent, reserved = self.standing
        limit = scope.limit
        usd = None if limit.usd is None else limit.usd - (spent.usd or 0.0) - (reserved.usd or 0.0)
        used = (spent.tokens or 0) + (reserved.tokens or 0)
        return Amount(usd, None if limit.tokens is None else limit.tokens - used)

    @property
    def assumed(self) -> float:
        """Dollars that the attempts of unknown cost count with."""
        return max(0.0, (self.standing.spent.usd or 0.0) - self.known.usd)


class Page(NamedTuple):
    """Everything that is shown."""

    day: Period
    month: Period
    limits: Mapping[ScopeName, Amount]
    by: By
    rows: list[Spending]


def limits_of(settings: BudgetSettings) -> dict[ScopeName, Amount]:
    return {
        "step": Amount(settings.step.usd, settings.step.tokens),
        "execution": Amount(settings.execution.usd, settings.execution.tokens),
        "day": Amount(settings.day.usd, settings.day.tokens),
        "month": Amount(settings.month.usd, settings.month.tokens),
    }


def scopes_of(state: State, step: StepState, limits: BudgetSettings, now: float) -> list[Scope]:
    """The limits that hold for a step; a person's later answer comes before the plan's and the settings'."""
    whole = step.parent or step  # the items of a step share its limit
    of_step = limit_of(state.allowed.get(f"step:{whole.id}"), step.spec.budget or limits.step)
    of_execution = limit_of(state.allowed.get("execution"), state.plan.budget or limits.execution)
    scopes = [
        Scope("step", of_step, execution=state.id, step=whole.id),
        Scope("execution", of_execution, execution=state.id),
        Scope("day", limit_of(state.allowed.get("day"), limits.day), since=day_start(now)),
        Scope("month", limit_of(state.allowed.get("month"), limits.month), since=month_start(now)),
    ]
    return [scope for scope in scopes if scope.limit]


async def look_up(
    ledger: ChargeReader, now: float, limits: Mapping[ScopeName, Amount], by: By, tz: tzinfo | None = None
) -> Page:
    day, month = day_start(now, tz), month_start(now, tz)
    stands = await ledger.standing([Scope("day", limits["day"], day), Scope("month", limits["month"], month)])
    today, this_month = day_of(now, tz), month_of(now, tz)
    periods = (
        Period(today, _one(await ledger.spent("day", day), today), stands[0]),
        Period(this_month, _one(await ledger.spent("month", month), this_month), stands[1]),
    )
    match by:
        case By.DAY:
            noon_back_then = day + 43_200 - (RECENT_DAYS - 1) * 86_400  # at noon an hour of summer time makes no odds
            rows = await ledger.spent(by, day_start(noon_back_then, tz))
        case By.MONTH:
            rows = (await ledger.spent(by))[:RECENT_MONTHS]
        case _:
            rows = await ledger.spent(by, month)
    return Page(*periods, limits, by, rows)


def _one(found: list[Spending], name: str) -> Spending:
    return next((one for one in found if one.heading == name), Spending(name, 0.0, 0, 0, 0, 0))


def as_json(page: Page) -> dict[str, Any]:
    return {
        "day": _period_json(page.day),
        "month": _period_json(page.month),
        "limits": {name: limit._asdict() for name, limit in page.limits.items()},
        "by": [{page.by.value: row.heading, **row_json(row)} for row in page.rows],
    }


def _period_json(period: Period) -> dict[str, Any]:
    limit, left = period.standing.scope.limit, period.left
    return {
        "name": period.name,
        "limit_usd": limit.usd,
        "spent_usd": _exact(period.known.usd),
        "unknown": period.known.unknown,
        "assumed_usd": _exact(period.assumed),
        "reserved_usd": _exact(period.known.reserved_usd),
        "left_usd": None if left.usd is None else max(0.0, _exact(left.usd)),
        "limit_tokens": limit.tokens,
        "tokens": period.known.tokens_in + period.known.tokens_out,
        "reserved_tokens": period.known.reserved_tokens,
        "left_tokens": None if left.tokens is None else max(0, left.tokens),
    }


def row_json(row: Spending) -> dict[str, Any]:
    return {
        "spent_usd": _exact(row.usd),
        "unknown": row.unknown,
        "reserved_usd": _exact(row.reserved_usd),
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "reserved_tokens": row.reserved_tokens,
        "attempts": row.attempts,
    }


def _exact(usd: float) -> float:
    """Round away the errors of adding up floats."""
    return round(usd, 9)
