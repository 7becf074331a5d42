"""Which reply of a script a request gets.

Replies with a `when` come first: the first one that fits and is not used up. Then those without, in their order. A
reply serves `times` requests, or for ever with `repeat`. A function in place of the list decides everything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from windlass.testing.scripted.received import Received
from windlass.testing.scripted.reply import Reply

__all__ = ["Chooser", "Script"]

Script: TypeAlias = Sequence[Reply] | Reply | Callable[[Received], Reply]


class Chooser:
    """A script, and how far it has come. One thread at a time."""

    def __init__(self, script: Script) -> None:
        self._function = None if isinstance(script, Reply) or not callable(script) else script
        given = [script] if isinstance(script, Reply) else script
        self._replies: list[Reply] = [] if callable(given) else list(given)
        for reply in self._replies:
            if not isinstance(reply, Reply):
                raise TypeError(f"a script is made of Reply values, and this is none: {reply!r}")
        self._used = [0] * len(self._replies)

    def choose(self, received: Received) -> Reply | None:
        """The reply for this request, which is then used once more; None when there is none left."""
        if self._function is not None:
            return self._function(received)
        for index in self._order():
            reply = self._replies[index]
            if (reply.repeat or self._used[index] < reply.times) and _fits(reply, received):
                self._used[index] += 1
                return reply
        return None

    def unused(self) -> list[str]:
        """A line for every reply that some request should have had. One with `repeat` may serve nobody."""
        pairs = zip(self._replies, self._used, strict=True)
        return [
            f"reply {place} ({reply}) served {used} of {reply.times} requests"
            for place, (reply, used) in enumerate(pairs, start=1)
            if not reply.repeat and used < reply.times
        ]

    def _order(self) -> list[int]:
        """Conditions first; the sort keeps the script's order among equals."""
        return sorted(range(len(self._replies)), key=lambda index: self._replies[index].when is None)


def _fits(reply: Reply, received: Received) -> bool:
    if reply.when is None:
        return True
    return reply.when in received.text if isinstance(reply.when, str) else reply.when(received)
