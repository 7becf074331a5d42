"""Bottlenecks, and steps that get slower or fail more: from the last records of each plan. Pure.

The critical path of an execution is followed from the step that ended last to the one that it waited for last, and so
on. A change is only named when a test of the last runs against those before finds it, with a correction for the number
of steps that were looked at (Holm), so that looking at many steps cries wolf no more often than looking at one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from windlass.core.history import ExecutionRecord, StepRecord

__all__ = [
    "FALSE_ALARMS",
    "RUNS_READ",
    "Bottleneck",
    "StepChange",
    "bottlenecks",
    "changes",
    "greater",
    "more_failures",
]

FALSE_ALARMS = 0.01
"""The chance that a look at all steps together names a change where there is none."""
RECENT, BEFORE = 15, 100
"""The last runs of a step, and those before them that they are compared with."""
RUNS_READ = RECENT + BEFORE
LEAST_RECENT, LEAST_BEFORE = 8, 16
LEAST_GROWTH = 1.2
"""A smaller growth of the median is not worth a word, however sure it is."""
LEAST_SECONDS = 0.05

Version = Callable[[ExecutionRecord, StepRecord], str]
"""Names what a run of a step can be compared with: runs of the same version."""


class Bottleneck(NamedTuple):
    """The part of a step in the time that executions of its plan took."""

    plan: str
    step: str
    share: float
    """Part of the time of all these executions in which it was on the critical path."""
    seconds: float
    """The same in seconds for one execution."""
    on_path: int
    """Executions with the step on their critical path."""
    executions: int

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "share": round(self.share, 4), "seconds": round(self.seconds, 3)}


class StepChange(NamedTuple):
    """A step that gets slower or fails more; or one that cannot be compared, because it was edited."""

    plan: str
    step: str
    kind: str
    """`slower`, `failing` or `edited`."""
    before: float
    """Median seconds, or part of the runs that failed, before; runs that are left out, of one that was edited."""
    recent: float
    runs_before: int
    runs_recent: int
    p: float | None
    """Chance of a difference like this, or a greater one, if nothing changed; None of one that was edited."""

    def as_dict(self) -> dict[str, Any]:
        rounded = {name: float(f"{getattr(self, name):.4g}") for name in ("before", "recent")}
        return {**self._asdict(), **rounded, "p": None if self.p is None else float(f"{self.p:.2g}")}


# -- the critical path ----------------------------------------------------------------------------


def bottlenecks(records: Mapping[str, Sequence[ExecutionRecord]]) -> list[Bottleneck]:
    """Steps by their share of the time of their plan's executions, the plan that took most first."""
    found: list[tuple[float, Bottleneck]] = []
    for plan, runs in records.items():
        seconds: defaultdict[str, float] = defaultdict(float)
        on_path: Counter[str] = Counter()
        for run in runs:
            for step, took in _critical_path(run):
                seconds[step] += took
                on_path[step] += 1
        total = sum(seconds.values())
        for step, took in seconds.items():
            if took > 0:
                each = took / len(runs)
                found.append((total, Bottleneck(plan, step, took / total, each, on_path[step], len(runs))))
    found.sort(key=lambda one: (-one[0], one[1].plan, -one[1].share, one[1].step))
    return [one for _, one in found]


def _critical_path(run: ExecutionRecord) -> Iterable[tuple[str, float]]:
    """Steps on the critical path, last first, each with the seconds that it added; waiting for a person left out."""
    steps = {step.step: step for step in run.steps if step.ended is not None and step.attempts}
    current = max(steps.values(), key=lambda step: step.ended or 0.0, default=None)
    seen: set[str] = set()
    while current is not None and current.step not in seen:
        seen.add(current.step)
        before = steps.get(current.after)
        began = before.ended if before is not None else run.started
        if current.ended is not None and began is not None:
            yield current.step, max(0.0, current.ended - began - current.person_s)
        current = before


# -- changes --------------------------------------------------------------------------------------


def changes(records: Mapping[str, Sequence[ExecutionRecord]], version: Version) -> tuple[list[StepChange], int]:
    """Steps that got slower or fail more, surest first, then those that were edited; and how many were looked at.

    The records of each plan are newest first.
    """
    tested: list[StepChange] = []
    edited: list[StepChange] = []
    looked_at = 0
    for plan, runs in records.items():
        for step, found in _runs_by_step(runs).items():
            newest = version(*found[0])
            same = [one for run, one in found if version(run, one) == newest]
            split = min(RECENT, len(same) // 3)
            if split < LEAST_RECENT:  # else there are twice as many before
                left_out = len(found) - len(same)
                if left_out >= LEAST_BEFORE:
                    edited.append(StepChange(plan, step, "edited", left_out, len(same), left_out, len(same), None))
                continue
            looked_at += 1
            tested += _tests(plan, step, same[:split], same[split:RUNS_READ])
    tested.sort(key=lambda one: (one.p or 0.0, one.plan, one.step))
    alarms: list[StepChange] = []
    for place, one in enumerate(tested):
        if (one.p or 0.0) > FALSE_ALARMS / (2 * looked_at - place):
            break
        if one.kind == "failing" or one.recent >= max(LEAST_GROWTH * one.before, one.before + LEAST_SECONDS):
            alarms.append(one)
    return alarms + edited, looked_at


def _runs_by_step(runs: Iterable[ExecutionRecord]) -> dict[str, list[tuple[ExecutionRecord, StepRecord]]]:
    found: defaultdict[str, list[tuple[ExecutionRecord, StepRecord]]] = defaultdict(list)
    for run in runs:
        for step in run.steps:
            if step.attempts and not step.edited and step.status in ("completed", "failed"):
                found[step.step].append((run, step))
    return found


def _tests(plan: str, step: str, recent: list[StepRecord], before: list[StepRecord]) -> list[StepChange]:
    counts = (len(before), len(recent))
    found = []
    times = [
        [one.worked_s / max(1, one.items) for one in side if one.status == "completed"] for side in (before, recent)
    ]
    if len(times[0]) >= LEAST_BEFORE and len(times[1]) >= LEAST_RECENT:
        p = greater(times[1], times[0])
        sizes = (len(times[0]), len(times[1]))
        found.append(StepChange(plan, step, "slower", median(times[0]), median(times[1]), *sizes, p))
    failed = [sum(one.status == "failed" for one in side) for side in (before, recent)]
    p = more_failures(failed[1], counts[1], failed[0], counts[0])
    found.append(StepChange(plan, step, "failing", failed[0] / counts[0], failed[1] / counts[1], *counts, p))
    return found


def greater(sample: Sequence[float], others: Sequence[float]) -> float:
    """The Mann-Whitney test: the chance that values as high as these come from where the others come from."""
    n, m = len(sample), len(others)
    values = sorted([(value, True) for value in sample] + [(value, False) for value in others])
    rank_sum, ties, start = 0.0, 0.0, 0
    while start < len(values):
        end = start
        while end < len(values) and values[end][0] == values[start][0]:
            end += 1
        rank_sum += (start + 1 + end) / 2 * sum(mine for _, mine in values[start:end])
        ties += (end - start) ** 3 - (end - start)
        start = end
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    excess = rank_sum - n * (n + 1) / 2 - n * m / 2 - 0.5
    return 0.5 * math.erfc(excess / math.sqrt(2 * variance))


def more_failures(failed: int, runs: int, failed_before: int, runs_before: int) -> float:
    """Fisher's exact test: the chance of so many failures in the last runs, if all runs are alike."""
    total, bad = runs + runs_before, failed + failed_before
    ways = math.comb(total, runs)
    most = min(bad, runs)
    return sum(math.comb(bad, k) * math.comb(total - bad, runs - k) for k in range(failed, most + 1)) / ways
