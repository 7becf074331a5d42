"""Bodies without the byte order mark that some servers begin them with: the clients would lose the first event of a
stream.

Apart from `wire`, because this imports the HTTP client, which takes its time.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import AsyncIterator

import httpx2

__all__ = ["take_mark_off"]


async def take_mark_off(response: httpx2.Response) -> None:
    """Have the body of this response, which nobody has read yet, begin after the mark."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _PlainBody(response.stream)


class _PlainBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        begun, first = False, b""
        async for piece in self._body:
            if not begun:
                first += piece
                if len(first) < len(BOM_UTF8) and BOM_UTF8.startswith(first):
                    continue  # it may be the beginning of one
                begun, piece = True, first.removeprefix(BOM_UTF8)
            yield piece
        if not begun:
            yield first

    async def aclose(self) -> None:
        await self._body.aclose()
