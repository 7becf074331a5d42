"""What a request and its answer are, in bytes, told to the meter of the use (H1). Imported when something is sent.

Heads and bodies count as they travel: compressed, and as long as they were when the use broke off. What lies beneath
(TLS, the frames of chunked bodies, the look-up of names) does not. What goes out counts when it is handed over to the
connection, so that nothing counts for a connection that never came about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from windlass.ports import Meter

__all__ = ["coming_in", "going_out"]

_LINE = len(" HTTP/1.1\r\n") + len("\r\n")
"""Of the first line of a head, what is the same in all; and the empty one that ends it."""


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
