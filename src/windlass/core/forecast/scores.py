"""Scores of forecasts: coverage, error and bias by quarter of the way; and the pairs that calibrate later ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from windlass.core.forecast.calibration import BUCKETS, Band, ScoredForecast, bucket_of
from windlass.core.forecast.costs import SMALLEST_USD
from windlass.core.forecast.learning import quantile
from windlass.core.forecast.value import Forecast

__all__ = ["BucketScore", "cost_scores", "scored_costs", "scored_times", "scores"]

_ScoredBand = tuple[int, Band, float]
"""The quarter, the band as it was shown, and the truth."""


class BucketScore(NamedTuple):
    """The forecasts of one quarter of the way; `bucket` None is all of them."""

    bucket: int | None
    forecasts: int
    inside: float
    """Part of the outcomes that lay in the 80 % band."""
    error: float
    """Median of the deviation from the forecast, as a part of the truth."""
    bias: float
    """Median of the same with its sign: above 0, the forecasts were too long."""

    @property
    def done_percent(self) -> str:
        return "all" if self.bucket is None else f"{self.bucket * 25}-{self.bucket * 25 + 25}"

    def as_dict(self) -> dict[str, Any]:
        figures = {"coverage": self.inside, "median_error": self.error, "bias": self.bias}
        return {
            "done_percent": self.done_percent,
            "forecasts": self.forecasts,
            **{key: round(x, 4) for key, x in figures.items()},
        }


def scored_times(outcomes: Iterable[tuple[Forecast, float]]) -> list[ScoredForecast]:
    """Forecasts of the time that was left, as the model made them, with the truth; those of all steps only."""
    return [
        ScoredForecast(bucket_of(forecast.done), forecast.raw, max(0.0, took - forecast.elapsed_s))
        for forecast, took in outcomes
        if forecast.raw is not None and forecast.whole
    ]


def scored_costs(outcomes: Iterable[tuple[Forecast, float | None]]) -> list[ScoredForecast]:
    """The same for the dollars that were still to be spent."""
    return [
        ScoredForecast(bucket_of(forecast.done), forecast.usd_raw, max(0.0, usd - forecast.spent_usd))
        for forecast, usd in outcomes
        if forecast.usd_raw is not None and usd is not None and not forecast.uncounted
    ]


def scores(outcomes: Iterable[tuple[Forecast, float]]) -> list[BucketScore]:
    """The score of each quarter that has forecasts, as they were shown, and of all of them last."""
    rows: list[_ScoredBand] = []
    for forecast, took in outcomes:
        if forecast.left is not None and forecast.whole:
            rows.append((bucket_of(forecast.done), forecast.left, max(0.0, took - forecast.elapsed_s)))
    return _by_quarter(rows, 0.1)


def cost_scores(outcomes: Iterable[tuple[Forecast, float | None]]) -> list[BucketScore]:
    """The same for the dollars that were still to be spent, where the cost is known in the end."""
    rows: list[_ScoredBand] = []
    for forecast, usd in outcomes:
        if forecast.usd is not None and forecast.usd_raw is not None and usd is not None and not forecast.uncounted:
            rest = Band(*(max(0.0, part - forecast.spent_usd) for part in forecast.usd))
            rows.append((bucket_of(forecast.done), rest, max(0.0, usd - forecast.spent_usd)))
    return _by_quarter(rows, SMALLEST_USD)


def _by_quarter(rows: Sequence[_ScoredBand], least: float) -> list[BucketScore]:
    """`least` is the smallest truth that an error is a part of."""
    found = [_score(bucket, [row for row in rows if row[0] == bucket], least) for bucket in range(BUCKETS)]
    return [score for score in (*found, _score(None, rows, least)) if score is not None]


def _score(bucket: int | None, rows: Sequence[_ScoredBand], least: float) -> BucketScore | None:
    if not rows:
        return None
    inside = sum(band.low <= truth <= band.high for _, band, truth in rows) / len(rows)
    away = sorted((band.middle - truth) / max(truth, least) for _, band, truth in rows)
    return BucketScore(bucket, len(rows), inside, quantile(sorted(map(abs, away)), 0.5), quantile(away, 0.5))
