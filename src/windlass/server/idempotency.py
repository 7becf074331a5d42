"""Requests that must be done once, by their key: a table of the journal's file, and the id that each may use.

A row is on disk before its request is begun, with the id that an execution started by it will have; the answer is on
disk before anybody gets it. So after a crash in between, the same key finds out what became of it: the execution of
that id is there, or nothing was done. Only answers that mean "done" are kept; an error leaves the key free.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from windlass.faults import fault_point
from windlass.ids import new_id
from windlass.journal.database import Database
from windlass.journal.schema import open_database

__all__ = ["KEPT_FOR", "Kept", "Keys"]

KEPT_FOR = 24 * 3600.0
"""Seconds that an answer is kept."""
PATIENCE = 30.0
"""Seconds to wait for other processes that are writing."""

# Made when it is missed: a database of an older release gains it, and an older release does not mind it.
_TABLE = """
CREATE TABLE IF NOT EXISTS requests (
  key TEXT PRIMARY KEY, digest TEXT NOT NULL, execution TEXT NOT NULL, at REAL NOT NULL,
  status INTEGER, location TEXT NOT NULL DEFAULT '', body BLOB
) WITHOUT ROWID
"""


class Kept(NamedTuple):
    """What is known of a request."""

    digest: str
    """Of the request, to know it from another one under the same key."""
    execution: str
    """The id that is kept for an execution that it starts."""
    fresh: bool
    """Nobody has begun with it before."""
    status: int | None = None
    """Of the answer, if it came to one."""
    location: str = ""
    body: bytes = b""


class Keys:
    """The requests of a home, by key. Used by one server at a time."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, open_database, prepare=_make_table, busy=PATIENCE)

    async def begin(self, key: str, digest: str, at: float) -> Kept:
        """Write a request down before it is begun, or give what is known of it."""

        def work(db: sqlite3.Connection) -> Kept:
            sql = "SELECT digest, execution, 0, status, location, body FROM requests WHERE key = ? AND at > ?"
            row = db.execute(sql, (key, at - KEPT_FOR)).fetchone()
            if row is not None:
                return Kept(row[0], row[1], False, row[3], row[4], row[5] or b"")
            made = new_id()
            sql = "INSERT OR REPLACE INTO requests (key, digest, execution, at) VALUES (?, ?, ?, ?)"
            db.execute(sql, (key, digest, made, at))
            return Kept(digest, made, True)

        found = await self._db.writing(work)
        fault_point("request.begun")
        return found

    async def finish(self, key: str, status: int, location: str, body: bytes) -> None:
        """Keep the answer."""
        fault_point("request.done")
        sql = "UPDATE requests SET status = ?, location = ?, body = ? WHERE key = ?"
        await self._db.writing(lambda db: db.execute(sql, (status, location, body, key)))
        fault_point("request.kept")

    async def forget(self, key: str) -> None:
        """Nothing was done: the key is free again."""
        await self._db.writing(lambda db: db.execute("DELETE FROM requests WHERE key = ? AND status IS NULL", (key,)))

    async def forget_old(self, now: float) -> None:
        await self._db.writing(lambda db: db.execute("DELETE FROM requests WHERE at <= ?", (now - KEPT_FOR,)))

    async def close(self) -> None:
        await self._db.aclose()


def _make_table(db: sqlite3.Connection) -> None:
    db.execute(_TABLE)
