"""The meter of a use: a tool reports its machine resources to it, and the journal stores them with the end (H1)."""

from __future__ import annotations

import threading

import msgspec

from windlass.core.resources import Resources

__all__ = ["Meter"]

_ONE_AT_A_TIME = threading.Lock()


class Meter(msgspec.Struct, eq=False, gc=False):
    """Resources that one use of a tool has taken so far. Uses inside it count for it, too."""

    _outer: Meter | None = None
    _cpu: float | None = None
    _memory: int | None = None
    _received: int | None = None
    _sent: int | None = None
    queued: float = 0.0
    """Seconds before the work began: for a place, a rate, memory or a breaker. Those of uses inside are work."""

    def add(
        self,
        *,
        cpu: float | None = None,
        memory: int | None = None,
        received: int | None = None,
        sent: int | None = None,
    ) -> None:
        """Add usage: memory as the maximum, everything else as a sum; None is unknown."""
        with _ONE_AT_A_TIME:  # functions call it from threads of their own
            if cpu is not None:
                self._cpu = (self._cpu or 0.0) + cpu
            if memory is not None:
                self._memory = max(self._memory or 0, memory)
            if received is not None:
                self._received = (self._received or 0) + received
            if sent is not None:
                self._sent = (self._sent or 0) + sent
        if self._outer is not None:
            self._outer.add(cpu=cpu, memory=memory, received=received, sent=sent)

    def inner(self) -> Meter:
        """The meter of a use that is part of this one."""
        return Meter(self)

    @property
    def used(self) -> Resources | None:
        """All that is known; None if that is nothing."""
        if self._cpu is None and self._memory is None and self._received is None and self._sent is None:
            return None
        cpu = round(self._cpu, 6) if self._cpu is not None else None
        return Resources(cpu, self._memory, self._received, self._sent)
