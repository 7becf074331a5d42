"""The journal's file: its tables, how it is opened, and what SQLite's errors mean to a person."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from windlass.core.events import FORMAT
from windlass.errors import Conflict, JournalError, NotPermitted
from windlass.homes import check_database, home_id, write_home_id
from windlass.journal.questions import ensure_index

__all__ = [
    "TRIGGERS",
    "close_database",
    "is_damage",
    "meaning",
    "open_database",
    "reclaim_space",
    "table_columns",
    "translate",
]

APPLICATION_ID = 0x57_4E_44_4C
"""`WNDL` in the file's header: how we know our own database from anybody else's."""

_TABLES = f"""
CREATE TABLE executions (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, status TEXT NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, driver TEXT NOT NULL, detail TEXT NOT NULL,
  expires_at REAL
);
CREATE INDEX executions_by_status ON executions (status, id);
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
TRIGGERS = (
    f"CREATE TRIGGER count_created AFTER INSERT ON executions BEGIN {_COUNT.format('new', '1')} END",
    "CREATE TRIGGER count_changed AFTER UPDATE OF status ON executions WHEN old.status <> new.status "
    f"BEGIN {_COUNT.format('old', '-1')} {_COUNT.format('new', '1')} END",
    f"CREATE TRIGGER count_removed AFTER DELETE ON executions BEGIN {_COUNT.format('old', '-1')} END",
)
"""Count executions by status in the transaction that changes them. Triggers, so that the counts stay right when an
older release, which knows nothing of them, writes to the file."""

_ADDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "SELECT 1 FROM pragma_table_info('events') WHERE name = 'checksum'",
        ("ALTER TABLE events ADD COLUMN checksum INTEGER",),
    ),
    (
        "SELECT 1 FROM sqlite_master WHERE name = 'executions_by_name'",
        ("CREATE INDEX executions_by_name ON executions (name, id)",),
    ),
    (
        "SELECT 1 FROM sqlite_master WHERE name = 'status_counts'",
        (
            "CREATE TABLE status_counts (status TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
            "INSERT INTO status_counts SELECT status, count(*) FROM executions GROUP BY status",
            *TRIGGERS,
        ),
    ),
)
"""Additions of later releases, in order: a query that finds one where it is there, and the statements that add it.
An older release does not mind any of them."""

_open: Counter[str] = Counter()
"""Connections of this process, by file."""
_opening = threading.Lock()


def open_database(path: Path) -> sqlite3.Connection:
    """Open the journal's file, making it if it is not there. Never changes a file that is not ours.

    Close it with `close_database`: while a connection of this process is open, the file must not be opened by other
    means, for closing it again would drop SQLite's locks on it (they belong to the process, not to the descriptor).
    """
    with translate(path), _opening:
        name = os.path.realpath(path)
        if not _open[name]:
            _make_or_refuse(path)
        db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        try:
            _refuse_newer(db, path)
            home = home_id(path.parent)
            if home is not None and _has_tables(db):
                check_database(db, path, home)  # before anything in it is changed
            _prepare(db, home)
        except BaseException:
            db.close()
            raise
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


def close_database(db: sqlite3.Connection, path: Path) -> None:
    with _opening:
        db.close()
        _open[os.path.realpath(path)] -= 1


WORTHWHILE = 0.1
"""The share of unused space from which on the file is written anew without it."""


def reclaim_space(path: Path, most: int | None) -> int:
    """Write the file anew without its unused pages. Returns the bytes given back to the file system.

    The commit is an ordinary one, so that a crash at any moment leaves the file as it was before or after.
    """
    db = open_database(path)
    try:
        with translate(path):
            page, pages, unused = (_pragma(db, name) for name in ("page_size", "page_count", "freelist_count"))
            if unused < WORTHWHILE * pages or (most is not None and (pages - unused) * page > most):
                return 0
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return (pages - _pragma(db, "page_count")) * page
    finally:
        close_database(db, path)


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
        db.execute("BEGIN IMMEDIATE")
        if not _has_tables(db):  # another process may have been faster
            for statement in _TABLES.split(";"):
                db.execute(statement)
            _add_missing(db)
            if home is not None:
                write_home_id(db, home)
        db.execute("COMMIT")
    if any(db.execute(found).fetchone() is None for found, _statements in _ADDED):
        db.execute("BEGIN IMMEDIATE")
        try:
            _add_missing(db)  # looked for again with the write lock held: another process may have been faster
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    ensure_index(db)


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


@contextmanager
def translate(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what is wrong with which file, and what to do."""
    try:
        yield
    except (Conflict, JournalError, NotPermitted):
        raise
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise meaning(error, path) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def meaning(error: Exception, path: Path) -> JournalError:
    """What an error of SQLite or the system says about the file, and what to do."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)  # without the path, whose words are no signs
    if isinstance(error, UnicodeDecodeError):
        text = "malformed"  # a name in the database's own tables is no text any more
    if any(sign in text for sign in ("unable to open", "readonly", "disk I/O")) and _on_read_only_disk(path):
        text = "Read-only file system"
    free_space = f"free space on the disk of {path.parent}, then: windlass resume ID"
    for sign, message, advice in (
        ("not a database", f"{path} is not a database; it was not touched", "move that file away"),
        (
            "malformed",
            f"{path} is damaged",
            "restore a backup or checkpoints into a new home: windlass --home DIR restore FILE",
        ),
        ("locked", f"{path} is locked by another program", "find who holds it: fuser -v " + str(path)),
        ("full", f"the disk of {path} is full; what was acknowledged is safe", free_space),
        ("No space left", f"the disk of {path} is full", free_space),
        ("readonly", f"{path} cannot be written: it is read-only", f"chmod u+w {path.parent} {path}"),
        ("unable to open", f"{path} cannot be opened", f"check the permissions of {path.parent}"),
        ("Permission denied", f"{path} cannot be opened: permission denied", f"ls -l {path.parent}"),
        ("Read-only file system", f"{path} is on a read-only disk", "choose another home: windlass --home DIR …"),
        ("disk I/O", f"the disk of {path} reports an error", "check the disk, then: windlass resume ID"),
    ):
        if sign in text:
            return JournalError(message, advice=(advice,))
    return JournalError(f"the journal {path} could not be used: {text}")


def _on_read_only_disk(path: Path) -> bool:
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False
