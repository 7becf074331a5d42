"""The last part of the stream, in memory, shared by all clients: nobody has a queue of their own.

A client is a cursor: the position of the last event it was given. As long as the ring still holds what follows, it is
served from here. One that has fallen behind the ring's floor is too slow, and is told so.
"""

from __future__ import annotations

from bisect import bisect_right

from windlass.errors import WindlassError
from windlass.server.telling import Sent

__all__ = ["Ring", "TooSlow"]

MOST_BYTES = 16 * 2**20
MOST_EVENTS = 50_000
SLACK = 4096
"""Dropped events that may stay in the list before it is rewritten."""


class TooSlow(WindlassError):
    """A client was given events faster than it took them, and is cut off. It can come back with `after`."""

    def __init__(self) -> None:
        super().__init__("the client reads too slowly", advice=("connect again with after=…: nothing is lost",))


class Ring:
    """Events in the order of their positions, the oldest dropped when there are too many."""

    def __init__(self, floor: int, most_bytes: int = MOST_BYTES, most_events: int = MOST_EVENTS) -> None:
        self.floor = floor
        """Everything after this position, up to the tip, is here."""
        self.tip = floor
        self._most_bytes = most_bytes
        self._most_events = most_events
        self._positions: list[int] = []
        self._events: list[Sent] = []
        self._dropped = 0
        """Events at the lists' beginning that no longer count."""
        self._bytes = 0

    def add(self, sent: Sent) -> None:
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

    def since(self, cursor: int, execution: str | None, most_bytes: int) -> tuple[list[Sent], int]:
        """What follows the cursor, about as much as that, and where the cursor is then."""
        if cursor < self.floor:
            raise TooSlow
        start = max(bisect_right(self._positions, cursor), self._dropped)
        found: list[Sent] = []
        size = 0
        for index in range(start, len(self._events)):
            sent = self._events[index]
            if execution is None or sent.execution == execution:
                found.append(sent)
                size += len(sent.frame)
                if size >= most_bytes:
                    return found, sent.position
        return found, max(self.tip, cursor)
