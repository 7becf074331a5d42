"""Connections that go to checked addresses and nowhere else, and their bytes on the meter (H1).

Imported only when something is to be sent. The network backend is asked to connect to a name. It asks the guard, which
looks the name up and checks what comes back, and it connects to exactly that; the name stays in the Host header, in SNI
and in the check of the certificate. It is the only way to a socket here, so that nothing upstairs can get around it. A
connection that is used again leads where it led when it was checked.

Heads and bodies count as they travel: compressed, and as long as they were when the use broke off. TLS, the frames of
chunked bodies and the look-up of names do not. Outgoing bytes count when they are handed to the connection, so that
nothing counts for a connection that was never made.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpcore2
import httpx2

from windlass.ports import Meter
from windlass.tools.net.failures import TooMuch
from windlass.tools.net.guard import AddressGuard

__all__ = ["GuardedTransport", "coming_in", "going_out"]

EACH_ADDRESS = 5.0
"""Seconds for one address, while there are others to try."""
KEPT_FOR = 30.0
"""Seconds that an idle connection is kept."""


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, guard: AddressGuard) -> None:
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
    """The bytes of an answer, up to a limit: compressed data that never becomes any would be read for ever."""

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

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext | None, connections: int) -> None:
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


_LINE = len(" HTTP/1.1\r\n") + len("\r\n")
"""Bytes of the constant part of a head's first line, and of the empty line that ends it."""


def going_out(request: httpx2.Request, meter: Meter) -> None:
    """Count what is about to be sent; call it before it is."""
    head = len(request.method) + 1 + len(request.url.raw_path) + _LINE + _size(request.headers)
    request.stream = _Outgoing(request.stream, meter, head)


def coming_in(response: httpx2.Response, meter: Meter) -> None:
    """Count an answer: its head, and its body as it is read."""
    meter.add(received=len("200 ") + len(response.reason_phrase) + _LINE + _size(response.headers))
    response.stream = _Incoming(response.stream, meter)


def _size(headers: httpx2.Headers) -> int:
    return sum(len(name) + len(value) + len(": \r\n") for name, value in headers.raw)


class _Outgoing(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, meter: Meter, head: int) -> None:
        self._stream, self._meter, self._head = stream, meter, head

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._meter.add(sent=self._head)  # it has gone when the body is asked for
        async for part in self._stream:
            self._meter.add(sent=len(part))
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Incoming(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, meter: Meter) -> None:
        self._stream, self._meter = stream, meter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._meter.add(received=len(part))
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
