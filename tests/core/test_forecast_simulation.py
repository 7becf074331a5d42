"""The simulation keeps the scheduler's rule, and the learning and the calibration what they promise (D7)."""

from __future__ import annotations

import math
from random import Random

import pytest

from windlass.core.forecast.calibration import BUCKETS, Band, Calibration, ScoredForecast, bucket_of
from windlass.core.forecast.learning import Difficulty, Experience, Observation, Prediction, normal_quantile, quantile
from windlass.core.forecast.simulation import Gate, Task, Work, band_of, simulate_tasks, simulate_work
from windlass.rate import Rate

SURE = 1e-9


def task(seconds: float, **more: object) -> Task:
    """A task that takes the same time always."""
    return Task(math.log(seconds), 0.0, SURE, **more)  # type: ignore[arg-type]


def length(tasks: list[Task], parallel: int = 4, gates: dict[str, Gate] | None = None) -> float:
    """The time to the end, which is the same in all samples."""
    samples = simulate_work(Work(tasks, parallel, [0.0], Difficulty(0, 0), 0.0, gates or {}), 1)
    assert max(samples.times) == pytest.approx(min(samples.times))
    return samples.times[0]


def test_a_chain_takes_the_sum() -> None:
    assert length([task(2, feeds=[1]), task(3, needs=1, feeds=[2]), task(5, needs=1)]) == pytest.approx(10)


def test_no_more_run_at_once_than_the_limit() -> None:
    assert length([task(2) for _ in range(6)], parallel=2) == pytest.approx(6)
    assert length([task(2) for _ in range(6)], parallel=6) == pytest.approx(2)


def test_ready_steps_start_in_the_order_in_which_they_became_ready() -> None:
    first, long, late = task(1, feeds=[2]), task(4), task(4, needs=1)
    assert length([first, long, late], parallel=1) == pytest.approx(9)
    assert length([first, long, late], parallel=2) == pytest.approx(5)


def test_items_run_beside_each_other() -> None:
    assert length([task(3, items=10)], parallel=4) == pytest.approx(9)
    assert length([task(3, items=0, feeds=[1]), task(1, needs=1)]) == pytest.approx(1)


def test_many_items_are_bundled_and_take_the_same() -> None:
    assert length([task(1, items=6400)], parallel=4) == pytest.approx(1600, rel=0.02)


def test_the_number_of_items_is_drawn_from_earlier_runs() -> None:
    samples = simulate_work(Work([task(1, counts=(1, 5))], 1, [0.0], Difficulty(0, 0), 0.0), 1)
    assert {round(time) for time in samples.times} == {1, 5}


def test_a_waiting_step_starts_when_its_wait_is_over() -> None:
    assert length([task(2, due=30.0)]) == pytest.approx(32)


def test_d7_what_waits_for_a_quota_leaves_its_place_to_others() -> None:
    assert length([task(2, due=30.0), task(20)], parallel=1) == pytest.approx(32)
    assert length([task(2, due=30.0), task(3, due=30.0), task(40)], parallel=1) == pytest.approx(45)
    assert length([task(2, items=4, due=30.0, feeds=[1]), task(1, needs=1)], parallel=2) == pytest.approx(35)


def test_a_failed_attempt_is_repeated_after_its_backoff() -> None:
    samples = simulate_work(Work([task(10, fails=0.9, retries=1, delay=4.0)], 1, [0.0], Difficulty(0, 0), 0.0), 1)
    assert min(samples.times) == pytest.approx(10)
    assert 22 <= max(samples.times) <= 24
    assert sum(time > 11 for time in samples.times) / len(samples.times) == pytest.approx(0.9, abs=0.1)


def test_a_retry_leaves_its_place_to_others_while_it_waits() -> None:
    tasks = [task(1, fails=0.999999, retries=1, delay=100.0), task(20)]
    samples = simulate_work(Work(tasks, 1, [0.0], Difficulty(0, 0), 0.0), 1)
    assert max(samples.times) <= 102  # not 122


def test_a_skipped_step_takes_its_dependents_with_it() -> None:
    tasks = [task(1, skipped=1.0, feeds=[1, 2]), task(50, needs=1), task(2, needs=1, handles=True)]
    assert length(tasks) == pytest.approx(2)


def test_a_tool_with_one_place_is_used_once_at_a_time() -> None:
    tasks = [task(5, gate="search") for _ in range(3)] + [task(1)]
    assert length(tasks, gates={"search": Gate(places=1)}) == pytest.approx(15)


def test_a_rate_spreads_uses_out() -> None:
    tasks = [task(0.001, gate="search") for _ in range(5)]
    assert length(tasks, parallel=9, gates={"search": Gate(rate=Rate(1, 10))}) == pytest.approx(40, rel=0.01)


def test_a_use_that_has_to_wait_for_its_turn_takes_its_own_time_after_that() -> None:
    tasks = [task(5, gate="search") for _ in range(2)]
    assert length(tasks, gates={"search": Gate(rate=Rate(1, 10))}) == pytest.approx(15)


@pytest.mark.parametrize("skipped", [0.0, 1.0])
def test_a_wait_that_is_over_before_a_step_is_ready_does_not_count(skipped: float) -> None:
    tasks = [task(1, skipped=skipped), task(40, feeds=[2]), task(2, needs=1, due=30.0)]
    assert length(tasks) == pytest.approx(42)


def test_a_running_step_is_not_forecast_to_have_ended() -> None:
    running = Task(math.log(60), 0.0, 0.5, items=0, running=(120.0,))
    samples = simulate_work(
        Work([running], 1, [normal_quantile((n + 0.5) / 64) for n in range(64)], Difficulty(), 0.0), 1
    )
    assert min(samples.times) >= 0
    assert 5 < band_of(samples).middle < 60
    assert not samples.overdue


def test_a_step_ten_times_longer_than_ever_gets_a_wide_band_and_a_mark() -> None:
    running = Task(math.log(60), 0.0, 0.2, items=0, running=(600.0,))
    samples = simulate_work(
        Work([running], 1, [normal_quantile((n + 0.5) / 64) for n in range(64)], Difficulty(), 0.0), 1
    )
    band = band_of(samples)
    assert samples.overdue
    assert 0 < band.low < band.middle < band.high < math.inf
    assert band.high > 5 * band.low


def test_nothing_left_takes_no_time() -> None:
    band = band_of(simulate_work(Work([], 4, [0.0], Difficulty(), 0.01), 1))
    assert band.high < 0.01


def test_a_thousand_steps_cost_no_more_samples_than_needed() -> None:
    tasks = [task(1, needs=n > 0, feeds=[n + 1] if n < 999 else []) for n in range(1000)]
    samples = simulate_work(Work(tasks, 4, [0.0], Difficulty(), 0.0), 1)
    assert len(samples.times) == 12


# -- learning ------------------------------------------------------------------------------------


def seen(run: int, step: str, seconds: float, tool: str = "shell", size: int | None = None) -> Observation:
    return Observation(str(run), ("plan", step), (tool, "", ""), "command", seconds, size)


def test_a_step_is_known_by_its_own_runs_first() -> None:
    learned = Experience.of([seen(run, step, s) for run in range(9) for step, s in (("a", 10.0), ("b", 1000.0))])
    own = learned.predict(("plan", "a"), ("shell", "", ""), "command")
    new = learned.predict(("plan", "new"), ("shell", "", ""), "command")
    other = learned.predict(("plan", "new"), ("files", "", ""), "command")
    assert own is not None
    assert new is not None
    assert other is not None
    assert (own.origin, new.origin, other.origin) == ("step", "tool", "kind")
    assert math.exp(own.mean) == pytest.approx(10, rel=0.05)
    assert math.exp(new.mean) == pytest.approx(100, rel=0.1)
    assert new.doubt > 5 * own.doubt
    assert learned.predict(("plan", "new"), ("agent", "cli", "m"), "agent") is None


def test_one_observation_is_doubted() -> None:
    one = Experience.of([seen(0, "a", 10.0)]).predict(("plan", "a"), ("shell", "", ""), "command")
    many = Experience.of([seen(run, "a", 10.0) for run in range(40)]).predict(
        ("plan", "a"), ("shell", "", ""), "command"
    )
    assert one is not None
    assert many is not None
    assert one.doubt > 3 * many.doubt
    assert one.spread > 2 * many.spread


def test_the_size_of_the_input_counts_where_it_helps() -> None:
    chance = Random(1)
    sizes = [chance.randrange(100, 100_000) for _ in range(30)]
    grows = Experience.of([seen(n, "a", size / 100, size=size) for n, size in enumerate(sizes)])
    small, large = (grows.predict(("plan", "a"), ("shell", "", ""), "command", size) for size in (1_000, 50_000))
    assert small is not None
    assert large is not None
    assert math.exp(small.mean) == pytest.approx(10, rel=0.2)
    assert math.exp(large.mean) == pytest.approx(500, rel=0.2)
    flat = Experience.of([seen(n, "a", chance.uniform(5, 20), size=size) for n, size in enumerate(sizes)])
    assert not flat.grows(("plan", "a"))


def test_slow_steps_make_the_rest_of_the_run_slow() -> None:
    chance = Random(2)
    rows = []
    for run in range(30):
        level = chance.gauss(0, 0.5)
        rows += [seen(run, str(n), 10 * math.exp(level + chance.gauss(0, 0.1))) for n in range(6)]
    learned = Experience.of(rows)
    assert learned.share > 0.7
    usual = learned.predict(("plan", "0"), ("shell", "", ""), "command")
    assert usual is not None
    slow = learned.difficulty([(usual, 30.0), (usual, 30.0)])
    assert slow.mean > 1
    assert slow.deviation < 0.5
    assert learned.difficulty([]).deviation == pytest.approx(1, abs=0.1)


def test_wild_amounts_do_no_harm() -> None:
    learned = Experience.of(seen(n, "a", x) for n, x in enumerate((math.inf, math.nan, -5.0, 0.0, 1e300, 1e-300)))
    found = learned.predict(("plan", "a"), ("shell", "", ""), "command")
    assert found is not None
    assert math.isfinite(found.mean)
    assert found.spread < 100


def test_no_step_at_all_is_no_knowledge() -> None:
    assert Experience.of([]).predict(("plan", "a"), ("shell", "", ""), "command") is None
    assert Experience.of([]).difficulty([(Prediction(0, 1, 1, "tool", 1), 3.0)]).deviation > 0


def test_quantiles_are_between_their_neighbours() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2
    assert quantile([7.0], 0.9) == 7
    assert normal_quantile(0.9) == pytest.approx(1.2816, abs=0.001)
    assert normal_quantile(0.0) == -4
    assert normal_quantile(1.0) == 4


# -- calibration ---------------------------------------------------------------------------------


def test_buckets_are_quarters() -> None:
    assert [bucket_of(done) for done in (0, 0.24, 0.25, 0.5, 0.99, 1.0, 7.0, -1.0)] == [0, 0, 1, 2, 3, 3, 3, 0]


def test_a_band_that_is_too_narrow_becomes_wide_enough() -> None:
    chance = Random(3)
    raw = Band(9.0, 10.0, 11.0)
    outcomes = [ScoredForecast(0, raw, 10 * math.exp(chance.gauss(0, 0.4))) for _ in range(300)]
    shown = Calibration(outcomes).apply(raw, 0)
    inside = sum(shown.low <= one.truth <= shown.high for one in outcomes) / len(outcomes)
    assert 0.7 <= inside <= 0.9
    assert Calibration(outcomes).apply(raw, 1) == pytest.approx(raw)


def test_a_biased_median_moves_to_the_truth() -> None:
    raw = Band(8.0, 10.0, 12.5)
    shown = Calibration([ScoredForecast(2, raw, 12.0 + n % 5 / 10) for n in range(200)]).apply(raw, 2)
    assert shown.middle > 11.5


def test_a_calibrated_band_is_in_order_and_not_negative() -> None:
    chance = Random(4)
    for _ in range(200):
        raws = [Band(*sorted(chance.choice((0.0, 0.01, 1.0, 50.0, 1e9)) for _ in range(3))) for _ in range(20)]
        outcomes = [ScoredForecast(chance.randrange(BUCKETS), raw, chance.choice((0.0, 1.0, 1e12))) for raw in raws]
        low, middle, high = Calibration(outcomes).apply(raws[0], chance.randrange(BUCKETS))
        assert 0 <= low <= middle <= high < math.inf


def spans(
    tasks: list[Task], parallel: int = 4, gates: dict[str, Gate] | None = None
) -> list[tuple[float, float] | None]:
    """When each task begins and ends; the whole ends as without a look at the tasks."""
    work = Work(tasks, parallel, [0.0], Difficulty(0, 0), 0.0, gates or {}, traced=True)
    samples, found = simulate_tasks(work, 1)
    assert samples.times == pytest.approx([length(tasks, parallel, gates)] * len(samples.times))
    return [one if one is None else (round(one.begins, 3), round(one.ends, 3)) for one in found]


def test_c7_each_task_has_the_times_that_the_scheduler_gives_it() -> None:
    chain = [task(2, feeds=[1]), task(3, needs=1, feeds=[2]), task(5, needs=1)]
    assert spans(chain) == [(0, 2), (2, 5), (5, 10)]
    assert spans([task(2), task(3), task(4)], parallel=1) == [(0, 2), (2, 5), (5, 9)]
    assert spans([task(3, items=4)], parallel=2) == [(0, 6)]
    assert spans([task(2, due=30.0)]) == [(30, 32)]
    assert spans([task(10, items=0, running=(4.0,), feeds=[1]), task(1, needs=1)]) == [(0, 6), (6, 7)]


def test_c7_a_task_begins_when_its_tool_has_a_place() -> None:
    one_place = {"t": Gate(places=1)}
    assert spans([task(2, gate="t"), task(3, gate="t")], gates=one_place) == [(0, 2), (2, 5)]


def test_c7_a_task_that_is_skipped_has_no_times() -> None:
    assert spans([task(2, skipped=1.0, feeds=[1]), task(3, needs=1), task(1)]) == [None, None, (0, 1)]
    assert spans([task(3, items=0, feeds=[1]), task(1, needs=1)]) == [None, (0, 1)]


@pytest.mark.parametrize(("skipped", "known"), [(0.4, True), (0.6, False)])
def test_c7_a_task_has_times_if_it_runs_in_most_samples(skipped: float, known: bool) -> None:
    work = Work([task(2, skipped=skipped)], 1, [0.0], Difficulty(0, 0), 0.0, traced=True)
    _samples, (found,) = simulate_tasks(work, 1)
    assert (found is not None) is known


@pytest.mark.parametrize(("worked", "overdue"), [(30.0, False), (600.0, True)])
def test_c7_a_look_at_the_tasks_tells_if_one_runs_longer_than_ever(worked: float, overdue: bool) -> None:
    running = Task(math.log(60), 0.0, 0.2, items=0, running=(worked,))
    shape = [normal_quantile((n + 0.5) / 64) for n in range(64)]
    samples, _found = simulate_tasks(Work([running], 1, shape, Difficulty(), 0.0, traced=True), 1)
    assert samples.overdue is overdue


def test_c7_a_repeated_task_ends_with_its_last_attempt() -> None:
    flaky = task(10, fails=0.5, retries=3, delay=4.0, feeds=[1])
    work = Work([flaky, task(1, needs=1)], 1, [0.0], Difficulty(0, 0), 0.0, traced=True)
    plain = simulate_work(Work([flaky, task(1, needs=1)], 1, [0.0], Difficulty(0, 0), 0.0), 1)
    samples, (first, second) = simulate_tasks(work, 1)
    assert first is not None
    assert second is not None
    assert (first.begins, second.ends - second.begins) == pytest.approx((0, 1))
    assert first.ends <= first.late
    failed = sum(time > 12 for time in samples.times) / len(samples.times)
    assert failed == pytest.approx(sum(time > 12 for time in plain.times) / len(plain.times), abs=0.15)
