"""One conversation with one server, from its start to its end, in a task of its own.

The library's client must be left by the task that entered it, so that task lives as long as the conversation; uses
come from other tasks. It hears when the server's list of tools has changed, and asks for it again. Errors become
the failures that the engine decides by (C3).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from windlass.errors import CUT_OFF, Category, Failure, ToolError, WindlassError, classify
from windlass.redact import Redactor
from windlass.tools.mcp.described import LenientStream, clean
from windlass.tools.mcp.servers import McpServer
from windlass.tools.mcp.wire import LastRefusal, metering, refusal
from windlass.version import __version__

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["MOST_TOOLS", "Connection", "Transport", "failure_of", "load_library"]

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


MOST_WORDS = 2_000
"""Characters of a server's own words in an error."""
_UNAVAILABLE = frozenset({408, 425, 429})
_NOTHING_DONE = frozenset({408, 413, 425, 429, 503})
"""Refusals that come before anything is done."""
_CLOSED, _TIMEOUT, _INTERNAL = -32000, -32001, -32603
_BEYOND_US = frozenset({-32021, -32022, -32042})
"""It speaks no version that we speak, or needs something of its client that we do not do: questions to a person."""
_NO_ADDRESS = frozenset({"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"})
_SESSION_OVER = "Session terminated"
_LINE_CLOSED = "Connection closed"
"""The library's own words, when it notices that before we do."""
ENDED = "it ended before it answered"


def library_missing() -> ToolError:
    return ToolError(
        "tools of MCP servers need the `mcp` library, which is not installed",
        category=Category.CONFIGURATION,
        advice=("pip install 'windlass[server]'",),
    )


def failure_of(error: BaseException, server: McpServer, redactor: Redactor, noted: LastRefusal, doing: str) -> Failure:
    """`doing` is what was being done: `starting it`, `using search`."""
    from mcp.shared.exceptions import MCPError

    cause = next(_causes(error))
    if isinstance(cause, ToolError | WindlassError):
        found = cause.failure
        return Failure(found.category, f"MCP server {server.name}: {found.message}", advice=found.advice)
    words = redactor.text(clean(str(cause), MOST_WORDS) or type(cause).__name__)
    if isinstance(cause, MCPError) and words == _LINE_CLOSED:
        words = ENDED
    said = f"MCP server {server.name}, {doing}: {words}"
    if refused := _of_status(noted, said, server):
        return refused
    if isinstance(cause, MCPError):
        return _of_code(cause.code, words, said, server)
    if type(cause).__module__.startswith(("httpx2", "httpcore2")):
        category = Category.CONFIGURATION if type(cause).__name__ in _NO_ADDRESS else Category.TRANSIENT
        return Failure(category, f"{said} (no connection to {_host(server)})", advice=_look(server))
    if type(cause).__name__ == "ValidationError":
        return Failure(Category.LOGIC, f"MCP server {server.name}, {doing}: its answer violates the protocol")
    return Failure(classify(cause).category, said, advice=_look(server))


def unless_done(failure: Failure, noted: LastRefusal) -> Failure:
    """The same of a use that was on its way: the server may have done what it was asked, but for some refusals."""
    worth_a_retry = failure.category in (Category.TRANSIENT, Category.RESOURCE)
    if worth_a_retry and noted.status not in _NOTHING_DONE:
        return msgspec.structs.replace(failure, kind=CUT_OFF)
    return failure


def _of_status(noted: LastRefusal, said: str, server: McpServer) -> Failure | None:
    status = noted.status
    if status is None:
        return None
    said = f"{said} (HTTP {status})"
    if status in (401, 403):
        advice = (f"give it a header with a key: headers_env of mcp.{server.title} in {server.source}",)
        return Failure(Category.PERMISSION, said, advice=advice)
    if status in _UNAVAILABLE or status >= 500:
        return Failure(Category.TRANSIENT, said, retry_after=noted.retry_after)
    return Failure(Category.RESOURCE, said) if status == 413 else None


def _of_code(code: int, words: str, said: str, server: McpServer) -> Failure:
    if code in (_CLOSED, _TIMEOUT, _INTERNAL) or words == _SESSION_OVER:
        return Failure(Category.TRANSIENT, said, advice=_look(server) if code == _CLOSED else ())
    if code in _BEYOND_US:
        return Failure(Category.CONFIGURATION, f"{said} (it needs a client feature that Windlass does not support)")
    return Failure(Category.LOGIC, said)


def _host(server: McpServer) -> str:
    """Without what may be a secret: people put keys into addresses."""
    return urlsplit(server.told.url or "").netloc.rpartition("@")[2] or "this address"


def _look(server: McpServer) -> tuple[str, ...]:
    return (f"look at its entry in {server.source}", "check its health: windlass tools check")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors in the groups that anyio wraps them in."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error
