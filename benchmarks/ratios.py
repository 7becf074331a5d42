"""The ratios of recorded runs: `make bench` warns where one is worse by more than a fifth.

A ratio compares two things that were measured in the same minute on the same disk, so it can be compared between runs
and machines; a time cannot. `python -m benchmarks --record` writes those of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["FALL", "fallen", "ratio_of", "record", "recorded"]

RECORD = Path(__file__).with_name("ratios.json")
FALL = 0.2
_RATIO = re.compile(r"([\d,]+(?:\.\d+)?)×")


def ratio_of(measured: str) -> float | None:
    """The ratio that a figure begins with."""
    found = _RATIO.match(measured)
    return float(found[1].replace(",", "")) if found else None


def recorded() -> dict[str, float]:
    found: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def record(found: Mapping[str, float]) -> None:
    text = json.dumps({**recorded(), **found}, indent=1, ensure_ascii=False)
    RECORD.write_text(text + "\n", encoding="utf-8")


def fallen(rows: Iterable[tuple[str, str, str]], before: Mapping[str, float]) -> Iterator[str]:
    """A line about each row (name, figure, wish) that is worse than before. With a wish for less, more is worse."""
    for what, measured, wanted in rows:
        now, then = ratio_of(measured), before.get(what)
        if now is None or then is None:
            continue
        kept = then / max(now, 1e-9) if wanted.startswith(("≤", "<")) else now / then
        if kept < 1 - FALL:
            yield f"warning: {what} is at {now:g}×, was {then:g}× when it was recorded"
