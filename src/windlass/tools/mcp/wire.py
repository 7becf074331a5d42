"""The wire to a server that is a process of ours: one JSON message a line, over the pipes of a `Supervisor` (A8).

A transport of the `mcp` library's, which starts nothing itself. Lines that are no message are passed over, as servers
print warnings where they should not; a flood of them, or a line without end, ends the wire.

All uses of a server share one line to it. `Sizes` counts each message for the use that it belongs to (H1): a request is
sent in the context of the use that makes it, and its answer and its progress name it by its number. Other messages (the
greeting, the list of tools, unasked messages) are on no meter.

`OverHttp` is the way to a server at an address: streamable HTTP, as the library speaks it. The library reports of a
refusal only that there was one. Its status and headers are noted here for the request that was refused: the library
runs each request in the context of its caller.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import windlass.process as processes
from windlass.ports import Meter
from windlass.tools.mcp.servers import McpServer

if TYPE_CHECKING:
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["LONGEST", "HttpClients", "LastRefusal", "OverHttp", "Wire", "metering", "refusal"]

CHUNK = 64 * 1024
LONGEST = 16 << 20
"""Bytes of one message. Images come as one."""
MOST_GARBAGE = 1 << 20
"""Bytes that are no message, in all."""
FAREWELL = 2.0
"""Seconds to end by itself after its input has ended, as the protocol wants it."""
LAST_WORDS = 1.0
"""Seconds between the polite signal and the kill."""


class Wire:
    """One server process, its pipes and its end."""

    def __init__(self, spawn: Callable[[], Awaitable[processes.Process]]) -> None:
        self._spawn = spawn
        self.ended = asyncio.Event()
        self.flood = ""
        self.exit: processes.Exit | None = None
        self.stderr = b""
        """The last of it."""
        self._garbage = 0
        self._sizes = Sizes()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        import anyio

        process = await self._spawn()
        heard, read = anyio.create_memory_object_stream[Any](0)
        write, said = anyio.create_memory_object_stream[Any](0)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, process, heard)
                group.start_soon(self._speak, process, said)
                group.start_soon(self._drain, process)
                try:
                    yield read, Outbox(write)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._part(process)
                    group.cancel_scope.cancel()
        finally:
            for stream in (heard, read, write, said):
                stream.close()
            self.ended.set()

    def words(self) -> str:
        last = self.stderr.decode("utf-8", "replace").strip()[-400:]
        how = self.flood
        if not how and self.exit is not None and not self.exit.killed:
            by = f"code {self.exit.code}" if self.exit.signal is None else f"signal {self.exit.signal}"
            how = f"it ended with {by}"
        return "; ".join(part for part in (how, f"the last of its stderr: {last}" if last else "") if part)

    def died(self) -> bool:
        return self.exit is not None and not self.exit.killed and not self.flood

    async def _part(self, process: processes.Process) -> None:
        import anyio

        assert process.stdin is not None
        process.stdin.close()
        try:
            with anyio.move_on_after(FAREWELL):
                self.exit = await process.wait()
                return
            self.exit = await process.stop(LAST_WORDS)
        except processes.ProcessLost:
            return  # it slipped out of our hands, and the supervisor has said so

    async def _listen(self, process: processes.Process, heard: MemoryObjectSendStream[Any]) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        wanted = True
        async for line in self._lines(process):
            message: Any
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._garbage += len(line)
                message = _unanswered(line)
            self._sizes.received(message, len(line) + 1)
            if wanted and message is not None:
                try:
                    await heard.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    wanted = False  # it is still read, or the server would stop at a full pipe instead of ending
        heard.close()
        self.ended.set()

    async def _lines(self, process: processes.Process) -> AsyncIterator[bytes]:
        pending = bytearray()
        while chunk := await process.stdout.read(CHUNK):
            first, *more = chunk.split(b"\n")
            pending += first
            for rest in more:
                yield bytes(pending)
                pending = bytearray(rest)
            if len(pending) > LONGEST:
                self.flood = f"it sent a message of more than {LONGEST >> 20} MiB"
            elif self._garbage > MOST_GARBAGE:
                self.flood = f"it printed more than {MOST_GARBAGE >> 20} MiB that are no messages"
            if self.flood:
                return

    async def _speak(self, process: processes.Process, said: MemoryObjectReceiveStream[Any]) -> None:
        assert process.stdin is not None
        try:
            async for meter, message in said:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                self._sizes.sent(message.message, len(text), meter)
                await process.stdin.write(text)
        except BrokenPipeError:
            self.ended.set()  # it has ended, or wants to hear no more: there will be no answer
        finally:
            said.close()

    async def _drain(self, process: processes.Process) -> None:
        while chunk := await process.stderr.read(CHUNK):
            self.stderr = (self.stderr + chunk)[-4096:]


def _unanswered(line: bytes) -> Any:
    """For an answer that is none: an error in its place, so that nobody waits for it for ever."""
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    number = found.get("id") if isinstance(found, dict) and "method" not in found else None
    if not isinstance(number, int | str):
        return None
    error = ErrorData(code=PARSE_ERROR, message="its answer is not a valid message")
    return JSONRPCError(jsonrpc="2.0", id=number, error=error)


metering: ContextVar[Meter | None] = ContextVar("windlass_mcp_meter", default=None)
"""Of the use that is under way; None where it is nobody's."""


class Outbox:
    """A stream that the library sends its messages to; each comes out with the meter of whoever sent it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, item: Any) -> None:
        await self._stream.send((metering.get(), item))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Outbox:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


class Sizes:
    """Sizes of the messages of one line, counted by the meters of their uses."""

    def __init__(self) -> None:
        self._asked: dict[Any, Meter] = {}
        """By the numbers of requests that are not answered yet."""

    def sent(self, message: Any, size: int, meter: Meter | None) -> None:
        if meter is None:
            return
        meter.add(sent=size)
        method, number = getattr(message, "method", None), getattr(message, "id", None)
        if method == "notifications/cancelled":
            self._asked.pop(_named(message, "requestId"), None)
        elif method is not None and number is not None:
            self._asked[_number(number)] = meter

    def received(self, message: Any, size: int) -> None:
        method, number = getattr(message, "method", None), getattr(message, "id", None)
        if method is None:
            meter = self._asked.pop(_number(number), None)
        else:
            meter = self._asked.get(_named(message, "progressToken"))
        if meter is not None:
            meter.add(received=size)


def _named(message: Any, key: str) -> Any:
    params = getattr(message, "params", None)
    return _number(params.get(key)) if isinstance(params, dict) else None


def _number(found: Any) -> Any:
    """As the library numbers its requests: servers may write a number as text. Nothing else is one."""
    if isinstance(found, str) and found.isdecimal() and len(found) < 16:
        return int(found)
    return found if isinstance(found, int | str) else None


HttpClients = Callable[[McpServer], "httpx2.AsyncClient"]
"""Makes the HTTP client for a server: a caller can pass one that guards the network."""
CONNECTING = 30.0
"""Seconds to connect, to send, and for a place among the connections. Answers may take as long as the use may."""


@dataclass(slots=True)
class LastRefusal:
    """The last answer to a request, if it was a refusal."""

    status: int | None = None
    retry_after: float | None = None


refusal: ContextVar[LastRefusal | None] = ContextVar("refusal", default=None)


class OverHttp:
    """The way to one address."""

    def __init__(self, server: McpServer, headers: Mapping[str, str], clients: HttpClients | None) -> None:
        self._server, self._headers, self._clients = server, headers, clients or _plain_client
        self.ended, self.flood = asyncio.Event(), ""

    def words(self) -> str:
        return ""

    def died(self) -> bool:
        return False  # an address does not end; whether somebody answers there is another matter

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        url = self._server.told.url or ""
        client = self._clients(self._server)
        client.headers.update({"Accept-Encoding": "identity", **self._headers})
        client.timeout = httpx2.Timeout(CONNECTING, read=None)
        before, after = (client.event_hooks.get(when, ()) for when in ("request", "response"))
        client.event_hooks = {**client.event_hooks, "request": [*before, _count], "response": [*after, _look]}
        async with client, streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST) as streams:
            yield streams


def _plain_client(server: McpServer) -> httpx2.AsyncClient:
    import httpx2

    return httpx2.AsyncClient()


async def _count(request: httpx2.Request) -> None:
    from windlass.tools.net.wire import going_out

    if (meter := metering.get()) is not None:
        going_out(request, meter)


async def _look(response: httpx2.Response) -> None:
    """Note a refusal, and see to it that no answer is larger than a message may be."""
    noted = refusal.get()
    if noted is not None:
        noted.status = response.status_code if response.status_code >= 400 else None
        after = response.headers.get("retry-after", "")
        noted.retry_after = min(float(after), 86400.0) if after.isdecimal() and len(after) < 9 else None
    if response.headers.get("content-encoding", "identity") != "identity":
        response.stream = _bounded(response.stream, 0)  # nobody asked for it, and a little of it may be very much
    elif not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _bounded(response.stream, LONGEST)
    if (meter := metering.get()) is not None:
        from windlass.tools.net.wire import coming_in

        coming_in(response, meter)


def _bounded(stream: Any, most: int) -> Any:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > most:
                    what = f"has more than {most >> 20} MiB" if most else "is compressed, which it must not be"
                    raise httpx2.StreamError(f"the answer {what}")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
