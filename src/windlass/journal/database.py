"""SQLite files of a home: their connections, transactions, threads, and errors in plain words.

The SQL in this package is written for a `SqlConnection`: one of SQLite, or one of PostgreSQL that translates the few
words in which the two differ.

`Database` is the one way in which the journal, the ledger, the requests and the gates' book use SQLite. It notices when
its file was deleted, replaced or cut while in use (D9): SQLite goes on writing to a file that no path leads to any
more, and every commit succeeds; all of it is gone when the process ends. So after each commit the path is checked.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from windlass.errors import Conflict, JournalError, NotPermitted, Vanished
from windlass.faults import fault_point, is_armed

__all__ = [
    "COPY_HOME",
    "EVERYTHING",
    "Busy",
    "Database",
    "Pace",
    "SqlConnection",
    "SqlRows",
    "SqlStore",
    "has_table",
    "is_damage",
    "make_missing",
    "meaning",
    "on_read_only_disk",
    "snapshot",
    "transaction",
    "translate",
]

T = TypeVar("T")

EVERYTHING = 2**62
"""A limit that no result reaches."""

SMALLEST = 512
"""Bytes of the smallest page: a database of ours is never shorter."""
RETRY_EVERY = 0.005
"""Seconds between tries to get a lock that another process holds."""
FAULTS = ("before_write", "before_commit", "after_commit")


_open_in_parent: set[Path] = set()
"""Files that were open in the process that this one was forked from. SQLite would count its parent's locks as its own:
a connection here would hold none, and lose what it commits when the parent closes the file."""


class SqlRows(Protocol):
    """The result of a statement."""

    @property
    def lastrowid(self) -> int | None: ...

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection to a store: SQLite's own, or one that understands the same statements."""

    def execute(self, sql: str, parameters: Any = ..., /) -> SqlRows: ...

    def executemany(self, sql: str, rows: Any, /) -> SqlRows: ...


class SqlStore(Protocol):
    """A database as its users see it: `Database`, or `PostgresDatabase`."""

    def read(self, fetch: Callable[[SqlConnection], T]) -> T: ...

    def transact(self, work: Callable[[SqlConnection], T]) -> T: ...

    async def reading(self, fetch: Callable[[SqlConnection], T]) -> T: ...

    async def writing(self, work: Callable[[SqlConnection], T]) -> T: ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


def has_table(db: SqlConnection, name: str) -> bool:
    """Tell whether a table is there. A schema in PostgreSQL is made whole before anything uses it."""
    if not isinstance(db, sqlite3.Connection):
        return True
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def make_missing(db: SqlConnection, statements: Iterable[str]) -> None:
    """Make tables that a file of an older release does not have."""
    if isinstance(db, sqlite3.Connection):
        for statement in statements:
            db.execute(statement)


class Busy(Exception):
    """Another process is writing, or another thread reading, and the caller does not want to wait."""


class Database:
    """One connection to a file, opened on first use. `reading` and `writing` use it in a thread of its own.

    Several threads may `read`; those that `transact` take turns by themselves.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[Path], sqlite3.Connection],
        *,
        prepare: Callable[[sqlite3.Connection], None] = lambda _db: None,
        faults: str = "",
        busy: float = 10.0,
        watch_log: bool = True,
    ) -> None:
        """`prepare` makes what is missing in a file that was opened; `busy` is how long SQLite waits for other writers.

        `faults` is the first part of the names of its fault points. Without `watch_log`, nobody notices that its
        write-ahead log was deleted: for files that may lose their last writes.
        """
        self._path = path
        self._connect = connect
        self._prepare = prepare
        self._busy = busy
        self._watch_log = watch_log
        self._points = tuple(f"{faults}.{when}" for when in FAULTS) if faults and is_armed() else ()
        self._connection: sqlite3.Connection | None = None
        self._file: _OpenFile
        self._name: Path
        self.cursor: sqlite3.Cursor
        """For the statements of every transaction: making one each time costs as much as a statement."""
        self._reading = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self.committed = False
        """The last transaction was committed, whatever went wrong afterwards."""
        self.disk_seconds = 0.0
        """The time that the last commit waited, for the disk nearly always: without its own computing."""

    def open(self) -> sqlite3.Connection:
        """Open the connection, unless it is open."""
        if self._connection is None:
            name = self._path.resolve()
            if name in _open_in_parent:
                raise JournalError(
                    f"{self._path} is open in the process that this one was forked from; nothing was written",
                    advice=('start the process anew: multiprocessing.get_context("spawn")',),
                )
            with translate(self._path):
                db = self._connect(self._path)
                try:
                    db.execute(f"PRAGMA busy_timeout = {int(self._busy * 1000)}")
                    self._prepare(db)
                    self._file = _OpenFile(self._path, self._watch_log)
                except BaseException as error:
                    db.close()
                    if _is_locked(error):
                        raise self._locked(self._busy) from error
                    raise
            self._connection, self.cursor = db, db.cursor()
            self._name = name
            _open_here.add(self)
        return self._connection

    def read(self, fetch: Callable[[sqlite3.Connection], T], *, wait: bool = True) -> T:
        """Read in the caller's thread. Without `wait`, `Busy` is raised while another thread reads."""
        if not self._reading.acquire(blocking=wait):
            raise Busy
        try:
            db = self._connection or self.open()
            self._file.check()
            return fetch(db)
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise meaning(error, self._path) from error
        finally:
            self._reading.release()

    def transact(self, work: Callable[[sqlite3.Connection], T], wait: float | None = None) -> T:
        """Do the work in one transaction; returns when it is committed.

        With `wait`, others that are writing are waited for that long, whatever `busy` is; with 0 `Busy` is raised.
        """
        self.committed = False
        points = self._points
        if points:
            fault_point(points[0])
        try:
            db = self._connection or self.open()
            self._begin(wait)
            try:
                result = work(db)
                if points:
                    fault_point(points[1])
                began = time.perf_counter() - time.thread_time()
                self.cursor.execute("COMMIT")
                self.committed = True
                self.disk_seconds = time.perf_counter() - time.thread_time() - began
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            if points:
                fault_point(points[2])
            self._file.check()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise meaning(error, self._path) from error
        return result

    async def reading(self, fetch: Callable[[sqlite3.Connection], T]) -> T:
        return await self._in_thread(partial(self.read, fetch))

    async def writing(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction. Cancelled while it waits, it may be done all the same."""
        return await self._in_thread(partial(self.transact, work))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            _open_here.discard(self)

    async def aclose(self) -> None:
        """Close it after everything that its thread has still to do."""
        worker, self._worker = self._worker, None
        if worker is None:
            self.close()
        else:
            await asyncio.get_running_loop().run_in_executor(worker, self.close)
            worker.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"windlass-{self._path.stem}")
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _begin(self, wait: float | None) -> None:
        """Take SQLite's write lock. Its own busy handler waits `busy` seconds in each try."""
        give_up: float | None = None
        while True:
            try:
                self.cursor.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_locked(error):
                    raise
                if wait == 0.0:
                    raise Busy from error
                give_up = give_up or time.monotonic() + (wait or 0.0)
                if time.monotonic() >= give_up:
                    raise self._locked(wait or self._busy) from error
                time.sleep(RETRY_EVERY)

    def _locked(self, seconds: float) -> JournalError:
        return JournalError(
            f"{self._path} has been locked by another program for {seconds:g} s; nothing was written",
            advice=(f"find the program: fuser -v {self._path}", "end that program, then: windlass resume ID"),
        )


_open_here: WeakSet[Database] = WeakSet()
"""Databases of this process with an open connection."""


def _note_fork() -> None:
    _open_in_parent.update(database._name for database in _open_here)
    _open_here.clear()


os.register_at_fork(after_in_child=_note_fork)


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(db: SqlConnection) -> Iterator[None]:
    """Let all statements of the block read the same state of the file, whatever is committed meanwhile."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


class _OpenFile:
    """A database file as it was when it was opened.

    It is looked at with `stat` alone and never opened: closing a descriptor of it would drop SQLite's locks on it,
    which belong to the process. While it is open here its inode cannot be given to another file, so the same device
    and inode mean the same file. The same holds for the write-ahead log, which nobody deletes while it is in use.
    """

    def __init__(self, path: Path, watch_log: bool = True) -> None:
        """To be made while a connection is open, right after it was."""
        self._watch_log = watch_log
        self._path = str(path)
        self._log_path = f"{path}-wal"
        found = os.stat(self._path)
        self._device, self._file = found.st_dev, found.st_ino
        self._log: int | None = None
        """The log is beside the file, on the same device."""

    def check(self) -> None:
        """Raise `Vanished` unless the path still leads to the file that was opened."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._vanished("was deleted or moved away") from None
        if found.st_ino != self._file or found.st_dev != self._device:
            raise self._vanished("was replaced by another file")
        if found.st_size < SMALLEST:
            raise self._vanished("was emptied")
        if not self._watch_log:
            return
        try:
            log = os.stat(self._log_path).st_ino
        except FileNotFoundError:
            if self._log is None:
                return  # nothing was written yet
            raise self._vanished("lost its write-ahead log (-wal), which was deleted") from None
        if self._log is None:
            self._log = log
        elif log != self._log:
            raise self._vanished("had its write-ahead log (-wal) replaced by another file")

    def _vanished(self, happened: str) -> Vanished:
        return Vanished(
            f"{self._path} {happened} while it was in use; nothing more is written, and the last writes are lost",
            advice=(
                "put the home back where it was, or restore a backup: windlass restore FILE",
                "check the rest: windlass doctor --deep",
            ),
        )


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
    """Tell whether SQLite says that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


COPY_HOME = "copy the home to a disk that can be written, and name the copy: windlass --home DIR …"


def meaning(error: Exception, path: Path) -> JournalError:
    """Say in plain words what an error of SQLite or the system means for the file, and what to do."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)  # without the path, whose words are no signs
    if isinstance(error, UnicodeDecodeError):
        text = "malformed"  # a name in the database's own tables is no text any more
    if any(sign in text for sign in ("unable to open", "readonly", "disk I/O")) and on_read_only_disk(path):
        text = "Read-only file system"
    free_space = f"free space on the disk of {path.parent}; an execution that was cut off: windlass resume ID"
    for sign, message, advice in (
        ("not a database", f"{path} is not a database; it was not touched", "move that file away"),
        (
            "malformed",
            f"{path} is damaged",
            "restore a backup or checkpoints into a new home: windlass --home DIR restore FILE",
        ),
        ("locked", f"{path} is locked by another program", "find the program: fuser -v " + str(path)),
        ("full", f"the disk of {path} is full; what was acknowledged is safe", free_space),
        ("No space left", f"the disk of {path} is full", free_space),
        ("readonly", f"{path} cannot be written: it is read-only", f"chmod u+w {path.parent} {path}"),
        ("unable to open", f"{path} cannot be opened", f"check the permissions of {path.parent}"),
        ("Permission denied", f"{path} cannot be opened: permission denied", f"ls -l {path.parent}"),
        ("Read-only file system", f"{path} is on a read-only disk", COPY_HOME),
        (
            "disk I/O",
            f"the disk of {path} reports an error",
            "check the disk, and `ulimit -f`; an execution that was cut off: windlass resume ID",
        ),
    ):
        if sign in text:
            return JournalError(message, advice=(advice,))
    return JournalError(f"the journal {path} could not be used: {text}")


def on_read_only_disk(path: Path) -> bool:
    """True if the file's folder is on a disk that nobody can write to, whatever its permissions."""
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False


SHORT = 0.001
LONG = 0.003
TRUST_AFTER = 8
DISTRUST_FOR = 30


class Pace:
    """Tells whether the disk is fast enough to use it on the event loop itself.

    Handing a commit to a thread and back costs about 40 µs, half of what the commit costs on a good SSD. So while
    commits are short they run on the loop, and the first long one sends those after it to the thread, where a slow disk
    holds up only those who wait for it.
    """

    def __init__(
        self, short: float = SHORT, long: float = LONG, trust_after: int = TRUST_AFTER, distrust_for: int = DISTRUST_FOR
    ) -> None:
        self._short, self._long = short, long
        self._trust_after, self._distrust_for = trust_after, distrust_for
        self._needed = trust_after
        """Short commits in a row that are still wanted before the loop is used."""

    @property
    def fast(self) -> bool:
        return self._needed <= 0

    def took(self, seconds: float) -> None:
        if seconds >= self._long:
            self._needed = self._distrust_for
        elif seconds <= self._short:
            self._needed -= 1
        elif self._needed > 0:
            self._needed = max(self._needed, self._trust_after)
