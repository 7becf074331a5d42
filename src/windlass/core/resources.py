"""Machine resources used by tools, in numbers that can be added up (H1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

__all__ = ["Resources", "summed"]

N = TypeVar("N", int, float)


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Measured usage; a figure that a tool cannot know is None, and never 0."""

    cpu: float | None = None
    """Seconds of computing, of its processes or its thread."""
    memory: int | None = None
    """The most bytes in memory at one time."""
    received: int | None = None
    """Bytes that came in: over the network, out of files, out of its processes."""
    sent: int | None = None
    """Bytes that went out the same ways."""

    def plus(self, other: Resources) -> Resources:
        """Both, one after the other."""
        return Resources(
            _both(self.cpu, other.cpu),
            max((n for n in (self.memory, other.memory) if n is not None), default=None),
            _both(self.received, other.received),
            _both(self.sent, other.sent),
        )


def summed(used: Iterable[Resources | None]) -> Resources | None:
    """All of them; None when nothing is known."""
    total: Resources | None = None
    for one in used:
        if one is not None:
            total = one if total is None else total.plus(one)
    return total


def _both(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
