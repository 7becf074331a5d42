"""The line to one server: begun when it is first used, kept warm, begun again when it has broken, ended when idle.

A use that fails is not tried again here: its failure says what happened, and the engine and the breaker in front of it
decide. But who comes after a failure, or after a long silence, is not sent into a dead line: the server is asked first
whether it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.errors import Category, ToolError
from windlass.ports import Meter
from windlass.redact import Redactor
from windlass.tools.mcp.connection import Connection, Transport, load_library
from windlass.tools.mcp.described import Described
from windlass.tools.mcp.servers import McpServer
from windlass.tools.mcp.wire import LastRefusal, metering, refusal

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["McpLine"]

QUIET = 30.0
"""Seconds after which a server that nobody has heard of is asked before it is used."""
T = TypeVar("T")


class McpLine:
    def __init__(
        self,
        server: McpServer,
        way: Callable[[], Transport],
        redactor: Redactor,
        tell: Callable[[list[dict[str, Any]]], None],
        idle: float,
    ) -> None:
        """`way` makes a new way to the server; `tell` gets its tools; `idle` is how long it is kept unused."""
        self.server, self.redactor = server, redactor
        self._way, self._tell, self._idle = way, tell, idle
        self.described: dict[str, Described] = {}
        """Its tools as it last described them, by its own names."""
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        self._parting: set[asyncio.Task[None]] = set()
        self._closed = False

    async def use(self, doing: str, act: Callable[[Client], Awaitable[T]], meter: Meter | None = None) -> T:
        """Do something with the server; every failure is a ToolError that names the action.

        The meter counts the bytes of both directions.
        """
        self._busy += 1
        self._stop_timer()
        noted = LastRefusal()
        token, measured = refusal.set(noted), metering.set(meter)
        try:
            connection = await self._connected()
            try:
                found = await act(connection.client)
            except asyncio.CancelledError:
                connection.suspect = True
                raise
            except ToolError:
                raise
            except Exception as error:  # the library's, the transport's, the protocol's: all have words and a category
                connection.suspect = True
                raise ToolError.of(await connection.failure(error, doing, noted, asked=True)) from error
            connection.note_heard()
            return found
        finally:
            refusal.reset(token)
            metering.reset(measured)
            self._busy -= 1
            if not self._busy and not self._closed:
                self._timer = asyncio.get_running_loop().call_later(self._idle, self._let_go)

    async def check(self) -> str:
        """Ask it whether it is there, starting it if need be; says what it speaks."""

        async def ask(client: Client) -> str:
            assert self._connection is not None
            await self._connection.ping()
            return client.protocol_version

        return await self.use("pinging it", ask)

    @property
    def running(self) -> bool:
        return self._connection is not None and self._connection.alive

    async def close(self) -> None:
        self._closed = True
        self._stop_timer()
        self._let_go()
        while self._parting:
            await asyncio.wait(self._parting)

    async def _connected(self) -> Connection:
        async with self._lock:
            if (kept := self._connection) is not None:
                if kept.alive and await self._answers(kept):
                    return kept
                self._let_go()
            if self._closed:
                raise ToolError(f"MCP server {self.server.name}: Windlass is ending", category=Category.TRANSIENT)
            self._connection = await self._begun()
            return self._connection

    async def _answers(self, kept: Connection) -> bool:
        if self._busy > 1:  # it is at work for others, and may be one that does one thing at a time
            return True
        if not kept.suspect and asyncio.get_running_loop().time() - kept.heard_at < QUIET:
            return True
        try:
            await kept.ping()
        except Exception:  # whatever it is, a new line is the answer
            return False
        return True

    async def _begun(self) -> Connection:
        await load_library()
        way = self._way()
        try:
            return await self._opened(way, "auto")
        except ToolError:
            if not way.died():
                raise
        # Some servers of the older protocol end themselves when they are asked for the newer one.
        return await self._opened(self._way(), "legacy")

    async def _opened(self, way: Transport, mode: str) -> Connection:
        connection = Connection(self.server, way, self.redactor, self._tell, mode)
        try:
            await connection.open(self.server.told.timeout)
        except BaseException:
            self._part(connection)
            raise
        return connection

    def _let_go(self) -> None:
        if self._connection is not None:
            self._part(self._connection)
            self._connection = None

    def _part(self, connection: Connection) -> None:
        parting = asyncio.create_task(connection.close())
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
