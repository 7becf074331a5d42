"""The streamable HTTP endpoint of MCP. Its tools and library are loaded when the first request comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from windlass.engine.engine import Engine
from windlass.redact import Redactor
from windlass.server.guard import MAX_BODY

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

__all__ = ["McpEndpoint"]


class _Service(Protocol):
    @property
    def engine(self) -> Engine: ...
    @property
    def stopping(self) -> asyncio.Event: ...
    @property
    def redactor(self) -> Redactor: ...


class McpEndpoint:
    """An ASGI app without routes, for `Route("/mcp", endpoint=app)` and `async with app:` in the lifespan.

    The service's own engine drives. It checks neither Host nor Origin nor token: the guard in front of it does.
    """

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._sessions: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> McpEndpoint:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._sessions is not None:
            await self._sessions

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        if self._manager is None:
            self._manager = asyncio.get_running_loop().create_future()
            self._sessions = asyncio.create_task(self._hold_sessions(self._manager))
        manager = await asyncio.shield(self._manager)
        await manager.handle_request(scope, receive, send)

    async def _hold_sessions(self, made: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Hold the sessions of all clients until the end, in one task, as their library wants it."""
        try:
            manager = await asyncio.to_thread(self._make)
            async with manager.run():
                made.set_result(manager)
                await self._closing.wait()
        except Exception as error:
            if made.done():
                raise
            made.set_exception(error)
        finally:
            self._manager = None  # after a failure, the next request tries again

    def _make(self) -> StreamableHTTPSessionManager:
        from mcp.server.transport_security import TransportSecuritySettings

        from windlass.server.mcp.driving import Inside
        from windlass.server.mcp.serve import mcp_server

        async def engines(make: bool) -> Engine:
            return self._service.engine

        server = mcp_server(engines, Inside(), stopping=self._service.stopping, redactor=self._service.redactor)
        unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(max_request_body_size=MAX_BODY, transport_security=unguarded)
        return server.session_manager  # made by the line above; its routes are not used
