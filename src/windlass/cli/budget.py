"""`budget`: limits, spending and the rest (E1). Reads the ledger, never changes it.

`engine.spending` gathers the figures; here they are shown to people.
"""

from __future__ import annotations

from typing import Annotated

from windlass.cli.command import Group, Option
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, say, with_engine
from windlass.cli.text import plural
from windlass.core.budget import Amount, at_least_money, money
from windlass.engine.engine import Engine
from windlass.engine.spending import RECENT_DAYS, By, Page, Period, as_json, limits_of, look_up
from windlass.ports import Spending

__all__ = ["as_text", "register"]

MOST_ROWS = 20
"""Rows that people are shown; programs get all."""


def register(app: Group) -> None:
    app.add(budget)


def budget(
    by: Annotated[
        By, Option("--by", help="Group by day or month, or this month by execution, role, model or runtime")
    ] = By.DAY,
    json: AsJson = False,
    home: Home = None,
) -> None:
    """Show spending, reservations and limits for today and this month."""

    async def work(engine: Engine) -> int:
        limits = limits_of(engine.settings.budget)
        page = await look_up(engine.ledger, engine.clock.now(), limits, by)
        if json:
            print_json(as_json(page))
            return 0
        for line in as_text(page):
            out(line)
        if not any(limits.values()):
            say("no limits set; set them in config.toml under [budget]: day = 10, or day = {tokens = 1000000}")
        return 0

    raise CommandEnd(with_engine(work, home))


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
        lines.append(f"            attempts of unknown cost count as their reservation: {money(period.assumed)}")
    if known.reserved_usd or known.reserved_tokens:
        lines.append(f"  reserved  {money(known.reserved_usd)}, {_tokens(known.reserved_tokens)}")
    parts = []
    if limit.usd is not None and left.usd is not None:
        # A limit that was lowered, or a last attempt that cost more than it had set aside.
        over = f" (over by {money(-left.usd)})" if left.usd < -5e-10 else ""
        parts.append(f"{money(max(0.0, left.usd))} of {money(limit.usd)}{over}")
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
    return [*lines, f"… and {more} more; list all: --json"] if more > 0 else lines


def _cost(spending: Spending) -> str:
    """Show the known cost, and the number of attempts of unknown cost: unknown is never shown as nothing."""
    if not spending.unknown:
        return money(spending.usd)
    unknown = f"{plural(spending.unknown, 'attempt')} of unknown cost"
    return f"{at_least_money(spending.usd)} ({unknown})" if spending.usd else unknown


def _amount(limit: Amount) -> str:
    parts = [] if limit.usd is None else [money(limit.usd)]
    parts += [] if limit.tokens is None else [_tokens(limit.tokens)]
    return " and ".join(parts) or "no limit"


def _tokens(count: int) -> str:
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"
