"""Listening to a server's stream through whatever happens to the line.

The server numbers every event, so a listener that says which one it had last misses nothing and hears nothing twice:
after a cut, a restart of the server, a silence longer than its heartbeats, or being cut off as too slow, the stream is
opened again from there. Only an answer that would be the same next time ends it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windlass.client.errors import Refused, Unreachable, refusal
from windlass.errors import Category

__all__ = ["Line", "follow"]

SHORTEST_WAIT = 0.1
LONGEST_WAIT = 10.0
_FOR_GOOD = {1008: Category.CONFIGURATION, 4404: Category.CONFIGURATION}
"""Close codes that say that the request itself is wrong."""


@dataclass(frozen=True, slots=True)
class Line:
    """How a server is reached, and how long to bear with it."""

    url: str
    token: str
    silence: float
    """Seconds without a word, after which the line counts as cut: heartbeats come more often."""
    patience: float | None
    """Seconds without a connection, after which it is given up; None never gives up."""


async def follow(line: Line, path: str, number: str, after: int | None) -> AsyncGenerator[dict[str, Any], None]:
    """Events of a stream, each once; `number` is the field that says where they stand in it (`seq`, `position`)."""
    loop = asyncio.get_running_loop()
    wait = SHORTEST_WAIT
    lost_at = loop.time()
    while True:
        why = "the line was cut"
        try:
            async with aclosing(_connection(line, path, after)) as messages:
                async for message in messages:
                    wait, lost_at = SHORTEST_WAIT, loop.time()
                    if message["type"] == "heartbeat":
                        if number == "position" and after is None:
                            after = message["position"]
                        continue
                    stands = message[number]
                    if after is not None and stands <= after:
                        continue
                    if number == "seq" and after is not None and stands != after + 1:
                        break  # something is missing: ask again from where we are
                    after = stands
                    yield message
                    lost_at = loop.time()  # what the caller did with it is not the server's silence
        except _Cut as cut:
            why = str(cut)
        if line.patience is not None and loop.time() - lost_at > line.patience:
            raise Unreachable(
                f"the stream of {line.url} cannot be reached any more: {why}",
                advice=("see whether it runs: windlass serve", f"go on where it ended: after={after}"),
            )
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(wait * 2, LONGEST_WAIT)


class _Cut(Exception):
    """The line is gone; the next one may be better."""


async def _connection(line: Line, path: str, after: int | None) -> AsyncGenerator[dict[str, Any], None]:
    """One connection's messages. Raises `_Cut` at its end, or `Refused` if another would be of no use."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

    query = "" if after is None else f"?after={after}"
    try:
        connection = await connect(
            _ws(line.url) + path + query,
            additional_headers={"Authorization": f"Bearer {line.token}"},
            compression=None,
            max_size=None,
            proxy=None if is_loopback(line.url) else True,
            open_timeout=line.silence,
            close_timeout=1.0,
        )
    except InvalidStatus as error:
        if error.response.status_code < 500:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from error
        raise _Cut(f"the server answered {error.response.status_code}") from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise _Cut(str(error) or type(error).__name__) from error
    try:
        while True:
            async with asyncio.timeout(line.silence):
                text = await connection.recv()
            yield json.loads(text)
    except TimeoutError as error:
        raise _Cut(f"nothing was heard for {line.silence:g} s") from error
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd is not None else 1006
        reason = closed.rcvd.reason if closed.rcvd is not None else ""
        if code in _FOR_GOOD:
            raise Refused(reason or "the server refused", status=code, category=_FOR_GOOD[code]) from closed
        raise _Cut(reason or f"closed with {code}") from closed
    finally:
        # A peer that is gone does not answer a close; nobody waits for it.
        connection.transport.abort()


def _ws(url: str) -> str:
    return "ws" + url.removeprefix("http")


def is_loopback(url: str) -> bool:
    """Whether the server is on this machine, where no proxy belongs in between."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
