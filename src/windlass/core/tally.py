"""Figures of the history's records by day and month, kind and outcome; many records are added at once. Pure.

A cell has the figures of one kind of step, or of one plan's executions, with one outcome, on one day or in one month.
All figures are whole numbers, so that taking a record out again leaves exactly what was there before it came. Times are
also counted in buckets, of which eight double: a percentile is the middle of its bucket, at most 4.5 % off. So is
memory: the greatest bucket is shown.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, tzinfo
from typing import NamedTuple, TypeVar

import msgspec

from windlass.core.history import ExecutionRecord, ModelUsage, StepRecord

__all__ = [
    "MEGABYTES",
    "OTHER_PLANS",
    "OTHER_STEPS",
    "UNKNOWN_DAY",
    "HistoryCell",
    "HistoryTally",
    "Place",
    "StepKind",
    "middle_of",
    "month_span",
    "percentile",
]

OTHER_PLANS, OTHER_STEPS = "(other plans)", "(other steps)"
REPLACED = "(replaced steps)"
UNKNOWN_DAY = 0
"""The day of a time that no calendar has."""
_UNKNOWN_MONTH = -1
_MOST = 1e15
"""The greatest figure of one record: 30 years, or a million dollars."""
_LARGE = 2.0**52
_SHORTEST = 0.001
_PER_DOUBLING = 8
_EDGES = [
    math.nextafter(_SHORTEST, 1),
    *(_SHORTEST * 2 ** (edge / _PER_DOUBLING) for edge in range(1, 40 * _PER_DOUBLING)),
    math.inf,
]
"""The end of each bucket, which is the beginning of the next."""
MEGABYTES = 1e6
"""The unit of memory in buckets: the first of them ends at a kilobyte."""
_RAN = ("completed", "failed")
"""A step without an attempt that ended so came to a result all the same, as an empty `foreach` does."""
_QUARTER = 900
"""Seconds; every time zone is a whole number of these away from UTC."""

R = TypeVar("R", ExecutionRecord, StepRecord)


class StepKind(NamedTuple):
    """Everything that steps can be grouped by; with an empty step, the executions of a plan."""

    plan: str
    step: str = ""
    tool: str = ""
    runtime: str = ""
    model: str = ""
    role: str = ""


_ALL = StepKind("")
"""The executions of all plans together."""


class HistoryCell(msgspec.Struct):
    """Figures of a cell: times in microseconds, money in billionths of a dollar."""

    runs: int = 0
    items: int = 0
    attempts: int = 0
    queued: int = 0
    waited: int = 0
    person: int = 0
    worked: int = 0
    usd: int = 0
    """The part that is known."""
    unknown: int = 0
    """Attempts of unknown cost."""
    tokens_in: int = 0
    tokens_out: int = 0
    cpu: int = 0
    measured: int = 0
    """Runs of which the computing is known."""
    changed: int = 0
    """Files that agents changed."""
    recorded: int = 0
    """Runs of which those are known."""
    idle: int = 0
    """Of the runs: steps that never ran, because they were skipped or their execution stopped before."""
    times: dict[int, int] = {}
    """Runs by the bucket of their time: of an execution without waiting for a person, of a step its work."""
    peaks: dict[int, int] = {}
    """Runs by the bucket of the most memory that they had: a maximum could not be taken out again."""

    def add(self, other: HistoryCell, sign: int = 1) -> None:
        """Add another cell, or take it out with a minus."""
        self.runs += sign * other.runs
        self.items += sign * other.items
        self.attempts += sign * other.attempts
        self.queued += sign * other.queued
        self.waited += sign * other.waited
        self.person += sign * other.person
        self.worked += sign * other.worked
        self.usd += sign * other.usd
        self.unknown += sign * other.unknown
        self.tokens_in += sign * other.tokens_in
        self.tokens_out += sign * other.tokens_out
        self.cpu += sign * other.cpu
        self.measured += sign * other.measured
        self.changed += sign * other.changed
        self.recorded += sign * other.recorded
        self.idle += sign * other.idle
        _count(self.times, other.times, sign)
        _count(self.peaks, other.peaks, sign)

    @property
    def figures(self) -> tuple[int, ...]:
        return msgspec.structs.astuple(self)[:-2]


def _count(buckets: dict[int, int], more: dict[int, int], sign: int) -> None:
    for bucket, count in more.items():
        left = buckets.get(bucket, 0) + sign * count
        if left:
            buckets[bucket] = left
        else:
            buckets.pop(bucket, None)


Place = tuple[int, StepKind, str, str]
"""The day or month of a cell, its kind, status and failure category."""


class HistoryTally:
    """Sums of records that are added and taken out.

    They are put aside, and added up together in the end, figure by figure: that takes a third of the time.
    """

    def __init__(self, tz: tzinfo | None = None) -> None:
        self._executions: defaultdict[tuple[int, str, str, str], list[ExecutionRecord]] = defaultdict(list)
        """By sign, plan, status and category."""
        self._plain: defaultdict[tuple[int, float, str, str, tuple[str, ...]], list[tuple[StepRecord, ...]]]
        self._plain = defaultdict(list)
        """Steps of plain records, by sign, quarter of an hour, plan, its digest and the names of the steps."""
        self._steps: defaultdict[tuple[int, StepKind, str, str], list[StepRecord]] = defaultdict(list)
        """All other steps, by sign, kind, status and category."""
        self._tz = tz
        self._days: dict[float, tuple[int, int]] = {}
        """Days and their months, by the quarter of an hour."""

    def add(self, record: ExecutionRecord, sign: int = 1, *, steps: bool = True) -> None:
        """Add a record, or take it out with a minus; its steps too, unless only executions are asked for."""
        self._executions[sign, record.plan, record.status, record.category].append(record)
        if not steps:
            return
        quarter = record.ended // _QUARTER
        if record.plain and quarter == (record.started or 0.0) // _QUARTER:
            names = tuple([step.step for step in record.steps])
            self._plain[sign, quarter, record.plan, record.digest, names].append(record.steps)
        else:
            self._add_steps(sign, record.plan, record.steps, record.ended)

    def _add_steps(self, sign: int, plan: str, steps: Iterable[StepRecord], ended: float) -> None:
        for step in steps:
            kind = StepKind(plan, step.step or REPLACED, step.tool, step.runtime, step.model, step.role)
            if step.ended is None:  # it counts where its execution does
                step = msgspec.structs.replace(step, ended=ended)
            if not step.shares:
                self._steps[sign, kind, step.status, step.category].append(step)
            for share in step.shares:
                of_part = kind._replace(runtime=share.runtime, model=share.model)
                self._steps[sign, of_part, step.status, step.category].append(_part(step, share))

    @property
    def cells(self) -> dict[Place, HistoryCell]:
        """The cells of the days, and those of the months that they are in."""
        cells: defaultdict[Place, HistoryCell] = defaultdict(HistoryCell)
        for (sign, plan, status, category), records in self._executions.items():
            for spans, some in self._by_day(records):
                cell = _sum_of(some, [record.took_s for record in some])
                for span in spans:
                    for kind in (StepKind(plan), _ALL):
                        cells[span, kind, status, category].add(cell, sign)
        for (sign, quarter, plan, _digest, names), executions in self._plain.items():
            spans = self._spans(quarter)
            for name, column in zip(names, zip(*executions, strict=True), strict=True):
                kind, cell = StepKind(plan, name, column[0].tool), _sum_of_plain(column)
                for span in spans:
                    cells[span, kind, "completed", ""].add(cell, sign)
        for (sign, kind, status, category), steps in self._steps.items():
            for spans, same in self._by_day(steps):
                cell = _sum_of(same, [step.worked_s for step in same if step.attempts and step.step])
                cell.runs = len([step for step in same if step.step])
                cell.idle = len([step for step in same if not step.attempts and step.step and step.status not in _RAN])
                cell.items = sum([step.items for step in same])
                for span in spans:
                    cells[span, kind, status, category].add(cell, sign)
        return cells

    def _by_day(self, records: Sequence[R]) -> Iterator[tuple[tuple[int, int], Sequence[R]]]:
        """Records by the local day on which they ended, and its month."""
        days = defaultdict(list)
        for record in records:
            days[self._spans((record.ended or 0.0) // _QUARTER)].append(record)
        yield from days.items()

    def _spans(self, quarter: float) -> tuple[int, int]:
        """The local day of a quarter of an hour, and its month."""
        found = self._days.get(quarter)
        if found is None:
            if not 0 <= quarter * _QUARTER < 253402214400:
                return UNKNOWN_DAY, _UNKNOWN_MONTH
            day = datetime.fromtimestamp(quarter * _QUARTER, self._tz)
            found = self._days[quarter] = (day.toordinal(), month_span(day))
        return found


def _sum_of(records: Sequence[ExecutionRecord] | Sequence[StepRecord], timed: list[float]) -> HistoryCell:
    """Add up records; `timed` are the times that they are counted under."""
    cpu = [record.cpu_s for record in records if record.cpu_s is not None]
    changed = [record.changed for record in records if record.changed is not None]
    return HistoryCell(
        len(records),
        0,
        sum([record.attempts for record in records]),
        _whole([record.queued_s for record in records], 1e6),
        _whole([record.waited_s for record in records], 1e6),
        _whole([record.person_s for record in records], 1e6),
        _whole([record.worked_s for record in records], 1e6),
        _whole([record.known_usd for record in records], 1e9),
        sum([record.unknown for record in records]),
        _whole([record.tokens_in for record in records], 1),
        _whole([record.tokens_out for record in records], 1),
        _whole(cpu, 1e6),
        len(cpu),
        _whole(changed, 1),
        len(changed),
        0,
        _buckets(timed),
        _buckets([record.memory / MEGABYTES for record in records if record.memory is not None]),
    )


def _part(step: StepRecord, share: ModelUsage) -> StepRecord:
    """The part of a step that one runtime and model had: the run and its times are with the last of them."""
    figures = msgspec.structs.asdict(share)
    if (share.runtime, share.model) == (step.runtime, step.model):
        return msgspec.structs.replace(step, **figures)
    return StepRecord("", step.tool, worked_s=0.0, input_bytes=0, started=None, ended=step.ended, **figures)


def _sum_of_plain(steps: Sequence[StepRecord]) -> HistoryCell:
    """Add up steps of plain records, of which nothing but the times differ: nearly all steps."""
    worked = [step.worked_s for step in steps]
    return HistoryCell(
        len(steps),
        attempts=len(steps),
        queued=_whole([step.queued_s for step in steps], 1e6),
        worked=_whole(worked, 1e6),
        times=_buckets(worked),
    )


def _whole(amounts: list[float] | list[int], parts: float) -> int:
    """The sum of amounts in whole parts, as far as a nonsensical amount leaves room for others in the sums."""
    if not any(amounts):
        return 0
    if min(amounts) >= 0 and sum(amounts) * parts <= _MOST:
        # Beside so large a number, a float has no room for a fraction: this rounds as `round` does, in less time.
        return int(sum([amount * parts + _LARGE - _LARGE for amount in amounts]))
    return sum([round(min(max(amount * parts, 0), _MOST)) for amount in amounts])


def _buckets(amounts: list[float]) -> dict[int, int]:
    """Numbers of amounts by their buckets."""
    amounts.sort()
    found: dict[int, int] = {}
    begin = 0
    while begin < len(amounts):
        bucket = bisect_right(_EDGES, amounts[begin])
        end = bisect_left(amounts, _EDGES[bucket], begin)
        found[bucket] = end - begin
        begin = end
    return found


def middle_of(bucket: int) -> float:
    """Seconds in the middle of a bucket; the first holds all that is too short to tell apart."""
    return 0.0 if bucket == 0 else float(_SHORTEST * 2 ** ((bucket - 0.5) / _PER_DOUBLING))


def percentile(times: dict[int, int], part: float) -> float | None:
    """The time that this part of the runs did not exceed. None with too few: P90 needs 10 runs, P99 100."""
    runs = sum(times.values())
    if runs * (1 - part) < 0.999999 and part > 0.5:
        return None
    left = math.ceil(part * runs)
    for bucket in sorted(times):
        left -= times[bucket]
        if left <= 0:
            return float(f"{middle_of(bucket):.3g}")
    return None


def month_span(day: date) -> int:
    return -(day.year * 12 + day.month - 1)
