"""One conversation with one server, from its start to its end, in a task of its own.

The library's client must be left by the task that entered it, so that task lives as long as the conversation; uses
come from other tasks. It hears when the server's list of tools has changed, and asks for it again.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from windlass.errors import Category, Failure, ToolError
from windlass.tools.mcp.described import clean
from windlass.tools.mcp.failures import ENDED, failure_of, library_missing, unless_done
from windlass.tools.mcp.lenient_list import LenientStream
from windlass.tools.mcp.over_http import LastRefusal, refusal
from windlass.tools.mcp.servers import McpServer
from windlass.tools.mcp.wire import metering
from windlass.version import __version__

if TYPE_CHECKING:
    from mcp import Client

    from windlass.redact import Redactor

__all__ = ["MOST_TOOLS", "Connection", "Transport", "load_library"]

MOST_PAGES = 50
MOST_TOOLS = 1_000
MOST_CHANGES = 100
"""Changes of a server's list before we stop asking."""
PING = 5.0
PARTING = 8.0
"""Seconds for the end of a conversation, in order; then it is cut."""


class Transport(Protocol):
    """A transport of messages to a server and back."""

    ended: asyncio.Event
    """Nothing more will be heard."""

    def open(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """A transport of the library's."""
        ...

    flood: str
    """The reason why we stopped listening, if we did: the server sent too much."""

    def words(self) -> str:
        """The reason of its end, for people; empty when there is nothing to say."""
        ...

    def died(self) -> bool:
        """True if it was there, and ended by itself."""
        ...


async def load_library() -> None:
    """Half a second of work the first time, which nothing else on this event loop should have to wait for."""
    try:
        await asyncio.to_thread(importlib.import_module, "mcp")
    except ImportError as error:
        raise library_missing() from error


class Connection:
    def __init__(
        self,
        server: McpServer,
        way: Transport,
        redactor: Redactor,
        tell: Callable[[list[dict[str, Any]]], None],
        mode: str = "auto",
    ) -> None:
        """`tell` gets the tools as the server lists them; `mode` is the library's way to find the protocol."""
        import anyio

        self._server, self._way, self._redactor, self._tell, self._mode = server, way, redactor, tell, mode
        self._ended = way.ended
        self.suspect = False
        """A use of it was given up: it is asked whether it is there before the next one."""
        self.heard_at = 0.0
        self._stir = asyncio.Event()
        self._over = False
        self._changed = False
        self._changes = 0
        self._scope = anyio.CancelScope()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._error: BaseException | None = None
        self._noted = LastRefusal()
        self._task = asyncio.create_task(self._live())
        self._waking = asyncio.create_task(self._wake_at_end())

    @property
    def alive(self) -> bool:
        return self._opened.done() and not self._over and not self._ended.is_set()

    @property
    def client(self) -> Client:
        return self._opened.result()

    async def open(self, seconds: float) -> None:
        """Wait until its tools are known; a timeout or a cancellation ends the connection."""
        either: set[asyncio.Future[Any]] = {self._task, self._opened}
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self.cut()
            raise ToolError(
                f"MCP server {self._server.name} did not answer within {seconds:g} s of its start",
                category=Category.TRANSIENT,
                advice=(f"give it more time: timeout of mcp.{self._server.title}", f"look at {self._server.source}"),
            ) from None
        except asyncio.CancelledError:
            self.cut()
            raise
        if not self._opened.done() or self._opened.cancelled():
            error = self._error or ConnectionError(ENDED)
            raise ToolError.of(await self.failure(error, "starting it", self._noted)) from error

    async def failure(self, error: BaseException, doing: str, noted: LastRefusal, *, asked: bool = False) -> Failure:
        """The failure that an error means, with the server's end if it has ended. `asked`: it may have begun to act."""
        found = failure_of(error, self._server, self._redactor, noted, doing)
        if self._ended.is_set():
            await asyncio.wait({self._task}, timeout=PARTING)
            if words := self._redactor.text(clean(self._way.words(), 600)):
                category = Category.RESOURCE if self._way.flood else found.category
                found = msgspec.structs.replace(found, message=f"{found.message} ({words})", category=category)
        return unless_done(found, noted) if asked else found

    async def ping(self) -> None:
        """Raises what is wrong."""
        session = self.client.session
        async with asyncio.timeout(PING):
            if session.initialize_result is not None:
                await session.send_ping()
            else:  # there is no ping in the newer protocol
                await session.send_discover(self.client.protocol_version)
        self.suspect = False
        self.note_heard()

    def note_heard(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()

    def cut(self) -> None:
        """End it without a word; `close` waits for it."""
        self._over = True
        self._scope.cancel()

    async def close(self) -> None:
        self._over = True
        self._stir.set()
        await asyncio.wait({self._task}, timeout=PARTING)
        self._scope.cancel()
        await asyncio.wait({self._task})
        self._waking.cancel()
        await asyncio.gather(self._waking, return_exceptions=True)

    # -- the task of the conversation ------------------------------------------------------------------

    async def _live(self) -> None:
        refusal.set(self._noted)
        metering.set(None)  # the line is for all uses, whoever was the first
        try:
            with self._scope:
                await self._talk()
        except Exception as error:  # a process that ended, a host that is away: told to whoever wants to use it
            self._error = error
        finally:
            self._ended.set()
            if not self._opened.done():
                self._opened.cancel()

    async def _talk(self) -> None:
        from mcp import Client
        from mcp_types import Implementation

        us = Implementation(name="windlass", version=__version__)
        async with Client(
            self._repaired(), client_info=us, message_handler=self._hear, cache=None, mode=self._mode
        ) as client:
            await self._list(client)
            self.note_heard()
            self._opened.set_result(client)
            listening = asyncio.create_task(self._listen(client))
            try:
                while not self._over and not self._ended.is_set():
                    await self._stir.wait()
                    self._stir.clear()
                    if self._changed and not self._over and self._changes < MOST_CHANGES:
                        self._changed = False
                        self._changes += 1
                        await self._list(client)
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    @asynccontextmanager
    async def _repaired(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self._way.open() as (read, write):
            yield LenientStream(read), write

    async def _wake_at_end(self) -> None:
        await self._ended.wait()
        self._stir.set()
        if not self._opened.done():
            self._scope.cancel()  # what it was asked at the start will not be answered

    async def _list(self, client: Client) -> None:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        if client.server_capabilities.tools is not None:
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None or len(found) > MOST_TOOLS:
                    break
        self._tell(found)

    async def _hear(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed = True
            self._stir.set()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, as the newer protocol demands. They come to `_hear` as before."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost

        tools = client.server_capabilities.tools
        if client.session.initialize_result is not None or tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    continue
        except (MCPError, SubscriptionLost, TimeoutError):
            return  # then changes are seen when it is connected to again
