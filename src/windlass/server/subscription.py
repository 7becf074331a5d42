"""One listener's way through the stream: what is past from the journal, then what comes from the ring."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from windlass.errors import JournalError
from windlass.server.telling import Sent, Telling

if TYPE_CHECKING:
    from windlass.server.feed import Feed

__all__ = ["Subscription"]

PAGE = 500
"""Entries that are read at once from the past."""
MOST_AT_ONCE = 256 * 1024
"""Bytes of a batch out of the ring."""


class Subscription:
    """Batches of events in order, without gaps or duplicates: `async with … as batches: async for batch in batches`.

    Ends when the feed is closed. Raises `TooSlow` when what should come next has already left the ring, and
    `JournalError` when the journal stays unreadable.
    """

    def __init__(self, feed: Feed, after: int | None, execution: str | None) -> None:
        self._feed = feed
        self._after = after
        self.execution = execution
        self.cursor = 0
        """The position up to which everything was given out; it means something once the past is over."""
        self.seq = after or 0
        """The same as a sequence, where it is about one execution."""

    async def __aenter__(self) -> Subscription:
        await self._feed.join()
        return self

    async def __aexit__(self, *_how: object) -> None:
        self._feed.leave()

    async def __aiter__(self) -> AsyncIterator[list[Sent]]:
        async for batch in self.past():
            yield batch
        while not self._feed.closed:
            if batch := await self.more(None):
                yield batch

    def go_back(self, cursor: int, seq: int) -> None:
        """Begin anew with the past, after what has been given out."""
        self._after, self.seq = cursor if self.execution is None else seq, seq

    async def past(self) -> AsyncGenerator[list[Sent], None]:
        """What the journal has, until the ring has all that follows."""
        feed = self._feed
        if self._after is None:
            self.cursor = feed.position
            return
        telling = Telling(feed.journal, feed.redactor)
        after = self._after
        if self.execution is None and after >= feed.ring.floor:
            self.cursor = after
            return
        while True:
            # Whatever stands up to the ring's tip is on disk, so a read that comes to an end has seen it.
            tip = feed.ring.tip
            async with feed.turn:
                # One page at a time for all: a thousand who come back at once share what one would take.
                entries = await feed.journal.read(self.execution, after, limit=PAGE)
                began = time.thread_time()
                told = await telling.tell(entries)
                await asyncio.sleep(time.thread_time() - began)
            last = entries[-1].position if entries else 0
            if told:
                self.seq = entries[-1].seq
                after = last if self.execution is None else self.seq
                yield told
            self.cursor = last if len(entries) == PAGE else max(tip, last)
            if self.cursor >= feed.ring.floor and len(entries) < PAGE:
                return

    async def more(self, within: float | None) -> list[Sent]:
        """The next batch out of the ring; empty if there was none in that time, or the feed is closed."""
        batch, self.cursor = self._feed.ring.since(self.cursor, self.execution, MOST_AT_ONCE)
        if not batch and not self._feed.closed:
            await self._feed.growth(within)
            if self._feed.lost:
                raise JournalError(self._feed.trouble)
            batch, self.cursor = self._feed.ring.since(self.cursor, self.execution, MOST_AT_ONCE)
        return batch
