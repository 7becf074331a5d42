"""The history in the journal's file: a record of each stopped execution, written in the commit that stops it.

A record follows from the execution's events. Triggers note every execution that stops, so that the work of an older
release, which knows nothing of records, is noticed: what is noted and not recorded is built on the next use. A record
whose execution goes on or is removed loses its number there, and with it its place in every answer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import msgspec

from windlass.core.history import RECORD_FORMAT, ExecutionRecord, StepRecord
from windlass.journal.database import transaction

__all__ = ["HISTORY_TRIGGERS", "SqliteHistory", "ensure_history", "matches", "write_record"]

T = TypeVar("T")

_STOPPED = "NOT IN ('pending', 'running')"
_FORGET = "UPDATE history_records SET execution = NULL WHERE execution ="
HISTORY_TRIGGERS = (
    f"CREATE TRIGGER history_came AFTER INSERT ON executions WHEN new.status {_STOPPED} "
    "BEGIN INSERT OR REPLACE INTO history_due VALUES (new.key, NULL); END",
    f"CREATE TRIGGER history_stopped AFTER UPDATE OF status ON executions WHEN new.status {_STOPPED} "
    "BEGIN INSERT OR REPLACE INTO history_due VALUES (new.key, NULL); END",
    f"CREATE TRIGGER history_went_on AFTER UPDATE OF status ON executions "
    f"WHEN old.status {_STOPPED} AND NOT new.status {_STOPPED} "
    f"BEGIN {_FORGET} new.key; DELETE FROM history_due WHERE execution = new.key; END",
    "CREATE TRIGGER history_removed AFTER DELETE ON executions "
    f"BEGIN {_FORGET} old.key; DELETE FROM history_due WHERE execution = old.key; END",
)
"""Triggers, so that they hold for the writes of an older release as well."""

_TABLES = (
    "CREATE TABLE history_records (number INTEGER PRIMARY KEY, execution INTEGER, plan TEXT NOT NULL, "
    "ended REAL NOT NULL, rolled INTEGER NOT NULL DEFAULT 0, record BLOB NOT NULL)",
    "CREATE UNIQUE INDEX history_by_execution ON history_records (execution) WHERE execution IS NOT NULL",
    "CREATE INDEX history_by_plan ON history_records (plan, ended)",
    "CREATE INDEX history_by_end ON history_records (ended)",
    "CREATE TABLE history_due (execution INTEGER PRIMARY KEY, damage TEXT)",
    "CREATE TABLE history_format (format INTEGER NOT NULL)",
    *HISTORY_TRIGGERS,
)
_FILL = f"INSERT INTO history_due SELECT key, NULL FROM executions WHERE status {_STOPPED}"
_INSERT = "INSERT INTO history_records (execution, plan, ended, record) VALUES (?, ?, ?, ?)"

MOST_READ = 500
"""Records that are read at most to find the last steps of a kind."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExecutionRecord).decode


def ensure_history(db: sqlite3.Connection) -> None:
    """Make the tables in a file that has none, and note every stopped execution, to be built on the next use."""
    if _is_there(db):
        return
    with transaction(db):
        if not _is_there(db):  # another process may have been faster
            for statement in _TABLES:
                db.execute(statement)
            db.execute("INSERT INTO history_format VALUES (?)", (RECORD_FORMAT,))
            db.execute(_FILL)


def write_record(db: sqlite3.Connection, key: int, record: ExecutionRecord) -> None:
    """In the transaction of the event that stopped the execution; it replaces the record of an earlier stop."""
    db.execute(f"{_FORGET} ?", (key,))
    db.execute(_INSERT, (key, record.plan, record.ended, _encode(record)))
    db.execute("DELETE FROM history_due WHERE execution = ?", (key,))


class SqliteHistory:
    """Reads the records through the journal's own connection."""

    def __init__(self, reading: Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]) -> None:
        self._reading = reading

    async def records(self, plan: str = "", limit: int = 60) -> list[ExecutionRecord]:
        found: list[ExecutionRecord] = await self._reading(lambda db: list(_newest(db, plan or None, limit)))
        return found

    async def observations(
        self,
        *,
        plan: str | None = None,
        step: str | None = None,
        tool: str | None = None,
        runtime: str | None = None,
        model: str | None = None,
        limit: int = 60,
    ) -> list[StepRecord]:
        def fetch(db: sqlite3.Connection) -> list[StepRecord]:
            found: list[StepRecord] = []
            for record in _newest(db, plan, MOST_READ):
                found += [one for one in record.steps if matches(one, step, tool, runtime, model)]
                if len(found) >= limit:
                    break
            return found[:limit]

        steps: list[StepRecord] = await self._reading(fetch)
        return steps


def matches(record: StepRecord, step: str | None, tool: str | None, runtime: str | None, model: str | None) -> bool:
    """True for a step that ran to its end and is the one that is asked for."""
    if record.ended is None or not record.attempts or record.status not in ("completed", "failed"):
        return False
    given = ((step, record.step), (tool, record.tool), (runtime, record.runtime), (model, record.model))
    return all(wanted is None or wanted == found for wanted, found in given)


def _newest(db: sqlite3.Connection, plan: str | None, limit: int) -> Iterator[ExecutionRecord]:
    where, parameters = ("AND plan = ? ", [plan]) if plan is not None else ("", [])
    sql = f"SELECT record FROM history_records WHERE execution IS NOT NULL {where}ORDER BY ended DESC LIMIT ?"
    for (body,) in db.execute(sql, (*parameters, limit)):
        yield _decode(body)


def _is_there(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'history_records'").fetchone() is not None
