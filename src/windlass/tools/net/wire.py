"""Connections that go to checked addresses and nowhere else. Imported only when something is to be sent.

The network backend is asked to connect to a name. It asks the guard, which looks the name up and checks what comes
back, and it connects to exactly that; the name stays in the Host header, in SNI and in the check of the certificate.
It is the only way to a socket here, so that nothing upstairs can get around it. A connection that is used again leads
where it led when it was checked.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable

import httpcore2
import httpx2

from windlass.tools.net.failures import TooMuch
from windlass.tools.net.guard import Guard

__all__ = ["GuardedTransport"]

EACH_ADDRESS = 5.0
"""Seconds for one address, while there are others to try."""
KEPT_FOR = 30.0
"""Seconds that an idle connection is kept."""


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._guard.addresses(host, port)
        brief = EACH_ADDRESS if timeout is None else min(timeout, EACH_ADDRESS)
        for address in others:
            try:
                return await self._sockets.connect_tcp(address, port, brief, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._sockets.connect_tcp(last, port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


class _Body(httpx2.AsyncByteStream):
    """What the network brings, up to a limit: compressed data that never becomes any would be read for ever."""

    def __init__(self, response: httpcore2.Response, most: int | None) -> None:
        self._response, self._most = response, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._response.aiter_stream():
            size += len(part)
            if self._most is not None and size > self._most:
                raise TooMuch
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A pool of connections behind a guard; proxies of the environment are not looked for."""

    def __init__(self, guard: Guard, tls: ssl.SSLContext | None, connections: int) -> None:
        self._guard = guard
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpcore2.default_ssl_context(),
            max_connections=connections,
            max_keepalive_connections=connections // 4,
            keepalive_expiry=KEPT_FOR,
            network_backend=_Backend(guard),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # A connection that is kept is not opened anew, so the lists are asked for every request.
        self._guard.read(str(request.url))
        url = request.url
        response = await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        body = _Body(response, request.extensions.get("most"))
        return httpx2.Response(response.status, headers=response.headers, stream=body, extensions=response.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()
