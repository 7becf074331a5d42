"""`windlass history`: tables, charts, CSV and JSON of what past executions took and cost; nonsense is refused (D7)."""

from __future__ import annotations

import csv
import io
import re
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from windlass.cli.history import csv_rows, history_lines, slow_lines
from windlass.core.rollup import FIELDS, HistoryAnswer, HistoryQuery, HistoryRow
from windlass.core.tally import HistoryCell
from windlass.core.trends import Bottleneck, StepChange
from windlass.engine.history_page import HistoryPage, SlowPage, query_of

if TYPE_CHECKING:
    from conftest import Project, Windlass

TODAY = date(2026, 11, 16)
NOON = 1794826800.0


def row(*names: str, runs: int = 1, status: str = "completed", **figures: Any) -> HistoryRow:
    return HistoryRow(names, HistoryCell(runs=runs, **figures), {status: runs})


def page(*rows: HistoryRow, by: str = "plan", unfinished: int = 0, **query: Any) -> HistoryPage:
    return HistoryPage(HistoryQuery(by, **query), HistoryAnswer(list(rows), unfinished, {}), TODAY)


@pytest.mark.parametrize("usd", [0, 10**9])
def test_d7_no_two_columns_of_the_table_have_one_name(usd: int) -> None:
    columns = re.split(r"\s{2,}", history_lines(page(row("plan", usd=usd)))[1])
    assert columns[-1] == f"chart of {'cost' if usd else 'work'}"
    assert len(set(columns)) == len(columns), columns


def test_d7_a_table_has_a_bar_for_each_row_and_a_total() -> None:
    lines = history_lines(page(row("big", usd=3 * 10**9, times={100: 1}), row("small", usd=10**9, unknown=1)))
    assert lines[0] == "executions by plan, all days"
    assert lines[2].endswith("$3.00       -  ██████████")
    assert lines[3].endswith("at least $1.00       -  ███▍")
    assert lines[4].startswith("total     2")


def test_d7_an_unknown_cost_is_said_to_be_unknown() -> None:
    (_, _, line) = history_lines(page(row("p", unknown=2)))
    assert "unknown" in line
    assert "$0" not in line


@pytest.mark.parametrize("hostile", ["\x1b[31mred\x1b[0m", "\u202eevil", "two\nlines", "x" * 500, "=1+1", "名前"])
def test_d7_a_hostile_name_cannot_change_the_table(hostile: str) -> None:
    lines = history_lines(page(row(hostile), row("plain"), plan=hostile))
    assert len(lines) == 5
    assert not any(sign in "".join(lines) for sign in "\x1b\u202e\n")
    assert all(len(line) < 250 for line in lines)


@pytest.mark.parametrize("hostile", ["=cmd()", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1"])
def test_d7_a_name_that_is_a_formula_is_marked_as_text_in_csv(hostile: str) -> None:
    out = io.StringIO()
    csv.writer(out).writerows(csv_rows(page(row(hostile), row('with "quotes", commas'))))
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert rows[0][:3] == ["plan", "runs", "failed"]
    assert rows[1][0].startswith("'")
    assert rows[2][0] == 'with "quotes", commas'
    assert csv_rows(page(row("p", unknown=1)))[1][csv_rows(page())[0].index("usd")] == "", "unknown is not 0"


def test_d7_slow_steps_are_shown_with_the_evidence() -> None:
    changes = [
        StepChange("p", "build", "slower", 12.0, 19.0, 100, 15, 2e-6),
        StepChange("p", "test", "failing", 0.02, 0.4, 100, 15, 3e-5),
        StepChange("p", "lint", "edited", 50, 6, 50, 6, None),
    ]
    lines = slow_lines(SlowPage(None, [Bottleneck("p", "build", 0.62, 41.0, 115, 115)], changes, 3))
    assert lines[2].split()[:5] == ["p", "build", "62%", "41", "s"]
    assert lines[-3:] == [
        "slower: p · build: median 12 s → 19 s (1.6 times), last 15 runs against 100, p = 2e-06",
        "fails more: p · test: 2% → 40% of runs failed, last 15 against 100, p = 3e-05",
        "edited: p · lint: 6 runs since; too few to compare, 50 older left out",
    ]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("1d", TODAY), ("today", TODAY), ("30d", date(2026, 10, 18)), ("2w", date(2026, 11, 3)),
        ("2026-01-31", date(2026, 1, 31)), ("999999d", date.min), (" 7 days ", date(2026, 11, 10)),
    ],
)  # fmt: skip
def test_d7_days_are_understood(text: str, day: date) -> None:
    assert query_of("day", text, None, False, "", NOON).since == day
    assert query_of("day", text, "9999-12-31", False, "", NOON).until == date.max


def test_d7_a_home_without_executions_has_an_empty_history(windlass: Windlass) -> None:
    assert windlass("history").out == "executions by day, all days: none\n"
    assert windlass("history", "--slow").out == "no steps have run to their end: nothing to look at\n"
    assert windlass("history", "--json").json["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "modle"], "did you mean 'model'?"),
        (["--by", "weather"], "there are: day, plan, status"),
        (["--since", "soon"], "is not a day"),
        (["--since", "24h"], "counts whole days"),
        (["--since", "0d"], "is not a day"),
        (["--since", "-5d"], "is not a day"),
        (["--since", "2026-02-30"], "is not a day"),
        (["--until", "99999-01-01"], "is not a day"),
        (["--since", "9998-01-01"], "is in the future"),
        (["--since", "2d", "--until", "2020-01-01"], "is before `since`"),
        (["--csv", "--json"], "choose one"),
        (["--slow", "--by", "day"], "--slow goes with"),
    ],
)
def test_d7_what_makes_no_sense_is_an_error_that_says_why(windlass: Windlass, arguments: list[str], words: str) -> None:
    assert words in windlass("history", *arguments, code=2).err


def test_d7_runs_are_counted_and_can_be_counted_anew(project: Project, windlass: Windlass) -> None:
    project.plan("name: =evil\nsteps: [{id: a, run: 'true'}, {id: b, run: 'false', needs: a, retry: {max: 0}}]")
    windlass("run", "plan.yaml", code=1)
    project.plan("name: gated\nsteps: [{id: a, run: 'true', approve: always}]", "gated.yaml")
    windlass("run", "gated.yaml", code=3)
    found = windlass("history", "--by", "status", "--json").json
    assert {row["status"]: row["runs"] for row in found["rows"]} == {"partial": 1, "paused": 1}
    failures = windlass("history", "--failed", "--json").json
    assert [(row["category"], row["runs"]) for row in failures["rows"]] == [("logic", 1)]
    steps = windlass("history", "--by", "step", "--csv").out.splitlines()
    assert steps[0].startswith("plan,step,runs,failed,items,attempts,")
    names = [line.partition(",")[0] for line in windlass("history", "--by", "plan", "--csv").out.splitlines()]
    assert sorted(names) == ["'=evil", "gated", "plan"]
    before = {by: windlass("history", "--by", by, "--json").json for by in FIELDS}
    windlass("history", "--rebuild")
    assert {by: windlass("history", "--by", by, "--json").json for by in FIELDS} == before
    slow = windlass("history", "--slow", "--plan", "=evil", "--since", "2d").out
    assert "1 of 1" in slow
    assert "enough runs yet" in slow
    bare = windlass("history", "--by", "step", NO_COLOR="1", TERM="dumb", LANG="C", LC_ALL="C", PYTHONUTF8="0")
    assert bare.out.isascii()


def test_d7_forked_removed_and_restored_executions_count_once(project: Project, windlass: Windlass) -> None:
    project.plan("name: p\nsteps: [{id: a, run: sleep 0.01}, {id: b, run: 'true', needs: a}]")
    windlass("run", "plan.yaml")
    (first,) = project.ids()
    alone = windlass("history", "--by", "step", "--json").json
    windlass("fork", first, "--from", "b")
    forked = {row["step"]: row["attempts"] for row in windlass("history", "--by", "step", "--json").json["rows"]}
    assert forked == {"a": 1, "b": 2}, "the fork kept the first step, and did not run it again"
    kept = project.path / "copy.json"
    kept.write_bytes((project.path / windlass("checkpoint", first).out.strip()).read_bytes())
    windlass("clean", "--older-than", "1ms", "--keep", "0", "--yes")
    assert windlass("history", "--json").json["rows"] == []
    windlass("restore", str(kept))
    assert windlass("history", "--by", "step", "--json").json == alone


def test_d7_a_home_is_backed_up_and_restored_with_its_history(project: Project, windlass: Windlass) -> None:
    project.plan("name: p\nsteps: [{id: a, run: 'true'}]")
    windlass("run", "plan.yaml")
    before = windlass("history", "--by", "plan", "--json").json
    windlass("backup", "whole.tar.gz")
    windlass("--home", "other", "restore", "whole.tar.gz")
    assert windlass("--home", "other", "history", "--by", "plan", "--json").json == before
    windlass("doctor", "--deep")


def test_d7_an_edited_step_is_not_compared_with_what_it_was(project: Project, windlass: Windlass) -> None:
    steps = "[{id: a, run: 'true'}, {id: b, run: '%s'}]"
    project.plan(f"name: p\nsteps: {steps % 'true'}")
    for _ in range(16):
        windlass("run", "plan.yaml")
    project.plan(f"name: p\nsteps: {steps % 'sleep 0'}")
    for _ in range(8):
        windlass("run", "plan.yaml")
    found = windlass("history", "--slow", "--json").json
    edited = [one for one in found["changes"] if one["kind"] == "edited"]  # a busy machine may make `a` slower
    assert [(one["step"], one["runs_recent"]) for one in edited] == [("b", 8)]
    assert [one["step"] for one in found["changes"]].count("b") == 1
    assert found["looked_at"] == 1, "the other step stayed the same, and is compared"
