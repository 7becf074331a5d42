"""The history in the journal's file: a record of each stopped execution, written in the commit that stops it.

A record follows from the execution's events. Triggers note every execution that stops, so that the work of an older
release, which knows nothing of records, is noticed: what is noted and not recorded is built on the next use. A record
whose execution goes on or is removed loses its number there, and with it its place in every answer.

`journal/history_sums.py` makes sums and answers of the records.
"""

from __future__ import annotations

import sqlite3

import msgspec

from windlass.core.history import RECORD_FORMAT, ExecutionRecord, record_of
from windlass.errors import Damaged
from windlass.journal.database import SqlConnection, has_table, transaction
from windlass.journal.rows import read_one

__all__ = [
    "HISTORY_TRIGGERS",
    "begin_anew",
    "build_due",
    "ensure_history",
    "forget_record",
    "is_recorded",
    "read_record",
    "write_record",
]

_STOPPED = "NOT IN ('pending', 'running')"
FORGET = "UPDATE history_records SET execution = NULL WHERE execution ="
HISTORY_TRIGGERS = (
    f"CREATE TRIGGER history_came AFTER INSERT ON executions WHEN new.status {_STOPPED} "
    "BEGIN INSERT OR REPLACE INTO history_due VALUES (new.key, NULL); END",
    f"CREATE TRIGGER history_stopped AFTER UPDATE OF status ON executions WHEN new.status {_STOPPED} AND NOT EXISTS "
    "(SELECT 1 FROM history_records WHERE execution = new.key AND updated = new.updated_at) "
    "BEGIN INSERT OR REPLACE INTO history_due VALUES (new.key, NULL); END",
    f"CREATE TRIGGER history_went_on AFTER UPDATE OF status ON executions "
    f"WHEN old.status {_STOPPED} AND NOT new.status {_STOPPED} "
    f"BEGIN {FORGET} new.key; DELETE FROM history_due WHERE execution = new.key; END",
    "CREATE TRIGGER history_removed AFTER DELETE ON executions "
    f"BEGIN {FORGET} old.key; DELETE FROM history_due WHERE execution = old.key; END",
)
"""Triggers, so that they hold for the writes of an older release as well."""

_KIND = "plan TEXT NOT NULL, step TEXT NOT NULL, tool TEXT NOT NULL, runtime TEXT NOT NULL, model TEXT NOT NULL"
_FIGURES = (
    "runs, items, attempts, queued, waited, person, worked, usd, unknown, tokens_in, tokens_out, cpu, measured, "
    "changed, recorded, idle"
)
_TABLES = (
    "CREATE TABLE history_records (number INTEGER PRIMARY KEY, execution INTEGER, plan TEXT NOT NULL, "
    "ended REAL NOT NULL, updated REAL NOT NULL, record BLOB NOT NULL)",
    "CREATE UNIQUE INDEX history_by_execution ON history_records (execution) WHERE execution IS NOT NULL",
    "CREATE INDEX history_by_plan ON history_records (plan, ended)",
    "CREATE INDEX history_gone ON history_records (number) WHERE execution IS NULL",
    "CREATE TABLE history_due (execution INTEGER PRIMARY KEY, damage TEXT)",
    f"CREATE TABLE history_kinds (kind INTEGER PRIMARY KEY, {_KIND}, role TEXT NOT NULL)",
    "CREATE TABLE history_sums (span INTEGER NOT NULL, kind INTEGER NOT NULL, status TEXT NOT NULL, "
    f"category TEXT NOT NULL, {_FIGURES}, times BLOB NOT NULL, peaks BLOB NOT NULL, "
    "PRIMARY KEY (span, kind, status, category)) WITHOUT ROWID",
    "CREATE TABLE history_format (format INTEGER NOT NULL, summed INTEGER NOT NULL)",
    *HISTORY_TRIGGERS,
)
_EMPTIED = ("history_records", "history_due", "history_kinds", "history_sums", "history_format")
_FILL = f"INSERT INTO history_due SELECT key, NULL FROM executions WHERE status {_STOPPED}"
_INSERT = (
    "INSERT INTO history_records (execution, plan, ended, updated, record) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (execution) WHERE execution IS NOT NULL DO NOTHING"
)
_IS_DUE = (
    "INSERT INTO history_due (execution, damage) VALUES (?, ?) "
    "ON CONFLICT (execution) DO UPDATE SET damage = excluded.damage"
)
_DROP = (
    *(f"DROP TRIGGER IF EXISTS {sql.split()[2]}" for sql in HISTORY_TRIGGERS),
    *(f"DROP TABLE IF EXISTS {table}" for table in _EMPTIED),
)

LOOKED_AT_AFTER = 128
"""Every so many records, and after each of as many steps, a writer looks at how much is not in the sums yet."""
SUMMED_AFTER = 512
"""So many records are added to the sums together: few are read in no time, and to sum up holds up the loop."""
BYTES_SUMMED_AFTER = 600_000
"""The same by the size of the records; of a step, it is about a hundred."""
_TO_SUM = (
    "SELECT count(*), coalesce(sum(length(record)), 0) FROM history_records "
    "WHERE number > (SELECT summed FROM history_format)"
)

MOST_FRESH = 1000
LARGEST_FRESH = 20_000
"""Bytes of a record that is kept at hand."""
_fresh: dict[bytes, ExecutionRecord] = {}
"""Records that this process wrote, by their encoded form, until they are in the sums: to decode them would take longer
than to add them up. Whatever becomes of a commit, the same bytes mean the same record."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExecutionRecord).decode


def ensure_history(db: sqlite3.Connection) -> None:
    """Make the tables in a file that has none, and note every stopped execution, to be built on the next use.

    Records that another release made in another form are made anew.
    """
    if _format(db) == RECORD_FORMAT:
        return
    with transaction(db):
        found = _format(db)
        if found == RECORD_FORMAT:  # another process was faster
            return
        for statement in (*_DROP, *_TABLES):
            db.execute(statement)
        begin_anew(db)


def _format(db: sqlite3.Connection) -> int | None:
    if not has_table(db, "history_format"):
        return None
    row = db.execute("SELECT format FROM history_format").fetchone()
    return int(row[0]) if row is not None else 0


def begin_anew(db: SqlConnection) -> None:
    """Forget everything, and note every stopped execution."""
    for table in _EMPTIED:
        db.execute(f"DELETE FROM {table}")
    db.execute(_FILL)
    db.execute("INSERT INTO history_format VALUES (?, 0)", (RECORD_FORMAT,))


def write_record(db: SqlConnection, key: int, record: ExecutionRecord, updated: float = 0.0) -> bool | None:
    """In the transaction of the event that stopped the execution; it replaces the record of an earlier stop.

    It is written before the execution's line, which is then `updated` at that time: the trigger sees that it has its
    record. Returns True if it is time to add records to the sums, and None if this one cannot be stored.
    """
    try:
        body = _encode(record)
    except (OverflowError, ValueError) as error:  # no figure may keep an execution from stopping
        db.execute(f"{FORGET} ?", (key,))
        db.execute(_IS_DUE, (key, f"its record cannot be stored: {error}"))
        return None
    row = (key, record.plan, record.ended, updated, body)
    inserted = db.execute(_INSERT, row)
    if inserted.rowcount == 0:  # one that was stopped before, and is not running since
        db.execute(f"{FORGET} ?", (key,))
        inserted = db.execute(_INSERT, row)
    if len(body) <= LARGEST_FRESH:
        if len(_fresh) >= MOST_FRESH:  # another process adds them to the sums
            _fresh.clear()
        _fresh[body] = record
    number = inserted.lastrowid or 0
    looks = number % LOOKED_AT_AFTER == 0 or len(record.steps) >= LOOKED_AT_AFTER
    return looks and _is_time_to_sum(db)


def read_record(body: bytes) -> ExecutionRecord:
    """The record with that encoded form."""
    return _fresh.get(body) or _decode(body)


def forget_record(body: bytes) -> None:
    """Keep a record no longer at hand."""
    _fresh.pop(body, None)


def _is_time_to_sum(db: SqlConnection) -> bool:
    count, size = db.execute(_TO_SUM).fetchone()
    return bool(count >= SUMMED_AFTER or size >= BYTES_SUMMED_AFTER)


def is_recorded(db: SqlConnection, key: int) -> None:
    """Take note that an execution has its record."""
    db.execute("DELETE FROM history_due WHERE execution = ?", (key,))


# -- building records -----------------------------------------------------------------------------


def build_due(db: SqlConnection, most: int) -> int:
    """Build the newest records that are due, and return how many executions that were. One that is damaged is noted."""
    sql = (
        "SELECT d.execution, x.id, x.updated_at FROM history_due d JOIN executions x ON x.key = d.execution "
        "WHERE d.damage IS NULL ORDER BY d.execution DESC LIMIT ?"
    )
    found = db.execute(sql, (most,)).fetchall()
    for key, name, updated in found:
        try:
            if write_record(db, key, _built(db, name), updated) is not None:
                is_recorded(db, key)
        except Damaged as damage:
            db.execute(f"{FORGET} ?", (key,))
            db.execute("UPDATE history_due SET damage = ? WHERE execution = ?", (damage.reason, key))
    return len(found)


def _built(db: SqlConnection, execution: str) -> ExecutionRecord:
    from windlass.core.record import folded  # only where there is something to build

    return record_of(folded(execution, [entry.event for entry in read_one(db, execution, 0, 0)]))
