"""Writes the ring to every client that can be written to directly, in rounds.

A round joins the new frames into one piece, the same for all who stand at the same place, and hands it to each
client's transport with one call. Whoever has not taken the last pieces is passed over; whoever takes nothing for too
long, or has fallen behind the ring by that, is cut off. No round waits for anybody.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import msgspec

from windlass.clock import Clock, SystemClock, iso
from windlass.errors import WindlassError
from windlass.server.frames import text_frame
from windlass.server.ring import Ring, TooSlow

__all__ = ["Direct", "Fanout", "Outlet", "heartbeat_text"]

ENOUGH = 64 * 1024
"""Bytes that wait for a client, from which on it gets no more."""
MOST_AT_ONCE = 256 * 1024
SLICE = 50
"""Clients that are written to before others on the loop have their turn."""

_Pieces = dict[tuple[str | None, int], tuple[bytes, int, int]]
"""For who stands where: the joined frames, and where one stands after them, by position and sequence."""


class Direct(Protocol):
    """A client's connection, past everything in between."""

    @property
    def waiting(self) -> int:
        """Bytes that it has been given and that have not left yet."""
        ...

    def write(self, piece: bytes) -> None:
        """Hand over whole frames. Never waits."""
        ...


class Outlet:
    """A client that is written to."""

    def __init__(self, direct: Direct, cursor: int, seq: int, execution: str | None, heartbeat: float) -> None:
        self.direct = direct
        self.cursor = cursor
        self.seq = seq
        """The last sequence that it was given, where it listens to one execution."""
        self.execution = execution
        self.heartbeat = heartbeat
        self.full_since: float | None = None
        self.written_at = asyncio.get_running_loop().time()
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether it fell behind through no fault of its own, or the feed is closed; fails when it is to be cut off."""

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
        self._outlets: dict[Outlet, None] = {}

    def __len__(self) -> int:
        return len(self._outlets)

    def add(self, outlet: Outlet) -> None:
        self._outlets[outlet] = None

    def remove(self, outlet: Outlet) -> None:
        self._outlets.pop(outlet, None)

    def close(self) -> None:
        for outlet in self._outlets:
            outlet.end(behind=False)

    def fail(self, error: WindlassError) -> None:
        for outlet in self._outlets:
            outlet.fail(error)

    async def push(self, ring: Ring) -> float:
        """One round. Says how much of the processor's time it took to give out events; 0 if there were none."""
        loop = asyncio.get_running_loop()
        pieces: _Pieces = {}
        now = loop.time()
        spent, since = 0.0, time.thread_time()
        wrote = False
        for number, outlet in enumerate(list(self._outlets)):
            if number % SLICE == SLICE - 1:
                spent += time.thread_time() - since
                await asyncio.sleep(0)
                now, since = loop.time(), time.thread_time()
            if outlet.cursor < ring.tip:
                wrote |= self._serve(outlet, ring, pieces, now)
            if now - outlet.written_at >= outlet.heartbeat and outlet.direct.waiting < ENOUGH:
                outlet.direct.write(text_frame(heartbeat_text(self._clock.now(), outlet.cursor)))
                outlet.written_at = now
        return spent + time.thread_time() - since if wrote else 0.0

    def _serve(self, outlet: Outlet, ring: Ring, pieces: _Pieces, now: float) -> bool:
        if outlet.direct.waiting > ENOUGH:
            outlet.full_since = now if outlet.full_since is None else outlet.full_since
            if now - outlet.full_since > self._stall or outlet.cursor < ring.floor:
                outlet.fail(TooSlow())
            return False
        outlet.full_since = None
        key = (outlet.execution, outlet.cursor)
        if key not in pieces:
            try:
                found, cursor = ring.since(outlet.cursor, outlet.execution, MOST_AT_ONCE)
            except TooSlow:
                # It has taken what it was given: there was more than a round hands out. The journal has the rest.
                outlet.end(behind=True)
                return False
            pieces[key] = (b"".join([sent.frame for sent in found]), cursor, found[-1].seq if found else 0)
        piece, outlet.cursor, seq = pieces[key]
        if piece:
            outlet.direct.write(piece)
            outlet.seq, outlet.written_at = seq, now
        return bool(piece)


def heartbeat_text(now: float, position: int) -> bytes:
    """Nothing happened, and the connection stands: everything up to this position was sent."""
    return msgspec.json.encode({"type": "heartbeat", "at": iso(now), "position": position})
