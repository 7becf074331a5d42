"""Sums of records: those that are summed up together, and those that are taken out again (D7)."""

from __future__ import annotations

import random
from datetime import UTC

import msgspec
import pytest

from windlass.core.history import ExecutionRecord, StepRecord
from windlass.core.tally import HistoryTally

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
