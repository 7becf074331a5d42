"""Appends to a journal in a database: what one brings, and how it is taken into a transaction.

The text is the same for every database. A journal says how it inserts events, when it commits and in which thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from windlass.core.history import ExecutionRecord
from windlass.core.questions import QuestionChanges
from windlass.errors import Conflict, JournalError
from windlass.journal.database import SqlConnection
from windlass.journal.history import is_recorded, write_record
from windlass.journal.questions import update_index
from windlass.journal.rows import HEAD_COLUMNS, EventRow, begin_checksum, to_rows
from windlass.ports import Head, Note

__all__ = ["Known", "Outcomes", "PendingAppend", "forget_ended", "resolve", "stale", "sum_up_all", "take_append"]

Reached = tuple[int, int, int]
"""Key and last sequence of an execution, and the beginning of its events' checksums."""
Known = dict[str, Reached]
"""The same of executions by their ids."""
InsertHead = Callable[[SqlConnection, str, Head], int | None]
"""Inserts the line of a new execution and returns its key; None where there is one already."""
Outcomes = list[tuple["asyncio.Future[None] | None", Exception | None]]
"""Waiters for a commit, each with the error that kept its part from being written."""

_LAST = "SELECT key, (SELECT max(seq) FROM events WHERE execution = key) FROM executions WHERE id = ?"
_INSERT = (
    f"INSERT INTO executions ({HEAD_COLUMNS}) VALUES ({', '.join('?' * len(Head._fields))}) ON CONFLICT (id) DO NOTHING"
)
_UPDATE = "UPDATE executions SET status = ?, updated_at = ?, driver = ?, detail = ?, expires_at = ? WHERE key = ?"


class PendingAppend(msgspec.Struct):
    """The arguments of `Journal.append`, with the events encoded."""

    execution: str
    after: int
    bodies: Sequence[bytes | bytearray]
    head: Head | None
    consumed: Sequence[int]
    questions: QuestionChanges | None
    record: ExecutionRecord | None
    notes: Sequence[Note] = ()
    done: asyncio.Future[None] | None = None
    summing: bool = False
    """It is time to bring the sums of the history up to date."""
    doubtful: bool = False
    """It was sent, and the session broke before an answer: it may be written."""


def take_append(
    db: SqlConnection,
    request: PendingAppend,
    rows: list[EventRow],
    known: Reached | None,
    insert: InsertHead,
) -> Reached:
    """Check that an append follows what is there, and add its rows to those that will be written.

    Everything else that it brings is written. `known` is where the execution stands, if that is known; it is returned
    as it is afterwards.
    """
    after, bodies = request.after, request.bodies
    key, seq, begun = known or _look_up(db, request, insert)
    if seq < after and known is not None:  # another process appended since, and this append knows of it
        key, seq, begun = _look_up(db, request, insert)
    if seq != after:
        raise stale(request.execution, request.after)
    rows += to_rows(key, begun, seq, bodies)
    head = request.head
    if request.record is not None:
        time_to_sum = write_record(db, key, request.record, head.updated_at if head is not None else 0.0)
        if after == 0 and time_to_sum is not None:
            is_recorded(db, key)
        request.summing = bool(time_to_sum)
    if head is not None and after > 0:
        db.execute(_UPDATE, (head.status, head.updated_at, head.driver, head.detail, head.expires_at, key))
    if request.questions is not None:
        update_index(db, key, request.questions)
    if request.notes:
        from windlass.journal.outbox import add_notes  # only homes with rules for notifications get here

        add_notes(db, request.notes)
    if request.consumed:
        db.executemany("DELETE FROM inbox WHERE id = ?", [(message,) for message in request.consumed])
    return key, seq + len(bodies), begun


def _look_up(db: SqlConnection, request: PendingAppend, insert: InsertHead) -> Reached:
    """Look up where an execution stands; one that begins gets its line."""
    begun = begin_checksum(request.execution)
    if request.after == 0:
        if request.head is None:
            raise JournalError("the first append of an execution brings its head")
        key = insert(db, _INSERT, request.head)
        if key is None:
            raise stale(request.execution, request.after)
        return key, 0, begun
    row = db.execute(_LAST, (request.execution,)).fetchone()
    if row is None or row[1] is None:  # a line without its events is damaged: nothing follows it
        raise stale(request.execution, request.after)
    return row[0], row[1], begun


def forget_ended(known: Known, batch: Iterable[object]) -> None:
    """Keep nothing in memory about executions that no longer run."""
    for request in batch:
        if isinstance(request, PendingAppend) and request.head is not None and request.head.status != "running":
            known.pop(request.execution, None)


def stale(execution: str, after: int) -> Conflict:
    """The error for an append that would not follow the execution's last event."""
    if not after:
        return Conflict(f"there is an execution {execution} already; nothing was written")
    return Conflict(f"another process took over execution {execution}; nothing was written")


def sum_up_all(db: SqlConnection) -> None:
    """Bring the sums of the history up to date."""
    from windlass.journal.history_sums import sum_up

    while sum_up(db):
        continue


def resolve(outcomes: Outcomes) -> None:
    """Give those who wait for a commit its outcome."""
    for done, error in outcomes:
        if done is None or done.done():
            continue  # whoever waited was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
