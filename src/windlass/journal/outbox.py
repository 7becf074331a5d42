"""The outbox: notifications in the journal's file, recorded with the events that they are about (I8).

    waiting → claimed → sent | unknown | failed, or waiting again      waiting → stale | moot

A note is claimed by one process before it is sent, in one transaction. The claim of a process that died is taken over:
whether its message has left is for the message's own record to say (`tools.message.once`), not for this table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.journal.database import Database, SqlConnection, SqlStore, has_table, make_missing
from windlass.journal.schema import open_database
from windlass.ports import Note, Rate
from windlass.ports.notify import OutboxEntry
from windlass.settings.tables import LOCAL_CHANNELS

__all__ = ["OUTBOX_TRIGGER", "SqliteOutbox", "add_notes", "drop_unsent"]

KEPT = 30 * 86400.0
"""Seconds that the outcome of a note is remembered."""
OVERDUE = 60.0
"""Seconds after which others send a note whose own process is alive and does not."""
_COLUMNS = "key, execution, kind, destination, recipient, at, due, until, title, text, data, owner, while_open"

OUTBOX_TRIGGER = (
    "CREATE TRIGGER notes_of_removed AFTER DELETE ON executions "
    "BEGIN DELETE FROM notes WHERE execution = old.id AND status = 'waiting'; END"
)
"""Removes what is unsent with its execution, also when an older release removes that."""
# Made when they are missed: a database of an older release gains them, and an older release does not mind them.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, "
    "execution TEXT NOT NULL, kind TEXT NOT NULL, destination TEXT NOT NULL, recipient TEXT NOT NULL, "
    "at REAL NOT NULL, due REAL NOT NULL, until REAL NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, "
    "data BLOB NOT NULL, owner TEXT NOT NULL, while_open TEXT NOT NULL, "
    "status TEXT NOT NULL DEFAULT 'waiting', claimed_by TEXT NOT NULL DEFAULT '', tries INTEGER NOT NULL DEFAULT 0, "
    "changed_at REAL NOT NULL DEFAULT 0, detail TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX IF NOT EXISTS notes_to_send ON notes (due) WHERE status IN ('waiting', 'claimed')",
    OUTBOX_TRIGGER.replace("TRIGGER", "TRIGGER IF NOT EXISTS", 1),
)
_ENTRY = f"SELECT number, {_COLUMNS}, status, tries, changed_at, detail, claimed_by FROM notes "


def add_notes(db: SqlConnection, notes: Sequence[Note]) -> None:
    """Put notes into the outbox, in the transaction of their events; one that is there already stays as it is."""
    make_tables(db)
    sql = f"INSERT INTO notes ({_COLUMNS}) VALUES ({', '.join('?' * len(Note._fields))}) ON CONFLICT (key) DO NOTHING"
    rows = [note._asdict() | {"data": msgspec.json.encode(note.data)} for note in notes]
    db.executemany(sql, [tuple(row.values()) for row in rows])


def make_tables(db: SqlConnection) -> None:
    make_missing(db, _TABLES)


def drop_unsent(db: sqlite3.Connection) -> None:
    """Make what is unsent in a copy of a home stale: the home that it comes from sends it, or has sent it."""
    if has_table(db, "notes"):
        sql = "UPDATE notes SET status = 'stale', detail = 'its home was copied' WHERE status IN ('waiting', 'claimed')"
        with db:
            db.execute(sql)


class SqliteOutbox:
    def __init__(self, where: Path | SqlStore) -> None:
        """`where` is the journal's file, or another database in which one writes at a time."""
        self._db: SqlStore = Database(where, open_database, prepare=make_tables) if isinstance(where, Path) else where

    async def add(self, notes: Sequence[Note]) -> None:
        await self._db.writing(lambda db: add_notes(db, notes))

    async def claim(
        self, me: str, now: float, alive: Callable[[str], bool], rate: Rate, most: int
    ) -> list[OutboxEntry]:
        """Claim notes that are due: our own, those of dead processes, and those that nobody sends in time.

        Notes that are no news any more become stale. No more than `rate` allows go to one message service.
        """

        def work(db: SqlConnection) -> list[OutboxEntry]:
            # A clock that was set back must not hold notes up: one from the future, or last tried there, is due.
            due = "(due <= :now OR at > :now + 1 OR changed_at > :now + 1)"
            old = f"status = 'waiting' AND until < :now AND {due}"
            db.execute(f"UPDATE notes SET status = 'stale', changed_at = :now WHERE {old}", {"now": now})
            db.execute("DELETE FROM notes WHERE status NOT IN ('waiting', 'claimed') AND at < ?", (now - KEPT,))
            rows = db.execute(f"{_ENTRY} WHERE status IN ('waiting', 'claimed') AND {due} ORDER BY due", {"now": now})
            found: list[OutboxEntry] = []
            for *row, claimed_by in rows.fetchall():
                entry = _entry(row)
                if (
                    len(found) < most
                    and _is_for(me, entry.note, claimed_by, now, alive)
                    and _has_room(db, entry, now, rate)
                ):
                    sql = "UPDATE notes SET status = 'claimed', claimed_by = ?, tries = tries + 1, changed_at = ? "
                    db.execute(sql + "WHERE number = ?", (me, now, entry.number))
                    found.append(entry._replace(status="claimed", tries=entry.tries + 1))
            return found

        return await self._db.writing(work)

    async def settle(self, number: int, status: str, now: float, detail: str = "", due: float | None = None) -> None:
        """Write down what became of a claimed note; `due` is the time of the next try of one that waits again."""
        sql = (
            "UPDATE notes SET status = ?, changed_at = ?, detail = ?, due = coalesce(?, due), claimed_by = '' "
            "WHERE number = ? AND status = 'claimed'"
        )
        await self._db.writing(lambda db: db.execute(sql, (status, now, detail, due, number)))

    async def next_due(self) -> float | None:
        sql = "SELECT min(due) FROM notes WHERE status IN ('waiting', 'claimed')"
        found: float | None = await self._db.reading(lambda db: db.execute(sql).fetchone()[0])
        return found

    async def entries(self, since: float = 0.0, limit: int = 1000) -> list[OutboxEntry]:
        """The notes since then, newest first."""
        sql = _ENTRY + "WHERE at >= ? ORDER BY number DESC LIMIT ?"
        return await self._db.reading(lambda db: [_entry(row[:-1]) for row in db.execute(sql, (since, limit))])

    async def close(self) -> None:
        await self._db.aclose()


def _is_for(me: str, note: Note, claimed_by: str, now: float, alive: Callable[[str], bool]) -> bool:
    """Tell whether this process is the one to send it."""
    if claimed_by and (claimed_by == me or alive(claimed_by)):
        return False  # it is being sent
    if note.owner == me:
        return True
    # Another process has another terminal.
    return note.to != "bell" and (not alive(note.owner) or now - note.due > OVERDUE)


def _has_room(db: SqlConnection, entry: OutboxEntry, now: float, rate: Rate) -> bool:
    if entry.note.to in LOCAL_CHANNELS:
        return True
    sql = (
        "SELECT count(*) FROM notes WHERE destination = ? AND number <> ? AND tries > 0 "
        "AND changed_at > ? AND changed_at <= ?"  # what was sent while the clock was ahead counts no longer
    )
    (lately,) = db.execute(sql, (entry.note.to, entry.number, now - rate.seconds, now + 1)).fetchone()
    return bool(lately < rate.uses)


def _entry(row: Sequence[Any]) -> OutboxEntry:
    number, *rest = row
    values = dict(zip(Note._fields, rest, strict=False))
    try:
        values["data"] = msgspec.json.decode(values["data"])
    except (msgspec.DecodeError, TypeError):
        values["data"] = {}  # damaged: the text says the same
    return OutboxEntry(number, Note(**values), *rest[len(values) :])
