"""Counts of the uses of a folder's tools: a small SQLite file beside the tools, which many processes count in.

Counting is never worth a failure: a use that cannot be counted is lost, and `trouble` says why until a count works
again. The file may have come with a repository, so it is used only if it holds exactly our one table: no trigger, no
view.
"""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from windlass.ports.composed import Uses

__all__ = ["UsesFile"]

PATIENCE = 10.0
"""Seconds to wait for another process that is counting."""
MOST_STEPS = 1_000
"""Thousands of SQLite's steps that a statement may take: ours take none; a damaged file could take for ever."""
_TABLE = (
    "CREATE TABLE uses (name TEXT PRIMARY KEY, times INTEGER NOT NULL, failed INTEGER NOT NULL, last_at REAL NOT NULL)"
)
_COUNT = (
    "INSERT INTO uses (name, times, failed, last_at) VALUES (?, 1, ?, ?) ON CONFLICT (name) DO UPDATE SET "
    "times = times + 1, failed = failed + excluded.failed, last_at = max(last_at, excluded.last_at)"
)


class UsesFile:
    def __init__(self, folder: Path, *, may_be_link: bool) -> None:
        self._folder = folder
        self._may_be_link = may_be_link
        self._file = folder / "uses.db"
        self._lock = threading.Lock()
        self.trouble: str | None = None

    def add(self, name: str, at: float, *, failed: bool) -> None:
        with self._told():
            with closing(self._open()) as db:
                db.execute(_COUNT, (name, int(failed), at))

    def of(self, name: str) -> Uses:
        if self._file.exists():
            with self._told():
                with closing(self._open()) as db:
                    found = db.execute("SELECT times, failed, last_at FROM uses WHERE name = ?", (name,)).fetchone()
                if found is not None:
                    return Uses(int(found[0]), int(found[1]), float(found[2]))
        return Uses()

    def forget(self, name: str) -> None:
        if self._file.exists():
            with self._told():
                with closing(self._open()) as db:
                    db.execute("DELETE FROM uses WHERE name = ?", (name,))

    @contextmanager
    def _told(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
                self.trouble = f"{self._file}: uses cannot be counted here: {error}"
            else:
                self.trouble = None

    def _open(self) -> sqlite3.Connection:
        if self._folder.is_symlink() and not self._may_be_link:
            raise OSError("its folder is a link, and links are not followed here")
        for ending in ("", "-wal", "-shm", "-journal"):
            _own_file(Path(f"{self._file}{ending}"))
        db = sqlite3.connect(self._file, timeout=PATIENCE, isolation_level=None)
        try:
            patience = iter(range(MOST_STEPS))
            db.set_progress_handler(lambda: next(patience, None) is None, 1_000)
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA synchronous = NORMAL")
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                with suppress(sqlite3.OperationalError):  # somebody else is at it in this moment
                    db.execute("PRAGMA journal_mode = WAL")
            if _tables(db) != [_TABLE]:
                _make(db)
        except BaseException:
            db.close()
            raise
        return db


def _make(db: sqlite3.Connection) -> None:
    """Make the table, unless another process has: the second waits for the first."""
    db.execute("BEGIN IMMEDIATE")
    found = _tables(db)
    if found not in ([], [_TABLE]):
        raise sqlite3.DatabaseError("it is some other database; remove it to count anew")
    if not found:
        db.execute(_TABLE)
    db.execute("COMMIT")


def _tables(db: sqlite3.Connection) -> list[str]:
    return [str(row[0]) for row in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 10")]


def _own_file(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path.name} is not a file of its own but a link or a device")
