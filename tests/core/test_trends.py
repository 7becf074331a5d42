"""Bottlenecks, and changes of steps: found where they are, and hardly ever where they are not (D7)."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from windlass.core.history import ExecutionRecord, StepRecord
from windlass.core.trends import FALSE_ALARMS, bottlenecks, changes, greater, more_failures


def step(name: str, worked: float = 1.0, **fields: Any) -> StepRecord:
    base = StepRecord(name, "shell", 1, 0.0, worked, worked, 0)
    return msgspec.structs.replace(base, **fields)


def run(*steps: StepRecord, started: float | None = 0.0) -> ExecutionRecord:
    return ExecutionRecord("x", "p", "d", "completed", "", 0, started, 1.0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, steps)


def same(_run: ExecutionRecord, step: StepRecord) -> str:
    return step.model


# -- the critical path ----------------------------------------------------------------------------


def test_d7_the_critical_path_leads_back_from_the_step_that_ended_last() -> None:
    steps = (
        step("a", ended=2.0),
        step("quick", ended=3.0, after="a"),
        step("slow", ended=8.0, after="a"),
        step("end", ended=10.0, after="slow"),
    )
    found = bottlenecks({"p": [run(*steps)]})
    assert [(one.step, one.share, one.seconds) for one in found] == [
        ("slow", 0.6, 6.0),
        ("a", 0.2, 2.0),
        ("end", 0.2, 2.0),
    ]


def test_d7_waiting_for_a_person_is_no_bottleneck() -> None:
    found = bottlenecks({"p": [run(step("a", ended=101.0, person_s=100.0), step("b", ended=102.0, after="a"))]})
    assert {one.step: one.seconds for one in found} == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (step("a", ended=None),),
        (step("a", attempts=0),),
        (step("a", ended=-5.0),),
        (step("a", ended=5.0, after="b"), step("b", ended=4.0, after="a")),
        (step("a", ended=1.0, after="gone"),),
    ],
)
def test_d7_odd_records_have_a_path_or_none_and_never_a_negative_time(steps: tuple[StepRecord, ...]) -> None:
    assert all(one.seconds > 0 for one in bottlenecks({"p": [run(*steps)], "q": [run(*steps, started=None)]}))


# -- changes --------------------------------------------------------------------------------------


def runs(chance: random.Random, count: int, steps: int, heavy: bool, slow: float = 1.0) -> list[ExecutionRecord]:
    """Newest first; some runs are slow as a whole, one in twenty of a step's runs fails. The last 15 of `s0` change."""
    found = []
    for number in range(count):
        difficulty = chance.lognormvariate(0, 0.3)

        def took(name: int, newer: bool = number < 15, difficulty: float = difficulty) -> float:
            seconds = chance.paretovariate(1.5) if heavy else chance.lognormvariate(1, 0.5)
            return seconds * difficulty * (slow if name == 0 and newer else 1.0)

        statuses = ["failed" if chance.random() < 0.05 else "completed" for _ in range(steps)]
        found.append(run(*(step(f"s{name}", took(name), status=statuses[name]) for name in range(steps))))
    return found


def test_d7_a_look_raises_a_false_alarm_in_at_most_one_of_a_hundred_cases() -> None:
    """The figure of docs/history.md: 600 looks at 10 steps of which none has changed."""
    chance = random.Random(14)
    alarms = 0
    for number in range(600):
        looked = {"p": runs(chance, (24, 45, 115)[number % 3], 10, heavy=number % 2 == 0)}
        alarms += bool(changes(looked, same)[0])
    assert alarms == 2
    assert alarms / 600 <= FALSE_ALARMS


def test_d7_a_step_that_became_slower_is_found_with_the_evidence() -> None:
    found, looked_at = changes({"p": runs(random.Random(1), 115, 20, heavy=False, slow=3.0)}, same)
    assert looked_at == 20
    (one,) = found
    assert (one.plan, one.step, one.kind, one.runs_recent) == ("p", "s0", "slower", 14)
    assert one.recent > 2 * one.before
    assert one.p is not None
    assert one.p < FALSE_ALARMS / 40


def test_d7_a_step_that_fails_more_is_found() -> None:
    failing = [run(step("a", status="failed" if number < 8 else "completed")) for number in range(60)]
    (one,), _ = changes({"p": failing}, same)
    assert (one.kind, one.before, round(one.recent, 2)) == ("failing", 0.0, 0.53)


def test_d7_a_growth_that_is_sure_but_small_is_not_named() -> None:
    chance = random.Random(2)
    slower = [run(step("a", (1.1 if number < 15 else 1.0) + chance.random() / 100)) for number in range(100)]
    assert changes({"p": slower}, same) == ([], 1)


def test_d7_an_edited_step_is_said_to_be_so_and_not_compared() -> None:
    edited = [
        run(step("a", 9.0 if number < 10 else 1.0, model="new" if number < 10 else "old")) for number in range(60)
    ]
    (one,), looked_at = changes({"p": edited}, same)
    assert (one.kind, one.runs_recent, one.runs_before, one.p, looked_at) == ("edited", 10, 50, None, 0)


def test_d7_runs_with_arguments_of_a_person_are_left_out() -> None:
    odd = [run(step("a", 9.0 if number < 15 else 1.0, edited=number < 15)) for number in range(60)]
    assert changes({"p": odd}, same) == ([], 1)


@pytest.mark.parametrize("count", [0, 1, 2, 23])
def test_d7_with_few_runs_nothing_is_said(count: int) -> None:
    assert changes({"p": runs(random.Random(1), count, 3, heavy=False, slow=9.0)}, same) == ([], 0)


def test_d7_the_tests_agree_with_tables() -> None:
    # Mann and Whitney: U = 0 of 5 and 5 has p = 0.004; the normal approximation says a little more.
    assert greater([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(0.006, abs=0.001)
    assert greater([1, 1, 1], [1, 1, 1]) == 1.0
    # Fisher: 3 of 3 against 0 of 3 is one of 20 ways.
    assert more_failures(3, 3, 0, 3) == pytest.approx(1 / 20)
    assert more_failures(0, 5, 0, 5) == 1.0
