"""The last events in memory, shared by all clients (`RecentEvents`), and writing them to clients in rounds (`Fanout`).

No client has a queue: it has a cursor, the position of the last event that it was given. While the ring holds what
follows, it is served from there; one that has fallen behind the ring is too slow, and gets a notice.

A round joins the new frames into one piece, the same for all who stand at the same place, and hands it to each client's
transport with one call. A client that has not taken the last pieces is passed over; one that takes nothing for too
long, or has fallen behind the ring by that, is cut off. No round waits for anybody.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Protocol

import msgspec

from windlass.clock import Clock, SystemClock, iso
from windlass.errors import WindlassError
from windlass.server.stream_messages import StreamMessage, text_frame

__all__ = ["Fanout", "RecentEvents", "StreamClient", "TooSlow", "heartbeat_text"]

ENOUGH = 64 * 1024
"""Bytes that wait for a client, from which on it gets no more."""
MOST_AT_ONCE = 256 * 1024
"""Bytes of a batch out of the ring."""
SLICE = 50
"""Clients that are written to before others on the loop have their turn."""

_Pieces = dict[tuple[str | None, int], tuple[bytes, int, int]]
"""By execution and position of clients: the joined frames, and the position and sequence after them."""


class DirectConnection(Protocol):
    """A client's connection, past everything in between."""

    @property
    def waiting(self) -> int:
        """Bytes that it has been given and that have not left yet."""
        ...

    def write(self, piece: bytes) -> None:
        """Hand over whole frames. Never waits."""
        ...


class StreamClient:
    """A client that is written to."""

    def __init__(
        self, direct: DirectConnection, cursor: int, seq: int, execution: str | None, heartbeat: float
    ) -> None:
        self.direct = direct
        self.cursor = cursor
        self.seq = seq
        """The last sequence that it was given, where it listens to one execution."""
        self.execution = execution
        self.heartbeat = heartbeat
        self.full_since: float | None = None
        self.written_at = asyncio.get_running_loop().time()
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True: it fell behind through no fault of its own. False: the feed is closed. An error: to be cut off."""

    def end(self, behind: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(behind)

    def fail(self, error: WindlassError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class Fanout:
    """All clients that are written to."""

    def __init__(self, stall: float, clock: Clock | None = None) -> None:
        self._stall = stall
        self._clock = clock or SystemClock()
        self._clients: dict[StreamClient, None] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: StreamClient) -> None:
        self._clients[client] = None

    def remove(self, client: StreamClient) -> None:
        self._clients.pop(client, None)

    def close(self) -> None:
        for client in self._clients:
            client.end(behind=False)

    def fail(self, error: WindlassError) -> None:
        for client in self._clients:
            client.fail(error)

    async def push(self, ring: RecentEvents) -> float:
        """Write one round. Returns the seconds that the loop was held up by giving out events; 0 if there were none."""
        loop = asyncio.get_running_loop()
        pieces: _Pieces = {}
        spent, now = 0.0, loop.time()
        wrote = False
        for number, client in enumerate(list(self._clients), 1):
            if number % SLICE == 0:
                spent += loop.time() - now
                await asyncio.sleep(0)
                now = loop.time()
            if client.cursor < ring.tip:
                wrote |= self._serve(client, ring, pieces, now)
            if now - client.written_at >= client.heartbeat and client.direct.waiting < ENOUGH:
                client.direct.write(text_frame(heartbeat_text(self._clock.now(), client.cursor)))
                client.written_at = now
        return spent + loop.time() - now if wrote else 0.0

    def _serve(self, client: StreamClient, ring: RecentEvents, pieces: _Pieces, now: float) -> bool:
        if client.direct.waiting > ENOUGH:
            client.full_since = now if client.full_since is None else client.full_since
            if now - client.full_since > self._stall or client.cursor < ring.floor:
                client.fail(TooSlow())
            return False
        client.full_since = None
        key = (client.execution, client.cursor)
        if key not in pieces:
            try:
                found, cursor = ring.since(client.cursor, client.execution, MOST_AT_ONCE)
            except TooSlow:
                # It has taken what it was given: there was more than a round hands out. The journal has the rest.
                client.end(behind=True)
                return False
            pieces[key] = (b"".join([sent.frame for sent in found]), cursor, found[-1].seq if found else 0)
        piece, client.cursor, seq = pieces[key]
        if piece:
            client.direct.write(piece)
            client.seq, client.written_at = seq, now
        return bool(piece)


def heartbeat_text(now: float, position: int) -> bytes:
    """A heartbeat: the connection stands, and everything up to this position was sent."""
    return msgspec.json.encode({"type": "heartbeat", "at": iso(now), "position": position})


MOST_BYTES = 16 * 2**20
MOST_EVENTS = 50_000
SLACK = 4096
"""Dropped events that may stay in the list before it is rewritten."""


class TooSlow(WindlassError):
    """A client was given events faster than it took them, and is cut off. It can come back with `after`."""

    def __init__(self) -> None:
        super().__init__("the client reads too slowly", advice=("connect again with after=…: nothing is lost",))


class RecentEvents:
    """Events in the order of their positions, the oldest dropped when there are too many."""

    def __init__(self, floor: int, most_bytes: int = MOST_BYTES, most_events: int = MOST_EVENTS) -> None:
        self.floor = floor
        """Everything after this position, up to the tip, is here."""
        self.tip = floor
        self._most_bytes = most_bytes
        self._most_events = most_events
        self._positions: list[int] = []
        self._events: list[StreamMessage] = []
        self._dropped = 0
        """Events at the lists' beginning that no longer count."""
        self._bytes = 0

    def add(self, sent: StreamMessage) -> None:
        self._positions.append(sent.position)
        self._events.append(sent)
        self._bytes += len(sent.frame)
        self.tip = sent.position
        while self._too_much():
            oldest = self._events[self._dropped]
            self._dropped += 1
            self._bytes -= len(oldest.frame)
            self.floor = oldest.position
        if self._dropped > SLACK:
            del self._positions[: self._dropped]
            del self._events[: self._dropped]
            self._dropped = 0

    def _too_much(self) -> bool:
        held = len(self._events) - self._dropped
        return held > 1 and (held > self._most_events or self._bytes > self._most_bytes)

    def since(self, cursor: int, execution: str | None, most_bytes: int) -> tuple[list[StreamMessage], int]:
        """Messages after the cursor, about so many bytes of them, and the cursor after these."""
        if cursor < self.floor:
            raise TooSlow
        start = max(bisect_right(self._positions, cursor), self._dropped)
        found: list[StreamMessage] = []
        size = 0
        for index in range(start, len(self._events)):
            sent = self._events[index]
            if execution is None or sent.execution == execution:
                found.append(sent)
                size += len(sent.frame)
                if size >= most_bytes:
                    return found, sent.position
        return found, max(self.tip, cursor)
