"""Read a program's output line by line: a line that is too long is dropped, and reading goes on after it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

__all__ = ["LastWords", "json_objects", "lines"]

LONGEST = 16 << 20
"""Bytes of a line that are kept. A longer one is dropped as a whole: half of an event means nothing."""


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line to the end. A slow caller is no problem: the program waits at a full pipe."""
    rest, dropping = bytearray(), False
    while piece := await reader.read(65536):
        *whole, tail = piece.split(b"\n")
        for line in whole:
            if not dropping:
                yield bytes(rest) + line
            rest, dropping = bytearray(), False
        rest += tail
        if len(rest) > LONGEST:
            rest, dropping = bytearray(), True
    if rest and not dropping:
        yield bytes(rest)


async def json_objects(reader: asyncio.StreamReader) -> AsyncIterator[Mapping[str, Any]]:
    """The lines that are JSON objects; a banner or a warning between them is passed over."""
    async for line in lines(reader):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, Mapping):
            yield found


class LastWords:
    """The last lines of a program's stderr."""

    def __init__(self, most: int = 20) -> None:
        self._kept: deque[str] = deque(maxlen=most)

    def add(self, line: bytes) -> str:
        text = line[:2000].decode(errors="replace").strip()
        if text:
            self._kept.append(text)
        return text

    def __str__(self) -> str:
        return " / ".join(self._kept)
