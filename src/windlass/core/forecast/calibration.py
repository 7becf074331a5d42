"""Calibration of the band: an offset for each tail and each quarter of the way, from forecasts and what came of them.

Adaptive conformal inference (Gibbs and Candès, 2021): whenever the truth was beyond a limit, the limit moves out by a
step, and otherwise in by a smaller one, so that in the long run it is passed as often as it should be, however wrong
the model is. The offsets are a pure fold over the recorded outcomes in their order: processes that write at the same
time cannot spoil them, and nothing has to be kept but the forecasts themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["BAND", "BUCKETS", "Band", "Calibration", "ScoredForecast", "bucket_of"]

BAND = 0.8
"""Part of the outcomes that are to lie in the band."""
BUCKETS = 4
"""Quarters of the steps."""
RATE = 0.06
"""Size of a step, in units of the half band, while there are many outcomes; larger at first."""
LONGEST = 6.0
"""Half bands that an offset may reach."""
LEAST_HALF = 0.03
"""Least half of a band, as a logarithm: the clock and the machine are not more exact than that."""


class Band(NamedTuple):
    """Seconds or dollars: the limits of the 80 % band, and the median."""

    low: float
    middle: float
    high: float


class ScoredForecast(NamedTuple):
    """A forecast as the model made it, before it was calibrated, and the amount in the end."""

    bucket: int
    forecast: Band
    truth: float


def bucket_of(done: float) -> int:
    """The quarter of a part of the steps between 0 and 1."""
    return max(0, min(BUCKETS - 1, int(done * BUCKETS)))


class Calibration:
    """Offsets by bucket: of the low limit, the median, the high limit, in half bands."""

    __slots__ = ("_offsets", "counts", "smallest")

    def __init__(self, outcomes: Iterable[ScoredForecast] = (), smallest: float = 0.01) -> None:
        """`outcomes` oldest first."""
        self.smallest = smallest
        self._offsets: list[list[float]] = [[0.0, 0.0, 0.0] for _ in range(BUCKETS)]
        self.counts = [0] * BUCKETS
        for outcome in outcomes:
            self._learn(outcome)

    def apply(self, raw: Band, bucket: int) -> Band:
        """The band with the offsets of its bucket."""
        low, middle, high = self._moved(raw, self._offsets[bucket])
        exact = [max(0.0, math.exp(min(x, 50.0)) - self.smallest) for x in (low, middle, high)]
        return Band(*sorted(exact))

    def _moved(self, raw: Band, offsets: Sequence[float]) -> tuple[float, float, float]:
        low, middle, high = (math.log(max(0.0, x) + self.smallest) for x in raw)
        down, up = max(middle - low, LEAST_HALF), max(high - middle, LEAST_HALF)
        shift = offsets[1] * (up if offsets[1] > 0 else down)
        middle += shift
        return min(middle, middle - down * (1 + offsets[0])), middle, max(middle, middle + up * (1 + offsets[2]))

    def _learn(self, outcome: ScoredForecast) -> None:
        bucket = outcome.bucket
        offsets = self._offsets[bucket]
        low, middle, high = self._moved(outcome.forecast, offsets)
        truth = math.log(max(0.0, outcome.truth) + self.smallest)
        self.counts[bucket] += 1
        step = RATE * (1 + 3 / math.sqrt(self.counts[bucket]))
        tail = (1 - BAND) / 2
        for place, passed, usual in ((0, truth < low, tail), (1, truth > middle, 0.5), (2, truth > high, tail)):
            moved = offsets[place] + (step if place != 1 else step / 4) * (passed - usual)
            offsets[place] = max(-0.8 if place != 1 else -1.0, min(LONGEST if place != 1 else 1.0, moved))
