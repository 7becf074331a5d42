"""Is the disk fast enough to commit on the event loop itself?

Handing a commit to a thread and back costs about 40 µs, half of what the commit costs on a good SSD. So while
commits are short they run on the loop, and the first long one sends those after it to the thread, where a
slow disk holds up nobody who does not wait for it.
"""

from __future__ import annotations

__all__ = ["Pace"]

SHORT = 0.001
LONG = 0.003
TRUST_AFTER = 8
DISTRUST_FOR = 30


class Pace:
    def __init__(
        self, short: float = SHORT, long: float = LONG, trust_after: int = TRUST_AFTER, distrust_for: int = DISTRUST_FOR
    ) -> None:
        self._short, self._long = short, long
        self._trust_after, self._distrust_for = trust_after, distrust_for
        self._needed = trust_after
        """Short commits in a row that are still wanted before the loop is used."""

    @property
    def fast(self) -> bool:
        return self._needed <= 0

    def took(self, seconds: float) -> None:
        if seconds >= self._long:
            self._needed = self._distrust_for
        elif seconds <= self._short:
            self._needed -= 1
        elif self._needed > 0:
            self._needed = max(self._needed, self._trust_after)
