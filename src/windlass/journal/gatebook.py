"""The state of tools that all executions of a home share, in a SQLite file of its own: rates, breakers, cached results.

Nothing in it is the truth about an execution, so it is not fsynced; should it be damaged, it is made anew. Breakers are
read from memory and looked up in the file again after a second: another process' failures are known that soon. When the
file cannot be read or written (a full disk), what this process knows itself has to do; only a rate, which is a promise
to others, is then not taken for granted.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windlass.core.breaker import Breaker
from windlass.errors import JournalError, Vanished
from windlass.journal.database import Database, SqlConnection, SqlStore, is_damage
from windlass.ports import Rate

__all__ = ["PostgresGateStore", "SqliteGateStore"]

FRESH = 1.0
"""Seconds for which what is known of the breakers is taken as it is."""
MOST_KEPT = 2_000
TIDY_EVERY = 100
"""Results that are learned between two looks at how many there are."""
LARGEST = 1024 * 1024
"""Bytes of a result that is worth keeping."""
AWAY_FOR = 60.0
"""Seconds that a server may be away before a use fails for it."""
ASK_AGAIN = 1.0
BUSY = 0.5
"""Seconds that one waits for another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rate (name TEXT PRIMARY KEY, due REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS breaker (name TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS known (key TEXT PRIMARY KEY, value BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""
_COUNT = "UPDATE rate SET due = ? WHERE name = ? AND due = ?"
T = TypeVar("T")
_CLOSED = Breaker()
_encode = msgspec.json.Encoder().encode
_breakers: msgspec.json.Decoder[Breaker] = msgspec.json.Decoder(Breaker)
_values: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class SqliteGateStore:
    def __init__(self, where: Path | str | SqlStore) -> None:
        """`where` is a file, or another database in which one writes at a time."""
        self._db: SqlStore = (
            Database(Path(where), _connect, busy=BUSY, watch_log=False) if isinstance(where, Path | str) else where
        )
        self._lock = threading.Lock()
        self._seen: dict[str, Breaker] = {}
        self._fresh_until = float("-inf")
        """Until then what was seen is taken as it is."""
        self._learned = 0
        self._due: dict[str, float] = {}
        """The rates as this process has written them last."""

    def take(self, name: str, rate: Rate, now: float) -> float:
        try:
            return self._use(lambda: self._take(name, rate, now))
        except JournalError as error:
            raise JournalError(f"cannot count the uses of {name}: {error.message}", advice=error.advice) from error

    def _take(self, name: str, rate: Rate, now: float) -> float:
        """Count a use: with one statement if no other process has counted one since, else in a transaction."""
        last = self._due.get(name)
        if last is not None:
            due, wait = rate.next(last, now)
            if not wait and self._db.read(lambda db: db.execute(_COUNT, (due, name, last)).rowcount):
                self._due[name] = due
                return 0.0

        def count(db: SqlConnection) -> tuple[float, float]:
            row = db.execute("SELECT due FROM rate WHERE name = ?", (name,)).fetchone()
            due, wait = rate.next(row[0] if row else now, now)
            if not wait:
                sql = "INSERT INTO rate VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET due = excluded.due"
                db.execute(sql, (name, due))
            return due, wait

        self._due[name], wait = self._db.transact(count)
        return wait

    def breaker(self, name: str) -> Breaker:
        if time.monotonic() > self._fresh_until:
            self._look()
        return self._seen.get(name, _CLOSED)

    def keep_breaker(self, name: str, breaker: Breaker) -> None:
        if breaker == _CLOSED:
            self._seen.pop(name, None)
            self._write("DELETE FROM breaker WHERE name = ?", name)
        else:
            self._seen[name] = breaker
            sql = "INSERT INTO breaker VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state"
            self._write(sql, name, _encode(breaker))

    def breakers(self) -> dict[str, Breaker]:
        self._look()
        return dict(self._seen)

    def known(self, key: str, now: float, longest: float) -> tuple[Any] | None:
        sql = "SELECT value FROM known WHERE key = ? AND until > ? AND until <= ?"
        rows = self._read(sql, key, now, now + longest)
        return (_values.decode(rows[0][0]),) if rows else None

    def learn(self, key: str, value: Any, until: float) -> None:
        raw = _encode(value)
        if len(raw) > LARGEST:
            return
        replaced = "DO UPDATE SET value = excluded.value, until = excluded.until"
        self._write(f"INSERT INTO known VALUES (?, ?, ?) ON CONFLICT (key) {replaced}", key, raw, until)
        self._learned += 1
        if self._learned % TIDY_EVERY == 1:
            keep = "SELECT key FROM known ORDER BY until DESC LIMIT ?"
            self._write(f"DELETE FROM known WHERE key NOT IN ({keep})", MOST_KEPT)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _look(self) -> None:
        rows = self._read("SELECT name, state FROM breaker")
        if rows is not None:
            self._seen = {name: _breakers.decode(state) for name, state in rows}
        self._fresh_until = time.monotonic() + FRESH

    def _read(self, statement: str, *given: Any) -> list[Any] | None:
        """The rows; None when the file cannot be read: then nothing is known."""
        try:
            return self._use(lambda: self._db.read(lambda db: db.execute(statement, given).fetchall()))
        except JournalError:
            return None

    def _write(self, statement: str, *given: Any) -> None:
        with suppress(JournalError):  # the next one may succeed; nothing depends on it
            self._use(lambda: self._db.read(lambda db: db.execute(statement, given)))

    def _use(self, work: Callable[[], T]) -> T:
        """Use the file, which is made anew if it was deleted."""
        with self._lock:
            try:
                return work()
            except Vanished:
                self._db.close()
                return work()


class PostgresGateStore(SqliteGateStore):
    """The same in PostgreSQL. While the server is away, a rate lets nobody through: it says to ask again soon."""

    def __init__(self, where: SqlStore) -> None:
        super().__init__(where)
        self._away_since: float | None = None

    def take(self, name: str, rate: Rate, now: float) -> float:
        try:
            wait = super().take(name, rate, now)
        except JournalError:
            if self._away_since is None:
                self._away_since = time.monotonic()
            if time.monotonic() - self._away_since > AWAY_FOR:
                raise
            return ASK_AGAIN
        self._away_since = None
        return wait


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file, making it if it is not there, and anew if it is damaged."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise  # one that is only busy is not to be thrown away
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        return _opened(path)


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db
