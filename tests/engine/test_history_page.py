"""Questions to the history: how they are understood, and what the answers hold (D7)."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.history import record_of
from windlass.core.rollup import HistoryAnswer, HistoryQuery, HistoryRow
from windlass.core.state import fold
from windlass.core.tally import HistoryCell
from windlass.engine.commit_writer import head_of
from windlass.engine.history_page import HistoryPage, PastRuns, SlowPage, query_of
from windlass.errors import UsageError
from windlass.journal.sqlite import SqliteJournal
from windlass.plan.model import Effect, Plan
from windlass.ports import Journal
from windlass.testing import FakeClock, MemoryJournal

TODAY = date(2026, 11, 16)
DAY = 86_400.0
NOON = datetime(2026, 11, 16, 12).timestamp()  # on this computer's calendar, as the history counts days


def plan(name: str = "p", **commands: str) -> Plan:
    steps = [{"id": step, "run": command} for step, command in (commands or {"a": "true"}).items()]
    return Plan.model_validate({"name": name, "steps": steps})


async def run_once(journal: Journal, plan: Plan, at: float = NOON, *, record: bool = True, **took: float) -> None:
    """Add an execution that began `at`; its steps run one after another, each for the seconds that it `took`."""
    name = f"{len(await journal.heads()):04}"
    started = ev.ExecutionStarted(at, "driver")
    history: list[ev.Event] = [ev.ExecutionCreated(at, name, msgspec.Raw(plan.encoded), {}, "/"), started]
    for step in plan.steps:
        history.append(ev.AttemptStarted(at, step.id, 1, "shell", {"command": "x"}, Effect.REPEATABLE))
        at += took.get(step.id, 1.0)
        history.append(ev.AttemptFinished(at, step.id, 1, None))
    history.append(ev.ExecutionFinished(at, "completed"))
    state = fold(history)
    await journal.append(name, 0, history, head=head_of(state), record=record_of(state) if record else None)


def past_runs(journal: Journal) -> PastRuns:
    return PastRuns(journal, FakeClock(NOON))


# -- what was typed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", TODAY),
        ("Yesterday", date(2026, 11, 15)),
        ("1d", TODAY),
        (" 7 days ", date(2026, 11, 10)),
        ("1w", date(2026, 11, 10)),
        ("4 weeks", date(2026, 10, 20)),
        ("2026-01-31", date(2026, 1, 31)),
        ("739936d", date.min),
        ("739935d", date(1, 1, 2)),
        ("999999d", date.min),
        (date(2026, 2, 3), date(2026, 2, 3)),
        (datetime(2026, 2, 3, 4), date(2026, 2, 3)),
        (None, None),
    ],
)
def test_d7_days_are_understood_as_a_person_says_them(text: Any, day: date | None) -> None:
    assert TODAY.toordinal() == 739_936
    assert query_of("day", text, None, False, "", NOON).since == day
    assert query_of("day", None, text, False, "", NOON).until == day


@pytest.mark.parametrize(
    ("since", "until"), [("today", None), ("2026-11-01", "2026-11-01"), (None, "9999-12-31"), ("2026-11-01", None)]
)
def test_d7_one_day_today_and_an_open_end_are_good_questions(since: str | None, until: str | None) -> None:
    query = query_of("day", since, until, False, "", NOON)
    assert (query.since is None, query.until is None) == (since is None, until is None)


@pytest.mark.parametrize(
    ("by", "since", "until", "words"),
    [
        ("modle", None, None, "the history cannot be grouped by 'modle': did you mean 'model'?"),
        ("weather", None, None, "the history cannot be grouped by 'weather': there are: day, plan, status"),
        ("day", "0d", None, "`since` '0d' is not a day: use 30d, 4w, today"),
        ("day", None, "soon", "`until` 'soon' is not a day"),
        ("day", "2026-02-30", None, "is not a day"),
        ("day", "2026-11-17", None, "`since` 2026-11-17 is in the future; today is 2026-11-16"),
        ("day", "2d", "2026-11-14", "`until` 2026-11-14 is before `since` 2026-11-15"),
    ],
)
def test_d7_a_question_that_makes_no_sense_is_refused_in_words(
    by: str, since: str | None, until: str | None, words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        query_of(by, since, until, False, "", NOON)
    assert words in refused.value.message


def test_d7_hours_are_answered_with_advice_about_whole_days() -> None:
    with pytest.raises(UsageError) as refused:
        query_of("day", "24h", None, False, "", NOON)
    assert refused.value.advice == ("the history counts whole days: 1d is today",)


# -- sums -----------------------------------------------------------------------------------------


async def test_d7_the_answer_repeats_the_question_and_has_the_sums() -> None:
    journal = MemoryJournal()
    await run_once(journal, plan("p"), NOON - 9 * DAY)
    await run_once(journal, plan("p"), NOON, a=3.0)
    await run_once(journal, plan("other"), NOON)
    page = await past_runs(journal).history("day", since="7d", until="today", plan="p")
    told = page.as_dict()
    assert {key: told[key] for key in ("by", "of", "since", "until", "failed", "plan", "complete")} == {
        "by": "day",
        "of": "executions",
        "since": "2026-11-10",
        "until": "2026-11-16",
        "failed": False,
        "plan": "p",
        "complete": True,
    }
    assert [(row["day"], row["runs"], row["worked_s"]) for row in told["rows"]] == [("2026-11-16", 1, 3.0)]
    assert (told["total"]["runs"], told["not_included"]) == (1, {"unfinished": 0, "damaged": {}})
    everything = (await past_runs(journal).history()).as_dict()
    assert (everything["since"], everything["until"], everything["plan"]) == (None, None, None)
    assert everything["total"]["runs"] == 3


def test_d7_days_that_have_not_come_yet_are_counted_as_such() -> None:
    rows = [HistoryRow((day,), HistoryCell(), {}) for day in ("2026-11-18", "2026-11-17", "2026-11-16", "2026-11-15")]
    assert HistoryPage(HistoryQuery("day"), HistoryAnswer(rows, 0, {}), TODAY).in_future == 2
    plans = [HistoryRow((name,), HistoryCell(), {}) for name in ("9999-12-31", "nightly")]
    assert HistoryPage(HistoryQuery("plan"), HistoryAnswer(plans, 0, {}), TODAY).in_future == 0


async def test_i4_the_recent_totals_are_those_of_thirty_days_however_they_ended() -> None:
    journal = MemoryJournal()
    for days in (30, 29, 0):
        await run_once(journal, plan(), NOON - days * DAY)
    found = await past_runs(journal).recent_totals()
    assert (found["since"], found["total"]["runs"], found["complete"]) == ("2026-10-18", 2, True)


async def test_i4_recent_totals_say_what_is_still_to_be_built_and_a_question_builds_it(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "windlass.db")
    try:
        await run_once(journal, plan(), record=False)  # as an older release wrote it
        quick = await past_runs(journal).recent_totals()
        assert (quick["total"]["runs"], quick["complete"]) == (0, False)
        asked = await past_runs(journal).history()
        assert (asked.answer.total().runs, asked.answer.complete) == (1, True)
        assert (await past_runs(journal).recent_totals())["total"]["runs"] == 1
    finally:
        await journal.close()


# -- slow steps -----------------------------------------------------------------------------------


def shares(page: SlowPage) -> list[tuple[str, str, float, int]]:
    return [(one.plan, one.step, one.seconds, one.executions) for one in page.bottlenecks]


async def test_d7_slow_steps_are_those_of_the_days_and_of_the_plan_that_were_asked_for() -> None:
    journal = MemoryJournal()
    await run_once(journal, plan("p"), datetime(2026, 11, 9, 23, 59).timestamp(), a=9.0)
    await run_once(journal, plan("p"), datetime(2026, 11, 10, 0, 0, 1).timestamp(), a=3.0)
    await run_once(journal, plan("q"), NOON, a=2.0)
    await run_once(journal, plan("old"), NOON - 300 * DAY, a=8.0)
    everything = await past_runs(journal).slow_steps()
    assert shares(everything) == [("p", "a", 6.0, 2), ("old", "a", 8.0, 1), ("q", "a", 2.0, 1)]
    assert everything.since is None
    recent = await past_runs(journal).slow_steps(since="7d")
    assert shares(recent) == [("p", "a", 3.0, 1), ("q", "a", 2.0, 1)], "its first day counts, all of it"
    assert shares(await past_runs(journal).slow_steps(since="7d", plan="q")) == [("q", "a", 2.0, 1)]
    assert shares(await past_runs(journal).slow_steps(plan="old")) == [("old", "a", 8.0, 1)]
    assert shares(await past_runs(journal).slow_steps(since="7d", plan="old")) == []
    told = recent.as_dict()
    assert told["since"] == "2026-11-10"
    assert [one["step"] for one in told["bottlenecks"]] == ["a", "a"]
    assert {key: told[key] for key in ("changes", "looked_at", "false_alarms")} == {
        "changes": [],
        "looked_at": 0,
        "false_alarms": 0.01,
    }
    assert everything.as_dict()["since"] is None


async def test_d7_a_run_at_a_time_that_no_calendar_has_is_of_no_day() -> None:
    journal = MemoryJournal()
    await run_once(journal, plan("strange"), 1e13)
    await run_once(journal, plan("p"))
    assert [plan for plan, *_ in shares(await past_runs(journal).slow_steps(since="7d"))] == ["p"]
    assert {plan for plan, *_ in shares(await past_runs(journal).slow_steps())} == {"p", "strange"}


async def run_versions(journal: Journal, older: Plan, newer: Plan) -> None:
    for number in range(16):
        await run_once(journal, older, NOON - DAY + number, a=1.0 + number / 100, b=1.0 + number / 100)
    for number in range(8):
        await run_once(journal, newer, NOON + number, a=5.0 + number / 100, b=5.0 + number / 100)


async def test_d7_a_step_that_was_edited_is_not_compared_and_one_that_stayed_the_same_is() -> None:
    journal = MemoryJournal()
    await run_versions(journal, plan(a="make", b="test"), plan(a="make", b="test --all"))
    page = await past_runs(journal).slow_steps()
    assert [(one.step, one.kind, one.runs_before, one.runs_recent) for one in page.changes] == [
        ("a", "slower", 16, 8),
        ("b", "edited", 16, 8),
    ]
    assert page.looked_at == 1


async def test_d7_runs_of_one_plan_are_compared_step_by_step() -> None:
    journal = MemoryJournal()
    await run_versions(journal, plan(a="make", b="test"), plan(a="make", b="test"))
    page = await past_runs(journal).slow_steps()
    assert [(one.step, one.kind) for one in page.changes] == [("a", "slower"), ("b", "slower")]
    assert page.looked_at == 2


async def test_d7_a_run_whose_plan_is_not_in_the_journal_any_more_is_a_version_of_its_own() -> None:
    """After a replan the journal begins with another plan than the one that the record is about."""
    journal = MemoryJournal()
    await run_versions(journal, plan(a="make", b="test"), plan(a="make", b="test"))
    records = dict(journal.history.kept)
    for name in sorted(records)[16:]:
        journal.history.kept[name] = msgspec.structs.replace(records[name], digest="of the plan that took its place")
    page = await past_runs(journal).slow_steps()
    assert [(one.step, one.kind) for one in page.changes] == [("a", "edited"), ("b", "edited")]
    replaced = dict(journal.history.kept)
    await journal.remove(*sorted(records)[:16])
    journal.history.kept |= replaced
    again = await past_runs(journal).slow_steps()
    assert again.changes == page.changes, "an execution that has no events any more has no texts of its steps"
