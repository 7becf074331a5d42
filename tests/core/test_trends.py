"""Bottlenecks, and changes of steps: found where they are, and hardly ever where they are not (D7)."""

from __future__ import annotations

import random
from statistics import NormalDist
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


def test_d7_bottlenecks_are_those_of_the_plan_that_took_most_first() -> None:
    both = run(step("b", ended=2.0), step("a", ended=4.0, after="b"), step("skipped", ended=9.0, attempts=0))
    alone = run(step("b", ended=2.0))
    third = run(step("c", ended=1.0))
    found = bottlenecks({"one": [both, alone, third], "y": [run(step("a"))], "x": [run(step("a"))]})
    assert [(one.plan, one.step, one.on_path, one.executions) for one in found] == [
        ("one", "b", 2, 3),
        ("one", "a", 1, 3),
        ("one", "c", 1, 3),
        ("x", "a", 1, 1),
        ("y", "a", 1, 1),
    ]
    assert found[0].as_dict() == {
        "plan": "one",
        "step": "b",
        "share": 0.5714,
        "seconds": 1.333,
        "on_path": 2,
        "executions": 3,
    }
    even = bottlenecks({"p": [run(step("b", ended=2.0), step("a", ended=4.0, after="b"))]})
    assert [(one.step, one.share) for one in even] == [("a", 0.5), ("b", 0.5)]


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


def test_d7_a_step_that_became_slower_is_found_with_the_evidence() -> None:
    found, looked_at = changes({"p": runs(random.Random(1), 115, 20, heavy=False, slow=3.0)}, same)
    assert looked_at == 20
    (one,) = found
    assert (one.plan, one.step, one.kind, one.runs_recent) == ("p", "s0", "slower", 14)
    assert one.recent > 2 * one.before
    assert one.p is not None
    assert one.p < FALSE_ALARMS / 40


def twice(count: int, recent: StepRecord, before: StepRecord, newest: int = 15) -> list[ExecutionRecord]:
    """Records of one step, newest first."""
    return [run(recent if number < newest else before) for number in range(count)]


def test_d7_a_step_that_fails_more_is_found() -> None:
    once = [run(step("a", status="failed")), *twice(59, step("a"), step("a"))]
    failing = [run(step("a", status="failed" if number < 8 else "completed")) for number in range(40)] + once
    (one,), _ = changes({"p": failing}, same)
    assert (one.kind, round(one.before, 4), round(one.recent, 4)) == ("failing", 0.0118, 0.5333)
    assert (one.runs_before, one.runs_recent) == (85, 15)
    assert one.as_dict()["p"] == float(f"{more_failures(8, 15, 1, 85):.2g}")
    mended = twice(60, step("a"), step("a", status="failed"))
    assert changes({"p": mended}, same) == ([], 1)


def test_d7_the_last_15_runs_are_compared_with_the_100_before_them_and_8_with_16() -> None:
    slower = step("a", 9.0)
    for count, newest, sizes in ((130, 15, (100, 15)), (24, 8, (16, 8))):
        ((one,), looked_at) = changes({"p": twice(count, slower, step("a"), newest)}, same)
        assert (one.runs_before, one.runs_recent, one.before, one.recent, looked_at) == (*sizes, 1.0, 9.0, 1)
    # Failed runs have no time: as many as these are left to be compared, and one fewer is too few.
    for failed, kinds in ((0, ["slower"]), (1, [])):
        last = [step("a", 9.0, status="failed" if number < failed else "completed") for number in range(8)]
        assert [
            one.kind for one in changes({"p": [*map(run, last), *twice(16, step("a"), step("a"))]}, same)[0]
        ] == kinds
    before = [step("a", status="failed"), *[step("a")] * 15]
    assert changes({"p": [*twice(8, slower, slower), *map(run, before)]}, same)[0] == []


def test_d7_items_of_a_foreach_are_compared_by_the_time_of_one() -> None:
    more = twice(60, step("a", 40.0, items=40), step("a", 1.0, items=1))
    assert changes({"p": more}, same) == ([], 1)


def test_d7_the_more_is_looked_at_the_surer_a_change_has_to_be() -> None:
    """Three failures of the last 15 runs have a chance of 0.0039 after 75 without one, of 0.0055 after 65."""

    def failing(count: int, worked: float = 1.0) -> list[ExecutionRecord]:
        bad = [run(step("a", worked, status="failed"))] * 3
        return [*bad, *twice(count - 3, step("a", worked), step("a"), 12)]

    def kinds(**records: list[ExecutionRecord]) -> list[str]:
        return [one.kind for one in changes(records, same)[0]]

    assert kinds(p=failing(90)) == ["failing"]
    assert kinds(p=failing(80)) == []
    assert kinds(p=failing(80, 9.0)) == ["slower", "failing"], "the surest first, which leaves one fewer to be sure of"
    assert kinds(p=failing(90), q=twice(60, step("b"), step("b"))) == []
    found, looked_at = changes({"q": failing(90, 9.0), "p": failing(90, 9.0)}, same)
    assert [(one.plan, one.kind) for one in found] == [
        ("p", "slower"),
        ("q", "slower"),
        ("p", "failing"),
        ("q", "failing"),
    ]
    assert looked_at == 2


@pytest.mark.parametrize(
    ("before", "recent", "named"), [(1.0, 1.2, True), (1.0, 1.19, False), (0.01, 0.061, True), (0.01, 0.059, False)]
)
def test_d7_a_growth_by_less_than_a_fifth_or_50_ms_is_not_named(before: float, recent: float, named: bool) -> None:
    assert bool(changes({"p": twice(60, step("a", recent), step("a", before))}, same)[0]) is named


def test_d7_a_growth_that_is_sure_but_small_is_not_named() -> None:
    chance = random.Random(2)
    slower = [run(step("a", (1.1 if number < 15 else 1.0) + chance.random() / 100)) for number in range(100)]
    assert changes({"p": slower}, same) == ([], 1)


def test_d7_an_edited_step_is_said_to_be_so_and_not_compared() -> None:
    new, old = step("a", 9.0, model="new"), step("a", model="old")
    for newest, older in ((10, 50), (1, 16)):
        ((one,), looked_at) = changes({"p": twice(newest + older, new, old, newest)}, same)
        assert (one.kind, one.runs_recent, one.runs_before, one.p, looked_at) == ("edited", newest, older, None, 0)
    assert one.as_dict()["p"] is None
    assert changes({"p": twice(16, new, old, 1)}, same) == ([], 0), "so few could not be compared anyway"


def test_d7_runs_with_arguments_of_a_person_are_left_out() -> None:
    odd = [run(step("a", 9.0 if number < 15 else 1.0, edited=number < 15)) for number in range(60)]
    assert changes({"p": odd}, same) == ([], 1)


@pytest.mark.parametrize("count", [0, 1, 2, 23])
def test_d7_with_few_runs_nothing_is_said(count: int) -> None:
    assert changes({"p": runs(random.Random(1), count, 3, heavy=False, slow=9.0)}, same) == ([], 0)


def test_d7_the_tests_agree_with_tables() -> None:
    # Mann and Whitney: U = 0 of 5 and 5 has p = 0.004; the normal approximation says a little more.
    assert greater([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(0.006, abs=0.001)
    # U = 19 where 12 is usual; three and four that are alike leave a variance of 24 / 12 * (11 - (24 + 60) / 90).
    assert greater([2, 3, 3, 4], [1, 2, 2, 1.5, 3, 3]) == pytest.approx(NormalDist(12, (302 / 15) ** 0.5).cdf(12 - 6.5))
    assert greater([1, 1, 1], [1, 1, 1]) == 1.0
    assert greater([2], [1]) == 0.5
    # Fisher: 3 of 3 against 0 of 3 is one of 20 ways; 2 or 3 of 3 against 1 or 0 of 4 are 13 of 35.
    assert more_failures(3, 3, 0, 3) == pytest.approx(1 / 20)
    assert more_failures(2, 3, 1, 4) == pytest.approx(13 / 35)
    assert more_failures(0, 5, 0, 5) == 1.0


def test_d7_a_look_raises_a_false_alarm_in_at_most_one_of_a_hundred_cases() -> None:
    """The figure of docs/history.md: 600 looks at 10 steps of which none has changed."""
    chance = random.Random(14)
    alarms = 0
    for number in range(600):
        looked = {"p": runs(chance, (24, 45, 115)[number % 3], 10, heavy=number % 2 == 0)}
        alarms += bool(changes(looked, same)[0])
    assert alarms == 2
    assert alarms / 600 <= FALSE_ALARMS
