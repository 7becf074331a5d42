"""SqlRows of the journal's tables, and what they say: events with their checksums, heads, messages.

The checksum covers the event's bytes, its execution and its sequence, so that a changed byte and a row in the wrong
place are both noticed. It shows accidents, not intent. SqlRows that an older release has written have none.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from windlass.core.events import Event, decode
from windlass.errors import Damaged
from windlass.journal.database import EVERYTHING, SqlConnection, is_damage
from windlass.ports import Entry, Head, Message

__all__ = [
    "HEAD_COLUMNS",
    "EventRow",
    "begin_checksum",
    "checksum",
    "decode_row",
    "read_all",
    "read_one",
    "to_head",
    "to_message",
    "to_rows",
]

HEAD_COLUMNS = "id, name, status, created_at, updated_at, driver, detail, expires_at"
_END_OF_TIME = 253402300800.0
"""The year 10000, which no calendar of Python reaches."""


EventRow = tuple[int, int, bytes | bytearray, int]
"""Key of the execution, sequence, event, checksum."""


def to_rows(key: int, begun: int, after: int, bodies: Iterable[bytes | bytearray]) -> list[EventRow]:
    """Make the rows of encoded events that follow sequence `after`. `begun` is `begin_checksum` of their execution."""
    crc32 = zlib.crc32
    return [(key, seq, body, crc32(body, crc32(b"%d" % seq, begun))) for seq, body in enumerate(bodies, after + 1)]


def begin_checksum(execution: str) -> int:
    """The part of `checksum` that all events of an execution share."""
    return zlib.crc32(f"{execution} ".encode())


def checksum(execution: str, seq: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{execution} {seq}".encode()))


def decode_row(execution: str, seq: int, body: Any, stored: Any) -> Event:
    """Make an event of a row. Raises `Damaged`; a damaged row may hold values of any type."""
    if not isinstance(body, bytes):
        raise Damaged(execution, seq, "it is not stored as bytes")
    if stored is not None and stored != checksum(execution, seq, body):
        raise Damaged(execution, seq, "its checksum does not match its contents")
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        newer = "it may have been written by a newer Windlass: upgrade and try again"
        raise Damaged(execution, seq, str(error), advice=(newer,)) from error


def read_one(db: SqlConnection, execution: str, after: int, limit: int) -> list[Entry]:
    """Read one execution's entries. Raises `Damaged` with the first that is missing or cannot be read."""
    sql = (
        "SELECT events.position, events.seq, events.body, events.checksum FROM events JOIN executions "
        "ON executions.key = events.execution WHERE executions.id = ? AND events.seq > ? ORDER BY events.seq"
    )
    entries: list[Entry] = []
    due = after + 1
    try:
        for position, seq, body, stored in db.execute(f"{sql} LIMIT ?", (execution, after, limit or EVERYTHING)):
            if seq != due:
                raise Damaged(execution, due, "it is missing")
            entries.append(Entry(position, execution, seq, decode_row(execution, seq, body, stored)))
            due += 1
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise Damaged(execution, due, "a page of the database is damaged") from error
    return entries


def read_all(db: SqlConnection, after: int, limit: int, last: int = EVERYTHING) -> list[Entry]:
    """Read all entries after a position up to the `last`; one that cannot be read must not hide the others."""
    sql = (
        "SELECT events.position, executions.id, events.seq, events.body, events.checksum FROM events "
        "JOIN executions ON executions.key = events.execution WHERE events.position > ? AND events.position <= ? "
        "ORDER BY events.position LIMIT ?"
    )
    entries: list[Entry] = []
    wanted = limit or EVERYTHING
    while wanted > 0:
        found = 0
        for position, execution, seq, body, stored in db.execute(sql, (after, last, wanted)):
            found, after = found + 1, position
            with suppress(Damaged):  # reading the execution itself says so
                entries.append(Entry(position, execution, seq, decode_row(execution, seq, body, stored)))
        if found < wanted:
            break
        wanted = limit - len(entries)
    return entries


def to_head(row: tuple[Any, ...]) -> Head:
    """Make a head of a row. A damaged row may hold any number for a time, which would break every list it is in."""
    head = Head(*row)
    times = {"created_at": head.created_at, "updated_at": head.updated_at, "expires_at": head.expires_at or 0.0}
    wrong: dict[str, Any] = {
        name: 0.0 for name, at in times.items() if not (isinstance(at, float) and 0.0 <= at < _END_OF_TIME)
    }
    return head._replace(**wrong) if wrong else head


def to_message(id: int, execution: str, at: float, body: Any) -> Message | None:
    """Make a message of a row of the inbox; None where its bytes were damaged: nobody can act on it."""
    try:
        return Message(id, execution, at, msgspec.json.decode(body))
    except (msgspec.DecodeError, TypeError):
        return None
