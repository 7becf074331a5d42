"""What may be spent, what was, and what is left, as `engine_budget` says it: the figures of `windlass budget`."""

from __future__ import annotations

from windlass.engine.engine import Engine
from windlass.engine.spending import By, as_json, limits_of, look_up, row_json
from windlass.server.mcp.models import BudgetView, SpendingView

__all__ = ["budget_view"]

MOST_ROWS = 50


async def budget_view(engine: Engine, by: By) -> BudgetView:
    page = await look_up(engine.ledger, engine.clock.now(), limits_of(engine.settings.budget), by)
    told = as_json(page)
    rows = [SpendingView(heading=row.heading, **row_json(row)) for row in page.rows[:MOST_ROWS]]
    return BudgetView.model_validate({**told, "by": by.value, "spending": rows})
