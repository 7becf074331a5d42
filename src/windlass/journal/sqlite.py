"""The embedded journal: one SQLite file, WAL, `synchronous=FULL`.

Appends of one turn of the event loop, from however many executions, share one commit (group commit). The commit
runs on the loop while the disk is fast and in a writer thread otherwise (see `pace.py`), so that a slow disk holds
up only those who wait for it. Reads go through a second connection: a page of a list likewise on the
loop, the rest in a thread. Several processes may use the file at once: SQLite serialises their commits, and
`UNIQUE (execution, seq)` refuses whoever writes from a stale view.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windlass.core.events import Event, encode
from windlass.core.questions import QuestionChanges
from windlass.errors import Conflict, Damaged, JournalError, Vanished
from windlass.faults import fault_point
from windlass.journal.openfile import OpenFile
from windlass.journal.pace import Pace
from windlass.journal.presence import Presence
from windlass.journal.questions import find_questions, forget_questions, update_index
from windlass.journal.rows import checksum, decode_row
from windlass.journal.schema import close_database, is_damage, meaning, open_database, reclaim_space, translate
from windlass.ports import AskedQuestion, Entry, Head, Message

__all__ = ["SqliteJournal"]

_HEAD_COLUMNS = "id, name, status, created_at, updated_at, driver, detail, expires_at"
_INSERT = "INSERT INTO events (execution, seq, body, checksum) VALUES (?, ?, ?, ?)"
_END_OF_TIME = 253402300800.0
"""The year 10000, which no calendar of Python reaches."""
_Row = tuple[int, int, bytes, int]
T = TypeVar("T")
_Outcomes = list[tuple["asyncio.Future[None]", Exception | None]]

MOST_ON_LOOP = 200
"""Appends that may be written on the loop together; more of them are work enough for the thread."""
MOST_HEADS_ON_LOOP = 101
"""Heads that may be read on the loop: a page of a list, which an index finds."""
LONG_READ = 0.05
"""Seconds of such a read, from which on those after it are left to the thread for a while."""
PATIENCE = 10.0
"""Seconds to wait for another process that is writing."""


class _Busy(Exception):
    """Another process is writing, and the caller will not wait here."""


@dataclass(slots=True)
class _Append:
    execution: str
    after: int
    bodies: list[bytes]
    head: Head | None
    consumed: Sequence[int]
    questions: QuestionChanges | None
    done: asyncio.Future[None]


@dataclass(slots=True)
class _Job:
    """Some other write: sending a message, removing an execution."""

    work: Callable[[sqlite3.Connection], None]
    done: asyncio.Future[None]


class SqliteJournal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._presence = Presence(path.parent / "drivers")
        self._writer = open_database(path)
        self._writer.execute("PRAGMA busy_timeout = 0")  # `_begin` waits, and only where it may
        self._reader = open_database(path)
        # One name with a damaged byte must not keep every other row from being read.
        self._reader.text_factory = partial(str, encoding="utf-8", errors="replace")
        self._file = OpenFile(path)
        self._read_lock = threading.Lock()
        self._turn = threading.Lock()
        """Held by whoever uses the writing connection: the loop or the writer thread."""
        self._pace = Pace()
        # A read mostly finds its pages in memory: it is trusted at once, until one has to wait for the disk.
        self._read_pace = Pace(short=LONG_READ, long=LONG_READ, trust_after=0, distrust_for=100)
        self._last = ""
        """The execution that appended last."""
        self._known: dict[str, tuple[int, int]] = {}
        """Key and last sequence of executions, for as long as nobody else writes to the file."""
        self._version = 0
        self._pending: list[_Append | _Job] = []
        self._queue: queue.SimpleQueue[list[_Append | _Job] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- the port ------------------------------------------------------------------------------

    def enlist(self, label: str = "") -> str:
        return self._presence.enlist(label)

    def alive(self, driver: str) -> bool:
        return self._presence.alive(driver)

    async def append(
        self,
        execution: str,
        after: int,
        events: Sequence[Event],
        *,
        head: Head | None = None,
        consumed: Sequence[int] = (),
        questions: QuestionChanges | None = None,
    ) -> None:
        bodies = [encode(event) for event in events]
        done = self._running_loop().create_future()
        self._pending.append(_Append(execution, after, bodies, head, consumed, questions, done))
        if len(self._pending) == 1:
            if execution == self._last and self._pace.fast:
                # Nobody else appended since: there is no company to wait for.
                self._flush()
            else:
                self._running_loop().call_soon(self._flush)
        self._last = execution
        if not done.done():
            await done
        else:
            done.result()

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        if execution is None:
            return await self._reading(lambda db: _read_all(db, after, limit))
        return await self._reading(lambda db: _read_one(db, execution, after, limit))

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        return await self._reading(lambda db: find_questions(db, named, before, limit))

    async def heads(
        self, *, prefix: str = "", statuses: Sequence[str] = (), name: str = "", before: str = "", limit: int = 0
    ) -> list[Head]:
        conditions, parameters = ["1"], list[Any]()
        if prefix:
            # The range of texts that begin with the prefix: uses the index, unlike LIKE.
            conditions.append("id >= ? AND id < ?")
            parameters += [prefix, prefix + "\U0010ffff"]
        if statuses:
            conditions.append(f"status IN ({', '.join('?' * len(statuses))})")
            parameters += statuses
        if name:
            conditions.append("name = ?")
            parameters.append(name)
        if before:
            conditions.append("id < ?")
            parameters.append(before)
        sql = f"SELECT {_HEAD_COLUMNS} FROM executions WHERE {' AND '.join(conditions)}"
        sql += " ORDER BY id DESC" + (" LIMIT ?" if limit else "")
        if limit:
            parameters.append(limit)
        quick = 0 < limit <= MOST_HEADS_ON_LOOP
        return await self._reading(lambda db: [_head(row) for row in db.execute(sql, parameters)], quick=quick)

    async def counts(self) -> dict[str, int]:
        sql = "SELECT status, count FROM status_counts WHERE count > 0"
        return await self._reading(lambda db: dict(db.execute(sql)), quick=True)

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        encoded = msgspec.json.encode(body)

        def write(db: sqlite3.Connection) -> None:
            sql = "INSERT INTO inbox (execution, at, body) VALUES (?, ?, ?)"
            db.execute(sql, (execution, at, encoded))

        await self._writing(write)

    async def receive(self, after: int = 0) -> list[Message]:
        sql = "SELECT id, execution, at, body FROM inbox WHERE id > ? ORDER BY id"
        return await self._reading(
            lambda db: [found for row in db.execute(sql, (after,)) if (found := _message(*row)) is not None]
        )

    async def remove(self, *executions: str) -> None:
        def write(db: sqlite3.Connection) -> None:
            for execution in executions:
                row = db.execute("SELECT key FROM executions WHERE id = ?", (execution,)).fetchone()
                if row is not None:
                    # The last row stays, as nobody's: positions must never be given out again.
                    db.execute(
                        "UPDATE events SET execution = 0, seq = position, body = '', checksum = NULL "
                        "WHERE execution = ? AND position = (SELECT max(position) FROM events)",
                        row,
                    )
                    db.execute("DELETE FROM events WHERE execution = ?", row)
                    forget_questions(db, row[0])
                    db.execute("DELETE FROM executions WHERE key = ?", row)
                db.execute("DELETE FROM inbox WHERE execution = ?", (execution,))
                self._known.pop(execution, None)

        await self._writing(write)

    async def reclaim(self, most: int | None = None) -> int:
        return await asyncio.to_thread(reclaim_space, self._path, most)

    async def close(self) -> None:
        self._flush()
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        close_database(self._writer, self._path)
        close_database(self._reader, self._path)
        self._presence.leave()

    # -- reading -------------------------------------------------------------------------------

    async def _reading(self, fetch: Callable[[sqlite3.Connection], T], *, quick: bool = False) -> T:
        """Read in a thread, or a `quick` read on the loop, while those before it were short and nobody else reads."""
        if quick and self._read_pace.fast and self._read_lock.acquire(blocking=False):
            try:
                return self._fetch(fetch, self._read_pace)
            finally:
                self._read_lock.release()

        def locked() -> T:
            with self._read_lock:
                return self._fetch(fetch, self._read_pace if quick else None)

        return await asyncio.to_thread(locked)

    def _fetch(self, fetch: Callable[[sqlite3.Connection], T], pace: Pace | None) -> T:
        with translate(self._path):
            self._file.check()
            began = time.perf_counter()
            found = fetch(self._reader)
            if pace is not None:
                pace.took(time.perf_counter() - began)
            return found

    # -- writing -------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def _writing(self, work: Callable[[sqlite3.Connection], None]) -> None:
        done = self._running_loop().create_future()
        self._pending.append(_Job(work, done))
        self._running_loop().call_soon(self._flush)
        await done

    def _flush(self) -> None:
        """Commit what this turn of the loop brought: here while the disk is fast, else in the thread."""
        batch, self._pending = self._pending, []
        if not batch:
            return
        if self._pace.fast and len(batch) <= MOST_ON_LOOP and self._turn.acquire(blocking=False):
            try:
                outcomes = self._commit(batch, patience=0.0)
            except _Busy:
                self._queue_up(batch)
            else:
                _resolve(outcomes)
            finally:
                self._turn.release()
        else:
            self._queue_up(batch)

    def _queue_up(self, batch: list[_Append | _Job]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="windlass-journal", daemon=True)
            self._thread.start()
        self._queue.put(batch)

    def _write(self) -> None:
        """The writer thread: everything that is waiting goes into one commit."""
        while (batch := self._queue.get()) is not None:
            last = False
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                batch = batch + more
            with self._turn:
                outcomes = self._commit(batch, patience=PATIENCE)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_resolve, outcomes)
            if last:
                return

    def _commit(self, batch: list[_Append | _Job], patience: float) -> _Outcomes:
        error = self._transact(batch, patience)
        if error is None:
            self._forget_ended(batch)
            return [(request.done, None) for request in batch]
        if len(batch) == 1 or isinstance(error, Vanished):
            return [(request.done, error) for request in batch]
        # One of them cannot be written. Alone, each gets the answer that is its own.
        return [(request.done, self._transact([request], PATIENCE)) for request in batch]

    def _forget_ended(self, batch: list[_Append | _Job]) -> None:
        """Keep nothing in memory about executions that no longer run."""
        for request in batch:
            if isinstance(request, _Append) and request.head is not None and request.head.status != "running":
                self._known.pop(request.execution, None)

    def _transact(self, batch: list[_Append | _Job], patience: float) -> Exception | None:
        """One transaction. The error is the callers' to see; only `_Busy` is raised."""
        try:
            fault_point("journal.before_write")
            self._begin(patience)
            try:
                self._notice_others()
                self._write_all(batch)
                fault_point("journal.before_commit")
                began = time.perf_counter()
                self._writer.execute("COMMIT")
                self._pace.took(time.perf_counter() - began)
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                self._known.clear()
                raise
            fault_point("journal.after_commit")
            self._file.check()
        except _Busy:
            raise
        except (JournalError, Conflict) as error:
            return error
        except Exception as error:  # whatever it is, it belongs to the caller, not to this thread
            return meaning(error, self._path)
        return None

    def _begin(self, patience: float) -> None:
        """Take SQLite's write lock, waiting for other processes as long as there is patience."""
        give_up = time.monotonic() + patience
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) and "busy" not in str(error):
                    raise
                if patience == 0.0:
                    raise _Busy from error
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.005)

    def _notice_others(self) -> None:
        """Another process may have gone on with an execution or removed it, and its key may be another's now."""
        (version,) = self._writer.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._known.clear()

    def _write_all(self, batch: list[_Append | _Job]) -> None:
        """Everything in the batch; the events of all appends go in with one statement."""
        db = self._writer
        rows: list[_Row] = []
        for request in batch:
            if isinstance(request, _Append):
                self._take(db, request, rows)
            else:
                db.executemany(_INSERT, rows)  # a removal must find what came before it
                rows.clear()
                request.work(db)
        db.executemany(_INSERT, rows)

    def _take(self, db: sqlite3.Connection, request: _Append, rows: list[_Row]) -> None:
        """Check that an append follows what is there, and add its rows to those that will be written."""
        key, seq = self._known.get(request.execution) or self._look_up(db, request)
        if seq != request.after:
            raise _stale(request.execution)
        for body in request.bodies:
            seq += 1
            rows.append((key, seq, body, checksum(request.execution, seq, body)))
        self._known[request.execution] = (key, seq)
        if request.head is not None and request.after > 0:
            head = request.head
            db.execute(
                "UPDATE executions SET status = ?, updated_at = ?, driver = ?, detail = ?, "
                "expires_at = ? WHERE key = ?",
                (head.status, head.updated_at, head.driver, head.detail, head.expires_at, key),
            )
        if request.questions is not None:
            update_index(db, key, request.questions)
        for message in request.consumed:
            db.execute("DELETE FROM inbox WHERE id = ?", (message,))

    def _look_up(self, db: sqlite3.Connection, request: _Append) -> tuple[int, int]:
        """The execution's key and last sequence; an execution that begins gets its line."""
        row = db.execute("SELECT key FROM executions WHERE id = ?", (request.execution,)).fetchone()
        if row is not None:
            (last,) = db.execute("SELECT max(seq) FROM events WHERE execution = ?", row).fetchone()
            return row[0], last
        if request.after > 0:
            raise _stale(request.execution)
        if request.head is None:
            raise JournalError("the first append of an execution brings its head")
        marks = ", ".join("?" * len(request.head))
        sql = f"INSERT INTO executions ({_HEAD_COLUMNS}) VALUES ({marks})"
        key = db.execute(sql, request.head).lastrowid
        assert key is not None
        return key, 0


def _read_one(db: sqlite3.Connection, execution: str, after: int, limit: int) -> list[Entry]:
    """One execution's entries. Raises `Damaged` with the first that is missing or cannot be read."""
    sql = (
        "SELECT events.position, events.seq, events.body, events.checksum FROM events JOIN executions "
        "ON executions.key = events.execution WHERE executions.id = ? AND events.seq > ? ORDER BY events.seq"
    )
    entries: list[Entry] = []
    due = after + 1
    try:
        for position, seq, body, stored in db.execute(f"{sql} LIMIT ?", (execution, after, limit or -1)):
            if seq != due:
                raise Damaged(execution, due, "it is missing")
            entries.append(Entry(position, execution, seq, decode_row(execution, seq, body, stored)))
            due += 1
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise Damaged(execution, due, "a page of the database is damaged") from error
    return entries


def _read_all(db: sqlite3.Connection, after: int, limit: int) -> list[Entry]:
    """Everyone's entries after a position, without those that cannot be read: one must not hide the others."""
    sql = (
        "SELECT events.position, executions.id, events.seq, events.body, events.checksum FROM events "
        "JOIN executions ON executions.key = events.execution WHERE events.position > ? ORDER BY events.position"
    )
    entries: list[Entry] = []
    with closing(db.execute(sql, (after,))) as rows:
        for position, execution, seq, body, stored in rows:
            try:
                entries.append(Entry(position, execution, seq, decode_row(execution, seq, body, stored)))
            except Damaged:
                continue  # reading the execution itself says so
            if len(entries) == limit:
                break
    return entries


def _head(row: tuple[Any, ...]) -> Head:
    """An execution's line. A damaged one may hold any number for a time, which would break every list it is in."""
    head = Head(*row)
    times = {"created_at": head.created_at, "updated_at": head.updated_at, "expires_at": head.expires_at or 0.0}
    wrong: dict[str, Any] = {
        name: 0.0 for name, at in times.items() if not (isinstance(at, float) and 0.0 <= at < _END_OF_TIME)
    }
    return head._replace(**wrong) if wrong else head


def _message(id: int, execution: str, at: float, body: Any) -> Message | None:
    """A message of the inbox; None where its bytes were damaged: nobody can act on it."""
    try:
        return Message(id, execution, at, msgspec.json.decode(body))
    except (msgspec.DecodeError, TypeError):
        return None


def _stale(execution: str) -> Conflict:
    return Conflict(f"another driver went on with execution {execution}; nothing was written")


def _resolve(outcomes: _Outcomes) -> None:
    for done, error in outcomes:
        if done.done():
            continue  # whoever waited was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
