"""The ledger on disk: what every attempt of a home has set aside and spent, in the journal's file (E1).

One row for each run of an attempt, which has its usage so far while it runs. A reservation is decided and written in
one IMMEDIATE transaction, so that no two processes can take the same room, and it is fsynced when `reserve` returns.
The file is opened on first use, for most executions never spend anything, and used in a thread of the ledger's own:
SQLite waits there for other processes.

The ledger does not know whether an attempt still runs. A reservation of a process that died counts, and others wait for
it in vain, until it is ended from outside: with `settle` for an attempt whose usage is known, with `abandon` for all
reservations of an execution (unknown spending, which counts the same but is no longer waited for), with `release` for
what was never begun. At the latest it is over with its day and month: charges count for the day they began in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any

from windlass.core.budget import (
    NOTHING,
    Amount,
    ReservationRefused,
    Scope,
    Standing,
    admit,
    counted,
    day_of,
    known_cost,
    known_part,
    month_of,
)
from windlass.errors import UsageError
from windlass.journal.database import Database, SqlConnection, SqlStore, snapshot, transaction
from windlass.journal.schema import open_database
from windlass.ports import Charge, Spending, Usage

__all__ = ["HEADINGS", "SqliteLedger", "checked_heading", "in_order", "make_charges"]

HEADINGS = ("day", "month", "model", "runtime", "role", "execution")
PATIENCE = 30.0
"""Seconds to wait for other processes that are writing."""

# Made when they are missed: a database of an older release gains them, and an older release does not mind them.
_TABLES = """
CREATE TABLE IF NOT EXISTS charges (
  key INTEGER PRIMARY KEY, execution TEXT NOT NULL, step TEXT NOT NULL, attempt INTEGER NOT NULL,
  began REAL NOT NULL, ended REAL, runtime TEXT NOT NULL, model TEXT NOT NULL, role TEXT NOT NULL,
  reserved_usd REAL, reserved_tokens INTEGER, settled INTEGER NOT NULL DEFAULT 0,
  usd REAL, tokens_in INTEGER NOT NULL DEFAULT 0, tokens_out INTEGER NOT NULL DEFAULT 0,
  cache_read INTEGER NOT NULL DEFAULT 0, cache_write INTEGER NOT NULL DEFAULT 0,
  source TEXT NOT NULL DEFAULT 'unknown',
  counts_usd REAL NOT NULL, counts_tokens INTEGER NOT NULL,
  used_usd REAL NOT NULL DEFAULT 0, used_tokens INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS charges_in_time ON charges (began, settled, counts_usd, counts_tokens);
CREATE INDEX IF NOT EXISTS charges_of_attempts ON charges (execution, step, attempt);
CREATE UNIQUE INDEX IF NOT EXISTS charges_open ON charges (execution, step, attempt) WHERE settled = 0;
"""
# `usd` is what is known, NULL where not all of it is; `counts_*` is what stands against limits (`core.budget.counted`).
# `used_*` is what an attempt that still runs has used of its reservation; where `usd` stays NULL, the known part.
# The index in time holds all that a day's sum needs. There is at most one open reservation of an attempt.
_LATER_COLUMNS = ("used_usd REAL NOT NULL DEFAULT 0", "used_tokens INTEGER NOT NULL DEFAULT 0")

_SUMS = (
    "SELECT coalesce(sum(counts_usd) FILTER (WHERE settled = 1), 0.0), "
    "coalesce(sum(counts_tokens) FILTER (WHERE settled = 1), 0), "
    "coalesce(sum(counts_usd) FILTER (WHERE settled = 0), 0.0), "
    "coalesce(sum(counts_tokens) FILTER (WHERE settled = 0), 0) "
    "FROM charges WHERE "
)
_USED = "SELECT coalesce(sum(used_usd), 0.0), coalesce(sum(used_tokens), 0) FROM charges WHERE settled = 0 AND "
_QUARTER = 900
"""Every time zone is a whole number of quarters of an hour from UTC: SQL adds them up, Python finds their day."""


class SqliteLedger:
    def __init__(self, where: Path | SqlStore, *, tz: tzinfo | None = None, patience: float = PATIENCE) -> None:
        """`where` is the journal's file, or another database in which one writes at a time."""
        self._tz = tz
        self._db: SqlStore = (
            Database(where, open_database, prepare=make_charges, faults="ledger", busy=patience)
            if isinstance(where, Path)
            else where
        )

    async def reserve(
        self,
        charge: Charge,
        at: float,
        want: Amount,
        scopes: Sequence[Scope],
        used: Amount = NOTHING,
        reported: Usage | None = None,
    ) -> ReservationRefused | None:
        """Cancelled while it waits, the reservation may stand all the same; `release` gives it up."""

        def write(db: SqlConnection) -> ReservationRefused | None:
            key, settled = _latest(db, charge)
            own = None if settled else key
            refusal = admit(want, [_standing(db, scope, own) for scope in scopes])
            if refusal is not None:
                return refusal
            told = reported or Usage()
            values = (at, charge.runtime, told.model or charge.model, charge.role, want.usd, want.tokens)
            counts = (want.usd or 0.0, want.tokens or 0, used.usd or 0.0, used.tokens or 0)
            tokens = (told.tokens_in, told.tokens_out, told.cache_read, told.cache_write, told.source)
            if own is None:
                # Also when this attempt was settled before (its execution was restored from a checkpoint, and runs
                # it again): what it spent then was spent, and keeps its row.
                db.execute(
                    "INSERT INTO charges (execution, step, attempt, began, runtime, model, role, reserved_usd, "
                    "reserved_tokens, counts_usd, counts_tokens, used_usd, used_tokens, tokens_in, tokens_out, "
                    "cache_read, cache_write, source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*charge[:3], *values, *counts, *tokens),
                )
            else:
                # It counts from now on, in the day whose limit has just admitted it.
                db.execute(
                    "UPDATE charges SET began = ?, runtime = ?, model = ?, role = ?, reserved_usd = ?, "
                    "reserved_tokens = ?, counts_usd = ?, counts_tokens = ?, used_usd = ?, used_tokens = ?, "
                    "tokens_in = ?, tokens_out = ?, cache_read = ?, cache_write = ?, source = ? WHERE key = ?",
                    (*values, *counts, *tokens, own),
                )
            return None

        return await self._db.writing(write)

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        def write(db: SqlConnection) -> None:
            key, _ = _latest(db, charge)
            if key is None:
                # Nobody set anything aside: spent is spent.
                key = db.execute(
                    "INSERT INTO charges (execution, step, attempt, began, runtime, model, role, counts_usd, "
                    "counts_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                    (*charge[:3], at, charge.runtime, charge.model, charge.role),
                ).lastrowid
            row = db.execute("SELECT reserved_usd, reserved_tokens FROM charges WHERE key = ?", (key,)).fetchone()
            db.execute(
                "UPDATE charges SET settled = 1, ended = ?, runtime = ?, model = ?, role = ?, usd = ?, tokens_in = ?, "
                "tokens_out = ?, cache_read = ?, cache_write = ?, source = ?, counts_usd = ?, counts_tokens = ?, "
                "used_usd = ?, used_tokens = 0 WHERE key = ?",
                (
                    *(at, charge.runtime, usage.model or charge.model, charge.role, known_cost(usage)),
                    *(usage.tokens_in, usage.tokens_out, usage.cache_read, usage.cache_write, usage.source),
                    *counted(usage, Amount(*row)),
                    known_part(usage),
                    key,
                ),
            )

        await self._db.writing(write)

    async def release(self, charge: Charge) -> None:
        def write(db: SqlConnection) -> None:
            sql = "DELETE FROM charges WHERE execution = ? AND step = ? AND attempt = ? AND settled = 0"
            db.execute(sql, charge[:3])

        await self._db.writing(write)

    async def abandon(self, execution: str, at: float, step: str = "") -> None:
        """Count open reservations as spent: the process of their attempts is dead. Their usage after the last report
        is not known."""

        def write(db: SqlConnection) -> None:
            sql = "UPDATE charges SET settled = 1, ended = ? WHERE execution = ? AND settled = 0"
            db.execute(f"{sql} AND step = ?" if step else sql, (at, execution, *((step,) if step else ())))

        await self._db.writing(write)

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]:
        return (await self.spent_by((by,), since))[by]

    async def spent_by(self, headings: Sequence[str], since: float = 0.0) -> dict[str, list[Spending]]:
        quarter = f"CAST(began / {_QUARTER} AS INTEGER)"
        columns = ", ".join(quarter if by in ("day", "month") else checked_heading(by) for by in headings)
        sql = (
            f"SELECT {columns}, coalesce(sum(coalesce(usd, used_usd)), 0.0), "
            "count(*) FILTER (WHERE settled = 1 AND usd IS NULL), sum(tokens_in), sum(tokens_out), count(*), "
            "coalesce(sum(counts_usd - used_usd) FILTER (WHERE settled = 0), 0.0), "
            "coalesce(sum(counts_tokens - used_tokens) FILTER (WHERE settled = 0), 0) "
            f"FROM charges WHERE began >= ? GROUP BY {columns}"
        )
        rows = await self._db.reading(lambda db: db.execute(sql, (since,)).fetchall())
        figures = len(headings)
        return {
            by: in_order(by, self._totals(by, [(row[place], row[figures:]) for row in rows]))
            for place, by in enumerate(headings)
        }

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]:
        """Sum up what counts against each scope now."""

        def read(db: SqlConnection) -> list[Standing]:
            with snapshot(db):  # an attempt that settles meanwhile is counted once
                return [_standing(db, scope, None) for scope in scopes]

        return await self._db.reading(read)

    async def close(self) -> None:
        await self._db.aclose()

    def _totals(self, by: str, rows: list[tuple[Any, Any]]) -> list[Spending]:
        found: dict[str, Spending] = {}
        for name, figures in rows:
            if by in ("day", "month"):
                name = (day_of if by == "day" else month_of)(name * _QUARTER, self._tz)
            sofar = found.get(name, Spending(name, 0.0, 0, 0, 0, 0))
            found[name] = Spending(name, *(a + b for a, b in zip(sofar[1:], figures, strict=True)))
        return list(found.values())


def make_charges(db: sqlite3.Connection) -> None:
    """Make the ledger's table where it is missing or of an older release."""
    if _complete(db):
        return
    with transaction(db):
        for statement in _TABLES.split(";"):
            db.execute(statement)
        for column in () if _complete(db) else _LATER_COLUMNS:
            db.execute(f"ALTER TABLE charges ADD COLUMN {column}")


def checked_heading(by: str) -> str:
    if by not in HEADINGS:
        raise UsageError(f"spending cannot be listed by {by!r}; there are {', '.join(HEADINGS)}")
    return by


def in_order(by: str, found: list[Spending]) -> list[Spending]:
    """Days and months newest first, the rest by what they cost, then by what they used."""
    if by in ("day", "month"):
        return sorted(found, key=lambda one: one.heading, reverse=True)
    return sorted(found, key=lambda one: (-one.usd, -(one.tokens_in + one.tokens_out), one.heading))


def _complete(db: sqlite3.Connection) -> bool:
    """The table is there, with the columns that came last."""
    return any(row[1] == "used_tokens" for row in db.execute("PRAGMA table_info(charges)"))


def _latest(db: SqlConnection, charge: Charge) -> tuple[int | None, bool]:
    """The row of an attempt's last run, and whether it is settled."""
    sql = "SELECT key, settled FROM charges WHERE execution = ? AND step = ? AND attempt = ? ORDER BY key DESC LIMIT 1"
    row = db.execute(sql, charge[:3]).fetchone()
    return (row[0], bool(row[1])) if row else (None, True)


def _standing(db: SqlConnection, scope: Scope, without: int | None) -> Standing:
    """Sum up what counts against a scope, with one row left out."""
    conditions: list[str] = ["began >= ?", "key <> ?"]
    parameters: list[Any] = [scope.since, without or 0]
    if scope.execution is not None:
        conditions.append("execution = ?")
        parameters.append(scope.execution)
    if scope.step is not None:  # itself, or an item of it: `each[3]`
        conditions.append("(step = ? OR substr(step, 1, ?) = ?)")
        parameters += [scope.step, len(scope.step) + 1, f"{scope.step}["]
    where = " AND ".join(conditions)
    spent_usd, spent_tokens, held_usd, held_tokens = db.execute(_SUMS + where, parameters).fetchone()
    if not (held_usd or held_tokens):
        return Standing(scope, Amount(spent_usd, spent_tokens), Amount(0.0, 0))
    # What a running attempt has used is spent: it does not come free. Few run at a time, so they are asked for apart.
    usd, tokens = db.execute(_USED + where, parameters).fetchone()
    return Standing(
        scope, Amount(spent_usd + usd, spent_tokens + tokens), Amount(max(0.0, held_usd - usd), held_tokens - tokens)
    )
