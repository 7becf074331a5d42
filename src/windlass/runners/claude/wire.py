"""The wire to one `claude`: the SDK's `Transport` over a process that we own (A8).

The SDK speaks the control protocol (permissions, interrupt) over it and starts nothing itself. All other messages go,
as they came, to `hear`: the SDK's own message classes lack the figures for billing. The limit of a line is beyond any
JSON of an agent; output that is no JSON, or never ends, is counted and ends the wire.

The engine's tools are a server that the runtime reaches over the same protocol (`mcp_message`): no port is opened, no
token is needed, and it ends with the wire. The SDK would serve it with the `mcp` package, which takes seconds to import
and has no progress here, so these messages are answered by `serve`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from windlass.process import Process, SpawnError

__all__ = ["ClaudeWire"]

CHUNK = 64 * 1024
LONGEST = 64 << 20
"""Bytes of one line. Images and large files come as one."""
MOST_GARBAGE = 1 << 20
"""Bytes that are no JSON: a stray warning is passed over, a flood of them is not."""
MOST = 8 << 30
"""Bytes in all. An agent that works for days stays far below."""

_CONTROL = ("control_request", "control_response", "control_cancel_request")

Send = Callable[[dict[str, Any]], Awaitable[None]]
Serve = Callable[[dict[str, Any], Send], Awaitable[dict[str, Any] | None]]
"""Gives the reply to a message for the engine's tools; the second argument sends a notification."""


class Tail:
    """The last of a stream, for the words of an error."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._kept = b""

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data[-self._size :])[-self._size :]

    def __str__(self) -> str:
        return self._kept.decode("utf-8", errors="replace").strip()


class ClaudeWire:
    """Satisfies `claude_agent_sdk.Transport`, which it cannot inherit from without importing the SDK."""

    def __init__(
        self,
        spawn: Callable[[], Awaitable[Process]],
        hear: Callable[[dict[str, Any]], None],
        serve: Serve | None = None,
    ) -> None:
        self._spawn, self._hear, self._serve = spawn, hear, serve
        self._serving: dict[str, asyncio.Task[None]] = {}
        """Messages for the engine's tools that are being answered, by the ids of their control requests."""
        self.process: Process | None = None
        self.ended = asyncio.Event()
        """Nothing more will be heard."""
        self.flood = ""
        """Reason to stop reading; empty while it is read."""
        self.error: Exception | None = None
        """Exception that `hear` raised."""
        self.spoke = False
        """It has said something that may be the protocol."""
        self.garbage = Tail(400)
        self.stderr = Tail()
        self._strange = 0
        self._total = 0
        self._draining: asyncio.Task[None] | None = None

    # -- called by the SDK -------------------------------------------------------------------------

    async def connect(self) -> None:
        spawning = asyncio.ensure_future(self._spawn())
        try:
            self.process = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            # It may run already: keep a reference, so that the cancelling code can wait for its end.
            with suppress(SpawnError):
                self.process = await spawning
            raise
        self._draining = asyncio.create_task(self._drain(self.process.stderr))

    async def write(self, data: str) -> None:
        if self.process is None or self.process.stdin is None:
            raise RuntimeError("the wire is not connected")
        try:
            await self.process.stdin.write(data.encode())
        except BrokenPipeError:
            return  # it has ended, which the reader tells, with the reason

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        try:
            async for line in self._lines():
                message = self._parse(line)
                if message is None:
                    continue
                if message.get("type") in _CONTROL:
                    if not self._is_served(message):
                        yield message
                else:
                    self._hear(message)
        except Exception as error:  # ours, out of `hear`: `ClaudeTurn` tells it; the SDK would only log it
            self.error = error
        self.ended.set()  # and not when the reader is cancelled: then it may have more to say

    async def end_input(self) -> None:
        self.hang_up()

    async def close(self) -> None:
        self.hang_up()

    def is_ready(self) -> bool:
        return self.process is not None and not self.ended.is_set()

    # -- called by the turn ------------------------------------------------------------------------

    def hang_up(self) -> None:
        """The end of the input: it writes its session down and ends."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    async def rest(self) -> None:
        """After its end: have all of stderr."""
        for task in self._serving.values():
            task.cancel()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        if self._draining is not None:
            await self._draining

    # -- the engine's tools ------------------------------------------------------------------------

    def _is_served(self, message: dict[str, Any]) -> bool:
        """Answer the message if it is one for the engine's tools, or calls one of them off."""
        id = str(message.get("request_id"))
        request = message.get("request")
        if message["type"] == "control_cancel_request" and id in self._serving:
            self._serving[id].cancel()
            return True
        if self._serve is None or not isinstance(request, dict) or request.get("subtype") != "mcp_message":
            return False
        task = self._serving[id] = asyncio.create_task(self._reply(self._serve, id, request))
        task.add_done_callback(lambda _: self._serving.pop(id, None))
        return True

    async def _reply(self, serve: Serve, id: str, request: dict[str, Any]) -> None:
        server, asked = request.get("server_name"), request.get("message")

        async def send(notification: dict[str, Any]) -> None:
            told = {"subtype": "mcp_message", "server_name": server, "message": notification}
            await self._say({"type": "control_request", "request_id": f"windlass-{uuid4()}", "request": told})

        reply = await serve(asked if isinstance(asked, dict) else {}, send)
        # A notification has no reply, but the request that brought it does.
        given = {"mcp_response": reply or {"jsonrpc": "2.0", "result": {}}}
        response = {"subtype": "success", "request_id": id, "response": given}
        await self._say({"type": "control_response", "response": response})

    async def _say(self, message: dict[str, Any]) -> None:
        """Write a whole line, even if the writer is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self.write(json.dumps(message) + "\n")))

    # -- lines -------------------------------------------------------------------------------------

    async def _lines(self) -> AsyncIterator[bytes]:
        assert self.process is not None
        pending: list[bytes] = []
        size = 0
        while chunk := await self.process.stdout.read(CHUNK):
            self._total += len(chunk)
            first, *more = chunk.split(b"\n")
            pending.append(first)
            size += len(first)
            if more:
                yield b"".join(pending)
                for line in more[:-1]:
                    yield line
                pending, size = [more[-1]], len(more[-1])
            if size > LONGEST:
                self.flood = f"more than {LONGEST >> 20} MiB without the end of a line"
            elif self._strange > MOST_GARBAGE:
                self.flood = f"more than {MOST_GARBAGE >> 20} MiB that are no JSON"
            elif self._total > MOST:
                self.flood = f"more than {MOST >> 20} MiB in all"
            if self.flood:
                self.garbage.add(b"".join(pending)[:200])
                return
        if size:
            yield b"".join(pending)  # cut off in the middle, or without its last newline

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        line = line.strip()
        if not line:
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self.spoke = True
            return message
        self._strange += len(line)
        self.garbage.add(line[:200] + b"\n")
        return None

    async def _drain(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(CHUNK):
            self.stderr.add(chunk)
