"""Sums of the history's records by day and month, and the answers that are made of them. Pure.

A cell has the figures of one kind of step, or of one plan's executions, with one outcome, on one day or in one month.
All figures are whole numbers, so that taking a record out again leaves exactly what was there before it came. Times are
also counted in buckets, of which eight double: a percentile is the middle of its bucket, at most 4.5 % off. So is
memory: the greatest bucket is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, tzinfo
from typing import Any, NamedTuple

import msgspec

from windlass.core.history import ExecutionRecord, StepRecord

__all__ = [
    "AGENT_FIELDS",
    "ALL",
    "FIELDS",
    "OTHER_PLANS",
    "OTHER_STEPS",
    "STEP_FIELDS",
    "HistoryAnswer",
    "HistoryCell",
    "HistoryQuery",
    "HistoryRow",
    "HistoryTally",
    "StepKind",
    "answer_query",
    "bucket_of",
    "percentile",
    "ranges_of",
]

FIELDS = ("day", "plan", "status", "step", "tool", "runtime", "model", "role", "category")
"""Fields to group by. The first three group executions, the others steps."""
STEP_FIELDS = FIELDS[3:]
AGENT_FIELDS = ("runtime", "model", "role")
"""Fields that only steps of agents have."""
OTHER_PLANS, OTHER_STEPS = "(other plans)", "(other steps)"
REPLACED = "(replaced steps)"
UNKNOWN_DAY = 0
"""The day of a time that no calendar has."""
_UNKNOWN_MONTH = -1
_LAST = 10_000_000
_MOST = 1e15
"""The greatest figure of one record: 30 years, or a million dollars."""
_SHORTEST = 0.001
_PER_DOUBLING = 8
_LONGEST = 40 * _PER_DOUBLING
_MEGABYTES = 1e6
"""The unit of memory in buckets: the first of them ends at a kilobyte."""
_QUARTER = 900
"""Seconds; every time zone is a whole number of these away from UTC."""
_FAILED = {"failed", "partial"}


class StepKind(NamedTuple):
    """Everything that steps can be grouped by; with an empty step, the executions of a plan."""

    plan: str
    step: str = ""
    tool: str = ""
    runtime: str = ""
    model: str = ""
    role: str = ""


ALL = StepKind("")
"""The executions of all plans together."""


AnyRecord = ExecutionRecord | StepRecord


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
    times: dict[int, int] = {}
    """Runs by the bucket of their time: of an execution without waiting for a person, of a step its work."""
    peaks: dict[int, int] = {}
    """Runs by the bucket of the most memory that they had: a maximum could not be taken out again."""

    def add(self, other: HistoryCell) -> None:
        self.runs += other.runs
        self.items += other.items
        self.attempts += other.attempts
        self.queued += other.queued
        self.waited += other.waited
        self.person += other.person
        self.worked += other.worked
        self.usd += other.usd
        self.unknown += other.unknown
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.cpu += other.cpu
        self.measured += other.measured
        for bucket, count in other.times.items():
            _count(self.times, bucket, count)
        for bucket, count in other.peaks.items():
            _count(self.peaks, bucket, count)

    def count(self, record: AnyRecord, timed: float | None, runs: int, items: int, sign: int) -> None:
        """Add a record, or take it out with a minus; `timed` is the time that it is counted under."""
        self.runs += sign * runs
        self.attempts += sign * record.attempts
        self.worked += sign * _whole(record.worked_s, 1e6)
        if items:
            self.items += sign * items
        if record.queued_s:
            self.queued += sign * _whole(record.queued_s, 1e6)
        if record.waited_s:
            self.waited += sign * _whole(record.waited_s, 1e6)
        if record.person_s:
            self.person += sign * _whole(record.person_s, 1e6)
        if record.known_usd:
            self.usd += sign * _whole(record.known_usd, 1e9)
        if record.unknown:
            self.unknown += sign * record.unknown
        if record.tokens_in:
            self.tokens_in += sign * _whole(record.tokens_in, 1)
        if record.tokens_out:
            self.tokens_out += sign * _whole(record.tokens_out, 1)
        if record.cpu_s is not None:
            self.cpu += sign * _whole(record.cpu_s, 1e6)
            self.measured += sign
        if record.memory is not None:
            _count(self.peaks, bucket_of(record.memory / _MEGABYTES), sign)
        if timed is not None:
            _count(self.times, bucket_of(timed), sign)

    @property
    def figures(self) -> tuple[int, ...]:
        return msgspec.structs.astuple(self)[:-2]


def _count(buckets: dict[int, int], bucket: int, count: int) -> None:
    left = buckets.get(bucket, 0) + count
    if left:
        buckets[bucket] = left
    else:
        buckets.pop(bucket, None)


Place = tuple[int, StepKind, str, str]
"""The day or month of a cell, its kind, status and failure category."""


class HistoryTally:
    """Cells that records are added to and taken from."""

    def __init__(self, tz: tzinfo | None = None) -> None:
        self._cells: dict[tuple[int, tuple[str, ...], str, str], HistoryCell] = {}
        """By days alone, and by the fields of kinds: to make a kind takes longer than to add a step."""
        self._tz = tz
        self._days: dict[float, int] = {}
        """By the quarter of an hour."""
        self._months = {UNKNOWN_DAY: _UNKNOWN_MONTH}

    @property
    def cells(self) -> dict[Place, HistoryCell]:
        """The cells of the days, and those of the months that they are in."""
        cells: dict[Place, HistoryCell] = {}
        for (day, fields, status, category), cell in self._cells.items():
            kind = StepKind(*fields)
            cells[day, kind, status, category] = cell
            month = (self._months[day], kind, status, category)
            if month not in cells:
                cells[month] = HistoryCell()
            cells[month].add(cell)
        return cells

    def add(self, record: ExecutionRecord, sign: int = 1, *, steps: bool = True) -> None:
        """Add a record, or take it out with a minus; its steps too, unless only executions are asked for."""
        for of_plan in (StepKind(record.plan), ALL):
            cell = self._cell(record.ended, of_plan, record.status, record.category)
            cell.count(record, record.took_s, 1, 0, sign)
        for step in record.steps if steps else ():
            name, ended = step.step, step.ended
            kind = (record.plan, name or REPLACED, step.tool, step.runtime, step.model, step.role)
            cell = self._cell(ended if ended is not None else record.ended, kind, step.status, step.category)
            cell.count(step, step.worked_s if step.attempts else None, 1 if name else 0, step.items, sign)

    def _cell(self, at: float, kind: tuple[str, ...], status: str, category: str) -> HistoryCell:
        place = (self._days.get(at // _QUARTER) or self._day(at), kind, status, category)
        found = self._cells.get(place)
        if found is None:
            found = self._cells[place] = HistoryCell()
        return found

    def _day(self, at: float) -> int:
        """The local day of a time."""
        if not 0 <= at < 253402214400:
            return UNKNOWN_DAY
        quarter = at // _QUARTER
        day = datetime.fromtimestamp(quarter * _QUARTER, self._tz)
        found = self._days[quarter] = day.toordinal()
        self._months[found] = month_span(day)
        return found


def _whole(amount: float, parts: float) -> int:
    """A whole number of parts, as far as a nonsensical amount leaves room for others in the sums."""
    amount *= parts
    if 0 <= amount <= _MOST:
        return round(amount)
    return round(_MOST) if amount > _MOST else 0


def bucket_of(seconds: float) -> int:
    if seconds <= _SHORTEST:
        return 0
    return min(_LONGEST, 1 + math.floor(math.log2(seconds / _SHORTEST) * _PER_DOUBLING))


def _middle_of(bucket: int) -> float:
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
            return float(f"{_middle_of(bucket):.3g}")
    return None


def month_span(day: date) -> int:
    return -(day.year * 12 + day.month - 1)


class HistoryQuery(NamedTuple):
    """A question to the history."""

    by: str = "day"
    since: date | None = None
    """The first day."""
    until: date | None = None
    """The last day."""
    failed: bool = False
    """Only executions that ended failed or partial, or steps that failed."""
    plan: str = ""
    """Only this plan."""

    @property
    def unit(self) -> str:
        """The things that are counted: executions or steps."""
        return "steps" if self.by in STEP_FIELDS else "executions"

    def wants(self, kind: StepKind, status: str) -> bool:
        """True if a cell belongs into the answer, by its kind and status."""
        if self.failed and status not in _FAILED:
            return False
        if self.by in STEP_FIELDS:
            named = bool(kind.step) and (self.by not in AGENT_FIELDS or bool(kind.runtime))
            return named and (not self.plan or kind.plan == self.plan)
        if kind.step:
            return False
        if self.by == "plan":
            return bool(kind.plan) and (not self.plan or kind.plan == self.plan)
        return kind.plan == self.plan

    def names(self, span: int, kind: StepKind, status: str, category: str) -> tuple[str, ...]:
        """The heading of a cell; None as a day is one that no calendar has."""
        match self.by:
            case "day":
                return (date.fromordinal(span).isoformat() if span > UNKNOWN_DAY else "(unknown)",)
            case "status":
                return (status,)
            case "category":
                return (category or "(none)",)
            case "step":
                return kind.plan, kind.step
            case field:
                return (getattr(kind, field) or "(not named)",)


def ranges_of(query: HistoryQuery) -> list[tuple[int, int]]:
    """The days and months to add up: whole months where they fit, days at the edges."""
    since, until = query.since, query.until
    first, last = since.toordinal() if since else UNKNOWN_DAY, until.toordinal() if until else _LAST
    if query.by == "day":
        return [(first, last)]
    if since is None and until is None:
        return [(-_LAST, -1)]
    # The months are counted from 0 here; a later one has a smaller span.
    begin = 0 if since is None else -month_span(since) + (since.day > 1)
    end = (
        _LAST if until is None else -month_span(until) - (date.fromordinal(last + 1).day > 1 if until < date.max else 0)
    )
    if begin > end:
        return [(first, last)]
    edges = [(-end, -begin if since is not None else -1)]
    if since is not None and since.day > 1:
        edges.append((first, _first_day(begin) - 1))
    if until is not None and _first_day(end + 1) <= last:
        edges.append((_first_day(end + 1), last))
    return edges


def _first_day(month: int) -> int:
    return date(month // 12, month % 12 + 1, 1).toordinal()


class HistoryRow(msgspec.Struct):
    """One line of an answer."""

    names: tuple[str, ...]
    cell: HistoryCell
    statuses: dict[str, int]

    def seconds(self, name: str) -> float:
        return round(float(getattr(self.cell, name)) / 1e6, 6)

    @property
    def usd(self) -> float | None:
        """None when nothing of it is known: unknown is never shown as 0."""
        return None if self.cell.unknown and not self.cell.usd else round(self.cell.usd / 1e9, 9)

    @property
    def failed(self) -> int:
        return sum(self.statuses.get(status, 0) for status in _FAILED)

    @property
    def cpu_s(self) -> float | None:
        """Seconds of computing, as far as known; None when nothing of it is."""
        return self.seconds("cpu") if self.cell.measured else None

    @property
    def memory_bytes(self) -> int | None:
        """The most memory of one run; None when it is not known."""
        peaks = self.cell.peaks
        return int(float(f"{_middle_of(max(peaks)) * _MEGABYTES:.3g}")) if peaks else None

    def percentiles(self) -> dict[str, float | None]:
        return {f"p{part}_s": percentile(self.cell.times, part / 100) for part in (50, 90, 99)}

    def as_dict(self, by: str) -> dict[str, Any]:
        fields = ("plan", "step") if by == "step" else (by,)
        cell = self.cell
        return {
            **dict(zip(fields, self.names, strict=True)),
            "runs": cell.runs,
            "failed": self.failed,
            "statuses": {status: count for status, count in sorted(self.statuses.items()) if count},
            **({"items": cell.items} if by in STEP_FIELDS else {}),
            "attempts": cell.attempts,
            **self.percentiles(),
            **{f"{name}_s": self.seconds(name) for name in ("queued", "waited", "person", "worked")},
            "usd": self.usd,
            "unknown_costs": cell.unknown,
            "tokens_in": cell.tokens_in,
            "tokens_out": cell.tokens_out,
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes,
        }


class HistoryAnswer(NamedTuple):
    """The answer to a query."""

    rows: list[HistoryRow]
    unfinished: int
    """Executions that are pending or running, which are not in the rows."""
    damaged: dict[str, str]
    """Executions that could not be read, with the reason; they are not in the rows. Unknown unless `complete`."""
    complete: bool = True
    """False if records of executions that an older release stopped are still to be built."""

    def total(self) -> HistoryRow:
        """All rows together."""
        sum_of = HistoryRow(("total",), HistoryCell(), {})
        for row in self.rows:
            sum_of.cell.add(row.cell)
            for status, count in row.statuses.items():
                sum_of.statuses[status] = sum_of.statuses.get(status, 0) + count
        return sum_of


def answer_query(query: HistoryQuery, cells: Iterable[tuple[Place, HistoryCell]]) -> list[HistoryRow]:
    """Group cells of the query's days by its field: days newest first, the rest by cost, then by work."""
    ranges = ranges_of(query)
    found: dict[tuple[str, ...], HistoryRow] = {}
    for (span, kind, status, category), cell in cells:
        if not query.wants(kind, status) or not _within(span, ranges):
            continue
        names = query.names(span, kind, status, category)
        row = found.get(names)
        if row is None:
            row = found[names] = HistoryRow(names, HistoryCell(), {})
        row.cell.add(cell)
        if cell.runs:
            row.statuses[status] = row.statuses.get(status, 0) + cell.runs
    rows = [row for row in found.values() if row.cell.runs or row.cell.usd or row.cell.unknown]
    if query.by == "day":
        return sorted(rows, key=lambda row: row.names, reverse=True)
    return sorted(rows, key=lambda row: (-row.cell.usd, -row.cell.worked, -row.cell.runs, row.names))


def _within(span: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= span <= last for first, last in ranges)
