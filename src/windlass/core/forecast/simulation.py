"""Run the steps that are left, many times, by the rule of the scheduler.

Ready steps start in the order in which they became ready, at most `parallel` at once, each through the gates of its
tool; failed attempts are repeated after their backoff, before those that are ready. Times are seconds from now.

A forecast costs about the same for ten steps and for a thousand: the more there are, the fewer samples are needed,
because their own deviations even out. What they share, the run's difficulty, is taken in its quantiles, one a sample.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

from windlass.core.forecast.calibration import Band
from windlass.core.forecast.learning import Difficulty, normal_quantile
from windlass.rate import Rate

__all__ = ["Gate", "Samples", "Task", "TaskTimes", "Work", "band_of", "simulate_tasks", "simulate_work"]

BUDGET = 12_000
"""Starts of attempts in all samples together."""
MOST_SAMPLES, FEWEST_SAMPLES = 200, 12
BUNDLES = 16
"""Items of a foreach are taken together into so many parts for each place."""
TAIL = 1.5
"""Exponent of the tail of a step that runs longer than any before: half of such take 1.6 times their time so far."""
TENTH = 1.2816
"""Standard deviations from the median of a normal distribution to its ninth tenth."""


class Gate(NamedTuple):
    """Limits of a tool that all its uses share."""

    places: int | None = None
    rate: Rate | None = None


@dataclass(slots=True)
class Task:
    """A step that is not settled; of a foreach, its items that are not."""

    mean: float
    """Of the logarithm of an attempt's seconds."""
    loading: float
    """Growth of that with the run's difficulty."""
    noise: float
    """Standard deviation of its own."""
    needs: int = 0
    """Tasks that it waits for."""
    feeds: Sequence[int] = ()
    """Tasks that wait for it."""
    items: int = 1
    """Items that have not started."""
    counts: Sequence[int] = ()
    """Numbers of items in earlier runs, while its own is not known: each sample draws one."""
    running: Sequence[float] = ()
    """Seconds that each running attempt has worked."""
    due: float = 0.0
    """Seconds until it may start, while it waits for a retry or a quota."""
    fails: float = 0.0
    """Probability that an attempt fails and is repeated."""
    retries: int = 0
    delay: float = 1.0
    """Wait before the first retry; each further one is `backoff` times as long, and none longer than `longest`."""
    backoff: float = 2.0
    longest: float = 300.0
    skipped: float = 0.0
    """Probability that its `when` is false."""
    handles: bool = False
    """It runs although a step that it waits for was skipped."""
    gate: str = ""
    """The tool with limits that it uses."""


@dataclass(slots=True)
class Work:
    """All that is left of an execution."""

    tasks: Sequence[Task]
    parallel: int
    shape: Sequence[float]
    """Quantiles of a step's own deviation, in units of `Task.noise`."""
    difficulty: Difficulty
    smallest: float
    """Seconds that were added before the logarithm was taken."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    traced: bool = False
    """The times of each task are wanted: none takes the short way."""
    laws: list[tuple[float, float, float]] = field(init=False)
    plain: list[bool] = field(init=False)
    """Tasks that are one attempt, without a gate, a condition or a wait."""
    failing: list[tuple[int, float]] = field(init=False)
    """Those of them that may fail, with the probability."""
    feeds: list[Sequence[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.laws = [(task.mean, task.loading, task.noise) for task in self.tasks]
        self.feeds = [task.feeds for task in self.tasks]
        self.plain = [
            not self.traced
            and task.items == 1
            and not (task.counts or task.running or task.due or task.skipped or task.gate in self.gates)
            for task in self.tasks
        ]
        self.failing = [(n, task.fails) for n, task in enumerate(self.tasks) if task.fails and self.plain[n]]


class Samples(NamedTuple):
    """Simulated seconds to the end, by weight."""

    times: list[float]
    weights: list[float]
    """Probabilities that the running steps are still running, in each."""
    overdue: bool
    """A step runs longer than any that was observed."""


class TaskTimes(NamedTuple):
    """Seconds until a task begins and ends: medians, and the end that one of ten samples passes."""

    begins: float
    ends: float
    late: float


def simulate_work(work: Work, seed: int) -> Samples:
    times, weights, overdue = [], [], False
    for run in _sample_runs(_SampleRun, work, seed):
        times.append(run.to_the_end())
        weights.append(run.weight)
        overdue = overdue or run.overdue
    return Samples(times, weights, overdue)


def simulate_tasks(work: Work, seed: int) -> tuple[Samples, list[TaskTimes | None]]:
    """The same with the times of each task; None of one that has nothing to do in most samples."""
    times, weights, overdue = [], [], False
    found: list[list[tuple[float, float, float]]] = [[] for _ in work.tasks]
    for run in _sample_runs(_TracedRun, work, seed):
        times.append(run.to_the_end())
        weights.append(run.weight)
        overdue = overdue or run.overdue
        for index, end in run.ended.items():
            found[index].append((run.begun[index], end, run.weight))
    half = sum(weights) / 2
    return Samples(times, weights, overdue), [_task_times(one, half) for one in found]


def _task_times(found: list[tuple[float, float, float]], least: float) -> TaskTimes | None:
    if sum(weight for *_, weight in found) < least:
        return None
    begins = sorted((begin, weight) for begin, _, weight in found)
    ends = sorted((end, weight) for _, end, weight in found)
    return TaskTimes(_weighted_quantile(begins, 0.5), _weighted_quantile(ends, 0.5), _weighted_quantile(ends, 0.9))


R = TypeVar("R", bound="_SampleRun")


def _sample_runs(kind: type[R], work: Work, seed: int) -> Iterator[R]:
    starts = 1 + sum(len(task.running) + _parts(_most_items(task), work.parallel) for task in work.tasks)
    count = max(FEWEST_SAMPLES, min(MOST_SAMPLES, BUDGET // starts))
    chance = Random(seed)
    levels = [normal_quantile((place + chance.random()) / count) for place in range(count)]
    chance.shuffle(levels)
    for level in levels:
        yield kind(work, work.difficulty.mean + work.difficulty.deviation * level, chance)


def _most_items(task: Task) -> int:
    return max(task.counts) if task.counts else task.items


def _parts(items: int, parallel: int) -> int:
    return min(items, BUNDLES * parallel)


class _SampleRun:
    """One sample."""

    def __init__(self, work: Work, level: float, chance: Random) -> None:
        self.work, self.level, self.chance = work, level, chance
        self.now, self.room, self.weight, self.overdue = 0.0, work.parallel, 1.0, False
        self.unmet = [task.needs for task in work.tasks]
        self.left = [0] * len(work.tasks)
        """Parts of each task that have not ended."""
        self.size: dict[int, int] = {}
        """Items in a part, where it is more than one."""
        self.ready: deque[int] = deque()
        self.events: list[tuple[float, int]] = []
        """A heap of what is to come: when, and the task, plus the number of tasks for what is not its end."""
        self.lost: set[int] = set()
        """Tasks skipped by a condition."""
        self.tries: dict[int, int] = {}
        self.plain = work.plain
        if work.failing:
            random = chance.random
            self.tries = {index: -1 for index, fails in work.failing if random() < fails}
            """Failed attempts of each task; -1 is one that will fail."""
            self.plain = work.plain[:]
            for index in self.tries:
                self.plain[index] = False
        self.taken: dict[str, list[float]] = {}
        """Times at which the places of a tool come free."""
        self.due: dict[str, float] = {}
        """Times at which the uses of a tool with a rate will have drained."""
        for index, task in enumerate(work.tasks):
            for elapsed in task.running:
                self._go_on(index, task, elapsed)
        for index, task in enumerate(work.tasks):
            if not task.needs:
                self._open(index)

    def to_the_end(self) -> float:
        """The time at which the last task ends."""
        # The loop of all samples, over a million turns a minute: everything that can be is done before it.
        work, events, ready, left, unmet = self.work, self.events, self.ready, self.left, self.unmet
        shape, smallest, level, random, exp = work.shape, work.smallest, self.level, self.chance.random, math.exp
        points, count, lost, room, now = len(shape), len(work.tasks), self.lost, self.room, 0.0
        took = [
            exp(mean + loading * level + noise * shape[int(random() * points)]) - smallest
            for mean, loading, noise in work.laws
        ]
        plain, feeds = self.plain, work.feeds
        while True:
            while room > 0 and ready:
                index = ready.popleft()
                room -= 1
                if plain[index]:
                    heappush(events, (now + took[index], index))
                else:
                    self._start(index, now)
            if not events:
                return max(0.0, now)  # the shortest times are below 0, by as much as others are too long
            now, index = heappop(events)
            if index >= count:
                room += self._go_round(index, now)
                continue
            room += 1
            if left[index] > 1:
                left[index] -= 1
            elif lost:
                self.now = now
                self._settle(index)
            else:
                for after in feeds[index]:
                    open_needs = unmet[after] = unmet[after] - 1
                    if not open_needs:
                        if plain[after]:
                            ready.append(after)
                        else:
                            self.now = now
                            self._open(after)

    def _start(self, index: int, now: float) -> float:
        """Start an attempt, or a bundle of them, that has to pass gates or may fail; returns when its work begins."""
        work, task, random = self.work, self.work.tasks[index], self.chance.random
        items = self.size.get(index, 1)
        took = self._seconds(task, items)
        end = now + took
        if (gate := work.gates.get(task.gate)) is not None:
            end = self._pass_gate(gate, task.gate, now, took, items)
        tries = self.tries.get(index, 0)
        if tries < 0 or (task.fails and items == 1 and tries < task.retries and random() < task.fails):
            index += len(work.tasks)
        heappush(self.events, (end, index))
        return end - took

    def _go_round(self, index: int, now: float) -> int:
        """An attempt failed, or a wait is over; returns the number of places that this leaves free."""
        count = len(self.work.tasks)
        if index >= 2 * count:
            self.ready.appendleft(index - 2 * count)
            return 0
        task = self.work.tasks[index - count]
        tries = self.tries[index - count] = max(0, self.tries.get(index - count, 0)) + 1
        wait = min(task.longest, task.delay * task.backoff ** min(tries - 1, 64))
        heappush(self.events, (now + wait * (0.5 + 0.5 * self.chance.random()), index + count))
        return 1

    def _go_on(self, index: int, task: Task, elapsed: float) -> None:
        """An attempt that is running: the rest of its time, given that it has taken so long already."""
        work, shape, random = self.work, self.work.shape, self.chance.random
        points, middle = len(shape), task.mean + task.loading * self.level
        spent = math.log(elapsed + work.smallest)
        below = bisect_right(shape, (spent - middle) / task.noise)
        # Difficulties under which it would have ended by now count for less.
        self.weight *= max(1.0 - below / points, 0.25 / points)
        if below < points:
            total = math.exp(middle + task.noise * shape[below + int(random() * (points - below))]) - work.smallest
        else:
            self.overdue = True
            total = elapsed * (1.0 - random()) ** (-1.0 / TAIL)
        rest = max(0.0, total - elapsed)
        self.room -= 1
        self.left[index] += 1
        heappush(self.events, (rest, index))
        gate = work.gates.get(task.gate)
        if gate is not None and gate.places is not None:
            heappush(self.taken.setdefault(task.gate, []), rest)

    def _open(self, index: int) -> None:
        """All that a task waited for is settled: it is ready, or skipped, or has nothing to do."""
        task = self.work.tasks[index]
        items = task.counts[int(self.chance.random() * len(task.counts))] if task.counts else task.items
        if index in self.lost or (task.skipped and self.chance.random() < task.skipped):
            self.lost.add(index)
            items = 0
        parts = _parts(items, self.work.parallel)
        if parts < items:
            self.size[index] = -(-items // parts)
            parts = -(-items // self.size[index])
        self.left[index] += parts
        if not self.left[index]:
            self._settle(index)
        elif task.due > self.now:
            for _part in range(parts):
                heappush(self.events, (task.due, index + 2 * len(self.work.tasks)))
        else:
            self.ready.extend([index] * parts)

    def _settle(self, index: int) -> None:
        lost, tasks = index in self.lost, self.work.tasks
        for after in tasks[index].feeds:
            self.unmet[after] -= 1
            if lost and not tasks[after].handles:
                self.lost.add(after)
            if not self.unmet[after]:
                self._open(after)

    def _seconds(self, task: Task, items: int) -> float:
        """Seconds of several items one after the other: a sum of lognormals is nearly one, too."""
        work = self.work
        deviation = work.shape[int(self.chance.random() * len(work.shape))]
        if items == 1:
            return max(0.0, math.exp(task.mean + task.loading * self.level + task.noise * deviation) - work.smallest)
        variance = math.log1p(math.expm1(min(task.noise**2, 50.0)) / items)
        mean = task.mean + math.log(items) + (task.noise**2 - variance) / 2
        took = math.exp(mean + task.loading * self.level + math.sqrt(variance) * deviation)
        return max(0.0, took / (1 - min(task.fails, 0.9)) - items * work.smallest)

    def _pass_gate(self, gate: Gate, name: str, now: float, took: float, uses: int) -> float:
        """The end of a use that has to wait for its turn and for a place."""
        begin = now
        if gate.rate is not None:  # as `Rate.next`, without its guard against clocks that were set back
            due = max(self.due.get(name, 0.0), now) + uses * gate.rate.seconds / gate.rate.uses
            begin = max(now, due - gate.rate.seconds)
            self.due[name] = due
        if gate.places is None:
            return begin + took
        taken = self.taken.setdefault(name, [])
        if len(taken) < gate.places:
            heappush(taken, begin + took)
            return begin + took
        end = max(begin, taken[0]) + took
        heapreplace(taken, end)
        return end


class _TracedRun(_SampleRun):
    """One sample of `traced` work, with the times at which each task began and ended."""

    def __init__(self, work: Work, level: float, chance: Random) -> None:
        self.begun: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        """Only tasks that had something to do."""
        super().__init__(work, level, chance)
        self.lost.add(-1)  # no task: while any is lost, each end passes `_settle`

    def _start(self, index: int, now: float) -> float:
        return self.begun.setdefault(index, super()._start(index, now))

    def _go_on(self, index: int, task: Task, elapsed: float) -> None:
        self.begun[index] = 0.0
        super()._go_on(index, task, elapsed)

    def _settle(self, index: int) -> None:
        if index in self.begun:
            self.ended[index] = self.now
        super()._settle(index)


def band_of(samples: Samples) -> Band:
    """The median of the simulated times, and the band in which 80 % of them lie."""
    ordered = sorted(zip(samples.times, samples.weights, strict=True))
    if len(ordered) < 60:  # too few for quantiles of their own, and enough steps that their sum is nearly lognormal
        whole = sum(samples.weights)
        logs = [math.log(max(time, 1e-6)) for time, _ in ordered]
        mean = sum(x * weight for x, (_, weight) in zip(logs, ordered, strict=True)) / whole
        square = sum((x - mean) ** 2 * weight for x, (_, weight) in zip(logs, ordered, strict=True)) / whole
        half = TENTH * math.sqrt(square)
        return Band(math.exp(mean - half), math.exp(mean), math.exp(mean + half))
    return Band(*(_weighted_quantile(ordered, q) for q in (0.1, 0.5, 0.9)))


def _weighted_quantile(ordered: Sequence[tuple[float, float]], q: float) -> float:
    passed = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(passed, q * passed[-1])][0]
