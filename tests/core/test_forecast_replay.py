"""The replay corpus: forecasts of synthetic worlds, against the truth and against two naive forecasts (D7)."""

from __future__ import annotations

from statistics import median

import pytest
from forecast_worlds import LAWS, MARKS, Replayed, replay, replay_costs
from once import made_once

RUNS = 40


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> list[Replayed]:
    return made_once(tmp_path_factory, "replayed", lambda: [one for law in LAWS for one in replay(law, 0, RUNS)])


def _error(rows: list[Replayed], forecasts: list[float]) -> float:
    return median(abs(made - one.truth) / one.truth for one, made in zip(rows, forecasts, strict=True))


@pytest.mark.parametrize("mark", MARKS)
def test_d7_the_band_holds_80_percent_of_the_outcomes_in_each_quarter(replayed: list[Replayed], mark: float) -> None:
    rows = [one for one in replayed if one.mark == mark]
    inside = sum(one.forecast.low <= one.truth <= one.forecast.high for one in rows)
    assert 0.75 <= inside / len(rows) <= 0.85


@pytest.mark.parametrize("mark", MARKS)
def test_d7_the_error_is_smaller_than_that_of_naive_forecasts(replayed: list[Replayed], mark: float) -> None:
    rows = [one for one in replayed if one.mark == mark]
    ours = _error(rows, [one.forecast.middle for one in rows])
    assert ours < _error(rows, [one.by_mean for one in rows])
    assert ours < _error(rows, [one.by_percent for one in rows])


def test_d7_the_median_is_too_low_as_often_as_too_high(replayed: list[Replayed]) -> None:
    above = sum(one.truth > one.forecast.middle for one in replayed)
    assert 0.42 <= above / len(replayed) <= 0.58


def test_d7_no_world_is_left_out_of_the_band(replayed: list[Replayed]) -> None:
    """The whole corpus is within 5 points; a single world, of 39 runs, within three times that."""
    for law in LAWS:
        rows = [one for one in replayed if one.world == law.name]
        inside = sum(one.forecast.low <= one.truth <= one.forecast.high for one in rows)
        assert 0.65 <= inside / len(rows) <= 0.95, law.name


def test_d7_a_replay_is_the_same_each_time() -> None:
    assert list(replay(LAWS[3], 5, 6)) == list(replay(LAWS[3], 5, 6))


# -- costs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> list[Replayed]:
    return made_once(tmp_path_factory, "costs", lambda: [one for law in LAWS for one in replay_costs(law, 0, RUNS)])


@pytest.mark.parametrize("mark", MARKS)
def test_d7_the_band_of_the_cost_holds_80_percent_although_models_change(costs: list[Replayed], mark: float) -> None:
    rows = [one for one in costs if one.mark == mark]
    inside = sum(one.forecast.low <= one.truth <= one.forecast.high for one in rows)
    assert 0.75 <= inside / len(rows) <= 0.85


@pytest.mark.parametrize("mark", MARKS)
def test_d7_the_error_of_the_cost_is_smaller_than_that_of_naive_forecasts(costs: list[Replayed], mark: float) -> None:
    rows = [one for one in costs if one.mark == mark]
    ours = _error(rows, [one.forecast.middle for one in rows])
    assert ours < _error(rows, [one.by_mean for one in rows])
    assert ours < _error(rows, [one.by_percent for one in rows])


def test_d7_the_first_runs_with_another_model_are_forecast_as_well_as_others(costs: list[Replayed]) -> None:
    rows = [one for one in costs if RUNS // 2 <= one.run < RUNS // 2 + 3]
    ours = _error(rows, [one.forecast.middle for one in rows])
    assert ours < 0.5 * _error(rows, [one.by_mean for one in rows])
