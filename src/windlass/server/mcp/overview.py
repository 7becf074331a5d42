"""The engine as a whole: its health, its executions, and its money as `windlass budget` shows it."""

from __future__ import annotations

from windlass.clock import iso
from windlass.engine.damage import DAMAGED
from windlass.engine.engine import Engine
from windlass.engine.gates.view import open_breakers, told_line
from windlass.engine.spending import By, as_json, limits_of, look_up, row_json
from windlass.errors import JournalError
from windlass.ports import Head
from windlass.server.mcp.models import BudgetView, HeadView, HealthView, OverviewView, SpendingView
from windlass.version import __version__

__all__ = ["budget_view", "overview"]

MOST = 50
"""Executions that are listed: those that are not finished, then the newest."""


async def overview(engine: Engine) -> OverviewView:
    """The answer of `engine_status` without an id."""
    try:
        counts, heads, journal = await engine.counts(), await _heads(engine), "ok"
    except JournalError as error:
        counts, heads, journal = {}, [], error.message
    async for _state in engine.states(heads):
        """Read for damage alone."""
    intake = engine.performer.intake.told()
    health = HealthView(
        ok=journal == "ok",
        journal=journal,
        version=__version__,
        home=str(engine.home),
        executions={status: count for status, count in counts.items() if count},
        attempts=intake["under_way"],
        queued=intake["waiting"],
        held_back=intake["held_back"],
        damaged=[damage.message for damage in engine.damaged.values()],
        breakers=[told_line(name, told) for name, told in open_breakers(engine.performer.gates).items()],
    )
    listed = [
        HeadView(
            execution=head.id,
            plan=head.name,
            status=DAMAGED if head.id in engine.damaged else head.status,
            reason=engine.damaged[head.id].reason if head.id in engine.damaged else head.detail or None,
            created_at=iso(head.created_at),
            driven=engine.driven(head),
        )
        for head in heads
    ]
    return OverviewView(health=health, executions=listed, next=["engine_status(execution=ID)"] if listed else [])


async def _heads(engine: Engine) -> list[Head]:
    unfinished = await engine.executions(["running", "paused", "pending"], MOST)
    newest = await engine.executions((), MOST)
    return list({head.id: head for head in (*unfinished, *newest)}.values())[:MOST]


MOST_ROWS = 50


async def budget_view(engine: Engine, by: By) -> BudgetView:
    page = await look_up(engine.ledger, engine.clock.now(), limits_of(engine.settings.budget), by)
    told = as_json(page)
    rows = [SpendingView(heading=row.heading, **row_json(row)) for row in page.rows[:MOST_ROWS]]
    return BudgetView.model_validate({**told, "by": by.value, "spending": rows})
