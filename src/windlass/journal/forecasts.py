"""Recorded forecasts in the journal's file. They are only added; an outcome is filled in from the execution's record.

The outcome is not written by the process that made the forecast, which may die before: whoever reads the outcomes next
fills in those that have come since. The record of the execution decides, so all processes fill in the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from windlass.core.forecast.calibration import bucket_of
from windlass.core.forecast.value import Forecast
from windlass.journal.database import SqlConnection, has_table, make_missing
from windlass.ports.history import ForecastOutcome

__all__ = ["SqliteForecasts", "make_forecasts", "outcome_of"]

T = TypeVar("T")
Reading = Callable[[Callable[[SqlConnection], T]], Awaitable[T]]
Writing = Callable[[Callable[[SqlConnection], None]], Awaitable[None]]

_TABLES = (
    "CREATE TABLE IF NOT EXISTS forecasts (number INTEGER PRIMARY KEY, execution TEXT NOT NULL, "
    "plan TEXT NOT NULL, mark INTEGER, forecast BLOB NOT NULL, outcome TEXT, took REAL, usd REAL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS forecasts_marks ON forecasts (execution, mark)",
    "CREATE INDEX IF NOT EXISTS forecasts_of ON forecasts (execution, number)",
    "CREATE INDEX IF NOT EXISTS forecasts_due ON forecasts (execution) WHERE outcome IS NULL",
    "CREATE INDEX IF NOT EXISTS forecasts_by_plan ON forecasts (plan, number) WHERE mark IS NOT NULL",
)
KEPT = 20_000
"""Forecasts that are kept; the oldest go first."""
SCORED = "completed"
"""Outcome of an execution that did what was forecast. Others ended early, or waited: their time says nothing."""
WAITED = 0.5
"""Part of the time above which waits for a quota, a budget or a retry make it no measure of a forecast."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Forecast).decode


class _RecordHead(msgspec.Struct, array_like=True):
    """The fields of an `ExecutionRecord` before its steps, which are not read."""

    id: str
    plan: str
    digest: str
    status: str
    category: str
    created: float
    started: float | None
    ended: float
    took_s: float
    person_s: float
    queued_s: float
    waited_s: float
    worked_s: float
    known_usd: float
    unknown: int


_decode_head = msgspec.msgpack.Decoder(_RecordHead).decode


def make_forecasts(db: SqlConnection) -> None:
    """Make the table in a file that has none."""
    make_missing(db, _TABLES)


def outcome_of(status: str, took_s: float, waited_s: float) -> str:
    """`completed`, or why the execution is no measure of its forecasts."""
    if status != SCORED:
        return status
    return "waited" if waited_s > WAITED * took_s else SCORED


class SqliteForecasts:
    def __init__(self, reading: Reading[Any], writing: Writing) -> None:
        self._reading = reading
        self._writing = writing

    async def add(self, execution: str, plan: str, forecast: Forecast) -> None:
        body, quarter = _encode(forecast), bucket_of(forecast.done)
        # `NOT EXISTS` and the row are one transaction: of two processes at once, one has the mark.
        sql = (
            "INSERT INTO forecasts (execution, plan, mark, forecast) VALUES (:execution, :plan, "
            "CASE WHEN NOT EXISTS (SELECT 1 FROM forecasts WHERE execution = :execution AND mark = :mark) "
            "THEN :mark END, :forecast)"
        )
        row = {"execution": execution, "plan": plan, "mark": quarter, "forecast": body}

        def write(db: SqlConnection) -> None:
            make_forecasts(db)
            number = db.execute(sql, row).lastrowid or 0
            if number % 100 == 0:
                db.execute("DELETE FROM forecasts WHERE number <= ?", (number - KEPT,))

        await self._writing(write)

    async def latest(self, *executions: str) -> dict[str, Forecast]:
        sql = "SELECT forecast FROM forecasts WHERE execution = ? ORDER BY number DESC LIMIT 1"

        def fetch(db: SqlConnection) -> dict[str, Forecast]:
            if not has_table(db, "forecasts"):
                return {}
            rows = {name: db.execute(sql, (name,)).fetchone() for name in executions}
            decoded = {name: _decoded(row[0]) for name, row in rows.items() if row is not None}
            return {name: forecast for name, forecast in decoded.items() if forecast is not None}

        found: dict[str, Forecast] = await self._reading(fetch)
        return found

    async def outcomes(self, plan: str = "", limit: int = 400) -> list[ForecastOutcome]:
        await self._fill_in()
        where = "AND plan = ? " if plan else ""
        sql = (
            "SELECT execution, plan, forecast, took, usd FROM forecasts "
            f"WHERE mark IS NOT NULL AND outcome = '{SCORED}' {where}ORDER BY number DESC LIMIT ?"
        )

        def fetch(db: SqlConnection) -> list[ForecastOutcome]:
            if not has_table(db, "forecasts"):
                return []
            rows = db.execute(sql, (plan, limit) if plan else (limit,)).fetchall()
            return [
                ForecastOutcome(name, of, forecast, took, usd)
                for name, of, body, took, usd in reversed(rows)
                if (forecast := _decoded(body)) is not None
            ]

        found: list[ForecastOutcome] = await self._reading(fetch)
        return found

    async def _fill_in(self) -> None:
        sql = (
            "SELECT DISTINCT f.execution, e.key IS NULL, r.record FROM forecasts f "
            "LEFT JOIN executions e ON e.id = f.execution LEFT JOIN history_records r ON r.execution = e.key "
            "WHERE f.outcome IS NULL AND (e.key IS NULL OR "
            "(r.record IS NOT NULL AND e.status NOT IN ('pending', 'running', 'paused')))"
        )

        def fetch(db: SqlConnection) -> list[tuple[str, float | None, float | None, str]]:
            if not has_table(db, "forecasts"):
                return []
            return [
                (*(("removed", None, None) if removed else _ended(record)), execution)
                for execution, removed, record in db.execute(sql)
            ]

        found: list[tuple[Any, ...]] = await self._reading(fetch)
        if found:
            update = "UPDATE forecasts SET outcome = ?, took = ?, usd = ? WHERE execution = ? AND outcome IS NULL"

            def write(db: SqlConnection) -> None:
                db.executemany(update, found)

            await self._writing(write)


def _decoded(body: bytes) -> Forecast | None:
    """None for a damaged one: the others are worth as much without it."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return None


def _ended(record: bytes) -> tuple[str, float, float | None]:
    head = _decode_head(record)
    outcome = outcome_of(head.status, head.took_s, head.waited_s)
    return outcome, head.took_s, None if head.unknown else head.known_usd
