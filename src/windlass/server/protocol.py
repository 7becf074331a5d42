"""uvicorn's WebSocket protocol, with a way past it: an endpoint may write prepared frames to the transport itself.

The way is offered in the ASGI scope under `extensions["windlass.raw"]["connection"]`, unless compression was agreed
on, since then every client's frames are its own. Endpoints must do without it where another server hosts the app.
Give it to uvicorn: `Config(app, ws=StreamProtocol, ws_per_message_deflate=False)`.

Two things are also different from uvicorn's: a connection whose peer takes nothing any more is dropped some seconds
after its close frame instead of being kept until TCP gives up, and a server that stops says 1001 (going away).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.transports import BaseTransport
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

__all__ = ["EXTENSION", "RawConnection", "StreamProtocol"]

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
