"""The way to a server at an address: streamable HTTP, as the `mcp` library speaks it.

The library reports of a refusal only that there was one. Its status and headers are noted here for the request that was
refused: the library runs each request in the context of its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.tools.mcp.servers import McpServer
from windlass.tools.mcp.wire import LONGEST, metering

if TYPE_CHECKING:
    import httpx2

__all__ = ["HttpClients", "LastRefusal", "OverHttp", "refusal"]

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
