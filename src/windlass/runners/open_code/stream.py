"""The server's stream of events about a folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from windlass.runners.open_code.server import Server

__all__ = ["events"]

SILENCE = 45.0
"""Seconds without any event, though a server sends a sign of life every ten, after which it is asked how it is."""


async def events(server: Server, directory: str) -> AsyncIterator[Mapping[str, Any]]:
    """Events as they come; the first is `server.connected`. httpx2.HTTPError: it broke, or fell silent."""
    import httpx2

    stream = server.client.stream(
        "GET", "/event", params={"directory": directory}, timeout=httpx2.Timeout(SILENCE, read=SILENCE)
    )
    async with stream as response:
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            try:
                event = json.loads(line[5:])
            except ValueError:
                continue  # no event of ours: each is one line of JSON
            if isinstance(event, Mapping):
                yield event
