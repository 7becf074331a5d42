"""Appends of events alone to one execution, in one statement that is its own transaction: one round trip.

Nearly all appends of a sequence of steps are such. The statement publishes the last position as a lock before it takes
one (`PostgresJournal._last_readable`), looks that the execution is there and stands where the events begin, and inserts
them: all of them or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import errors

from windlass.journal.append import Known, PendingAppend, stale
from windlass.journal.postgres_database import PostgresConnection, PostgresDatabase
from windlass.journal.postgres_schema import LOCKS, SEQUENCE
from windlass.journal.rows import EventRow, to_rows

__all__ = ["ANNOUNCE", "MOST", "rows_alone", "statement", "write_events_alone"]

# Before a position is taken, the last one before it is published as a lock that the commit releases.
ANNOUNCE = f"pg_advisory_xact_lock_shared({LOCKS}, (pg_sequence_last_value({SEQUENCE}) & 1073741823)::int)"
MOST = 16
"""Events of one statement: each number of them is a statement of its own, which the server keeps prepared."""


@lru_cache(MOST)
def statement(count: int) -> bytes:
    """Insert so many events. A row of the join needs the lock, so it is taken before the number that a row is given."""
    new = ", ".join(["(%b::bigint, %b::bytea, %b::bigint)"] * count)
    return (
        f"WITH present AS MATERIALIZED (SELECT key, {ANNOUNCE} FROM executions WHERE key = %b::bigint FOR KEY SHARE) "
        "INSERT INTO events (execution, seq, body, checksum) SELECT present.key, new.seq, new.body, new.checksum "
        f"FROM present CROSS JOIN (VALUES {new}) AS new(seq, body, checksum) "
        "WHERE EXISTS (SELECT FROM events WHERE execution = present.key AND seq = %b::bigint)"
    ).encode()


def write_events_alone(database: PostgresDatabase, batch: Sequence[object], known: Known) -> bool:
    """Write the batch; False if it is more than events that are appended to one execution. Raises `Conflict`."""
    rows = rows_alone(batch, known)
    if not 0 < len(rows) <= MOST:
        return False
    (key, first, *_), count = rows[0], len(rows)
    values: list[Any] = [key]
    for _, seq, body, checksum in rows:
        values += (seq, body, checksum)
    request: PendingAppend = batch[0]  # type: ignore[assignment]
    execution, sent = request.execution, request.doubtful
    try:
        written = database.state(statement(count), [*values, first - 1], lambda db: _are_there(db, rows), sent=sent)
    except errors.UniqueViolation as error:
        if (error.diag.constraint_name or "").endswith("_pkey"):
            raise
        raise stale(execution, request.after) from error
    if written != count:
        raise stale(execution, request.after)
    known[execution] = (key, rows[-1][1], known[execution][2])
    return True


def rows_alone(batch: Sequence[object], known: Known) -> list[EventRow]:
    """The rows of the batch; none if there is something else in it."""
    rows: list[EventRow] = []
    execution = ""
    for one in batch:
        if not isinstance(one, PendingAppend) or (execution and one.execution != execution):
            return []
        execution = one.execution
        if one.head is not None or one.record is not None or one.questions is not None or one.notes or one.consumed:
            return []
        if execution not in known or (rows and rows[-1][1] != one.after):
            return []
        key, _, begun = known[execution]
        rows += to_rows(key, begun, one.after, one.bodies)
    return rows


def _are_there(db: PostgresConnection, rows: Sequence[EventRow]) -> bool:
    """Tell whether these very events are in the journal: the session broke, and nobody knows if they were committed."""
    key, seq, body, _ = rows[-1]
    sql = "SELECT body = %s FROM events WHERE execution = %s AND seq = %s"
    found = db.session.execute(sql, (body, key, seq)).fetchone()
    return found is not None and bool(found[0])
