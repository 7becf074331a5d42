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
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from windlass.core.events import Event, encode
from windlass.core.history import ExecutionRecord
from windlass.core.questions import QuestionChanges
from windlass.errors import Conflict, JournalError
from windlass.journal.append import Known, Outcomes, PendingAppend, forget_ended, resolve, sum_up_all, take_append
from windlass.journal.database import Busy, Database, Pace, SqlConnection, meaning
from windlass.journal.presence import Presence
from windlass.journal.queries import JournalQueries
from windlass.journal.questions import forget_questions
from windlass.journal.rows import EventRow
from windlass.journal.schema import open_database, reclaim_space
from windlass.ports import Head, Note

__all__ = ["SqliteJournal"]

_INSERT = "INSERT INTO events (execution, seq, body, checksum) VALUES (?, ?, ?, ?)"
T = TypeVar("T")

MOST_ON_LOOP = 200
"""Appends that may be written on the loop together; more of them are work enough for the thread."""
LONG_READ = 0.05
"""Seconds of such a read, from which on those after it are left to the thread for a while."""
PATIENCE = 10.0
"""Seconds to wait for another process that is writing."""


class _Job(msgspec.Struct):
    """Some other write: sending a message, removing an execution."""

    work: Callable[[sqlite3.Connection], None]
    done: asyncio.Future[None]


class SqliteJournal(JournalQueries):
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
        self._known: Known = {}
        """Keys and last sequences of executions, for as long as nobody else writes to the file."""
        self._version = 0
        self._pending: list[PendingAppend | _Job] = []
        self._queue: queue.SimpleQueue[list[PendingAppend | _Job] | None] = queue.SimpleQueue()
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
        record: ExecutionRecord | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        # A `bytearray` is stored as it is; for `bytes`, sqlite3 first looks for an adapter.
        bodies = [bytearray(encode(event)) for event in events]
        request = PendingAppend(execution, after, bodies, head, consumed, questions, record, notes)
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
            sum_up_all(db)  # nothing of what was removed stays in the history

        await self._writing(write)

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
        done = self._running_loop().create_future()
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._queue_up([_Job(sum_up_all, done)])

    def _write_now(self, request: PendingAppend) -> bool:
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
            forget_ended(self._known, [request])
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
                resolve(outcomes)
            finally:
                self._turn.release()
        else:
            self._queue_up(batch)

    def _queue_up(self, batch: list[PendingAppend | _Job]) -> None:
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
                self._loop.call_soon_threadsafe(resolve, outcomes)
            if last:
                return

    def _commit(self, batch: list[PendingAppend | _Job], patience: float) -> Outcomes:
        error = self._transact(batch, patience)
        if error is None:
            forget_ended(self._known, batch)
            return [(request.done, None) for request in batch]
        if len(batch) == 1 or self._writer.committed:  # what is written must not be written again
            return [(request.done, error) for request in batch]
        # One of them cannot be written. Alone, each gets the answer that is its own.
        return [(request.done, self._transact([request], PATIENCE)) for request in batch]

    def _transact(self, batch: list[PendingAppend | _Job], patience: float) -> Exception | None:
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

    def _write_all(self, batch: list[PendingAppend | _Job], db: sqlite3.Connection) -> None:
        """Write everything in the batch; the events of all appends go in with one statement."""
        self._notice_others()
        rows: list[EventRow] = []
        for request in batch:
            if isinstance(request, PendingAppend):
                execution = request.execution
                self._known[execution] = take_append(db, request, rows, self._known.get(execution), _insert_head)
            else:
                self._writer.cursor.executemany(_INSERT, rows)  # a removal must find what came before it
                rows.clear()
                request.work(db)
        self._writer.cursor.executemany(_INSERT, rows)


def _tolerate_damaged_text(db: sqlite3.Connection) -> None:
    """Have damaged bytes in a name replaced: one such name must not keep every other row from being read."""
    db.text_factory = partial(str, encoding="utf-8", errors="replace")


def _insert_head(db: SqlConnection, sql: str, head: Head) -> int | None:
    inserted = db.execute(sql, head)
    return inserted.lastrowid if inserted.rowcount else None
