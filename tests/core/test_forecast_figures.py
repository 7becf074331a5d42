"""The figures of the method, digit by digit: the replay has measured these, and another figure is another method (D7).

`test_forecast_replay.py` says how good they are; a change of one of them is to be measured there, and noted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import pytest

from windlass.core.forecast.calibration import Band, Calibration, ScoredForecast
from windlass.core.forecast.costs import CostTask, rest_of_cost
from windlass.core.forecast.learning import Difficulty, Experience, Observation, Prediction, normal_quantile, quantile
from windlass.core.forecast.simulation import Gate, Task, Work, band_of, simulate_tasks, simulate_work
from windlass.rate import Rate

COMMAND, CODER, WRITER = ("shell", "", ""), ("agent", "cli", "m"), ("agent", "cli", "n")


def same(figures: Iterable[float], *noted: float) -> bool:
    return list(figures) == pytest.approx(noted, rel=1e-4)


def earlier_runs() -> Experience:
    """Seventy runs, newest first: some are slow as a whole, and one step grows with its input."""
    chance, seen = Random(7), []
    for number in range(70):
        run, level = f"r{number}", chance.gauss(0.2 if number < 9 else 0.0, 0.4)
        size = chance.randrange(10, 5000)
        seen.append(Observation(run, ("p", "a"), COMMAND, "command", math.exp(level + chance.gauss(1, 0.3))))
        seen.append(
            Observation(run, ("p", "b"), CODER, "agent", size**0.8 * math.exp(level + chance.gauss(0, 0.2)), size)
        )
        if number % 5 == 0:
            seen.append(Observation(run, ("p", "c"), WRITER, "agent", 40 * math.exp(chance.gauss(0, 0.5)), size))
        if number < 2:
            seen.append(Observation(run, ("q", "d"), COMMAND, "command", 90.0 + number))
        if number < 3:
            seen.append(Observation(run, ("p", "three"), ("http.get", "", ""), "tool", 2.0 + 3 * number, size))
        growing = 100.0 + 25 * number
        if number < 9:
            known = int(growing) if number < 8 else None
            seen.append(Observation(run, ("p", "eight"), ("run", "", ""), "program", growing, known))
        if number < 7:
            seen.append(Observation(run, ("p", "seven"), ("run", "", ""), "program", growing, int(growing)))
        if number == 3:
            seen.append(Observation(run, ("q", "e"), COMMAND, "command", 1e9))  # the clock was set
            seen.append(Observation(run, ("q", "f"), ("http.get", "", ""), "tool", 0.0))
    return Experience.of(seen)


def test_d7_the_figures_of_what_earlier_runs_say() -> None:
    known = earlier_runs()
    size = 3000
    for step, tool, kind, origin, observed, figures in (
        (("p", "a"), COMMAND, "command", "step", 60, (1.067, 0.51458, 0.1014)),
        (("p", "b"), CODER, "agent", "step", 60, (6.4259, 0.39908, 0.0786)),
        (("p", "c"), WRITER, "agent", "step", 14, (3.8608, 0.25202, 0.074896)),
        (("q", "d"), COMMAND, "command", "step", 2, (4.4609, 0.45292, 0.31882)),
        (("q", "f"), ("http.get", "", ""), "tool", "step", 1, (-4.5111, 0.58916, 0.57993)),
        (("p", "eight"), ("run", "", ""), "program", "step", 9, (8.0444, 0.2043, 0.072544)),
        (("p", "three"), ("http.get", "", ""), "tool", "step", 3, (1.4095, 0.63117, 0.36837)),
        (("q", "new"), CODER, "agent", "tool", 60, (5.4584, 0.39501, 1.6052)),
        (("q", "new"), ("agent", "cli", "other"), "agent", "tool", 74, (4.9253, 0.36064, 1.5929)),
        (("q", "new"), ("agent", "other", ""), "agent", "tool", 74, (4.9253, 0.36064, 1.5929)),
        (("q", "new"), ("python", "", ""), "command", "kind", 62, (2.7839, 0.49336, 2.0984)),
    ):
        found = known.predict(step, tool, kind, size)
        assert found is not None
        assert (found.origin, found.observed) == (origin, observed)
        assert same(found[:3], *figures), (step, tool, found)
    assert known.predict(("q", "e"), ("python", "", ""), "other") is None, "a time that no step takes is not learned"
    not_sized = known.predict(("p", "b"), CODER, "agent")
    assert not_sized is not None
    assert same(not_sized[:3], 5.9896, 0.39908, 0.0786)
    small = known.predict(("p", "eight"), ("run", "", ""), "program", 9)
    assert small is not None
    assert same(small[:3], 2.3055, 0.2043, 0.072544)
    grown = [known.grows(("p", step)) for step in ("a", "b", "eight", "seven", "never seen")]
    assert grown == [False, True, True, False, False]
    assert same((known.runs, known.share, known.recent), 62, 0.47667, 0.0081627)
    assert same((*known.shape[:2], known.shape[64], *known.shape[-2:]), -2.5032, -2.2307, 0.05069, 2.5354, 2.9176)
    assert len(known.shape) == 128


@pytest.mark.parametrize(("noise", "grows"), [(0.7, True), (1.2, False)])
def test_d7_growth_counts_where_it_explains_three_tenths_of_the_differences(noise: float, grows: bool) -> None:
    """It explains 43 % of them here, and 21 %."""
    seen = []
    for number in range(16):
        size, away = 100 * 3 ** (number % 4), noise if number // 4 % 2 else -noise
        amount = math.sqrt(size) * math.exp(away)
        seen.append(Observation(f"r{number}", ("p", "a"), COMMAND, "command", amount, size))
    assert Experience.of(seen).grows(("p", "a")) is grows
    same_time = [Observation(f"r{n}", ("p", "b"), COMMAND, "command", 4.0, 10 * 2**n) for n in range(8)]
    assert not Experience.of(same_time).grows(("p", "b"))


def test_d7_the_figures_of_how_hard_a_run_is() -> None:
    known = earlier_runs()
    own = known.predict(("p", "a"), COMMAND, "command")
    assert own is not None
    assert same(known.difficulty([]), 0.0081627, 1.0157)
    assert same(known.difficulty([(own, 9.0), (own, 0.0)]), -0.15812, 0.61256)
    assert same(known.difficulty([(own, 1e7)]), 1.7265, 0.74183), "one step that hangs"
    assert same(Experience().difficulty([]), 0.0, 1.7321)


def test_d7_the_figures_of_quantiles() -> None:
    normal = [normal_quantile(q) for q in (0.0, 3e-5, 0.1, 0.3, 0.5, 0.975, 0.99997, 1.0)]
    assert same(normal, -4.0, -4.0, -1.2816, -0.52444, 0.0, 1.9602, 4.0, 4.0)
    assert same([quantile([1, 2, 4, 8], q) for q in (0.0, 0.2, 0.5, 0.7, 1.0)], 1.0, 1.3, 3.0, 5.2, 8.0)
    assert quantile([3.0], 0.5) == 3.0


def test_d7_the_figures_of_a_simulation() -> None:
    shape = [normal_quantile((n + 0.5) / 16) for n in range(16)]
    tasks = [
        Task(1.0, 0.3, 0.4, feeds=[1, 2, 3]),
        Task(2.0, 0.1, 0.2, needs=1, feeds=[4], fails=0.4, retries=2, delay=5.0, backoff=3.0, longest=9.0),
        Task(1.5, 0.2, 0.5, needs=1, feeds=[4], items=7, gate="limited", fails=0.2, retries=1),
        Task(1.0, 0.2, 0.3, needs=1, feeds=[5, 6], skipped=0.4),
        Task(0.5, 0.2, 0.3, needs=2, feeds=[7], counts=(2, 60, 9), gate="rated"),
        Task(3.0, 0.2, 0.3, needs=1, feeds=[7], handles=True),
        Task(3.2, 0.2, 0.3, needs=1, feeds=[7]),
        Task(0.0, 0.0, 0.1, needs=3),
        Task(2.5, 0.2, 0.4, running=(3.0, 30.0), items=3, gate="limited"),
        Task(1.0, 0.1, 0.2, due=20.0, items=2),
    ]
    gates = {"limited": Gate(places=2), "rated": Gate(places=3, rate=Rate(4, 10.0))}
    work = Work(tasks, 3, shape, Difficulty(0.4, 0.7), 0.01, gates)
    samples = simulate_work(work, 5)
    assert same(band_of(samples), 71.408, 101.29, 218.89)
    assert same((sum(samples.times), sum(samples.weights)), 26360.0, 5.2344)
    assert samples.overdue
    traced, found = simulate_tasks(Work(tasks, 3, shape, Difficulty(0.4, 0.7), 0.01, gates, traced=True), 5)
    assert same(band_of(traced), 73.863, 101.95, 218.48)
    noted = [
        (0.0, 3.5359, 6.6145),
        (26.158, 40.128, 64.641),
        (30.393, 61.499, 77.637),
        (53.461, 57.353, 70.633),
        (62.188, 83.351, 215.61),
        (55.683, 79.063, 105.01),
        (58.473, 88.917, 112.57),
        (107.52, 108.57, 220.99),
        (0.0, 38.994, 56.634),
        (23.136, 29.458, 34.338),
    ]
    for one, figures in zip(found, noted, strict=True):
        assert one is not None
        assert same(one, *figures)


def test_d7_the_figures_of_many_items_and_of_a_step_that_runs_longer_than_any_before() -> None:
    shape = [normal_quantile((n + 0.5) / 16) for n in range(16)]
    many = [Task(1.0, 0.3, 0.4, items=200, fails=0.1, retries=3) for _ in range(12)]
    few = simulate_work(Work(many, 4, shape, Difficulty(), 0.01), 5)
    assert len(few.times) == 15
    assert same(band_of(few), 1382.4, 1978.3, 2830.9)
    late = simulate_work(Work([Task(1.0, 0.1, 0.2, running=(500.0,))], 1, shape, Difficulty(), 0.01), 5)
    assert late.overdue
    assert same((*band_of(late), sum(late.weights)), 34.551, 240.27, 1805.7, 3.125)


def test_d7_the_figures_of_a_calibration() -> None:
    chance = Random(3)
    outcomes = []
    for _ in range(60):
        middle = math.exp(chance.gauss(3, 1))
        truth = middle * math.exp(chance.gauss(0.5, 0.6))
        outcomes.append(ScoredForecast(chance.randrange(3), Band(middle / 1.5, middle, middle * 2), truth))
    learned = Calibration(outcomes)
    noted = [(9.2249, 10.988, 19.617), (8.4755, 10.775, 18.046), (8.4308, 10.866, 21.028), (8.0, 10.0, 15.0)]
    for bucket, figures in enumerate(noted):
        assert same(learned.apply(Band(8.0, 10.0, 15.0), bucket), *figures)
    assert learned.counts == [16, 23, 21, 0]
    assert same(learned.apply(Band(0.0, 0.0, 1e30), 0), 267830.0, 274210.0, 5.1847e21)
    always = [ScoredForecast(1, Band(1.0, 2.0, 3.0), 1000.0)] * 300
    assert same(Calibration(always).apply(Band(1.0, 2.0, 3.0), 1), 2.613, 3.0, 50.825)
    never = [ScoredForecast(2, Band(1.0, 2.0, 3.0), 0.0)] * 300
    inside = [ScoredForecast(3, Band(1.0, 2.0, 30.0), 3.0)] * 30
    assert same(Calibration(inside).apply(Band(8.0, 10.0, 15.0), 3), 9.2221, 10.655, 13.854)
    assert same(Calibration(never, 0.0005).apply(Band(1.0, 2.0, 3.0), 2), 0.0073301, 1.0, 1.0845)


def test_d7_the_figures_of_costs() -> None:
    known, prediction = earlier_runs(), Prediction(-1.0, 0.4, 0.2, "step", 9)
    spending = CostTask(prediction, Experience(), 1, [0.1, 0.9])
    tasks = [CostTask(prediction, known, 3), spending, CostTask(prediction, known, 0)]
    assert same(rest_of_cost(tasks, [], 4), 1.0006, 1.8137, 3.0055)
    assert same(rest_of_cost(tasks, [(prediction, 0.9)], 4), 1.6254, 2.7649, 4.1667)
