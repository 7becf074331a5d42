"""The two WebSocket endpoints: the events of the home, and those of one execution.

    /api/stream?after=POSITION                    without `after`: from now on
    /api/executions/{id}/stream?after=SEQUENCE    without `after`: from its beginning

Each message is one event as JSON (see `stream_messages`). The first heartbeat says that all past events were sent,
later ones that nothing happened. Clients need not send anything; their messages are ignored.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from windlass.clock import SystemClock
from windlass.errors import JournalError, NotFound, UsageError, WindlassError
from windlass.server.connections import EXTENSION, GOING_AWAY, RawConnection
from windlass.server.fanout import StreamClient, TooSlow, heartbeat_text
from windlass.server.feed import Feed, Subscription
from windlass.server.stream_messages import text_frame

__all__ = ["stream_routes"]

BAD_REQUEST, INTERNAL, NOT_FOUND, TOO_SLOW = 1008, 1011, 4404, 4408
LONGEST_REASON = 120
"""Bytes of a close frame's reason; the protocol allows 123."""

_clock = SystemClock()


def stream_routes(feed: Feed, heartbeat: float = 15.0, prefix: str = "/api") -> APIRouter:
    """The endpoints, as a router. The feed must be started and closed by whoever mounts it."""
    router = APIRouter(prefix=prefix)

    @router.websocket("/stream")
    async def home(websocket: WebSocket) -> None:
        await _serve(websocket, feed, None, heartbeat)

    @router.websocket("/executions/{execution}/stream")
    async def execution(websocket: WebSocket, execution: str) -> None:
        await _serve(websocket, feed, execution, heartbeat)

    return router


async def _serve(websocket: WebSocket, feed: Feed, name: str | None, heartbeat: float) -> None:
    await websocket.accept()  # only an accepted connection can be told a reason that browsers show
    try:
        after = _after(websocket, default=None if name is None else 0)
        execution = await feed.check(after, name)
    except WindlassError as error:
        await _close(websocket, _code(error), error.message)
        return
    raw: RawConnection | None = websocket.scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    try:
        async with feed.subscribe(after, execution) as subscription:
            if raw is not None:
                work = _write_directly(raw, feed, subscription, heartbeat)
            else:
                work = _send(websocket, feed, subscription, heartbeat)
            code, reason = await _until_either(work, websocket)
            feed.dropped += code == TOO_SLOW
    except JournalError as error:
        code, reason = INTERNAL, error.message
    if raw is not None:
        raw.cut(code, _short(reason))
    else:
        await _close(websocket, code, reason)


async def _until_either(work: Any, websocket: WebSocket) -> tuple[int, str]:
    """Write until the client is gone, or until there is a reason to end it: that reason, as a close code."""
    writing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(websocket))
    try:
        await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            return 1000, ""
        writing.result()
    except WindlassError as error:
        return _code(error), ": ".join([error.message, *error.advice[:1]])
    except WebSocketDisconnect:
        return 1000, ""
    finally:
        await _ended(writing, gone)
    return GOING_AWAY, "the server is stopping"


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        """Ignore what clients send."""


async def _write_directly(raw: RawConnection, feed: Feed, subscription: Subscription, heartbeat: float) -> None:
    """The past at the client's own pace; from there on, with all others, in the feed's rounds."""
    behind = True
    while behind:
        async with aclosing(subscription.past()) as past:
            async for batch in past:
                raw.write(b"".join([sent.frame for sent in batch]))
                await _patiently(raw.drained(), feed.stall)
        raw.write(text_frame(heartbeat_text(_clock.now(), subscription.cursor)))
        client = StreamClient(raw, subscription.cursor, subscription.seq, subscription.execution, heartbeat)
        feed.fanout.add(client)
        try:
            behind = await client.ended
        finally:
            feed.fanout.remove(client)
        subscription.go_back(client.cursor, client.seq)


async def _send(websocket: WebSocket, feed: Feed, subscription: Subscription, heartbeat: float) -> None:
    """The same through ASGI, where the server is not ours."""
    async with aclosing(subscription.past()) as past:
        async for batch in past:
            for sent in batch:
                await _patiently(websocket.send_text(sent.text), feed.stall)
    batch = []
    while not feed.closed:
        if not batch:
            beat = heartbeat_text(_clock.now(), subscription.cursor).decode()
            await _patiently(websocket.send_text(beat), feed.stall)
        batch = await subscription.more(heartbeat)
        for sent in batch:
            await _patiently(websocket.send_text(sent.text), feed.stall)


async def _patiently(sending: Any, stall: float) -> None:
    try:
        async with asyncio.timeout(stall):
            await sending
    except TimeoutError:
        raise TooSlow from None


def _after(websocket: WebSocket, default: int | None) -> int | None:
    given = websocket.query_params.get("after")
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise UsageError(f"after={given[:40]!r} is not a number: give the last one that was received")
    return int(given)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    try:
        await websocket.close(code, _short(reason))
    except (WebSocketDisconnect, RuntimeError):
        return  # it was faster


def _short(reason: str) -> str:
    return reason.encode()[:LONGEST_REASON].decode(errors="ignore")


def _code(error: WindlassError) -> int:
    match error:
        case NotFound():
            return NOT_FOUND
        case TooSlow():
            return TOO_SLOW
        case UsageError():
            return BAD_REQUEST
        case _:
            return INTERNAL  # the journal cannot be read
