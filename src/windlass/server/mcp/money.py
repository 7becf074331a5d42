"""What may be spent, what was, and what is left, as `engine_budget` says it. An unknown cost is never shown as 0."""

from __future__ import annotations

from typing import Literal, TypeAlias

from windlass.core.budget import Amount, Scope, ScopeName, Standing, day_of, day_start, month_of, month_start
from windlass.engine.engine import Engine
from windlass.ports import Spending
from windlass.server.mcp.models import BudgetView, LimitView, PeriodView, SpendingView
from windlass.settings import LimitSettings

__all__ = ["By", "budget_view"]

By: TypeAlias = Literal["day", "month", "model", "runtime", "role", "execution"]
RECENT = {"day": 7, "month": 12}
"""Days and months that are listed; the other headings are of this month."""
MOST_ROWS = 50


async def budget_view(engine: Engine, by: By) -> BudgetView:
    now, ledger, limits = engine.clock.now(), engine.ledger, engine.settings.budget
    day, month = day_start(now), month_start(now)
    of_day, of_month = Amount(limits.day.usd, limits.day.tokens), Amount(limits.month.usd, limits.month.tokens)
    stands = await ledger.standing([Scope("day", of_day, day), Scope("month", of_month, month)])
    days, months = await ledger.spent("day", day), await ledger.spent("month", month)
    rows = await ledger.spent(by, 0.0 if by in RECENT else month)
    every: dict[ScopeName, LimitSettings] = {
        "step": limits.step,
        "execution": limits.execution,
        "day": limits.day,
        "month": limits.month,
    }
    return BudgetView(
        day=_period(day_of(now), days, stands[0]),
        month=_period(month_of(now), months, stands[1]),
        limits={name: LimitView(usd=one.usd, tokens=one.tokens) for name, one in every.items()},
        by=by,
        spending=[_row(row) for row in rows[: RECENT.get(by, MOST_ROWS)]],
    )


def _period(name: str, found: list[Spending], standing: Standing) -> PeriodView:
    known = next((one for one in found if one.heading == name), Spending(name, 0.0, 0, 0, 0, 0))
    (scope, spent, reserved), limit = standing, standing.scope.limit
    used = (spent.usd or 0.0) + (reserved.usd or 0.0) + scope.before_usd
    tokens = (spent.tokens or 0) + (reserved.tokens or 0) + scope.before_tokens
    return PeriodView(
        name=name,
        limit=LimitView(usd=limit.usd, tokens=limit.tokens),
        spent_usd=_exact(known.usd),
        unknown=known.unknown,
        assumed_usd=_exact(max(0.0, (spent.usd or 0.0) - known.usd)),
        reserved_usd=_exact(known.reserved_usd),
        left_usd=None if limit.usd is None else _exact(max(0.0, limit.usd - used)),
        tokens=known.tokens_in + known.tokens_out,
        reserved_tokens=known.reserved_tokens,
        left_tokens=None if limit.tokens is None else max(0, limit.tokens - tokens),
    )


def _row(row: Spending) -> SpendingView:
    return SpendingView(
        heading=row.heading,
        spent_usd=_exact(row.usd),
        unknown=row.unknown,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        attempts=row.attempts,
    )


def _exact(usd: float) -> float:
    """Without what adding up floats leaves behind the ninth place."""
    return round(usd, 9)
