"""Connections of the server: how many, for how long, and which requests are too ambiguous to be believed.

uvicorn accepts everything and waits for ever; a process that holds all of a server's descriptors open would stop the
steps, too. So connections get a share of the descriptors, the oldest one that nobody has logged in on makes room for a
new one, and headers, bodies and readers have deadlines. Requests whose end two programs could see in different places
(smuggling) are refused. Give it to uvicorn: `Config(app, http=limited(Connections()))`.

`StreamProtocol` is uvicorn's WebSocket protocol, with a way past it: an endpoint may write prepared frames to the
transport itself. The way is offered in the ASGI scope under `extensions["windlass.raw"]["connection"]`, unless
compression was agreed on, since then every client's frames are its own. Endpoints must do without it where another
server hosts the app. Give it to uvicorn: `Config(app, ws=StreamProtocol, ws_per_message_deflate=False)`. Two things are
also different from uvicorn's: a connection whose peer takes nothing any more is dropped some seconds after its close
frame instead of being kept until TCP gives up, and a server that stops says 1001 (going away).
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import struct
from asyncio.transports import BaseTransport, Transport
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from windlass.server.guard import LET_IN

__all__ = ["ACCEPTED_AT_ONCE", "EXTENSION", "Connections", "RawConnection", "StreamProtocol", "limited"]

EXTENSION = "windlass.raw"
SEND_BUFFER = 128 * 1024
"""Bytes that the kernel may buffer for a client: its default is so large that it hides a client that does not read."""
DROP_AFTER = 3.0
"""Seconds that a peer has to take a close frame."""
GOING_AWAY = 1001


class RawConnection:
    """A client's connection, for whole frames that were prepared for everybody."""

    def __init__(self, protocol: StreamProtocol) -> None:
        self._protocol = protocol

    @property
    def waiting(self) -> int:
        return self._protocol.transport.get_write_buffer_size()

    def write(self, piece: bytes) -> None:
        protocol = self._protocol
        if not protocol.close_sent and not protocol.transport.is_closing():
            protocol.transport.write(piece)

    async def drained(self) -> None:
        """Wait until the client has taken most of what it was given, or is gone."""
        await self._protocol.writable.wait()

    def cut(self, code: int, reason: str) -> None:
        """Say why, and hang up; a peer that does not take even that is dropped."""
        self._protocol.hang_up(code, reason)


class StreamProtocol(WebSocketsSansIOProtocol):
    on_lost: Callable[[], None] | None = None
    """Called when the connection is gone."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        # The task that runs the app was made just now, and has not had its first turn.
        if not self.close_sent and not self.conn.extensions:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = {"connection": RawConnection(self)}

    def hang_up(self, code: int, reason: str = "") -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()
        self._drop_later()

    def shutdown(self) -> None:
        if self.handshake_complete:
            self.hang_up(GOING_AWAY, "the server is stopping")
        else:
            super().shutdown()
            self._drop_later()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._drop_later()

    def _drop_later(self) -> None:
        # Closing waits until everything has been sent, which may be never.
        asyncio.get_running_loop().call_later(DROP_AFTER, self._drop)

    def _drop(self) -> None:
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            # Without this, the kernel would go on holding what the peer does not take, for minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


HEADER_SECONDS = 10.0
"""From the connection, or the first byte of a later request, to the end of the headers."""
BODY_SECONDS = 60.0
"""From the end of the headers to the end of the body, once the client is let in; before, as for headers."""
READ_SECONDS = 60.0
"""Seconds that a client may leave an answer unread."""
DROP_SECONDS = 3.0
"""Seconds that a client has to take the last bytes before its connection is dropped."""
MOST_HEADERS = 32 * 1024
"""Bytes of a request's line and headers."""
ACCEPTED_AT_ONCE = 8
"""Connections taken in one turn of the loop: until the next turns they hold descriptors that nobody has counted."""
_FOR_THE_ENGINE = 128
_MOST = 10_000


class Connections:
    """The connections of one server. Those that are let in come before those that are not."""

    def __init__(self, most: int | None = None) -> None:
        """`most` is worked out from the limit of descriptors: three quarters of what is not kept for the engine."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        unlimited = descriptors == resource.RLIM_INFINITY
        share = _MOST if unlimited else min(_MOST, (descriptors - _FOR_THE_ENGINE) * 3 // 4)
        self.most = most if most is not None else max(16, share)
        self.most_unknown = max(8, self.most // 2)
        """Limit for those among them that are not (yet) let in."""
        self._open: dict[HttpProtocol, None] = {}
        """In the order in which they came."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: HttpProtocol) -> bool:
        """Count one more; False if there is no room for it. The oldest that is not let in makes room."""
        unknown = [one for one in self._open if not one.let_in]
        if len(self._open) >= self.most or len(unknown) >= self.most_unknown:
            if not unknown:
                return False
            unknown[0].drop()
        self._open[connection] = None
        return True

    def remove(self, connection: HttpProtocol) -> None:
        self._open.pop(connection, None)


class _Strict(h11.Connection):
    """Refuses what h11 takes and another program may read differently."""

    def next_event(self) -> Any:
        head = bytes(self.trailing_data[0]) if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request) and (wrong := _ambiguous(event, head)):
            raise h11.RemoteProtocolError(wrong)
        return event


_BAD_BREAK = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|\0")
"""A line feed or a carriage return alone, a header continued on the next line, a NUL."""


def _ambiguous(request: h11.Request, received: bytes) -> str:
    head, end, _rest = received.partition(b"\r\n\r\n")
    if not end or _BAD_BREAK.search(head):
        return "lines must end in CR LF, and a header is one line"
    if not request.target.startswith(b"/"):
        return "the target must be a path"
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    if any(names.count(name) > 1 for name in (b"host", b"content-length", b"transfer-encoding")):
        return "a header that is allowed once is given twice"
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version != b"1.1"):
        return "its length is given in two ways"
    length = dict(request.headers).get(b"content-length", b"0")
    if b"upgrade" in names and (b"transfer-encoding" in names or length != b"0"):
        return "an upgrade has no body"
    return ""


class HttpProtocol(H11Protocol):
    """uvicorn's, with deadlines, a place in the count, and strict parsing."""

    registry: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Strict(h11.SERVER, MOST_HEADERS)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._stream: StreamProtocol | None = None
        """Set when it has become a WebSocket."""

    @property
    def let_in(self) -> bool:
        scope: Any = self.scope if self._stream is None else getattr(self._stream, "scope", None)
        return bool(scope and scope.get(LET_IN))

    # -- the life of a connection ------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.registry.add(self):
            self._wait_for_headers()
        else:
            self._refuse(503, "too many connections", "all of this server's connections are in use; try again later")

    def connection_lost(self, error: Exception | None) -> None:
        self.registry.remove(self)
        self._cancel_timers()
        super().connection_lost(error)

    def drop(self) -> None:
        """Let it go at once, and keep nothing in the kernel for it."""
        self.registry.remove(self)
        self._cancel_timers()
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self.conn.their_state is h11.IDLE:
            self._wait_for_headers()  # the first bytes of another request on the same connection
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.transport.is_closing() or self._stream is not None:
            self._cancel_timers()
        elif self.conn.their_state is h11.SEND_BODY:
            if self.cycle is not before:
                self._set_deadline(HEADER_SECONDS, "body")
        elif self.conn.their_state is not h11.IDLE:
            self._cancel_deadline()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Its place in the count stays: the descriptor is the same.
        self._cancel_timers()
        super().handle_websocket_upgrade(event)
        stream = self.transport.get_protocol()
        if isinstance(stream, StreamProtocol):
            self._stream = stream
            stream.on_lost = lambda: self.registry.remove(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # -- deadlines ---------------------------------------------------------------------------------

    def _wait_for_headers(self) -> None:
        self._set_deadline(HEADER_SECONDS, "headers")

    def _set_deadline(self, seconds: float, part: str) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_late, part)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_timers(self) -> None:
        self._cancel_deadline()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _too_late(self, part: str) -> None:
        if self.transport.is_closing():
            return
        if part == "body" and self.let_in:
            self._set_deadline(BODY_SECONDS - HEADER_SECONDS, "whole body")
            return
        answered = self.cycle is not None and self.cycle.response_started
        if answered or (part == "headers" and not self.conn.trailing_data[0]):
            self.drop()
        else:
            self._refuse(408, "too slow", f"the {part} of the request did not arrive in time")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "malformed request", "the server could not read this as an HTTP request")

    def _refuse(self, status: int, title: str, detail: str) -> None:
        """Say why, and close: with nothing of h11, which has its own view of where a request stands."""
        body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
        head = f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self._cancel_timers()
        self.transport.close()
        self.loop.call_later(DROP_SECONDS, self.drop)


def limited(connections: Connections) -> type[HttpProtocol]:
    """The protocol for one server: uvicorn makes an object of it for each connection."""

    class Limited(HttpProtocol):
        registry = connections

    return Limited
