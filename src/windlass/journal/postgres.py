"""The journal in PostgreSQL, for executions that several machines share.

Appends that wait at the same moment share one commit, which a thread writes; one that is alone needs no thread
(`postgres_quick`). Processes do not wait for each other: the unique index on (execution, seq) refuses whoever writes
from a stale view, and whoever follows everybody's events reads up to the first position that a transaction in flight
may still fill (`_last_readable`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from psycopg import errors

from windlass.core.events import Event, encode
from windlass.core.history import ExecutionRecord
from windlass.core.questions import QuestionChanges
from windlass.errors import Conflict
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.append import (
    Known,
    Outcomes,
    PendingAppend,
    forget_ended,
    resolve,
    stale,
    sum_up_all,
    take_append,
)
from windlass.journal.database import SqlConnection
from windlass.journal.postgres_append import ANNOUNCE, write_events_alone
from windlass.journal.postgres_database import PostgresDatabase
from windlass.journal.postgres_news import LOOKS, PostgresNews, channel_of
from windlass.journal.postgres_presence import LeasedPresence
from windlass.journal.postgres_quick import QuickAppends
from windlass.journal.postgres_schema import LOCKS, SEQUENCE
from windlass.journal.queries import JournalQueries
from windlass.journal.questions import forget_questions
from windlass.journal.rows import EventRow
from windlass.ports import Head, Note

__all__ = ["PostgresJournal"]

T = TypeVar("T")

_HISTORY = -2
"""Second key of the lock on the history: shared by those who write records, alone for those who sum them up."""
_SHARE_HISTORY = f"pg_advisory_xact_lock_shared({LOCKS}, {_HISTORY})"
_HAVE_HISTORY = f"pg_advisory_xact_lock({LOCKS}, {_HISTORY})"
# One at a time, so that messages are committed in the order of their numbers: a driver asks for those after the last.
_SEND = f"pg_advisory_xact_lock({LOCKS}, -20)"
_LAST = f"SELECT pg_sequence_last_value({SEQUENCE})"
_IN_FLIGHT = (
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 "
    f"AND classid = {LOCKS} AND objid < 1073741824 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_INSERT = (
    "WITH present AS (SELECT key FROM executions WHERE key = ANY(?::bigint[]) FOR KEY SHARE) "
    "INSERT INTO events (execution, seq, body, checksum) SELECT new.* FROM "
    "unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bigint[]) AS new(execution, seq, body, checksum) "
    "JOIN present ON present.key = new.execution ORDER BY new.execution, new.seq"
)
WINDOW = 1 << 30


class _PendingWork(msgspec.Struct):
    """Some other write: a message, a removal, the sums of the history."""

    work: Callable[[SqlConnection], None]
    done: asyncio.Future[None]
    lock: str
    """The lock that it takes before anything else."""


_Request = PendingAppend | _PendingWork


class PostgresJournal(JournalQueries):
    def __init__(self, url: PostgresUrl, home: Path) -> None:
        """`home` is the folder of this machine's files of executions."""
        self._url = url
        self._writer = PostgresDatabase(url, faults="journal")
        self._writer.open()
        self._reader = PostgresDatabase(url)
        self._presence = LeasedPresence(url, home)
        self._news = PostgresNews(url)
        self._known: Known = {}
        """Keys and last sequences of executions that this process drives. A stale one is refused by the index."""
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._quick = QuickAppends(self._writer, self._known, self._quick_ended)
        self._queued = 0
        """Requests that the thread has and that are not answered."""
        self._held: list[_Request] = []
        """Requests that wait until the loop has done with the session."""

    # -- the port ------------------------------------------------------------------------------

    def enlist(self, label: str = "") -> str:
        return self._presence.enlist(label)

    def alive(self, driver: str) -> bool:
        return bool(driver) and self._presence.alive(driver)

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
        done = self._running_loop().create_future()
        request = PendingAppend(execution, after, bodies, head, consumed, questions, record, notes, done)
        if self._queued or self._quick.busy or not self._quick.send(request):
            self._queue_up(request)
        await done
        if request.summing:
            done = self._running_loop().create_future()
            done.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._queue_up(_PendingWork(sum_up_all, done, _HAVE_HISTORY))

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        sql = "INSERT INTO inbox (execution, at, body) VALUES (?, ?, ?)"
        encoded = msgspec.json.encode(body)

        def write(db: SqlConnection) -> None:
            db.execute(sql, (execution, at, encoded))
            driven = db.execute("SELECT driver FROM executions WHERE id = ?", (execution,)).fetchone()
            if driven is not None and driven[0]:
                db.execute("SELECT pg_notify(?, '')", (channel_of(driven[0]),))

        await self._write(write, _SEND)

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        return self._news.listen(name, told)

    @property
    def poll(self) -> float:
        return LOOKS if self._news.hears else super().poll

    async def remove(self, *executions: str) -> None:
        def write(db: SqlConnection) -> None:
            for execution in sorted(executions):
                row = db.execute("SELECT key FROM executions WHERE id = ? FOR UPDATE", (execution,)).fetchone()
                if row is not None:
                    db.execute("DELETE FROM events WHERE execution = ?", row)
                    forget_questions(db, row[0])
                    db.execute("DELETE FROM executions WHERE key = ?", row)
                db.execute("DELETE FROM inbox WHERE execution = ?", (execution,))
                self._known.pop(execution, None)
            sum_up_all(db)  # nothing of what was removed stays in the history

        await self._writing(write)

    async def reclaim(self, most: int | None = None) -> int:
        """The server gives space back by itself (autovacuum)."""
        return 0

    async def close(self) -> None:
        if self._quick.busy:  # whoever waited for it was cancelled
            await self._write(lambda db: None, "")
        self._quick.let_go()
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        await asyncio.to_thread(self._news.close)
        self._writer.close()
        await self._reader.aclose()
        await asyncio.to_thread(self._presence.leave)

    # -- reading -------------------------------------------------------------------------------

    async def _reading(self, fetch: Callable[[SqlConnection], T], *, quick: bool = False) -> T:
        def look_too(db: SqlConnection) -> T:
            if self._presence.stale:  # who asks for executions mostly asks next who drives them
                self._presence.look(db)
            return fetch(db)

        return await self._reader.reading(look_too)

    def _last_readable(self, db: SqlConnection) -> int:
        """The position before the first that a transaction in flight may still fill.

        Every position up to `last` was taken by a transaction that had published, before it took it, a lower one as a
        lock. If that lock is not there any more, the transaction has ended, and a statement after this one sees its
        rows. So this holds in the order of these two statements and the one that reads.
        """
        last = int(db.execute(_LAST).fetchone()[0])
        in_flight = [_unfolded(found, last) for (found,) in db.execute(_IN_FLIGHT)]
        return min([last, *in_flight])

    # -- writing -------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def _writing(self, work: Callable[[SqlConnection], None]) -> None:
        await self._write(work, _HAVE_HISTORY)

    async def _write(self, work: Callable[[SqlConnection], None], lock: str) -> None:
        done = self._running_loop().create_future()
        self._queue_up(_PendingWork(work, done, lock))
        await done

    def _queue_up(self, request: _Request) -> None:
        if self._quick.busy:
            self._held.append(request)
            return
        self._quick.let_go()
        self._queued += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._commit_queued, name="windlass-journal", daemon=True)
            self._thread.start()
        self._queue.put(request)

    def _quick_ended(self, request: PendingAppend, written: bool) -> None:
        held, self._held = self._held, []
        if written:
            self._news.tell((request.execution,))
            resolve([(request.done, None)])
        else:
            held.insert(0, request)
        for one in held:
            self._queue_up(one)

    def _answered(self, outcomes: Outcomes) -> None:
        self._queued -= len(outcomes)
        resolve(outcomes)

    def _commit_queued(self) -> None:
        """The writer thread: everything that is waiting goes into one commit."""
        last = False
        while not last and (request := self._queue.get()) is not None:
            batch = [request]
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                batch.append(more)
            outcomes = self._commit(batch)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._answered, outcomes)

    def _commit(self, batch: list[_Request]) -> Outcomes:
        if len(batch) > 1 and any(isinstance(request, PendingAppend) and request.doubtful for request in batch):
            return [(request.done, self._transact([request])) for request in batch]
        error = self._transact(batch)
        if error is None or len(batch) == 1:
            return [(request.done, error) for request in batch]
        # One of them cannot be written. Alone, each gets the answer that is its own.
        return [(request.done, self._transact([request])) for request in batch]

    def _transact(self, batch: list[_Request]) -> Exception | None:
        """One transaction. The error is the callers' to see."""
        # Locks are taken in the same order by all, before anything else: nobody can wait for each other in a circle.
        wanted = {request.lock for request in batch if isinstance(request, _PendingWork)}
        appends = [request for request in batch if isinstance(request, PendingAppend)]
        if _HAVE_HISTORY not in wanted and any(request.record is not None for request in appends):
            wanted.add(_SHARE_HISTORY)
        if appends:
            wanted.add(ANNOUNCE)
        locks = [lock for lock in (_HAVE_HISTORY, _SHARE_HISTORY, ANNOUNCE, _SEND) if lock in wanted]
        self._writer.beginning = f"SELECT {', '.join(locks)}" if locks else ""
        try:
            try:
                self._write_batch(batch, appends)
            except errors.UniqueViolation as error:
                if not (error.diag.constraint_name or "").endswith("_pkey"):
                    raise
                self._known.clear()
                self._writer.transact(_move_on)
                self._write_batch(batch, appends)
        except errors.UniqueViolation as error:
            self._known.clear()
            return stale(appends[0].execution, appends[0].after) if appends else self._writer.meaning(error)
        except Exception as error:  # whatever it is, it belongs to the caller, not to this thread
            self._known.clear()
            return self._writer.meaning(error)
        if appends:
            self._news.tell({request.execution for request in appends})
        forget_ended(self._known, batch)
        return None

    def _write_batch(self, batch: list[_Request], appends: list[PendingAppend]) -> None:
        if not write_events_alone(self._writer, batch, self._known):
            self._known |= self._writer.transact(partial(self._write_all, batch), again=not appends)

    def _write_all(self, batch: list[_Request], db: SqlConnection) -> Known:
        """Write everything in the batch; the events of all appends go in with one statement.

        Returns the keys and last sequences that hold after the commit. Until then it may have to be done again.
        """
        known: Known = {}
        rows: list[EventRow] = []
        for request in batch:
            if isinstance(request, PendingAppend):
                execution = request.execution
                before = known.get(execution) or self._known.get(execution)
                known[execution] = take_append(db, request, rows, before, _insert_head)
            else:
                _insert(db, rows)  # a removal must find what came before it
                rows.clear()
                request.work(db)
                known = {name: entry for name, entry in known.items() if name in self._known}
        _insert(db, rows)
        return known


def _insert_head(db: SqlConnection, sql: str, head: Head) -> int | None:
    row = db.execute(f"{sql} RETURNING key", head).fetchone()
    return None if row is None else int(row[0])


def _insert(db: SqlConnection, rows: list[EventRow]) -> None:
    """Write events of executions that are there; one that was removed meanwhile cannot go on."""
    if not rows:
        return
    keys, seqs, bodies, checksums = (list(column) for column in zip(*rows, strict=True))
    written = db.execute(_INSERT, (sorted(set(keys)), keys, seqs, bodies, checksums))
    if written.rowcount != len(rows):
        raise Conflict("an execution was removed by another process; nothing was written")


def _move_on(db: SqlConnection) -> None:
    """Let the numbers of all tables go on after the last ones.

    They fall behind in a database that was restored without them, or that a crash cut off soon after it was made as
    a copy of another one.
    """
    columns = "SELECT table_name, column_name FROM information_schema.columns"
    numbered = db.execute(f"{columns} WHERE is_identity = 'YES' AND table_schema = current_schema()").fetchall()
    for table, column in numbered:
        sequence = f"pg_get_serial_sequence('{table}', '{column}')::regclass"
        last = f"greatest((SELECT max({column}) FROM {table}), pg_sequence_last_value({sequence}), 1)"
        db.execute(f"SELECT setval({sequence}, {last})")


def _unfolded(low: int, last: int) -> int:
    """A position of which only the low bits are known, near another one."""
    return last + ((low - last + WINDOW // 2) % WINDOW) - WINDOW // 2
