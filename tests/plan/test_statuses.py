"""C2: conditions on the status of a step are checked before anything runs."""

from __future__ import annotations

import pytest

from windlass.core.transitions import StepStatus
from windlass.plan.check import check_data
from windlass.plan.status_conditions import STATUSES


def said_of(when: str, /, **publish: object) -> list[str]:
    steps = [
        {"id": "build", "run": "x"},
        {"id": "publish", "run": "x", "importance": "critical", **publish},
        {"id": "tell", "when": when, "run": "x"},
    ]
    found = check_data({"name": "p", "steps": steps})
    return [str(one) for one in (*found.problems, *found.warnings)]


ONLY_AFTER_FAILURE = [
    'steps.publish.status == "failed"',
    "{{ 'failed' == steps['publish'].status and steps.build.output.stdout }}",
    "steps.publish.status != 'completed'",
    "not steps.publish.status == 'completed'",
    "steps.publish.status in ['failed', 'skipped']",
    "steps.publish.error is not none",
]


@pytest.mark.parametrize("when", ONLY_AFTER_FAILURE)
def test_c2_a_step_that_runs_only_after_a_critical_failure_is_warned_of(when: str) -> None:
    (warning,) = said_of(when)
    assert "step tell: it runs only after `publish` has failed, but a failure of the critical step" in warning
    assert "give `publish` `importance: normal`" in warning
    assert ("ask for `steps.publish.status`" in warning) == ("error" in when)


@pytest.mark.parametrize("when", [when for when in ONLY_AFTER_FAILURE if "status" in when])
def test_c2_the_failure_of_a_step_that_is_not_critical_may_be_handled(when: str) -> None:
    assert not said_of(when, importance="normal")


@pytest.mark.parametrize(
    "when", ["steps.publish.error is not none", "steps.publish.error", "steps.publish.error.message"]
)
def test_c2_a_failure_whose_status_is_not_asked_for_skips_the_step_and_that_is_warned_of(when: str) -> None:
    (warning,) = said_of(when, importance="normal")
    assert "step tell: it never runs: `publish` has to have failed" in warning
    assert "ask for its status, too: `steps.publish.status == 'failed'`" in warning
    assert not said_of(when, importance="optional"), "what needs an optional step runs without it"
    assert not said_of(f"steps.publish.status == 'failed' and {when}", importance="normal")


@pytest.mark.parametrize(
    "when",
    [
        "steps.publish.status == 'completed'",
        "steps.publish.status == 'failed' or steps.publish.status == 'completed'",
        "steps.publish.status == 'failed' or steps.build.status == 'failed'",
        "steps.publish.status not in ['failed']",
        "steps.publish.status == steps.build.status",
        "not (steps.publish.status == 'failed' and steps.build.output.stdout)",
        "steps.publish.error is none",
    ],
)
def test_c2_a_condition_that_is_also_true_otherwise_is_not_warned_of(when: str) -> None:
    assert not said_of(when)


def test_c2_a_critical_step_that_may_be_skipped_may_be_other_than_completed() -> None:
    assert not said_of("steps.publish.status != 'completed'", when="steps.build.output.stdout")
    assert not said_of("steps.publish.status != 'completed'", needs=["build"])
    assert said_of("steps.publish.status == 'failed'", needs=["build"])


@pytest.mark.parametrize(
    ("when", "word", "meant"),
    [
        ("steps.build.status == 'fail'", "fail", "did you mean 'failed'?"),
        ("steps.build.status != 'success'", "success", "did you mean 'completed'?"),
        ("steps.build.status in ('completed', 'Skipped')", "Skipped", "did you mean 'skipped'?"),
        ("'zzz' == steps.build.status", "zzz", "there are: completed, failed, skipped, pending"),
    ],
)
def test_b5_a_comparison_with_a_text_that_is_no_status_is_a_problem(when: str, word: str, meant: str) -> None:
    (problem,) = said_of(when)
    assert f"step tell: `when` compares `steps.build.status` with '{word}', which is not a status" in problem
    assert meant in problem


def test_b5_the_statuses_of_the_checks_are_those_of_steps() -> None:
    assert set(STATUSES) == set(StepStatus)
