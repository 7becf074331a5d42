"""The journal's file: its tables, and how it is opened."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from windlass.core.events import FORMAT
from windlass.errors import JournalError
from windlass.homes import check_database, home_id, write_home_id
from windlass.journal.database import transaction, translate
from windlass.journal.history import HISTORY_TRIGGERS, ensure_history
from windlass.journal.questions import ensure_index

__all__ = ["TRIGGERS", "open_database", "reclaim_space", "table_columns"]

APPLICATION_ID = 0x57_4E_44_4C
"""`WNDL` in the file's header: how we know our own database from anybody else's."""

_TABLES = f"""
CREATE TABLE executions (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, status TEXT NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, driver TEXT NOT NULL, detail TEXT NOT NULL,
  expires_at REAL
);
CREATE TABLE events (
  position INTEGER PRIMARY KEY, execution INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
  checksum INTEGER
);
CREATE UNIQUE INDEX events_in_order ON events (execution, seq);
CREATE TABLE inbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, execution TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL
);
PRAGMA user_version = {FORMAT};
"""


_COUNT = "INSERT INTO status_counts VALUES ({0}.status, {1}) ON CONFLICT DO UPDATE SET count = count + {1};"
_COUNTING = (
    f"CREATE TRIGGER count_created AFTER INSERT ON executions BEGIN {_COUNT.format('new', '1')} END",
    "CREATE TRIGGER count_changed AFTER UPDATE OF status ON executions WHEN old.status <> new.status "
    f"BEGIN {_COUNT.format('old', '-1')} {_COUNT.format('new', '1')} END",
    f"CREATE TRIGGER count_removed AFTER DELETE ON executions BEGIN {_COUNT.format('old', '-1')} END",
)
"""Count executions by status in the transaction that changes them. Triggers, so that the counts stay right when an
older release, which knows nothing of them, writes to the file."""
TRIGGERS = (*_COUNTING, *HISTORY_TRIGGERS)
"""All triggers of the file."""

_ADDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "SELECT 1 FROM pragma_table_info('events') WHERE name = 'checksum'",
        ("ALTER TABLE events ADD COLUMN checksum INTEGER",),
    ),
    (
        # Lists are in the order of creation. An older release may make the indexes by the id again, and nobody minds.
        "SELECT 1 FROM sqlite_master WHERE name = 'created_by_name'",
        (
            "CREATE INDEX IF NOT EXISTS created_by_status ON executions (status, key)",
            "CREATE INDEX created_by_name ON executions (name, key)",
            "DROP INDEX IF EXISTS executions_by_status",
            "DROP INDEX IF EXISTS executions_by_name",
        ),
    ),
    (
        "SELECT 1 FROM sqlite_master WHERE name = 'status_counts'",
        (
            "CREATE TABLE status_counts (status TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
            "INSERT INTO status_counts SELECT status, count(*) FROM executions GROUP BY status",
            *_COUNTING,
        ),
    ),
)
"""Additions of later releases, in order: a query that finds one where it is there, and the statements that add it.
An older release does not mind any of them."""

_open: Counter[str] = Counter()
"""Connections of this process, by file."""
_opening = threading.Lock()


class _Counted(sqlite3.Connection):
    """A connection to the journal's file that is counted while it is open."""

    name = ""

    def close(self) -> None:
        with _opening:
            super().close()
            if self.name:
                _open[self.name] -= 1
                self.name = ""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the journal's file, making it if it is not there. Never changes a file that is not ours.

    While a connection of this process is open, the file must not be opened by other means, for closing it again would
    drop SQLite's locks on it (they belong to the process, not to the descriptor).
    """
    with translate(path), _opening:
        name = os.path.realpath(path)
        if not _open[name]:
            _make_or_refuse(path)
        db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False, factory=_Counted)
        try:
            _refuse_newer(db, path)
            home = home_id(path.parent)
            if home is not None and _has_tables(db):
                check_database(db, path, home)  # before anything in it is changed
            _prepare(db, home)
        except BaseException:
            sqlite3.Connection.close(db)
            raise
        db.name = name
        _open[name] += 1
        return db


def table_columns(db: sqlite3.Connection | None = None) -> dict[str, list[tuple[str, str]]]:
    """The columns of the journal's tables, with their types: in a database, or as this release makes them."""
    if db is None:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
            made.executescript(_TABLES)
            _add_missing(made)
            return table_columns(made)
    sql = "SELECT name, type FROM pragma_table_info(?) ORDER BY name"
    return {table: db.execute(sql, (table,)).fetchall() for table in ("executions", "events", "inbox")}


WORTHWHILE = 0.1
"""The share of unused space from which on the file is written anew without it."""


def reclaim_space(path: Path, most: int | None) -> int:
    """Write the file anew without its unused pages. Returns the bytes given back to the file system.

    The commit is an ordinary one, so that a crash at any moment leaves the file as it was before or after.
    """
    with translate(path), closing(open_database(path)) as db:
        page, pages, unused = (_pragma(db, name) for name in ("page_size", "page_count", "freelist_count"))
        if unused < WORTHWHILE * pages or (most is not None and (pages - unused) * page > most):
            return 0
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (pages - _pragma(db, "page_count")) * page


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _make_or_refuse(path: Path) -> None:
    if not path.exists():
        # 0600 from the first byte: outputs and inputs of steps are nobody else's business.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    _refuse_foreign(path)


def _refuse_foreign(path: Path) -> None:
    """Look at the file's first bytes: to open somebody's database with SQLite may already change it (its WAL)."""
    with path.open("rb") as file:
        head = file.read(100)
    if not head:
        return  # a new file of ours, perhaps being made by another process this very moment
    if not head.startswith(b"SQLite format 3\0"):
        raise JournalError(f"{path} is not a database; it was not touched", advice=("move that file away",))
    if int.from_bytes(head[68:72]) != APPLICATION_ID:
        raise JournalError(
            f"{path} is a database of another program; it was not touched",
            advice=("choose another home: windlass --home DIR …, or WINDLASS_HOME",),
        )


def _refuse_newer(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise JournalError(
            f"{path} was written by a newer Windlass (format {version}, this one reads {FORMAT})",
            advice=("upgrade: pip install --upgrade windlass",),
        )


def _prepare(db: sqlite3.Connection, home: str | None) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        # A commit writes whole pages: small ones make it a third cheaper.
        db.execute("PRAGMA page_size = 1024")
        # Before WAL, so that it stands in the file itself from the first page on.
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _use_wal(db)
    db.execute("PRAGMA synchronous = FULL")
    # Folding the WAL into the file takes several fsyncs; with small pages the default would do it every 1 MB.
    db.execute("PRAGMA wal_autocheckpoint = 8000")
    if not _has_tables(db):
        with transaction(db):
            if not _has_tables(db):  # another process may have been faster
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                _add_missing(db)
                if home is not None:
                    write_home_id(db, home)
    if any(db.execute(found).fetchone() is None for found, _statements in _ADDED):
        with transaction(db):
            _add_missing(db)  # looked for again with the write lock held: another process may have been faster
    ensure_index(db)
    ensure_history(db)


def _add_missing(db: sqlite3.Connection) -> None:
    for found, statements in _ADDED:
        if db.execute(found).fetchone() is None:
            for statement in statements:
                db.execute(statement)


def _has_tables(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch a new file over. SQLite does not wait for another process that does the same just now; we do."""
    give_up = time.monotonic() + 10.0
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.005)
