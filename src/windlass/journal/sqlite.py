"""The embedded journal: one SQLite file, WAL, `synchronous=FULL`.

Appends of one turn of the event loop, from however many executions, share one commit (group commit). The commit
runs on the loop while the disk is fast and in a writer thread otherwise (see `Pace`), so that a slow disk holds
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
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from windlass.core.events import Event, encode
from windlass.core.history import ExecutionRecord
from windlass.core.questions import QuestionChanges
from windlass.errors import Conflict, JournalError
from windlass.journal.database import Busy, Database, Pace, meaning
from windlass.journal.history import STEPS_SUMMED_AFTER, is_recorded, write_record
from windlass.journal.presence import Presence
from windlass.journal.questions import find_questions, forget_questions, update_index
from windlass.journal.rows import HEAD_COLUMNS, EventRow, read_all, read_one, to_head, to_message, to_rows
from windlass.journal.schema import open_database, reclaim_space
from windlass.ports import AskedQuestion, Entry, Head, Message, Note

if TYPE_CHECKING:
    from windlass.journal.forecasts import SqliteForecasts
    from windlass.journal.history_sums import SqliteHistory

__all__ = ["SqliteJournal"]

_INSERT = "INSERT INTO events (execution, seq, body, checksum) VALUES (?, ?, ?, ?)"
T = TypeVar("T")
_Outcomes = list[tuple["asyncio.Future[None] | None", Exception | None]]

MOST_ON_LOOP = 200
"""Appends that may be written on the loop together; more of them are work enough for the thread."""
MOST_HEADS_ON_LOOP = 101
"""Heads that may be read on the loop: a page of a list, which an index finds."""
LONG_READ = 0.05
"""Seconds of such a read, from which on those after it are left to the thread for a while."""
PATIENCE = 10.0
"""Seconds to wait for another process that is writing."""


class _Append(msgspec.Struct):
    execution: str
    after: int
    bodies: list[bytes]
    head: Head | None
    consumed: Sequence[int]
    questions: QuestionChanges | None
    record: ExecutionRecord | None
    notes: Sequence[Note] = ()
    summing: bool = False
    """It is time to bring the sums of the history up to date."""
    done: asyncio.Future[None] | None = None


class _Job(msgspec.Struct):
    """Some other write: sending a message, removing an execution."""

    work: Callable[[sqlite3.Connection], None]
    done: asyncio.Future[None]


class SqliteJournal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._presence = Presence(path.parent / "drivers")
        # It waits for other writers in the thread alone, and only where told to: hence `busy=0`.
        self._writer = Database(path, open_database, faults="journal", busy=0.0)
        self._writer.open()
        self._reader = Database(path, open_database, prepare=_tolerate_damaged_text)
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
        self._forecasts: SqliteForecasts | None = None
        self._steps_to_sum = 0
        """Steps in the records of this journal that are not in the history's sums yet."""

    # -- the port ------------------------------------------------------------------------------

    @property
    def forecasts(self) -> SqliteForecasts:
        if self._forecasts is None:  # made when first needed: most processes forecast nothing
            from windlass.journal.forecasts import SqliteForecasts

            self._forecasts = SqliteForecasts(self._reading, self._writing)
        return self._forecasts

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
        record: ExecutionRecord | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        bodies = list(map(encode, events))
        request = _Append(execution, after, bodies, head, consumed, questions, record, notes)
        # Where nobody else appended since, there is no company to share a commit with.
        if not (execution == self._last and not self._pending and self._write_now(request)):
            self._last = execution
            loop = self._loop or self._running_loop()
            request.done = loop.create_future()
            self._pending.append(request)
            if len(self._pending) == 1:
                loop.call_soon(self._flush)
            await request.done
        if request.summing:
            self._sum_later()

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        if execution is None:
            return await self._reading(lambda db: read_all(db, after, limit))
        return await self._reading(lambda db: read_one(db, execution, after, limit))

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        return await self._reading(lambda db: find_questions(db, named, before, limit))

    async def count_questions(self) -> int:
        return await self._reading(lambda db: int(db.execute("SELECT count(*) FROM questions").fetchone()[0]))

    async def heads(
        self,
        *,
        prefix: str = "",
        statuses: Sequence[str] = (),
        name: str = "",
        text: str = "",
        since: float = 0.0,
        before: str = "",
        limit: int = 0,
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
        if text:
            conditions.append("(instr(lower(name), lower(?)) OR instr(id, lower(?)))")
            parameters += [text, text]
        if since:
            conditions.append("created_at >= ?")
            parameters.append(since)
        if before:
            conditions.append("id < ?")
            parameters.append(before)
        sql = f"SELECT {HEAD_COLUMNS} FROM executions WHERE {' AND '.join(conditions)}"
        sql += " ORDER BY id DESC" + (" LIMIT ?" if limit else "")
        if limit:
            parameters.append(limit)
        quick = 0 < limit <= MOST_HEADS_ON_LOOP and not text and not since  # these may read every row
        return await self._reading(lambda db: [to_head(row) for row in db.execute(sql, parameters)], quick=quick)

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

        def fetch(db: sqlite3.Connection) -> list[Message]:
            return [found for row in db.execute(sql, (after,)) if (found := to_message(*row)) is not None]

        return await self._reading(fetch, quick=True)  # ten times a second, and nearly always there is none

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
            _sum_up(db)  # nothing of what was removed stays in the history

        await self._writing(write)

    @cached_property
    def history(self) -> SqliteHistory:
        from windlass.journal.history_sums import SqliteHistory  # few commands need it

        return SqliteHistory(self._reading, self._writing)

    async def reclaim(self, most: int | None = None) -> int:
        return await asyncio.to_thread(reclaim_space, self._path, most)

    async def close(self) -> None:
        self._flush()
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        self._writer.close()
        await self._reader.aclose()
        self._presence.leave()

    # -- reading -------------------------------------------------------------------------------

    async def _reading(self, fetch: Callable[[sqlite3.Connection], T], *, quick: bool = False) -> T:
        """Read in a thread, or a `quick` read on the loop, while those before it were short and no other one runs."""
        if not quick:
            return await self._reader.reading(fetch)
        timed = partial(self._timed, fetch)
        if self._read_pace.fast:
            with suppress(Busy):
                return self._reader.read(timed, wait=False)
        return await self._reader.reading(timed)

    def _timed(self, fetch: Callable[[sqlite3.Connection], T], db: sqlite3.Connection) -> T:
        began = time.perf_counter()
        found = fetch(db)
        self._read_pace.took(time.perf_counter() - began)
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

    def _sum_later(self) -> None:
        """Bring the history's sums up to date in the thread: nobody has to wait for them."""
        self._steps_to_sum = 0
        done = self._running_loop().create_future()
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._queue_up([_Job(_sum_up, done)])

    def _write_now(self, request: _Append) -> bool:
        """Commit one append on the loop; False if that would mean to wait, and nothing was written."""
        if not self._pace.fast or not self._turn.acquire(blocking=False):
            return False
        try:
            error = self._transact([request], patience=0.0)
        except Busy:
            return False
        finally:
            self._turn.release()
        if error is not None:
            raise error
        if request.head is not None:
            self._forget_ended([request])
        return True

    def _flush(self) -> None:
        """Commit what this turn of the loop brought: here while the disk is fast, else in the thread."""
        batch, self._pending = self._pending, []
        if not batch:
            return
        if self._pace.fast and len(batch) <= MOST_ON_LOOP and self._turn.acquire(blocking=False):
            try:
                outcomes = self._commit(batch, patience=0.0)
            except Busy:
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
        if len(batch) == 1 or self._writer.committed:  # what is written must not be written again
            return [(request.done, error) for request in batch]
        # One of them cannot be written. Alone, each gets the answer that is its own.
        return [(request.done, self._transact([request], PATIENCE)) for request in batch]

    def _forget_ended(self, batch: list[_Append | _Job]) -> None:
        """Keep nothing in memory about executions that no longer run."""
        for request in batch:
            if isinstance(request, _Append) and request.head is not None and request.head.status != "running":
                self._known.pop(request.execution, None)

    def _transact(self, batch: list[_Append | _Job], patience: float) -> Exception | None:
        """One transaction. The error is the callers' to see; only `Busy` is raised."""
        try:
            self._writer.transact(partial(self._write_all, batch), patience)
        except Busy:
            raise
        except (JournalError, Conflict) as error:
            self._known.clear()
            return error
        except Exception as error:  # whatever it is, it belongs to the caller, not to this thread
            self._known.clear()
            return meaning(error, self._path)
        self._pace.took(self._writer.disk_seconds)
        return None

    def _notice_others(self) -> None:
        """Forget what is known if another process wrote: it may have removed an execution, and reused its key."""
        (version,) = self._writer.cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._known.clear()

    def _write_all(self, batch: list[_Append | _Job], db: sqlite3.Connection) -> None:
        """Write everything in the batch; the events of all appends go in with one statement."""
        self._notice_others()
        rows: list[EventRow] = []
        for request in batch:
            if isinstance(request, _Append):
                self._take(db, request, rows)
            else:
                self._writer.cursor.executemany(_INSERT, rows)  # a removal must find what came before it
                rows.clear()
                request.work(db)
        self._writer.cursor.executemany(_INSERT, rows)

    def _take(self, db: sqlite3.Connection, request: _Append, rows: list[EventRow]) -> None:
        """Check that an append follows what is there, and add its rows to those that will be written."""
        execution = request.execution
        key, seq = self._known.get(execution) or self._look_up(db, request)
        if seq != request.after:
            raise _stale(execution)
        rows += to_rows(key, execution, seq, request.bodies)
        self._known[execution] = (key, seq + len(request.bodies))
        head = request.head
        if request.record is not None:
            time_to_sum = write_record(db, key, request.record, head.updated_at if head is not None else 0.0)
            if request.after == 0 and time_to_sum is not None:
                is_recorded(db, key)
            self._steps_to_sum += len(request.record.steps)
            request.summing = bool(time_to_sum) or self._steps_to_sum >= STEPS_SUMMED_AFTER
        if head is not None and request.after > 0:
            db.execute(
                "UPDATE executions SET status = ?, updated_at = ?, driver = ?, detail = ?, "
                "expires_at = ? WHERE key = ?",
                (head.status, head.updated_at, head.driver, head.detail, head.expires_at, key),
            )
        if request.questions is not None:
            update_index(db, key, request.questions)
        if request.notes:
            from windlass.journal.outbox import add_notes  # only homes with rules for notifications get here

            add_notes(db, request.notes)
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
        sql = f"INSERT INTO executions ({HEAD_COLUMNS}) VALUES ({marks})"
        key = db.execute(sql, request.head).lastrowid
        assert key is not None
        return key, 0


def _tolerate_damaged_text(db: sqlite3.Connection) -> None:
    """Have damaged bytes in a name replaced: one such name must not keep every other row from being read."""
    db.text_factory = partial(str, encoding="utf-8", errors="replace")


def _sum_up(db: sqlite3.Connection) -> None:
    from windlass.journal.history_sums import sum_up

    while sum_up(db):
        continue


def _stale(execution: str) -> Conflict:
    return Conflict(f"another process took over execution {execution}; nothing was written")


def _resolve(outcomes: _Outcomes) -> None:
    for done, error in outcomes:
        if done is None or done.done():
            continue  # whoever waited was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
