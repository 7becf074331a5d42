"""The words and the figures of a forecast, as all surfaces show them (C7, D7)."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.forecast.calibration import Band, ScoredForecast
from windlass.core.forecast.scores import BucketScore, cost_scores, scored_costs, scored_times, scores
from windlass.core.forecast.value import Forecast, duration_text, from_to

AT = 1000.0


def made(*left: float, **fields: Any) -> Forecast:
    """A forecast of a run of 100 seconds so far, whose steps ran here before."""
    known: dict[str, Any] = dict.fromkeys(("raw", "usd", "usd_raw", "approval_s"))
    known |= dict.fromkeys(("estimated", "unknown", "uncounted", "unpriced", "overdue"), ())
    known |= dict.fromkeys(("spent_usd", "runs", "unchanged", "samples", "approvals"), 0)
    known |= {"at": AT, "elapsed_s": 100.0, "done": 0.5, "origins": {"step": 2}, "low_confidence": False}
    return Forecast(**{**known, "left": Band(*left) if left else None, **fields})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.94, "0.9 s"),
        (0.96, "1 s"),
        (1.5, "1.5 s"),
        (1.99, "2 s"),
        (2, "2 s"),
        (19.4, "19 s"),
        (89.9, "90 s"),
        (90, "1.5 min"),
        (119, "2 min"),
        (120, "2 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1.5 h"),
        (20 * 3600, "20 h"),
        (1000 * 3600, "1000 h"),
    ],
)
def test_c7_a_time_has_two_digits_and_the_unit_that_fits(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


@pytest.mark.parametrize(
    ("band", "words"),
    [
        ((300, 360, 540), "5–9 min"),
        ((359, 360, 361), "6 min"),
        ((11, 30, 99), "11–99 s"),
        ((11, 30, 120), "11 s–2 min"),
        ((11, 30, 100), "11 s–1.7 min"),
        ((600, 3600, 6001), "10 min–1.7 h"),
        ((600, 3600, 5940), "10–99 min"),
        ((7200, 7200, 720000), "2–200 h"),
    ],
)
def test_c7_a_band_is_in_the_unit_of_its_middle(band: tuple[float, float, float], words: str) -> None:
    assert from_to(Band(*band)) == words


@pytest.mark.parametrize(
    ("forecast", "text"),
    [
        (made(300, 360, 540), "6 min left (5–9 min)"),
        (made(359, 360, 361), "6 min left"),
        (made(300, 360, 540, unknown=("a",)), "at least 6 min left (5–9 min)"),
        (made(300, 360, 540, uncounted=("a",)), "at least 6 min left (5–9 min)"),
        (made(0.4, 1.0, 1.0, unknown=("a",)), "at least 1 s left (0.4–1 s)"),
        (made(0.4, 0.9, 1.0, unknown=("a",)), ""),
        (made(1.0, 2.0, 3.0), "wrapping up"),
        (made(1.0, 2.0, 3.0, origins={"step": 1, "run": 1}), "wrapping up"),
        (made(1.0, 2.1, 3.0), "2 s left (1–3 s)"),
        (made(0.1, 0.5, 3.0, elapsed_s=1.0), "wrapping up"),
        (made(0.1, 0.6, 3.0, elapsed_s=1.0), "0.6 s left (0.1–3 s)"),
        (made(1.0, 2.0, 3.0, origins={"run": 1, "tool": 1}), ""),
        (made(1.0, 2.0, 3.0, approvals=1), "without 1 approval ahead"),
        (made(1.0, 2.0, 3.0, low_confidence=True, overdue=("a",)), "wrapping up"),
        (made(0.1, 0.4, 0.5, elapsed_s=0.0), "0.4 s left (0.1–0.5 s)"),
        (
            made(300, 360, 540, approvals=2, approval_s=90.0),
            "6 min left (5–9 min), without 2 approvals ahead, usually 1.5 min each",
        ),
        (made(300, 360, 540, low_confidence=True), "6 min left (5–9 min), low confidence"),
        (made(low_confidence=True), ""),
        (made(low_confidence=True, overdue=("a",)), "a runs longer than ever before"),
        (made(300, 360, 540, usd=Band(1, 2.4, 3), spent_usd=1.1), "6 min left (5–9 min), $1.10 of about $2.40"),
        (made(usd=Band(0, 0.00001, 1)), "$0.00 of less than $0.0001"),
        (made(usd=Band(0, 0, 0)), ""),
        (made(300, 360, 540, first=Band(100, 200, 459)), "6 min left (5–9 min), later than first forecast (1.7–8 min)"),
        (
            made(300, 360, 540, first=Band(461, 500, 600)),
            "6 min left (5–9 min), earlier than first forecast (8–10 min)",
        ),
        (made(300, 360, 540, first=Band(460, 460, 460)), "6 min left (5–9 min)"),
        (made(1.0, 2.0, 3.0, first=Band(1, 2, 3)), "wrapping up"),
    ],
)
def test_c7_a_forecast_says_what_it_knows_and_no_more(forecast: Forecast, text: str) -> None:
    assert forecast.text(AT) == text


def test_c7_an_older_forecast_is_counted_down() -> None:
    found = made(300, 360, 540)
    assert found.left_at(AT + 320) == (0, 40, 220)
    assert found.left_at(AT - 50) == (300, 360, 540), "a clock that was set back"
    assert found.text(AT + 320) == "40 s left (0 s–4 min)"
    assert found.wraps_up(AT + 359)
    assert made().left_at(AT) is None
    new = made(0.1, 0.4, 0.5, elapsed_s=0.0)
    assert (new.wraps_up(AT), new.wraps_up(AT + 0.1)) == (False, True), "before it runs, an estimate"


def test_c7_a_forecast_is_compared_with_the_first_one_of_all_steps() -> None:
    first, later = made(300, 360, 540), made(10, 20, 30)
    assert later.compared_with(first).first == (400, 460, 640)
    assert later.compared_with(first).trend == "earlier"
    for other in (later, made(), made(300, 360, 540, unknown=("a",))):
        assert later.compared_with(other).first is None
    assert later.trend == ""
    assert made(first=Band(1, 2, 3)).trend == ""


def test_c7_the_figures_for_programs_are_rounded() -> None:
    usd = Band(1.00004, 2.00006, 3.00004)
    found = made(
        300.04,
        360.06,
        540.04,
        usd=usd,
        spent_usd=0.12345678,
        approvals=1,
        approval_s=7.06,
        low_confidence=True,
        runs=3,
        unchanged=2,
        samples=9,
        unknown=("a",),
        uncounted=("b",),
        unpriced=("c",),
        priced=("d",),
        overdue=("e",),
        estimated=("f",),
    )
    forecast = {
        "left_s": {"p10": 300.0, "p50": 360.1, "p90": 540.0},
        "usd": {"p10": 1.0, "p50": 2.0001, "p90": 3.0},
        "spent_usd": 0.123457,
        "wrapping_up": False,
        "low_confidence": True,
        "trend": None,
        "runs": 3,
        "runs_unchanged": 2,
        "from": {"step": 2},
        "unknown": ["a"],
        "unknown_items": ["b"],
        "unknown_cost": ["c"],
        "cost_by_price": ["d"],
        "overdue": ["e"],
        "approvals_ahead": 1,
        "approval_s": 7.1,
        "text": found.text(AT),
    }
    assert found.as_dict(AT) == forecast
    assert found.as_estimate() == {
        "expected_s": 360.06,
        "low_s": 300.04,
        "high_s": 540.04,
        "samples": 9,
        "unknown": ["a"],
        "by_tools": ["f"],
        "usd": 2.00006,
        "forecast": forecast,
    }
    precise = made(300.0004, 360.0004, 540.0004, usd=Band(1, 2.0000006, 3)).as_estimate()
    assert (precise["low_s"], precise["expected_s"], precise["high_s"], precise["usd"]) == (
        300.0,
        360.0,
        540.0,
        2.000001,
    )
    empty = made().as_estimate()
    assert (empty["expected_s"], empty["low_s"], empty["high_s"], empty["usd"]) == (None, None, None, None)
    assert (made().as_dict(AT)["left_s"], made().as_dict(AT)["usd"], made().as_dict(AT)["approval_s"]) == (
        None,
        None,
        None,
    )
    assert made(10, 20, 30, first=Band(200, 300, 400)).as_dict(AT)["trend"] == "earlier"


def test_c7_a_question_is_told_of_more_than_a_moment_or_of_a_cost() -> None:
    assert made(4.0, 4.9, 9.0).beside_question() == ""
    assert made(4.0, 5.0, 9.0).beside_question() == "5 s left (4–9 s)"
    assert made().beside_question() == ""
    assert made(usd=Band(0, 0, 0)).beside_question() == ""
    assert made(4.0, 4.9, 9.0, usd=Band(1, 2, 3)).beside_question() == "5 s left (4–9 s), $0.00 of about $2.00"


def test_d7_forecasts_are_scored_as_they_were_shown_by_the_quarter_of_the_way() -> None:
    outcomes = [
        (made(90, 100, 110, done=0.1), 200.0),
        (made(90, 100, 110, done=0.2), 350.0),
        (made(0, 0.05, 0.1, done=0.5), 100.0),
        (made(10, 20, 30, done=0.9), 110.0),
        (made(10, 20, 30, unknown=("a",)), 500.0),
        (made(), 500.0),
    ]
    found = scores(outcomes)
    assert found == [
        BucketScore(0, 2, 0.5, pytest.approx(0.3), pytest.approx(-0.3)),
        BucketScore(2, 1, 1.0, 0.5, 0.5),
        BucketScore(3, 1, 1.0, 1.0, 1.0),
        BucketScore(None, 4, 0.75, pytest.approx(0.55), 0.25),
    ]
    assert [score.done_percent for score in found] == ["0-25", "50-75", "75-100", "all"]
    third = BucketScore(None, 3, 2 / 3, 1 / 3, -1 / 3).as_dict()
    assert (third["coverage"], third["median_error"], third["bias"]) == (0.6667, 0.3333, -0.3333)


def test_d7_the_cost_of_a_forecast_is_scored_where_it_is_known_in_the_end() -> None:
    known: dict[str, Any] = {"usd": Band(2, 3, 4), "usd_raw": Band(1, 2, 3), "spent_usd": 1.0, "done": 0.3}
    outcomes = [
        (made(**known), 5.0),
        (made(**known), None),
        (made(**known, uncounted=("a",)), 5.0),
        (made(**{**known, "usd_raw": None}), 5.0),
    ]
    assert cost_scores(outcomes)[0] == BucketScore(1, 1, 0.0, 0.5, -0.5)
    assert scored_costs(outcomes) == [ScoredForecast(1, Band(1, 2, 3), 4.0)]
    assert scored_costs([(made(**known), 0.5)])[0].truth == 0.0, "less than was spent is not left"


def test_d7_a_forecast_of_all_steps_calibrates_later_ones_by_what_the_model_said() -> None:
    raw = Band(80, 90, 100)
    outcomes = [
        (made(90, 100, 110, raw=raw), 200.0),
        (made(90, 100, 110, raw=raw), 50.0),
        (made(90, 100, 110, raw=raw, uncounted=("a",)), 200.0),
        (made(90, 100, 110), 200.0),
    ]
    assert scored_times(outcomes) == [ScoredForecast(2, raw, 100.0), ScoredForecast(2, raw, 0.0)]
