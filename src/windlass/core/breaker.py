"""A circuit breaker: after repeated failures it refuses uses for a while, then lets one probe through (C4). Pure.

    closed --(5 failures in a row)--> open --(its time is over)--> half open --(one use)--> closed, or open for longer

Only transient and resource failures count: bad arguments or a missing permission do not mean that the tool is broken.
While it is open, only the probe's result counts: uses that began before are ignored, good or bad. Else ten failures at
once would keep it open for as long as ten failed probes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from windlass.errors import MODEL_API, Category, Failure

__all__ = ["FIRST_REST", "LONGEST_REST", "Breaker", "Circuit", "counts"]

FAILURES = 5
"""In a row, after which it opens."""
FIRST_REST = 30.0
LONGEST_REST = 600.0
LONGEST_API_REST = 60.0
"""The same for a model API that fails: agents wait for it, and should not wait long after it is back."""
PROBE_TAKES = 60.0
"""Seconds after which a probe without a result counts as failed."""


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool's, or one runtime's."""

    failures: int = 0
    """In a row."""
    opened: int = 0
    """Times that it opened since it last was closed."""
    until: float = 0.0
    """End of the open period, or of the probe's time; 0 is closed."""
    probing: bool = False
    because: str = ""
    """The last failure."""

    def circuit(self, now: float) -> Circuit:
        if not self.until:
            return Circuit.CLOSED
        return Circuit.HALF_OPEN if self.probing or self.admits(now) else Circuit.OPEN

    def admits(self, now: float) -> bool:
        """True if a use may begin now. When half open, only one may: see `probe`.

        A clock that was set back must not keep it open for longer than its longest rest.
        """
        return not now < self.until <= now + LONGEST_REST

    def tried_now(self, now: float) -> bool:
        """True while a probe is under way and has time left."""
        return self.probing and not self.admits(now)

    def probe(self, now: float) -> Breaker:
        """Begin the probe: one use shows if the tool works again, others wait for its result."""
        return msgspec.structs.replace(self, probing=True, until=now + PROBE_TAKES)

    def called_off(self) -> Breaker:
        """The probe was stopped from outside and found nothing out: another may begin a first rest after it did."""
        return msgspec.structs.replace(self, probing=False, until=self.until - PROBE_TAKES + FIRST_REST)

    def worked(self) -> Breaker:
        return self if self.until and not self.probing else Breaker()

    def failed(self, failure: Failure, now: float) -> Breaker:
        if self.probing:
            return self._open(failure, now)
        if self.until:
            return self
        failures = self.failures + 1
        if failures >= FAILURES:
            return self._open(failure, now)
        return Breaker(failures, because=failure.message[:300])

    def _open(self, failure: Failure, now: float) -> Breaker:
        longest = LONGEST_API_REST if failure.kind == MODEL_API else LONGEST_REST
        rest = min(longest, FIRST_REST * 2**self.opened)
        return Breaker(self.failures + 1, self.opened + 1, now + rest, because=failure.message[:300])


def counts(failure: Failure) -> bool:
    """True if the failure is the tool's own."""
    return failure.category in (Category.TRANSIENT, Category.RESOURCE) and not failure.final
