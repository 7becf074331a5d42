"""`budget`: what may be spent, what was, and what is left (E1). Reads the ledger, never changes it.

`look_up` gathers, `as_json` and `as_text` show; both show the same figures. An unknown cost is named beside the known
ones, and what is left is what the ledger would still admit: unknown costs count there with what was set aside for them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Protocol

import typer

from windlass.cli.session import AsJson, Home, Stop, print_json, say, with_engine
from windlass.cli.text import plural
from windlass.core.budget import Amount, Scope, ScopeName, Standing, day_of, day_start, month_of, month_start
from windlass.engine.engine import Engine
from windlass.ports import Spending
from windlass.settings import BudgetSettings

__all__ = ["Book", "By", "Page", "Period", "as_json", "as_text", "limits_of", "look_up", "register"]

RECENT_DAYS, RECENT_MONTHS = 7, 12
MOST_ROWS = 20
"""Rows that people are shown; programs get all."""


class By(StrEnum):
    """The headings of a ledger."""

    DAY = "day"
    MONTH = "month"
    MODEL = "model"
    RUNTIME = "runtime"
    ROLE = "role"
    EXECUTION = "execution"


class Book(Protocol):
    """What this needs of a ledger."""

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
        """What the ledger would still admit; None where there is no limit."""
        (scope, spent, reserved), limit = self.standing, self.standing.scope.limit
        usd = None if limit.usd is None else limit.usd - (spent.usd or 0.0) - (reserved.usd or 0.0) - scope.before_usd
        used = (spent.tokens or 0) + (reserved.tokens or 0) + scope.before_tokens
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


def register(app: typer.Typer) -> None:
    app.command()(budget)


def budget(
    by: Annotated[
        By, typer.Option("--by", help="List the recent days or months, or this month by one of the others")
    ] = By.DAY,
    json: AsJson = False,
    home: Home = None,
) -> None:
    """What may be spent, what was spent and set aside, and what is left, today and this month."""

    async def work(engine: Engine) -> int:
        limits = limits_of(engine.settings.budget)
        page = await look_up(engine.ledger, engine.clock.now(), limits, by)
        if json:
            print_json(as_json(page))
            return 0
        sys.stdout.write("\n".join(as_text(page)) + "\n")
        if not any(limits.values()):
            say("no limits are set; to set some, in config.toml under [budget]: day = 10, or day = {tokens = 1000000}")
        return 0

    raise Stop(with_engine(work, home))


def limits_of(settings: BudgetSettings) -> dict[ScopeName, Amount]:
    return {
        "step": Amount(settings.step.usd, settings.step.tokens),
        "execution": Amount(settings.execution.usd, settings.execution.tokens),
        "day": Amount(settings.day.usd, settings.day.tokens),
        "month": Amount(settings.month.usd, settings.month.tokens),
    }


async def look_up(
    ledger: Book, now: float, limits: Mapping[ScopeName, Amount], by: By, tz: tzinfo | None = None
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


# -- for programs ------------------------------------------------------------------------------------


def as_json(page: Page) -> dict[str, Any]:
    return {
        "day": _period_json(page.day),
        "month": _period_json(page.month),
        "limits": {name: limit._asdict() for name, limit in page.limits.items()},
        "by": [{page.by.value: row.heading, **_row_json(row)} for row in page.rows],
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


def _row_json(row: Spending) -> dict[str, Any]:
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
    """Without what adding up floats leaves behind the ninth place."""
    return round(usd, 9)


# -- for people --------------------------------------------------------------------------------------


def as_text(page: Page) -> list[str]:
    limits = page.limits
    return [
        *_period_text("today", page.day),
        *_period_text("this month", page.month),
        f"each step: {_amount(limits['step'])}; each execution: {_amount(limits['execution'])}",
        "",
        *_table(page),
    ]


def _period_text(title: str, period: Period) -> list[str]:
    known, limit, left = period.known, period.standing.scope.limit, period.left
    lines = [
        f"{title} ({period.name})",
        f"  spent     {_cost(known)}, {_tokens(known.tokens_in + known.tokens_out)}",
    ]
    if known.unknown and period.assumed:
        lines.append(f"            unknown costs count with what was set aside for them: {_money(period.assumed)}")
    if known.reserved_usd or known.reserved_tokens:
        lines.append(f"  reserved  {_money(known.reserved_usd)}, {_tokens(known.reserved_tokens)}")
    parts = []
    if limit.usd is not None and left.usd is not None:
        # A limit that was lowered, or a last attempt that cost more than it had set aside.
        over = f" (over by {_money(-left.usd)})" if left.usd < -5e-10 else ""
        parts.append(f"{_money(max(0.0, left.usd))} of {_money(limit.usd)}{over}")
    if limit.tokens is not None and left.tokens is not None:
        over = f" (over by {-left.tokens:,})" if left.tokens < 0 else ""
        parts.append(f"{max(0, left.tokens):,} of {_tokens(limit.tokens)}{over}")
    return [*lines, f"  left      {', '.join(parts) or 'no limit'}"]


def _table(page: Page) -> list[str]:
    if not page.rows:
        when = {By.DAY: f"in the last {RECENT_DAYS} days", By.MONTH: "so far"}.get(page.by, "this month")
        return [f"nothing spent {when}"]
    cells = [(page.by.value, "cost", "tokens in", "tokens out", "attempts")]
    for row in page.rows[:MOST_ROWS]:
        figures = (f"{row.tokens_in:,}", f"{row.tokens_out:,}", f"{row.attempts:,}")
        cells.append((row.heading or "(not named)", _cost(row), *figures))
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), line[1].ljust(widths[1]), *map(str.rjust, line[2:], widths[2:])])
        for line in cells
    ]
    more = len(page.rows) - MOST_ROWS
    return [*lines, f"… and {more} more; all of them: --json"] if more > 0 else lines


def _cost(spending: Spending) -> str:
    """What is known and, beside it, what is not: an unknown cost is never shown as nothing."""
    if not spending.unknown:
        return _money(spending.usd)
    unknown = f"{plural(spending.unknown, 'attempt')} of unknown cost"
    return f"{_money(spending.usd)} + {unknown}" if spending.usd else unknown


def _amount(limit: Amount) -> str:
    parts = [] if limit.usd is None else [_money(limit.usd)]
    parts += [] if limit.tokens is None else [_tokens(limit.tokens)]
    return " and ".join(parts) or "no limit"


def _money(usd: float) -> str:
    if 0 < usd < 0.0001:
        return "less than $0.0001"
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def _tokens(count: int) -> str:
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"
