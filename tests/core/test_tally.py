"""Sums of records: those that are summed up together, and those that are taken out again (D7)."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, timedelta, timezone, tzinfo
from typing import Any

import msgspec
import pytest

from windlass.core.history import ExecutionRecord, StepRecord
from windlass.core.tally import UNKNOWN_DAY, HistoryCell, HistoryTally, StepKind, middle_of, month_span, percentile

DAY = 86_400.0


def plain_record(chance: random.Random, digest: str = "d", names: tuple[str, ...] = ("a", "b", "c")) -> ExecutionRecord:
    began = 1e9 + chance.randrange(3) * DAY
    ended = began + chance.choice([10.0, DAY])
    times = [10 ** chance.uniform(-5, 4) for _ in names]
    steps = tuple(
        StepRecord(name, "shell", 1, began, chance.uniform(began, ended), took, 7, queued_s=chance.choice([0, 0.25]))
        for name, took in zip(names, times, strict=True)
    )
    queued, took_s = sum(step.queued_s for step in steps), sum(times)
    figures = (began, began, ended, took_s, 0.0, queued, 0.0, took_s, 0.0, 0, 0, 0, len(steps), steps)
    return ExecutionRecord("x", "p", digest, "completed", "", *figures, plain=True)


@pytest.mark.parametrize("seed", range(5))
def test_d7_plain_records_that_are_summed_together_give_the_sums_of_each(seed: int) -> None:
    chance = random.Random(seed)
    together, apart = HistoryTally(UTC), HistoryTally(UTC)
    for _ in range(20):
        record = plain_record(chance, chance.choice("de"), chance.choice([("a", "b", "c"), ("b", "a", "c")]))
        sign = chance.choice([1, 1, -1])
        together.add(record, sign)
        apart.add(msgspec.structs.replace(record, plain=False), sign)
    assert dict(together.cells) == dict(apart.cells)
    assert together.cells  # reading it twice changes nothing
    assert dict(together.cells) == dict(apart.cells)


def test_d7_a_record_that_is_taken_out_again_leaves_nothing() -> None:
    chance, tally = random.Random(1), HistoryTally(UTC)
    records = [plain_record(chance) for _ in range(10)]
    for record in records:
        tally.add(record)
        tally.add(record, -1)
    for cell in tally.cells.values():
        assert not any(cell.figures)
        assert not cell.times


# -- the figures of a cell ------------------------------------------------------------------------

NOON = date(2026, 3, 1).toordinal(), month_span(date(2026, 3, 1))
ENDED = 1_772_366_400.0


def whole(
    *steps: StepRecord, ended: float = ENDED, started: float | None = ENDED - 60.0, **more: Any
) -> ExecutionRecord:
    sums = (0.125, 7.0, 3.0, 5.0, 0.25, 0.000_000_003, 1, 11, 13, 4)
    return ExecutionRecord(
        "x", "p", "d", "failed", "logic", ended, started, ended, *sums, steps, 2.5, 48_000_000, 6, **more
    )


def figures(record: ExecutionRecord, tz: tzinfo = UTC) -> dict[tuple[int, str], dict[str, int]]:
    """Figures that are not 0, by span and step: the same after the record went in three times, and out twice."""
    found = []
    for signs in ((1,), (1, -1, 1, 1, -1)):
        tally = HistoryTally(tz)
        for sign in signs:
            tally.add(record, sign)
        cells = {(span, kind.step or kind.plan): cell for (span, kind, *_), cell in tally.cells.items()}
        known = {place: msgspec.structs.asdict(cell) for place, cell in cells.items()}
        found.append({place: {name: n for name, n in cell.items() if n} for place, cell in known.items()})
    assert found[0] == found[1]
    return found[0]


def test_d7_each_figure_of_a_record_is_in_the_cells_of_its_day_and_its_month() -> None:
    ran = StepRecord(
        "ran", "shell", 3, ENDED, None, 2.0, 9, queued_s=0.5, cpu_s=0.125, memory=1_000_000, status="failed",
        category="logic", items=2, waited_s=1.5, person_s=4.0, known_usd=0.5, unknown=1, tokens_in=21, tokens_out=22,
        changed=0,
    )  # fmt: skip
    skipped = StepRecord("skipped", "shell", 0, None, None, 0.0, 9, status="skipped")
    empty = StepRecord("empty", "shell", 0, ENDED, ENDED, 0.0, 9)
    replaced = StepRecord("", "", 0, None, None, 0.0, 0, status="replaced", known_usd=0.25)
    execution = {
        "runs": 1, "attempts": 4, "queued": 3_000_000, "waited": 5_000_000, "person": 7_000_000, "worked": 250_000,
        "usd": 3, "unknown": 1, "tokens_in": 11, "tokens_out": 13, "cpu": 2_500_000, "measured": 1, "changed": 6,
        "recorded": 1, "times": {56: 1}, "peaks": {125: 1},
    }  # fmt: skip
    steps = {
        "ran": {
            "runs": 1, "items": 2, "attempts": 3, "queued": 500_000, "waited": 1_500_000, "person": 4_000_000,
            "worked": 2_000_000, "usd": 500_000_000, "unknown": 1, "tokens_in": 21, "tokens_out": 22, "cpu": 125_000,
            "measured": 1, "recorded": 1, "times": {88: 1}, "peaks": {80: 1},
        },
        "skipped": {"runs": 1, "idle": 1},
        "empty": {"runs": 1},
        "(replaced steps)": {"usd": 250_000_000},
    }  # fmt: skip
    wanted = {"p": execution, "": execution, **steps}
    found = figures(whole(ran, skipped, empty, replaced))
    assert found == {(span, name): cell for span in NOON for name, cell in wanted.items()}
    alone = HistoryTally(UTC)
    alone.add(whole(ran), steps=False)
    assert {kind for _, kind, *_ in alone.cells} == {StepKind("p"), StepKind("")}
    assert any(HistoryCell(idle=1).figures), "a cell with any figure is kept"


def test_d7_a_day_ends_at_midnight_where_the_user_is() -> None:
    midnight = ENDED - 43_200
    east = timezone(timedelta(hours=14))
    for ended, tz, day in (
        (midnight, UTC, date(2026, 3, 1)),
        (midnight - 0.001, UTC, date(2026, 2, 28)),
        (midnight - 0.001, east, date(2026, 3, 1)),
        (0.0, UTC, date(1970, 1, 1)),
        (253_402_214_399.0, UTC, date(9999, 12, 30)),
    ):
        assert {span for span, _ in figures(whole(ended=ended), tz)} == {day.toordinal(), month_span(day)}
    for never in (-1.0, 253_402_214_400.0, 1e300):
        assert {span for span, _ in figures(whole(ended=never))} == {UNKNOWN_DAY, -1}
    assert date.min.toordinal() > UNKNOWN_DAY
    assert (month_span(date(2026, 1, 31)), month_span(date(2025, 12, 31))) == (-24312, -24311)


def test_d7_nonsensical_amounts_leave_room_for_the_others() -> None:
    tally = HistoryTally(UTC)
    amounts = {"a": [1e300, 2.0], "b": [-5.0, 7.0], "c": [2e9], "d": [0.000_001] * 3 + [0.000_000_4], "e": [-1.0]}
    for name, each in amounts.items():
        for worked in each:
            tally.add(whole(StepRecord(name, "shell", 1, ENDED, ENDED, worked, 9)))
    found = {kind.step: cell.worked for (span, kind, *_), cell in tally.cells.items() if span > 0 and kind.step}
    assert found == {"a": 10**15 + 2_000_000, "b": 7_000_000, "c": 10**15, "d": 3, "e": 0}


def test_d7_a_time_is_at_most_4_5_percent_off() -> None:
    chance = random.Random(4)
    times = [0.001 * 2 ** (number / 7) for number in range(1, 240)] + [0.0, 0.001, 0.0005]
    chance.shuffle(times)
    tally = HistoryTally(UTC)
    for time in times:
        tally.add(whole(StepRecord("a", "shell", 1, ENDED, ENDED, time, 9)))
    buckets = next(cell.times for (_, kind, *_), cell in tally.cells.items() if kind.step)
    shown = [middle_of(bucket) for bucket in sorted(buckets) for _ in range(buckets[bucket])]
    for time, middle in zip(sorted(times), shown, strict=True):
        assert middle == 0.0 if time <= 0.001 else math.isclose(middle, time, rel_tol=0.045)


def test_d7_percentiles_of_few_runs_are_not_made_up() -> None:
    def parts(**times: int) -> list[float | None]:
        return [
            percentile({int(bucket[1:]): runs for bucket, runs in times.items()}, part) for part in (0.5, 0.9, 0.99)
        ]

    assert parts(_50=1) == [0.0729, None, None]
    assert parts(_50=9)[1] is None
    assert parts(_50=10) == [0.0729, 0.0729, None]
    assert parts(_50=99)[2] is None
    assert parts(_50=98, _90=2)[2] == 2.33
    assert parts(_0=1, _50=1) == [0.0, None, None]
    assert parts(_90=1, _50=1) == [0.0729, None, None]
    assert parts() == [None, None, None]
