"""Questions to the history, and their answers from the cells of the tally. Pure."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec

from windlass.core.tally import MEGABYTES, UNKNOWN_DAY, HistoryCell, Place, StepKind, middle_of, month_span, percentile

__all__ = [
    "AGENT_FIELDS",
    "FIELDS",
    "STEP_FIELDS",
    "HistoryAnswer",
    "HistoryQuery",
    "HistoryRow",
    "answer_query",
    "ranges_of",
]

FIELDS = ("day", "plan", "status", "step", "tool", "runtime", "model", "role", "category")
"""Fields to group by. The first three group executions, the others steps."""
STEP_FIELDS = FIELDS[3:]
AGENT_FIELDS = ("runtime", "model", "role")
"""Fields that only steps of agents have."""
_LAST = 10_000_000
_FAILED = {"failed", "partial"}


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
    # The months are counted from 1 here, which is the unknown one; a later one has a smaller span.
    begin, end = 1, _LAST
    edges = []
    if since is not None:
        begin = -month_span(since)
        if since.day > 1:
            edges.append((first, since.replace(day=_days_of_month(since)).toordinal()))
            begin += 1
    if until is not None:
        end = -month_span(until)
        if until.day < _days_of_month(until):
            edges.append((until.replace(day=1).toordinal(), last))
            end -= 1
    return [(-end, -begin), *edges] if begin <= end else [(first, last)]


def _days_of_month(day: date) -> int:
    return monthrange(day.year, day.month)[1]


class HistoryRow(msgspec.Struct):
    """One line of an answer."""

    names: tuple[str, ...]
    cell: HistoryCell
    statuses: dict[str, int]

    def seconds(self, name: str) -> float:
        return float(getattr(self.cell, name)) / 1e6

    @property
    def usd(self) -> float | None:
        """None when nothing of it is known: unknown is never shown as 0."""
        return None if self.cell.unknown and not self.cell.usd else self.cell.usd / 1e9

    @property
    def runs(self) -> int:
        """Executions, or steps that ran."""
        return self.cell.runs - self.cell.idle

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
        return int(float(f"{middle_of(max(peaks)) * MEGABYTES:.3g}")) if peaks else None

    @property
    def changed_files(self) -> int | None:
        """Files that agents changed, as far as known; None when nothing of it is."""
        return self.cell.changed if self.cell.recorded else None

    def percentiles(self) -> dict[str, float | None]:
        return {f"p{part}_s": percentile(self.cell.times, part / 100) for part in (50, 90, 99)}

    def as_dict(self, by: str) -> dict[str, Any]:
        fields = ("plan", "step") if by == "step" else (by,)
        return {**dict(zip(fields, self.names, strict=True)), **self.figures(by)}

    def figures(self, by: str = "") -> dict[str, Any]:
        """The same without its names."""
        cell = self.cell
        return {
            "runs": self.runs,
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
            "changed_files": self.changed_files,
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
    rows = [row for row in found.values() if any(row.cell.figures)]
    if query.by == "day":
        return sorted(rows, key=lambda row: row.names, reverse=True)
    return sorted(rows, key=lambda row: (-row.cell.usd, -row.cell.worked, -row.cell.runs, row.names))


def _within(span: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= span <= last for first, last in ranges)
