"""One reader of the journal for all clients of the stream, and each listener's `Subscription` to it.

A `Feed` looks at the journal when a driver of this process has committed, and every 50 ms for what other processes
did. It makes each event's message once and keeps the last of them in a ring, from which everybody is served: those who
ask (`Subscription`) and those who are written to (`Fanout`). Commits only leave a note here; nothing on their way waits
for the feed, and nothing in the feed waits for a client. While nobody listens, it does nothing.

Positions are given out in the order of commits, across processes, so what stands after a position never changes from
behind: reading on from the last one seen is gapless.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from windlass.engine.engine import Engine
from windlass.errors import JournalError, UsageError
from windlass.ports import Journal
from windlass.redact import Redactor
from windlass.server.fanout import MOST_AT_ONCE, MOST_BYTES, MOST_EVENTS, Fanout, RecentEvents
from windlass.server.stream_messages import MessageEncoder, StreamMessage

__all__ = ["Feed", "Subscription"]

POLL = 0.05
"""Seconds between looks at what other processes did."""
FLUSH = 0.03
"""Seconds that events may wait for company after something was sent. The first after a silence goes at once."""
REST = 8.0
"""Factor by which the feed rests longer than it held up the loop: a ninth of its time, however many listen. Where the
machine gives this process little time, a round takes longer, and rounds come less often, so that the steps keep theirs.
"""
LONGEST_REST = 0.2
PAGE = 500
"""Entries that are read from the journal at once."""
LOOKBACK = 500
"""Events before the journal's end that the ring begins with, for clients who come back after a restart."""
WAIT_AFTER_TROUBLE = 0.5
MOST_FAILURES = 4
"""Looks at the journal that may fail in a row before clients get a notice."""

_log = logging.getLogger("windlass.server.feed")


class Feed:
    """The journal's events, as messages, for whoever listens."""

    def __init__(
        self,
        engine: Engine,
        *,
        most_bytes: int = MOST_BYTES,
        most_events: int = MOST_EVENTS,
        stall: float = 10.0,
        redactor: Redactor | None = None,
    ) -> None:
        """`stall` is the time in seconds after which a client that takes nothing is cut off."""
        self._engine = engine
        self.journal: Journal = engine.journal
        self.stall = stall
        self.trouble = ""
        """Error of the journal, while it cannot be read."""
        self._size = (most_bytes, most_events)
        self.ring = RecentEvents(0, *self._size)
        self.fanout = Fanout(stall)
        self.turn = asyncio.Lock()
        """Held by the listener who reads a page of the past."""
        self.redactor = redactor or Redactor()
        self._encoder = MessageEncoder(self.journal, self.redactor, self._engine.forecasts)
        self._held: deque[StreamMessage] = deque()
        """Messages that were read and are not in the ring yet."""
        self._highest = 0
        """The highest position ever seen here; the journal may have lost it since, by a removal."""
        self._listeners = 0
        self._awake = False
        """Set while the ring continues from its tip."""
        self._wanted = asyncio.Event()
        self._begun = asyncio.Event()
        self._news = asyncio.Event()
        self._grown: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed = 0
        self._unhook = engine.commits.subscribe(lambda *_commit: self._news.set())
        self.closed = False
        self.dropped = 0
        """Clients that were too slow and cut off."""

    @property
    def clients(self) -> int:
        """The number of listeners."""
        return self._listeners

    async def start(self) -> None:
        """Begin. Needs the running loop; the journal is not read before somebody listens."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="windlass-feed")

    async def close(self) -> None:
        """End every subscription and stop."""
        if self.closed:
            return
        self.closed = True
        self._unhook()
        self._begun.set()
        self.fanout.close()
        self._tell_growth()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def position(self) -> int:
        """The last position that was read. It stands still while nobody listens."""
        return self._held[-1].position if self._held else self.ring.tip

    def subscribe(self, after: int | None = None, execution: str | None = None) -> Subscription:
        """Events after a position, or with an execution after its sequence; with None, those from now on."""
        return Subscription(self, after, execution)

    async def check(self, after: int | None, name: str | None) -> str | None:
        """The execution's full id. Raises `NotFound`, and `UsageError` for an `after` that is not there yet."""
        execution = None if name is None else (await self._engine.find(name)).id
        if after is not None and after > 0 and not await self._exists(after, execution):
            what = "the journal" if execution is None else f"the journal of {execution}"
            raise UsageError(f"after={after} is beyond the end of {what}", advice=("start over with after=0",))
        return execution

    async def _exists(self, after: int, execution: str | None) -> bool:
        if execution is None:
            self._highest = max(self._highest, self.position)
            return after <= self._highest or after <= await last_position(self.journal)
        return bool(await self.journal.read(execution, after - 1, limit=1))

    # -- those who listen --------------------------------------------------------------------------

    async def join(self) -> None:
        """Count one listener more. Returns when the ring is alive, or says why it cannot be."""
        self._listeners += 1
        self._wanted.set()
        try:
            await self._begun.wait()
            if self.trouble:
                raise JournalError(self.trouble)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        self._listeners -= 1
        if self._listeners == 0:
            self._wanted.clear()

    async def growth(self, within: float | None) -> None:
        """Wait until there is more in the ring, but no longer than that."""
        if self._grown is None or self._grown.done():
            self._grown = asyncio.get_running_loop().create_future()
        if not self.closed:
            await asyncio.wait({self._grown}, timeout=within)

    @property
    def lost(self) -> bool:
        """Tell whether the journal has been unreadable for too long to wait on."""
        return self._failed >= MOST_FAILURES

    def _tell_growth(self) -> None:
        if self._grown is not None and not self._grown.done():
            self._grown.set_result(None)

    # -- reading -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                worked = await self._round()
                self.trouble, self._failed = "", 0
            except Exception as error:  # whatever it is, the stream does not end by it
                await self._wait_out(error)
                continue
            if worked:
                await asyncio.sleep(min(max(FLUSH, REST * worked), LONGEST_REST))
            else:
                await _wait(self._news, POLL)

    async def _round(self) -> float:
        """Read on and write out. Returns the seconds that this took; 0 if there was nothing."""
        if not self._listeners or not self._awake:
            await self._rest()
        self._news.clear()
        worked = await self._take_in()
        self._begun.set()
        return worked + await self.fanout.push(self.ring)

    async def _wait_out(self, error: Exception) -> None:
        """Wait while another process holds the journal. If it stays unreadable, tell the clients."""
        trouble = error.message if isinstance(error, JournalError) else f"{type(error).__name__}: {error}"
        if self.trouble != trouble:
            _log.warning(
                "the stream cannot read the journal: %s", trouble, exc_info=not isinstance(error, JournalError)
            )
        self.trouble = trouble
        self._failed += 1
        if self._failed >= MOST_FAILURES:
            self.fanout.fail(JournalError(trouble))
            self._tell_growth()
            if not self._begun.is_set():
                self._begun.set()  # those who wait for it to begin are woken up and told
                self._begun.clear()
        await asyncio.sleep(WAIT_AFTER_TROUBLE)

    async def _rest(self) -> None:
        """Wait for a listener. The next one finds a ring that begins a little before the journal's end."""
        self._awake = False
        self._highest = max(self._highest, self.position)
        self._begun.clear()
        await self._wanted.wait()
        end = await last_position(self.journal)
        self.ring = RecentEvents(max(0, end - LOOKBACK), *self._size)
        self._held.clear()
        self._encoder = MessageEncoder(self.journal, self.redactor, self._engine.forecasts)
        self._awake = True

    async def _take_in(self) -> float:
        """Read on. Returns the seconds that this took, without reading the journal; 0 if there was nothing."""
        entries = [] if self._held else await self.journal.read(None, self.ring.tip, limit=PAGE)
        began = time.perf_counter()
        if entries:
            self._held.extend(await self._encoder.encode(entries))
        if not self._held:
            return 0.0
        self._fill()
        self._tell_growth()
        return time.perf_counter() - began

    def _fill(self) -> None:
        """Move events into the ring, at most half its size at once, so that fast clients do not fall behind."""
        most_bytes, most_events = self._size
        added = size = 0
        while self._held and size <= most_bytes // 2 and added < max(most_events // 2, 1):
            sent = self._held.popleft()
            self.ring.add(sent)
            added, size = added + 1, size + len(sent.frame)


async def _wait(event: asyncio.Event, within: float) -> None:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return


async def last_position(journal: Journal) -> int:
    """The position of the journal's last event, found by halving: each look costs one step in an index."""
    low, high = 0, 1
    while await journal.read(None, high, limit=1):
        low, high = high, high * 2
    while low < high:  # nothing stands after `high`; something does after `low`, or the journal is empty
        middle = (low + high) // 2
        if await journal.read(None, middle, limit=1):
            low = middle + 1
        else:
            high = middle
    return high


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

    async def __aiter__(self) -> AsyncIterator[list[StreamMessage]]:
        async for batch in self.past():
            yield batch
        while not self._feed.closed:
            if batch := await self.more(None):
                yield batch

    def go_back(self, cursor: int, seq: int) -> None:
        """Begin anew with the past, after what has been given out."""
        self._after, self.seq = cursor if self.execution is None else seq, seq

    async def past(self) -> AsyncGenerator[list[StreamMessage], None]:
        """Events that are there when it begins: from the journal, and then from the ring."""
        tip, ring = self._feed.ring.tip, self._feed.ring
        async with aclosing(self._from_journal()) as read:
            async for batch in read:
                yield batch
        while ring.floor <= self.cursor < tip:
            batch, self.cursor = ring.since(self.cursor, self.execution, MOST_AT_ONCE)
            if batch:
                self.seq = batch[-1].seq
                yield batch

    async def _from_journal(self) -> AsyncGenerator[list[StreamMessage], None]:
        """Events from the journal, until the ring has all that follow."""
        feed = self._feed
        if self._after is None:
            self.cursor = feed.position
            return
        after = self._after
        self.cursor = after if self.execution is None else await self._place(self.execution, after)
        if self.cursor >= feed.ring.floor:
            return  # the ring has all that follow: pages that open now cost no fold of what went before
        encoder = MessageEncoder(feed.journal, feed.redactor)
        while True:
            # Everything up to the ring's tip is on disk, so a read that comes to an end has seen it.
            tip = feed.ring.tip
            async with feed.turn:
                # One page at a time for all: a thousand who come back at once share what one would take.
                entries = await feed.journal.read(self.execution, after, limit=PAGE)
                began = time.thread_time()
                told = await encoder.encode(entries)
                await asyncio.sleep(time.thread_time() - began)
            last = entries[-1].position if entries else 0
            if told:
                self.seq = entries[-1].seq
                after = last if self.execution is None else self.seq
                yield told
            self.cursor = last if len(entries) == PAGE else max(tip, last)
            if self.cursor >= feed.ring.floor and len(entries) < PAGE:
                return

    async def _place(self, execution: str, seq: int) -> int:
        """The position of an execution's event; -1 if there is none."""
        entries = await self._feed.journal.read(execution, seq - 1, limit=1) if seq else []
        return entries[0].position if entries and entries[0].seq == seq else -1

    async def more(self, within: float | None) -> list[StreamMessage]:
        """The next batch out of the ring; empty if there was none in that time, or the feed is closed."""
        batch, self.cursor = self._feed.ring.since(self.cursor, self.execution, MOST_AT_ONCE)
        if not batch and not self._feed.closed:
            await self._feed.growth(within)
            if self._feed.lost:
                raise JournalError(self._feed.trouble)
            batch, self.cursor = self._feed.ring.since(self.cursor, self.execution, MOST_AT_ONCE)
        return batch
