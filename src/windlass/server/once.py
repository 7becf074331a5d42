"""`Idempotency-Key`: the same key and request give the same answer, and it is done once.

Wraps the application, inside the guard and `SoundBodies`. Requests with one key stand in line, so that the second finds
what the first came to. What a handler needs to be safe after a crash in between is in the scope: a `Ticket`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.clock import Clock
from windlass.server.bodies import BODY
from windlass.server.idempotency import Kept, Keys
from windlass.server.problems import problem

__all__ = ["HEADER", "Once", "Ticket", "ticket_of"]

HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
LONGEST_KEY = 255
_TICKET = "windlass.ticket"


class Ticket(NamedTuple):
    """What a handler is to know about its request."""

    execution: str | None = None
    """The id for an execution that it starts; None leaves it to the engine."""
    again: bool = False
    """It was begun before, by a server that did not live to answer: perhaps it is done."""


def ticket_of(request: Request) -> Ticket:
    found: Ticket = request.scope.get(_TICKET) or Ticket()
    return found


class Once:
    def __init__(self, app: ASGIApp, keys: Keys, clock: Clock) -> None:
        self._app = app
        self._keys = keys
        self._clock = clock
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}
        """Who stands in line for a key, and how many."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).getlist(HEADER) if scope["type"] == "http" and scope["method"] == "POST" else []
        if not given or BODY not in scope:
            await self._app(scope, receive, send)
            return
        key = given[0]
        if len(given) > 1 or not key.strip() or len(key) > LONGEST_KEY or not key.isprintable():
            text = f"an Idempotency-Key is given once, with 1 to {LONGEST_KEY} printable characters"
            await problem(400, "not a key", text)(scope, receive, send)
            return
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
        """Have it done, keep the answer, then give it."""
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
        "this Idempotency-Key was used with another path or another body",
        advice=("give every request a key of its own, and repeat a request exactly as it was",),
    )


def _replayed(kept: Kept) -> Response:
    headers = {REPLAYED: "true"} | ({"location": kept.location} if kept.location else {})
    assert kept.status is not None
    return Response(kept.body, kept.status, headers, "application/json")
