"""Whose use of a server a message belongs to, and how large it was (H1).

All uses of a server share one line to it. A request is sent in the context of the use that makes it, and its answer
and its progress name it by its number: that is how each gets on the meter that it belongs on. What belongs to none (the
greeting, the list of tools, what a server says unasked) is on no meter.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from windlass.ports import Meter

__all__ = ["Outbox", "Sizes", "metering"]

metering: ContextVar[Meter | None] = ContextVar("windlass_mcp_meter", default=None)
"""Of the use that is under way; None where it is nobody's."""


class Outbox:
    """A stream that the library sends its messages to; each comes out with the meter of whoever sent it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, item: Any) -> None:
        await self._stream.send((metering.get(), item))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Outbox:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


class Sizes:
    """Of the messages of one line, told to the meters of those that they belong to."""

    def __init__(self) -> None:
        self._asked: dict[Any, Meter] = {}
        """By the numbers of requests that are not answered yet."""

    def sent(self, message: Any, size: int, meter: Meter | None) -> None:
        if meter is None:
            return
        meter.add(sent=size)
        method, number = getattr(message, "method", None), getattr(message, "id", None)
        if method == "notifications/cancelled":
            self._asked.pop(_named(message, "requestId"), None)
        elif method is not None and number is not None:
            self._asked[_number(number)] = meter

    def received(self, message: Any, size: int) -> None:
        method, number = getattr(message, "method", None), getattr(message, "id", None)
        if method is None:
            meter = self._asked.pop(_number(number), None)
        else:
            meter = self._asked.get(_named(message, "progressToken"))
        if meter is not None:
            meter.add(received=size)


def _named(message: Any, key: str) -> Any:
    params = getattr(message, "params", None)
    return _number(params.get(key)) if isinstance(params, dict) else None


def _number(found: Any) -> Any:
    """As the library numbers its requests: servers may write a number as text. Nothing else is one."""
    if isinstance(found, str) and found.isdecimal() and len(found) < 16:
        return int(found)
    return found if isinstance(found, int | str) else None
