"""`Forecast`: the value that all surfaces show, and its words.

It is made at one moment and stays true for a while: `left_at` counts it down, so that the reader of an older one does
not show an older time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.core.budget import money
from windlass.core.forecast.calibration import Band

__all__ = ["LOW_CONFIDENCE", "Forecast", "duration_text", "from_to", "span"]

LOW_CONFIDENCE = 15
"""Runs of a plan below which its forecasts have low confidence: the band is too narrow more often than not."""
ALMOST_DONE, NEAR_THE_END = 0.5, 0.02
"""Seconds, and part of the time so far: with less than that left, it is wrapping up."""
_OWN_RUNS = {"step", "run"}
"""Sources of a time that are runs of the step itself."""
MOMENT = 5.0
"""Seconds that nobody has to be told of before an answer."""


class Forecast(msgspec.Struct, frozen=True):
    """The rest of an execution, as expected at one moment."""

    at: float
    elapsed_s: float
    """Running time so far."""
    done: float
    """Part of the steps that are settled, from 0 to 1."""
    left: Band | None
    """Seconds to the end without waiting for people; None if nothing is known of the steps that are left."""
    raw: Band | None
    """The same before calibration."""
    usd: Band | None
    """Dollars of the whole execution; None where a part of it is not known, or no step costs anything."""
    usd_raw: Band | None
    """Dollars of the rest, before calibration."""
    spent_usd: float
    runs: int
    """Earlier runs of this plan that completed."""
    unchanged: int
    """Those of them with the very same plan."""
    samples: int
    """Earlier steps that the times of those that are left come from."""
    origins: dict[str, int]
    """Steps that are left, by the source of their time: step, run, tool, kind, estimate."""
    estimated: tuple[str, ...]
    """Steps with the time that their tools expect: they never ran here."""
    unknown: tuple[str, ...]
    """Steps that nothing is known of: their time is not in the figures."""
    uncounted: tuple[str, ...]
    """Foreach steps with an unknown number of items: counted as one."""
    unpriced: tuple[str, ...]
    """Agents of which no cost is known."""
    overdue: tuple[str, ...]
    """Steps that run longer than ever before."""
    approvals: int
    """Approvals that lie ahead."""
    approval_s: float | None
    """The usual time until one is answered."""
    low_confidence: bool
    priced: tuple[str, ...] = ()
    """Agents whose cost comes from the tokens of earlier runs and a price, at least in part."""
    first: Band | None = None
    """Seconds of the whole execution as its first forecast had them; None in the first one itself."""

    @property
    def whole(self) -> bool:
        """True if all steps that are left are in the figures."""
        return not (self.unknown or self.uncounted)

    def compared_with(self, first: Forecast) -> Forecast:
        """The same, with the execution's first forecast."""
        if first is self or first.left is None or not first.whole:
            return self
        return msgspec.structs.replace(self, first=Band(*(first.elapsed_s + part for part in first.left)))

    @property
    def trend(self) -> str:
        """`earlier` or `later` if it will end outside the band of the first forecast, else empty."""
        if self.first is None or self.left is None:
            return ""
        end = self.elapsed_s + self.left.middle
        return "earlier" if end < self.first.low else "later" if end > self.first.high else ""

    def left_at(self, now: float) -> Band | None:
        """Seconds to the end, `now` being later than the forecast; never below 0. A clock set back changes nothing."""
        if self.left is None:
            return None
        passed = max(0.0, now - self.at)
        return Band(*(max(0.0, part - passed) for part in self.left))

    def wraps_up(self, now: float) -> bool:
        """True if it should be done by now, or any moment, as the earlier runs of its steps have it.

        A step that never ran here may take any time, and so may a person.
        """
        return self._is_near(now) and not self.approvals and self.origins.keys() <= _OWN_RUNS

    def _is_near(self, now: float) -> bool:
        left = self.left_at(now)
        if left is None or not self.whole or max(self.elapsed_s, now - self.at) <= 0:  # an estimate has no beginning
            return False
        return left.middle <= max(ALMOST_DONE, NEAR_THE_END * self.elapsed_s)

    def as_dict(self, now: float) -> dict[str, Any]:
        """The object `forecast` of the API."""
        left = self.left_at(now)
        return {
            "left_s": _seconds(left),
            "usd": _dollars(self.usd),
            "spent_usd": round(self.spent_usd, 6),
            "wrapping_up": self.wraps_up(now),
            "low_confidence": self.low_confidence,
            "trend": self.trend or None,
            "runs": self.runs,
            "runs_unchanged": self.unchanged,
            "from": dict(self.origins),
            "unknown": list(self.unknown),
            "unknown_items": list(self.uncounted),
            "unknown_cost": list(self.unpriced),
            "cost_by_price": list(self.priced),
            "overdue": list(self.overdue),
            "approvals_ahead": self.approvals,
            "approval_s": None if self.approval_s is None else round(self.approval_s, 1),
            "text": self.text(now),
        }

    def as_estimate(self) -> dict[str, Any]:
        """The object of `plan estimate --json`: a plan before it runs."""
        left = self.left
        return {
            "expected_s": round(left.middle, 3) if left is not None else None,
            "low_s": round(left.low, 3) if left is not None else None,
            "high_s": round(left.high, 3) if left is not None else None,
            "samples": self.samples,
            "unknown": list(self.unknown),
            "by_tools": list(self.estimated),
            "usd": round(self.usd.middle, 6) if self.usd is not None else None,
            "forecast": self.as_dict(self.at),
        }

    def beside_question(self) -> str:
        """The text beside a question, which may wait for long; empty where the rest is no more than a moment."""
        moment = self.left is None or self.left.middle < MOMENT
        return "" if moment and (self.usd is None or not self.usd.middle) else self.text(self.at)

    def text(self, now: float) -> str:
        """`6 min left (5–9 min), $1.10 of about $2.40`; empty if there is nothing to say."""
        parts = []
        left = self.left_at(now)
        if self.wraps_up(now):
            parts.append("wrapping up")
        elif left is not None and not self._is_near(now) and (self.whole or left.middle >= 1):
            least = "" if self.whole else "at least "
            parts.append(f"{least}{span(left)} left{_band(left)}")
        if self.usd is not None and self.usd.middle > 0:
            whole = money(self.usd.middle)
            about = "" if whole.startswith("less") else "about "
            parts.append(f"{money(self.spent_usd)} of {about}{whole}")
        if self.trend and self.first is not None and not self.wraps_up(now):
            parts.append(f"{self.trend} than first forecast ({from_to(self.first)})")
        if self.overdue and not self.wraps_up(now):
            parts.append(f"{self.overdue[0]} runs longer than ever before")
        if self.approvals:
            waits = f", usually {duration_text(self.approval_s)} each" if self.approval_s is not None else ""
            parts.append(f"without {self.approvals} approval{'s' if self.approvals != 1 else ''} ahead{waits}")
        if parts and left is not None and self.low_confidence and not self.wraps_up(now):
            parts.append("low confidence")
        return ", ".join(parts)


def span(band: Band) -> str:
    """The median, in the unit of the band: `6 min`."""
    scale, unit = _unit(band.middle)
    return f"{_count(band.middle / scale)} {unit}"


def duration_text(seconds: float) -> str:
    return span(Band(seconds, seconds, seconds))


def _band(band: Band) -> str:
    """` (5–9 min)`; nothing where both ends read the same."""
    ends = from_to(band)
    return f" ({ends})" if "–" in ends else ""


def from_to(band: Band) -> str:
    """`10–14 min` in the unit of the median; `11 s–2 min` where the upper end is too long for it."""
    scale, unit = _unit(band.middle)
    low, high = _count(band.low / scale), _count(band.high / scale)
    if band.high / scale >= 100 and unit != "h":
        larger, word = _unit(band.high)
        return f"{low} {unit}–{_count(band.high / larger)} {word}"
    return f"{low}–{high} {unit}" if low != high else f"{high} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    if seconds < 90:
        return 1.0, "s"
    return (60.0, "min") if seconds < 90 * 60 else (3600.0, "h")


def _count(number: float) -> str:
    """Two digits are all that a forecast has."""
    return f"{number:.0f}" if number >= 2 else f"{number:.1f}".removesuffix(".0")


def _seconds(band: Band | None) -> dict[str, float] | None:
    return (
        None if band is None else {"p10": round(band.low, 1), "p50": round(band.middle, 1), "p90": round(band.high, 1)}
    )


def _dollars(band: Band | None) -> dict[str, float] | None:
    return (
        None if band is None else {"p10": round(band.low, 4), "p50": round(band.middle, 4), "p90": round(band.high, 4)}
    )
