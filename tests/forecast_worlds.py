"""Synthetic worlds for forecasts: plans whose steps take random times, run many times, with all that goes wrong.

A world has a graph of steps of some kinds, three workers, and a law for its times: lognormal or with a heavy tail, with
or without a drift over its runs, with failures that are repeated, with steps of a run slow or fast together. The
scheduler here is not that of the forecasts: it is a second one, written for the worlds alone.

`replay` forecasts each run of a world at 0, 25, 50 and 75 % of its steps, with the experience of the runs before it,
and yields the forecast, the truth and two naive forecasts: the mean of the last runs, and the extrapolation of the
percentage. Everything comes from a seed.

`replay_costs` does the same for dollars: steps are agents that use tokens, their model changes half way, and some costs
are not known.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from windlass.core.event_base import Usage
from windlass.core.forecast.calibration import Band, Calibration, ScoredForecast, bucket_of
from windlass.core.forecast.costs import SMALLEST_USD, CostHistory, CostObservation, CostTask, rest_of_cost
from windlass.core.forecast.learning import Experience, Observation, Prediction
from windlass.core.forecast.simulation import Task, Work, band_of, simulate_work
from windlass.prices import Price

MARKS = (0.0, 0.25, 0.5, 0.75)
KINDS = ("agent", "command", "program", "tool")


@dataclass(frozen=True)
class Law:
    name: str
    tail: str = "lognormal"
    drift: float = 0.0
    """Change of the logarithm over all runs."""
    fails: float = 0.0
    shared: float = 0.3
    """Standard deviation of the difficulty that the steps of a run share."""
    noise: float = 0.45
    workers: int = 3
    steps: int = 24
    width: float = 2.0
    """Steps that a step waits for, on average."""


LAWS = (
    Law("lognormal"),
    Law("heavy tail", tail="heavy"),
    Law("drift", drift=1.0),
    Law("retries", fails=0.15),
    Law("chain", workers=1, steps=16, shared=0.4),
    Law("heavy, drift and retries", tail="heavy", drift=-0.8, fails=0.1),
    Law("wide", workers=6, steps=36, width=1.0),
    Law("nothing in common", shared=0.05, noise=0.6),
    Law("bimodal", tail="bimodal"),
    Law("nearly constant", shared=0.05, noise=0.05, steps=12),
)


class Ended(NamedTuple):
    start: float
    end: float
    """Of all its attempts."""
    attempts: int
    worked: float


class World:
    def __init__(self, law: Law, seed: int) -> None:
        self.law = law
        self.chance = chance = Random(f"{law.name}/{seed}")
        self.kinds = [chance.choice(KINDS) for _ in range(law.steps)]
        of_kind = {kind: chance.gauss(3.0, 1.0) for kind in KINDS}
        self.bases = [of_kind[kind] + chance.gauss(0.0, 0.6) for kind in self.kinds]
        self.needs: list[set[int]] = []
        for step in range(law.steps):
            count = min(step, round(chance.expovariate(1 / law.width))) if law.workers > 1 else min(step, 1)
            near = range(max(0, step - 8), step) if law.workers > 1 else range(step - 1, step)
            self.needs.append(set(chance.sample(near, min(count, len(near)))))
        self.feeds = [[after for after in range(law.steps) if step in self.needs[after]] for step in range(law.steps)]

    def run(self, age: float) -> list[Ended]:
        """Run it once; `age` goes from 0 to 1 over all runs."""
        law, chance = self.law, self.chance
        shared = chance.gauss(0.0, law.shared) + law.drift * age
        unmet = [len(needs) for needs in self.needs]
        ready = deque(step for step in range(law.steps) if not unmet[step])
        again: list[int] = []
        running: list[tuple[float, int, str]] = []
        begun: dict[int, float] = {}
        tried: dict[int, int] = {}
        worked: dict[int, float] = {}
        ended: dict[int, Ended] = {}
        now, busy = 0.0, 0
        while ready or again or running:
            while (ready or again) and busy < law.workers:
                step = again.pop(0) if again else ready.popleft()
                begun.setdefault(step, now)
                tried[step] = tried.get(step, 0) + 1
                took = math.exp(self.bases[step] + shared + self._deviation())
                worked[step] = worked.get(step, 0.0) + took
                busy += 1
                bad = tried[step] <= 3 and chance.random() < law.fails
                heapq.heappush(running, (now + took, step, "bad" if bad else "good"))
            now, step, what = heapq.heappop(running)
            if what == "due":
                again.append(step)
                continue
            busy -= 1
            if what == "bad":
                heapq.heappush(running, (now + 2 ** (tried[step] - 1) * chance.uniform(0.5, 1), step, "due"))
                continue
            ended[step] = Ended(begun[step], now, tried[step], worked[step])
            for after in self.feeds[step]:
                unmet[after] -= 1
                if not unmet[after]:
                    ready.append(after)
        return [ended[step] for step in range(law.steps)]

    def _deviation(self) -> float:
        law, chance = self.law, self.chance
        if law.tail == "heavy" and chance.random() < 0.08:
            return law.noise * chance.gauss(0.0, 1.0) + chance.expovariate(1 / 0.8)
        if law.tail == "bimodal":
            return chance.choice((-1.0, 1.0)) * law.noise + chance.gauss(0.0, 0.15)
        return chance.gauss(0.0, law.noise)


class Replayed(NamedTuple):
    world: str
    run: int
    mark: float
    forecast: Band
    truth: float
    by_mean: float
    by_percent: float
    raw: Band


def replay(law: Law, seed: int, runs: int) -> Iterator[Replayed]:
    """Forecast all runs of a world, each with the experience of those before it."""
    world = World(law, seed)
    seen: list[Observation] = []
    outcomes: list[ScoredForecast] = []
    totals: list[float] = []
    retried, attempts = [0.0] * law.steps, [0.0] * law.steps
    for number in range(runs):
        steps = world.run(number / max(1, runs - 1))
        total = max(step.end for step in steps)
        learned = Experience.of(reversed(seen))
        calibration = Calibration(outcomes)
        came: list[ScoredForecast] = []
        if number:
            order = sorted(steps, key=lambda step: step.end)
            for mark in MARKS:
                finished = round(mark * law.steps)
                now = order[finished - 1].end if finished else 0.0
                raw = _forecast(world, steps, now, learned, retried, attempts, seed * 1000 + number)
                bucket, truth = bucket_of(mark), total - now
                band = calibration.apply(raw, bucket)
                by_mean = max(0.0, sum(totals[-3:]) / len(totals[-3:]) - now)
                by_percent = now * (1 - mark) / mark if mark else by_mean
                yield Replayed(law.name, number, mark, band, truth, by_mean, by_percent, raw)
                came.append(ScoredForecast(bucket, raw, truth))
        outcomes += came
        totals.append(total)
        for step, ended in enumerate(steps):
            tool = (world.kinds[step], "", "")
            key = ("plan", str(step))
            seen.append(Observation(str(number), key, tool, world.kinds[step], ended.worked / ended.attempts))
            retried[step] += ended.attempts - 1
            attempts[step] += ended.attempts


def _forecast(
    world: World,
    steps: list[Ended],
    now: float,
    learned: Experience,
    retried: list[float],
    attempts: list[float],
    seed: int,
) -> Band:
    law = world.law
    finished, tasks, place = [], [], {}
    left = [step for step in range(law.steps) if steps[step].end > now]
    for step in left:
        place[step] = len(place)
    root, own = math.sqrt(learned.share), 1 - learned.share
    usual = sum(retried) / sum(attempts)
    for step in range(law.steps):
        predicted = learned.predict(("plan", str(step)), (world.kinds[step], "", ""), world.kinds[step])
        assert predicted is not None
        ended = steps[step]
        if step not in place:
            finished.append((predicted, ended.worked / ended.attempts))
            continue
        tasks.append(
            Task(
                predicted.mean,
                root * predicted.spread,
                math.sqrt(own * predicted.spread**2 + predicted.doubt**2),
                needs=sum(need in place for need in world.needs[step]),
                feeds=[place[after] for after in world.feeds[step]],
                items=0 if ended.start < now else 1,
                running=(now - ended.start,) if ended.start < now else (),
                fails=(retried[step] + 4 * usual) / (attempts[step] + 4),
                retries=3,
            )
        )
    work = Work(tasks, law.workers, learned.shape, learned.difficulty(finished), learned.smallest, {})
    return band_of(simulate_work(work, seed))


# -- costs ----------------------------------------------------------------------------------------

PRICES = {"small": Price.of(1.0, 5.0), "large": Price.of(5.0, 10.0)}


def replay_costs(law: Law, seed: int, runs: int) -> Iterator[Replayed]:
    """Forecast the dollars of all runs of a world, one step after the other.

    In the second half of the runs another model does them all; of each tenth step the cost is not known.
    """
    world = World(law, seed)
    chance = Random(f"costs of {law.name}/{seed}")
    written = [chance.uniform(0.02, 0.3) for _ in range(law.steps)]
    seen: list[CostObservation] = []
    outcomes: list[ScoredForecast] = []
    totals: list[float] = []
    for number in range(runs):
        model = "small" if number < runs // 2 else "large"
        shared = world.chance.gauss(0.0, law.shared) + law.drift * number / runs
        usages = []
        for step in range(law.steps):
            read = int(1000 * math.exp(world.bases[step] + shared + world._deviation()))
            usages.append(Usage(read, int(read * written[step]), cache_read=read // 3))
        costs = [PRICES[model].of_usage(usage) for usage in usages]
        history = CostHistory(list(reversed(seen)), PRICES.get)
        calibration = Calibration(outcomes, SMALLEST_USD)
        learned, came = history.of(model), []
        for mark in MARKS if number else ():
            done = round(mark * law.steps)
            paid = [(_cost_of(world, learned, step, model), costs[step]) for step in range(done)]
            left = [CostTask(_cost_of(world, learned, step, model), learned, 1) for step in range(done, law.steps)]
            raw = rest_of_cost(left, paid, seed * 1000 + number)
            truth, spent, bucket = sum(costs[done:]), sum(costs[:done]), bucket_of(mark)
            by_mean = max(0.0, sum(totals[-3:]) / len(totals[-3:]) - spent)
            by_percent = spent * (1 - mark) / mark if mark else by_mean
            band = calibration.apply(raw, bucket)
            yield Replayed(law.name, number, mark, band, truth, by_mean, by_percent, raw)
            came.append(ScoredForecast(bucket, raw, truth))
        outcomes += came
        totals.append(sum(costs))
        for step, (usage, usd) in enumerate(zip(usages, costs, strict=True)):
            known = usd if chance.random() > 0.1 else None
            one = Observation(str(number), ("plan", str(step)), ("agent", "cli", model), "agent", 0.0)
            seen.append(CostObservation(one, model, model, usage, known))


def _cost_of(world: World, learned: Experience, step: int, model: str) -> Prediction:
    found = learned.predict(("plan", str(step)), ("agent", "cli", model), "agent")
    assert found is not None
    return found
