"""The way from programs like OpenCode to the engine's tools: MCP over HTTP, on loopback (K6).

One listener for all attempts of this process, started by the first that has such tools. An attempt gets a token of its
own, which dies with it. A request without a living token is answered in words and nothing runs; so is one that names
another host or comes from a page in a browser. A use is answered as a stream of events, with a sign of life every few
seconds: a client gives up a connection on which nothing comes. One whose client has gone is called off.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.runners.tool_server import ToolServer

if TYPE_CHECKING:
    import h11

__all__ = ["ToolAccess", "ToolListener"]

LONGEST_BODY = 16 << 20
CHUNK = 64 * 1024
ALIVE = 10.0
MOST_ENDED = 10_000
"""Ended attempts that are remembered, so that their clients are told why nothing is done."""


class ToolAccess(NamedTuple):
    """The way to the tools of one attempt."""

    url: str
    token: str


class _HttpRequest(NamedTuple):
    method: str
    headers: Mapping[str, str]
    body: bytes


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ToolListener:
    def __init__(self) -> None:
        self._tools: dict[str, ToolServer] = {}
        """By the digest of the attempt's token."""
        self._ended: dict[str, None] = {}
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self._port = 0

    async def open(self, tools: ToolServer) -> ToolAccess:
        """Let the holder of a new token use these tools."""
        async with self._starting:  # agents that begin at once share one address
            if self._server is None:
                self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
                self._port = self._server.sockets[0].getsockname()[1]
        token = secrets.token_urlsafe(32)
        self._tools[_digest(token)] = tools
        return ToolAccess(f"http://127.0.0.1:{self._port}/mcp", token)

    def shut(self, access: ToolAccess) -> None:
        """End a token."""
        digest = _digest(access.token)
        self._tools.pop(digest, None)
        self._ended[digest] = None
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    # -- a connection ----------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await self._converse(_HttpConnection(reader, writer))
        except OSError:
            return  # the client has gone
        finally:
            writer.close()

    async def _converse(self, line: _HttpConnection) -> None:
        try:
            while (request := await line.request()) is not None:
                await self._answer(line, request)
                if not line.goes_on():
                    return
        except _Refused as refused:
            await line.say(refused.status, {"error": str(refused)})

    async def _answer(self, line: _HttpConnection, request: _HttpRequest) -> None:
        try:
            tools, message = self._admitted(request), _message(request)
        except _Refused as refused:
            await line.say(refused.status, {"error": str(refused)})
            return
        session = request.headers.get("mcp-session-id", "")
        if message.get("method") == "tools/call":
            await self._stream(line, tools, message, session)
        elif (reply := await tools.answer(message, line.event, session)) is None:
            await line.say(202)
        else:
            await line.say(200, reply, session=message.get("method") == "initialize")

    async def _stream(self, line: _HttpConnection, tools: ToolServer, message: dict[str, Any], session: str) -> None:
        await line.begin_events()
        use = asyncio.ensure_future(tools.answer(message, line.event, session))
        watching = [asyncio.ensure_future(line.gone()), asyncio.ensure_future(line.keep_alive())]
        try:
            await asyncio.wait({use, *watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (use, *watching):
                task.cancel()
            await asyncio.wait({use})
            await asyncio.gather(*watching, return_exceptions=True)  # a connection that broke is one that has gone
        if not use.cancelled() and (reply := use.result()) is not None:
            await line.event(reply)
        await line.end_events()

    def _admitted(self, request: _HttpRequest) -> ToolServer:
        """Return the tools that the request's token is for, or refuse it."""
        headers = request.headers
        if headers.get("host") != f"127.0.0.1:{self._port}" or "origin" in headers:
            raise _Refused(403, "this address is for the agent of one attempt alone, not for a browser")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        digest = _digest(token)
        if scheme.lower() != "bearer" or (digest not in self._tools and digest not in self._ended):
            raise _Refused(401, "this needs the token of a running attempt; nothing was done")
        if digest in self._ended:
            raise _Refused(410, "the attempt that this token was for has ended; nothing was done")
        if request.method != "POST":
            raise _Refused(405, "messages are sent with POST")
        return self._tools[digest]


def _digest(token: str) -> str:
    """Tokens are looked up by a digest, which takes the same time for a guess that is nearly right."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _message(request: _HttpRequest) -> dict[str, Any]:
    try:
        message = json.loads(request.body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise _Refused(400, "the body must be one JSON-RPC message")
    return message


class _HttpConnection:
    """HTTP/1.1 on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import h11

        self._h11: Any = h11
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.SERVER)
        self._writing = asyncio.Lock()

    async def request(self) -> _HttpRequest | None:
        """The next request; None when the client has gone."""
        h11, head, body = self._h11, None, bytearray()
        while True:
            try:
                event = self._state.next_event()
            except h11.RemoteProtocolError as error:
                raise _Refused(400, f"this is no HTTP request: {error}") from error
            if event is h11.NEED_DATA:
                self._state.receive_data(await self._reader.read(CHUNK))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > LONGEST_BODY:
                    raise _Refused(413, f"a message may have {LONGEST_BODY} bytes")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode().lower(): value.decode("latin-1") for name, value in head.headers}
                return _HttpRequest(head.method.decode(), headers, bytes(body))
            else:
                return None

    def goes_on(self) -> bool:
        """True if another request may come on this connection."""
        if self._state.our_state is not self._h11.DONE or self._state.their_state is not self._h11.DONE:
            return False
        self._state.start_next_cycle()
        return True

    async def say(self, status: int, content: Any = None, *, session: bool = False) -> None:
        if self._state.our_state not in (self._h11.IDLE, self._h11.SEND_RESPONSE):
            return
        body = b"" if content is None else json.dumps(content).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if session:
            headers.append(("mcp-session-id", secrets.token_hex(16)))
        if status == 401:
            headers.append(("www-authenticate", "Bearer"))
        await self._send(
            self._h11.Response(status_code=status, headers=headers),
            self._h11.Data(data=body),
            self._h11.EndOfMessage(),
        )

    async def begin_events(self) -> None:
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        await self._send(self._h11.Response(status_code=200, headers=headers))

    async def event(self, message: dict[str, Any]) -> None:
        await self._send(self._h11.Data(data=b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"))

    async def end_events(self) -> None:
        await self._send(self._h11.EndOfMessage())

    async def keep_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE)
            await self._send(self._h11.Data(data=b": under way\n\n"))

    async def gone(self) -> None:
        """Wait until the client has gone. What it sends meanwhile is its next request."""
        while data := await self._reader.read(CHUNK):
            self._state.receive_data(data)

    async def _send(self, *events: h11.Event) -> None:
        async with self._writing:
            for event in events:
                self._writer.write(self._state.send(event) or b"")
            await self._writer.drain()
