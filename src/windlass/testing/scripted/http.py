"""A tiny HTTP/1.1 server side on asyncio streams: reads requests, writes answers, keeps connections alive.

`read_request` gives the next request of a connection, or None when the client has gone. `Exchange` answers one: with
a body at once, in chunks, or not at all. `Serving` is the thread with the event loop. Nothing here knows of
models.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

__all__ = ["BadRequest", "Exchange", "Request", "Serving", "read_request"]

MOST_HEAD = 256 * 1024
MOST_BODY = 256 * 1024 * 1024


class BadRequest(Exception):
    """The client does not speak HTTP as we know it."""


class Request(NamedTuple):
    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request; None when the client has nothing more to say."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as cut:
        if cut.partial.strip():
            raise BadRequest(f"the connection ended within a request: {cut.partial[:80]!r}") from None
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(f"the head of a request is longer than {MOST_HEAD} bytes") from None
    first, *lines = head.decode("latin-1").strip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(f"this is not an HTTP/1.1 request: {first[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await _body(reader, headers)
    except (asyncio.IncompleteReadError, ValueError) as wrong:
        raise BadRequest(f"the body of {words[0]} {words[1]} cannot be read: {wrong}") from None
    return Request(words[0], words[1], headers, body)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        return await reader.readexactly(_allowed(int(headers.get("content-length", "0"))))
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        body += await reader.readexactly(_allowed(size, len(body)))
        if await reader.readuntil(b"\r\n") != b"\r\n":
            raise ValueError("a chunk is longer than it says")
        if size == 0:
            return body


def _allowed(size: int, so_far: int = 0) -> int:
    if not 0 <= size <= MOST_BODY - so_far:
        raise ValueError(f"it is longer than {MOST_BODY} bytes")
    return size


class Exchange:
    """One answer on its way to the client."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self._reader, self._writer = reader, writer

    @property
    def gone(self) -> bool:
        """The client has hung up."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def answer(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Everything at once: JSON, or text as it is."""
        text = isinstance(body, str)
        data = (body if text else json.dumps(body, ensure_ascii=False)).encode()
        kind = "text/plain; charset=utf-8" if text else "application/json"
        self._head(status, {"content-type": kind, "content-length": str(len(data)), **(headers or {})})
        if self.request.method != "HEAD":
            self._writer.write(data)
        await self._writer.drain()

    async def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """A stream of events begins: `send` its frames, then `end` it."""
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        self._head(200, {**kind, "transfer-encoding": "chunked", **(headers or {})})
        await self._writer.drain()

    async def send(self, frame: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def part_of(self, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """The first half of an answer that is announced whole."""
        data = json.dumps(body, ensure_ascii=False).encode()
        self._head(200, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})})
        self._writer.write(data[: len(data) // 2])
        await self._writer.drain()

    def cut(self) -> None:
        """Break the connection, without a goodbye."""
        self._writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait for the client to hang up. Its bytes meanwhile are ignored."""
        while await self._reader.read(65536):
            continue

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([f"HTTP/1.1 {status} {_phrase(status)}", *lines, "", ""]).encode("latin-1"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # 529 and the like are nobody's standard
        return "Scripted"


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Serving:
    """Listens from the moment it is made."""

    def __init__(self, handler: Handler, port: int = 0) -> None:
        self._handler = handler
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        # Bound and listening here, so that a port that is taken is the caller's error, and the address is known and
        # good at once. Only loopback: no other machine ever gets an answer.
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._told_to_stop = asyncio.Event()
        # A daemon: a test that forgets to stop it must not keep the interpreter.
        self._thread = threading.Thread(target=self._run, name=f"scripted-model-{self.port}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Break what is open, free the port, end the thread. Asked again, it does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._told_to_stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=MOST_HEAD)
        await self._told_to_stop.wait()
        server.close()
        open_ones = dict(self._connections)
        for task, writer in open_ones.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*open_ones, return_exceptions=True)
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def handle() -> None:
            await self._handler(reader, writer)

        task = self._loop.create_task(handle())
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
