"""Answers from the cells of the history: the days that are chosen, the rows, and the figures of each (D7)."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta
from itertools import product
from typing import Any

import pytest

from windlass.core.rollup import FIELDS, HistoryAnswer, HistoryQuery, HistoryRow, answer_query, ranges_of
from windlass.core.tally import UNKNOWN_DAY, HistoryCell, Place, StepKind, middle_of, month_span

Cells = list[tuple[Place, HistoryCell]]
DAY = date(2026, 3, 4)
ALL, P, Q = StepKind(""), StepKind("p"), StepKind("q")
SHELL, AGENT = StepKind("p", "build", "shell"), StepKind("p", "write", "agent", "cli", "", "coder")


def cells_of(days: list[date | None], kind: StepKind = P) -> Cells:
    """One run on each day, in the cell of the day and in that of its month; None is a time that no calendar has."""
    spans = [(UNKNOWN_DAY, -1) if day is None else (day.toordinal(), month_span(day)) for day in days]
    return [((span, kind, "completed", ""), HistoryCell(runs=1)) for pair in spans for span in pair]


def counted(kind: StepKind, status: str = "completed", category: str = "", **figures: Any) -> tuple[Place, HistoryCell]:
    return (month_span(DAY), kind, status, category), HistoryCell(**{"runs": 1, **figures})


def named(cells: Cells, by: str, **query: Any) -> dict[tuple[str, ...], int]:
    return {row.names: row.runs for row in answer_query(HistoryQuery(by, **query), cells)}


@pytest.mark.parametrize(
    "month", [date(2024, 2, 1), date(2025, 2, 1), date(2025, 12, 1), date.min, date.max.replace(day=1)]
)
def test_d7_every_day_that_is_asked_for_counts_once(month: date) -> None:
    """Whole months are answered from the cells of months: the parts at the edges have to fit."""
    first, last = max(1, month.toordinal() - 40), min(date.max.toordinal(), month.toordinal() + 75)
    days = [date.fromordinal(day) for day in range(first, last + 1)]
    edges: list[date | None] = [None, date.min, date.max, days[20]]
    edges += [day for day in days if day.day <= 2 or monthrange(day.year, day.month)[1] - day.day <= 1]
    days = [day for day in days if day in edges or day.day == 15]
    cells = cells_of([*days, None])
    for since, until in product(edges, edges):
        if since is not None and until is not None and since > until:
            continue
        wanted = sum((since is None or day >= since) and (until is None or day <= until) for day in days)
        wanted += since is None
        assert named(cells, "plan", since=since, until=until) == ({("p",): wanted} if wanted else {}), (since, until)
    assert ranges_of(HistoryQuery("plan", date(2025, 1, 1), date(2025, 1, 31))) == [(-24300, -24300)], "its cell alone"


def test_d7_days_are_named_newest_first_and_one_that_no_calendar_has_last() -> None:
    days = [None, DAY, DAY + timedelta(1), DAY + timedelta(40)]
    cells = cells_of(days, ALL) + cells_of(days, P) + cells_of(days, SHELL)
    names = [row.names for row in answer_query(HistoryQuery("day"), cells)]
    assert names == [("2026-04-13",), ("2026-03-05",), ("2026-03-04",), ("(unknown)",)]


def test_d7_each_field_groups_the_executions_or_steps_that_have_it() -> None:
    cells = [
        counted(ALL, runs=4),
        counted(ALL, "failed", "logic"),
        counted(P, runs=3),
        counted(Q),
        counted(SHELL, runs=5, idle=2),
        counted(AGENT, "failed", "logic", runs=2),
        counted(StepKind("q", "build", "shell"), "partial"),
    ]
    assert named(cells, "plan") == {("p",): 3, ("q",): 1}
    assert named(cells, "status") == {("completed",): 4, ("failed",): 1}
    assert named(cells, "tool") == {("shell",): 4, ("agent",): 2}
    assert named(cells, "step") == {("p", "build"): 3, ("p", "write"): 2, ("q", "build"): 1}
    assert named(cells, "runtime") == {("cli",): 2}
    assert named(cells, "model") == {("(not named)",): 2}
    assert named(cells, "role") == {("coder",): 2}
    assert named(cells, "category") == {("(none)",): 4, ("logic",): 2}
    assert named(cells, "step", failed=True) == {("p", "write"): 2, ("q", "build"): 1}
    assert named(cells, "status", failed=True) == {("failed",): 1}
    assert named(cells, "plan", plan="q") == {("q",): 1}
    assert named(cells, "status", plan="p") == {("completed",): 3}
    assert named(cells, "tool", plan="q") == {("shell",): 1}
    assert named(cells, "runtime", plan="q") == {}
    units = {by: HistoryQuery(by).unit for by in FIELDS}
    assert [by for by, unit in units.items() if unit == "executions"] == ["day", "plan", "status"]


def test_d7_rows_come_by_cost_then_by_work_and_add_up_to_the_total() -> None:
    cells = [
        counted(StepKind("idle"), runs=1),
        counted(StepKind("often"), runs=9),
        counted(StepKind("slow"), worked=5, times={10: 1}),
        counted(StepKind("dear"), usd=7),
        counted(StepKind("dear"), "failed", usd=2),
        counted(StepKind("dear"), "failed", "logic", usd=1),
        counted(StepKind("empty"), runs=0),
    ]
    rows = answer_query(HistoryQuery("plan"), cells)
    assert [row.names for row in rows] == [("dear",), ("slow",), ("often",), ("idle",)]
    assert (rows[0].statuses, rows[0].failed, rows[0].cell.usd) == ({"completed": 1, "failed": 2}, 2, 10)
    assert rows[1].failed == 0
    answer = HistoryAnswer(rows, 0, {})
    total = answer.total()
    assert (total.runs, total.statuses, total.cell.usd, total.cell.times) == (
        14,
        {"completed": 12, "failed": 2},
        10,
        {10: 1},
    )
    assert answer.complete


def test_d7_figures_are_in_seconds_dollars_and_bytes() -> None:
    cell = HistoryCell(
        runs=120,
        idle=3,
        items=4,
        worked=1_234_567,
        usd=1_123_456_789,
        times={20: 199, 40: 160, 60: 36, 80: 5},
        cpu=2_500_000,
    )
    cell.cpu, cell.measured, cell.peaks, cell.recorded, cell.changed = 2_500_000, 1, {50: 1, 130: 2}, 2, 0
    row = HistoryRow(("p", "a"), cell, {"completed": 115, "failed": 3, "partial": 2, "paused": 0})
    found = row.as_dict("step")
    assert (found["plan"], found["step"], found["items"]) == ("p", "a", 4)
    assert (found["runs"], found["failed"]) == (117, 5)
    assert found["statuses"] == {"completed": 115, "failed": 3, "partial": 2}
    assert (found["worked_s"], found["usd"], found["cpu_s"]) == (1.234567, 1.123456789, 2.5)
    middles = [float(f"{middle_of(bucket):.3g}") for bucket in (40, 60, 80)]
    assert [found[name] for name in ("p50_s", "p90_s", "p99_s")] == middles
    assert (found["memory_bytes"], found["changed_files"]) == (74_600_000, 0)
    assert "items" not in row.figures("plan")
    assert HistoryRow(("p",), HistoryCell(runs=1), {}).as_dict("plan")["usd"] == 0.0
    assert HistoryRow(("p",), HistoryCell(runs=1, unknown=1), {}).usd is None
    assert HistoryRow(("p",), HistoryCell(runs=1, unknown=1, usd=10**9), {}).usd == 1.0
    with pytest.raises(ValueError, match="argument"):
        row.as_dict("plan")
