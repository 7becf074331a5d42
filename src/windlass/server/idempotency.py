"""`Idempotency-Key`: the same key and request give the same answer, and the request is carried out once.

`IdempotencyMiddleware` wraps the application, inside the guard and `SoundBodies`. Requests with one key run one after
the other, so that the second finds the first one's answer. `IdempotencyKeys` is their table in the journal's file. A
row is on disk before its request is begun, with the id that an execution started by it, or an event written for it,
will have; the answer is on disk before anybody gets it. So after a crash in between, the same key finds out what became
of it: the execution or the event of that id is there, or nothing was done. Only answers that mean "done" are stored; an
error leaves the key free.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.clock import Clock
from windlass.errors import JournalError
from windlass.faults import fault_point
from windlass.ids import new_id
from windlass.journal.database import Database, SqlConnection, SqlStore
from windlass.journal.schema import open_database
from windlass.server.bodies import BODY
from windlass.server.problems import of_error, problem

__all__ = ["KEPT_FOR", "IdempotencyKeys", "IdempotencyMiddleware", "ticket_of"]

KEPT_FOR = 24 * 3600.0
"""Seconds that an answer is kept."""
PATIENCE = 30.0
"""Seconds to wait for other processes that are writing."""

# Made when it is missed: a database of an older release gains it, and an older release does not mind it.
_TABLE = """
CREATE TABLE IF NOT EXISTS requests (
  key TEXT PRIMARY KEY, digest TEXT NOT NULL, execution TEXT NOT NULL, at REAL NOT NULL,
  status INTEGER, location TEXT NOT NULL DEFAULT '', body BLOB
) WITHOUT ROWID
"""


class KnownRequest(NamedTuple):
    """A request that came before, or is to be carried out now."""

    digest: str
    """Of the request, to know it from another one under the same key."""
    execution: str
    """The id that is kept for an execution that it starts, or an event that it writes."""
    fresh: bool
    """Begun for the first time."""
    status: int | None = None
    """Of the answer, if it came to one."""
    location: str = ""
    body: bytes = b""


class IdempotencyKeys:
    """The requests of a home, by key. Used by one server at a time."""

    def __init__(self, where: Path | SqlStore) -> None:
        """`where` is the journal's file, or another database in which one writes at a time."""
        self._db: SqlStore = (
            Database(where, open_database, prepare=_make_table, busy=PATIENCE) if isinstance(where, Path) else where
        )

    async def begin(self, key: str, digest: str, at: float) -> KnownRequest:
        """Write a request down before it is begun, or give what is known of it."""

        def work(db: SqlConnection) -> KnownRequest:
            sql = "SELECT digest, execution, 0, status, location, body FROM requests WHERE key = ? AND at > ?"
            row = db.execute(sql, (key, at - KEPT_FOR)).fetchone()
            if row is not None:
                return KnownRequest(row[0], row[1], False, row[3], row[4], row[5] or b"")
            made = new_id()
            db.execute("DELETE FROM requests WHERE key = ?", (key,))  # one that is too old
            sql = "INSERT INTO requests (key, digest, execution, at) VALUES (?, ?, ?, ?)"
            db.execute(sql, (key, digest, made, at))
            return KnownRequest(digest, made, True)

        found = await self._db.writing(work)
        fault_point("request.begun")
        return found

    async def finish(self, key: str, status: int, location: str, body: bytes) -> None:
        """Store the answer."""
        fault_point("request.done")
        sql = "UPDATE requests SET status = ?, location = ?, body = ? WHERE key = ?"
        await self._db.writing(lambda db: db.execute(sql, (status, location, body, key)))
        fault_point("request.kept")

    async def forget(self, key: str) -> None:
        """Free a key whose request was refused."""
        await self._db.writing(lambda db: db.execute("DELETE FROM requests WHERE key = ? AND status IS NULL", (key,)))

    async def forget_old(self, now: float) -> None:
        await self._db.writing(lambda db: db.execute("DELETE FROM requests WHERE at <= ?", (now - KEPT_FOR,)))

    async def close(self) -> None:
        await self._db.aclose()


def _make_table(db: sqlite3.Connection) -> None:
    db.execute(_TABLE)


HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
LONGEST_KEY = 255
_TICKET = "windlass.ticket"


class Ticket(NamedTuple):
    """The key's entry, as the handler of its request needs it: safe to repeat after a crash in between."""

    id: str | None = None
    """The id for an execution that it starts, and for the message or the event that it writes; None without a key."""
    again: bool = False
    """The request was begun before, by a server that died before it answered: it may be done."""


def ticket_of(request: Request) -> Ticket:
    found: Ticket = request.scope.get(_TICKET) or Ticket()
    return found


class IdempotencyMiddleware:
    def __init__(self, app: ASGIApp, keys: IdempotencyKeys, clock: Clock) -> None:
        self._app = app
        self._keys = keys
        self._clock = clock
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}
        """A lock for each key in use, and the number of requests that hold or await it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).getlist(HEADER) if scope["type"] == "http" and scope["method"] == "POST" else []
        if not given or BODY not in scope:
            await self._app(scope, receive, send)
            return
        key = given[0]
        if len(given) > 1 or not key.strip() or len(key) > LONGEST_KEY or not key.isprintable():
            text = f"send one Idempotency-Key of 1 to {LONGEST_KEY} printable characters"
            await problem(400, "not a key", text)(scope, receive, send)
            return
        try:
            await self._once(key, scope, receive, send)
        except JournalError as error:
            await of_error(error)(scope, receive, send)

    async def _once(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        digest = _digest(scope)
        async with self._in_line(key):
            kept = await self._keys.begin(key, digest, self._clock.now())
            if kept.digest != digest:
                await _another()(scope, receive, send)
            elif kept.status is not None:
                await _replayed(kept)(scope, receive, send)
            else:
                scope[_TICKET] = Ticket(kept.execution, again=not kept.fresh)
                await self._do(key, scope, receive, send)

    async def _do(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, store its answer, then send it."""
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, hold)
        start = next(message for message in messages if message["type"] == "http.response.start")
        status = start["status"]
        if status < 400:
            location = Headers(raw=start["headers"]).get("location", "")
            body = b"".join(m.get("body", b"") for m in messages if m["type"] == "http.response.body")
            await self._keys.finish(key, status, location, body)
        elif status < 500:
            await self._keys.forget(key)  # refused: nothing was done
        for message in messages:
            await send(message)

    @asynccontextmanager
    async def _in_line(self, key: str) -> AsyncIterator[None]:
        lock, count = self._lines.get(key, (asyncio.Lock(), 0))
        self._lines[key] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._lines[key]
            if count == 1:
                del self._lines[key]
            else:
                self._lines[key] = (lock, count - 1)


def _digest(scope: Scope) -> str:
    parts = (scope["method"].encode(), scope["path"].encode(), scope["query_string"], scope[BODY])
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part))
        whole.update(part)
    return whole.hexdigest()


def _another() -> Response:
    return problem(
        422,
        "the key belongs to another request",
        "this Idempotency-Key was used for a different path or body",
        advice=("use a new key for each request; repeat a request with the same body",),
    )


def _replayed(kept: KnownRequest) -> Response:
    headers = {REPLAYED: "true"} | ({"location": kept.location} if kept.location else {})
    assert kept.status is not None
    return Response(kept.body, kept.status, headers, "application/json")
