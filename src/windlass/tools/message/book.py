"""The book of messages that were handed over, in an SQLite file of the home: so that none leaves twice.

A message is a row, named by the step's effect id and the digest of its content. `begun` is on disk before the message
is handed over, `sent` after the other side has confirmed it. Of a message whose row stays `begun`, nobody knows whether
it arrived. No content is kept, only what came of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from windlass.errors import Category, ToolError

__all__ = ["Book", "Entry"]

KEPT = 366 * 86400.0
"""Seconds for which a sent message is remembered."""
BUSY = 10.0
"""Seconds that one waits for another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
  effect TEXT NOT NULL,
  digest TEXT NOT NULL,
  service TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  begun REAL NOT NULL,
  sent REAL,
  result TEXT,
  PRIMARY KEY (effect, digest)
) WITHOUT ROWID
"""


class Entry(NamedTuple):
    attempt: int
    """The attempt that handed it over."""
    begun: float
    result: dict[str, Any] | None
    """What came of it; None while nobody knows."""


class Book:
    def __init__(self, file: Path) -> None:
        self._file = file

    def look(self, effect: str, digest: str) -> Entry | None:
        if not self._file.exists():
            return None
        with self._open() as db:
            return _entry(db, effect, digest)

    def begin(self, effect: str, digest: str, attempt: int, service: str, now: float) -> Entry | None:
        """Write down that it is handed over now. If another attempt or process was first, that one's entry: then
        nothing is to be sent. An entry of an earlier attempt that nobody knows the end of is taken over."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # who looks and who writes are one, across processes
            before = _entry(db, effect, digest)
            if before is not None and (before.result is not None or before.attempt >= attempt):
                return before
            db.execute("DELETE FROM message WHERE sent < ?", (now - KEPT,))
            db.execute(
                "INSERT OR REPLACE INTO message (effect, digest, service, attempt, begun) VALUES (?, ?, ?, ?, ?)",
                (effect, digest, service, attempt, now),
            )
        return None

    def sent(self, effect: str, digest: str, result: dict[str, Any], now: float) -> None:
        with self._open() as db:
            db.execute(
                "UPDATE message SET sent = ?, result = ? WHERE effect = ? AND digest = ?",
                (now, json.dumps(result), effect, digest),
            )

    def withdraw(self, effect: str, digest: str) -> None:
        """The other side has not taken it: another attempt may hand it over."""
        with self._open() as db:
            db.execute("DELETE FROM message WHERE effect = ? AND digest = ? AND sent IS NULL", (effect, digest))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Opened for each use: messages are rare, and a file that is closed can be moved, copied and deleted."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(self._file, timeout=BUSY)) as db:
                db.execute("PRAGMA synchronous = EXTRA")  # a commit is on disk, its directory entry too
                with db:
                    db.execute(_SCHEMA)
                    yield db
        except (sqlite3.Error, OSError) as error:
            raise ToolError(
                f"the book of sent messages cannot be used ({error}); without it a message could leave twice",
                category=Category.RESOURCE,
                advice=(f"look at {self._file}: is the disk full, or the file not yours or damaged?",),
            ) from error


def _entry(db: sqlite3.Connection, effect: str, digest: str) -> Entry | None:
    row = db.execute(
        "SELECT attempt, begun, result FROM message WHERE effect = ? AND digest = ?", (effect, digest)
    ).fetchone()
    return Entry(row[0], row[1], json.loads(row[2]) if row[2] is not None else None) if row else None
