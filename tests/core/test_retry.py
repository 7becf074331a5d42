"""Whether a failed attempt is tried again, and when (C3)."""

from __future__ import annotations

import pytest
from core_plans import attempts_of, plan_of

from windlass.core.retry import allowed, backoff, outlast, patience_of, retry_at
from windlass.errors import MODEL_API, Category, Failure
from windlass.plan.model import Retry, Step
from windlass.testing import Done, Fail, Script, Simulation, simulate

NOW = 1_750_000_000.0


def at(category: Category, count: int, policy: Retry | None = None, retry_after: float | None = None) -> float | None:
    """Seconds until the next try after `count` failures of one category, or None for never."""
    failure = Failure(category, "no", retry_after=retry_after)
    due = retry_at(failure, {category: count}, policy or Retry(), NOW, "an-execution:a-step")
    return None if due is None else due - NOW


@pytest.mark.parametrize(
    ("category", "retries"),
    [
        (Category.TRANSIENT, 3),
        (Category.PERMISSION, 1),
        (Category.RESOURCE, 2),
        (Category.CONFIGURATION, 0),
        (Category.LOGIC, 0),
    ],
)
def test_c3_each_category_has_its_number_of_retries(category: Category, retries: int) -> None:
    assert allowed(category, Retry()) == retries
    assert [at(category, count) is not None for count in range(1, 6)] == [count <= retries for count in range(1, 6)]


@pytest.mark.parametrize("seconds", [366 * 86_400.0, 99_999_999_999.0, float("inf"), float("nan")])
def test_c3_a_retry_after_of_years_is_taken_for_a_mistake(seconds: float) -> None:
    failure = Failure(Category.TRANSIENT, "slow", retry_after=seconds, kind=MODEL_API)
    assert at(Category.TRANSIENT, 1, retry_after=seconds) == at(Category.TRANSIENT, 1)
    assert outlast(failure, 1, Retry(), NOW, NOW + 1800, "x") == NOW + backoff(Retry(), 1, "x")
    longest = 366 * 86_400.0 - 1
    assert at(Category.TRANSIENT, 1, retry_after=longest) == longest


@pytest.mark.parametrize(("category", "tries"), [("transient", 4), ("permission", 2), ("resource", 3), ("logic", 1)])
def test_c3_a_step_that_always_fails_is_tried_so_often_and_then_has_failed(category: str, tries: int) -> None:
    run = simulate(plan_of({"id": "a", "tool": "t"}), Script({"a": [Fail(category)]}))
    assert attempts_of(run, "a") == list(range(1, tries + 1))
    assert run.state.steps["a"].status == "failed"
    assert run.state.steps["a"].error is not None
    assert run.state.steps["a"].error.category == category
    assert run.state.steps["a"].error.where == "a"


def test_c3_retries_are_counted_by_category_not_together() -> None:
    acts = [Fail("transient"), Fail("permission"), Fail("transient"), Fail("resource"), Fail("transient"), Done(1)]
    run = simulate(plan_of({"id": "a", "tool": "t"}), Script({"a": acts}))
    assert run.state.status == "completed"
    assert run.state.steps["a"].failures == {"transient": 3, "permission": 1, "resource": 1}


def test_c3_a_bare_number_also_retries_a_logic_failure_but_never_a_configuration_failure() -> None:
    policy = Step.model_validate({"id": "a", "tool": "t", "retry": 2}).retry
    assert allowed(Category.LOGIC, policy) == 2
    assert allowed(Category.CONFIGURATION, policy) == 0


def test_c3_a_smaller_maximum_holds_for_every_category() -> None:
    assert [allowed(category, Retry(max=0)) for category in Category] == [0, 0, 0, 0, 0]
    assert allowed(Category.RESOURCE, Retry(max=1)) == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_c3_the_backoff_grows_exponentially_and_jitters_in_its_upper_half(count: int) -> None:
    longest = 1.0 * 2.0 ** (count - 1)
    waits = [backoff(Retry(), count, f"execution-{n}:step") for n in range(200)]
    assert all(longest / 2 <= wait <= longest for wait in waits)
    assert len(set(waits)) > 150, "executions that failed together do not come back together"
    assert min(waits) < 0.6 * longest
    assert max(waits) > 0.9 * longest


def test_c3_the_backoff_never_passes_its_cap_however_often_it_failed() -> None:
    policy = Retry(max=100, delay=1.0, backoff=100.0, max_delay=30.0)
    assert all(15.0 <= backoff(policy, count, "x") <= 30.0 for count in range(2, 101))


def test_c3_the_same_attempt_waits_the_same_time_whoever_asks() -> None:
    assert backoff(Retry(), 2, "x:y") == backoff(Retry(), 2, "x:y")
    assert backoff(Retry(), 2, "x:y") != backoff(Retry(), 2, "x:z")


def test_c3_retry_after_is_honoured_when_it_is_longer_and_not_when_it_is_shorter() -> None:
    assert at(Category.TRANSIENT, 1, retry_after=120.0) == pytest.approx(120.0)
    without = at(Category.TRANSIENT, 1)
    assert at(Category.TRANSIENT, 1, retry_after=0.001) == without
    assert without is not None
    assert 0.5 <= without <= 1.0


def test_c3_a_restart_does_not_reset_the_count_of_attempts() -> None:
    run = Simulation(plan_of({"id": "a", "tool": "t"}))
    run.start()
    for attempt in range(1, 5):
        assert run.running["a"].attempt == attempt
        run.fail("a", Failure(Category.TRANSIENT, "no"))
        run.crash()
        if attempt < 4:
            run.resume()
            run.pass_time(10.0)
    assert run.state.steps["a"].status == "failed"
    assert run.state.steps["a"].failures == {"transient": 4}
    assert run.running == {}


def test_c3_a_lost_attempt_is_no_failure_and_costs_no_retry() -> None:
    run = Simulation(plan_of({"id": "a", "tool": "t"}))
    run.start()
    for _ in range(10):
        run.crash()
        run.resume()
    assert run.running["a"].attempt == 11
    assert run.state.steps["a"].failures is None
    run.fail("a", Failure(Category.TRANSIENT, "no"))
    assert run.state.steps["a"].waiting_for == "retry"


def test_c3_every_resource_retry_says_how_far_usage_is_to_be_reduced() -> None:
    run = simulate(plan_of({"id": "a", "tool": "t"}), Script({"a": [Fail("resource")]}))
    assert [started.reduced for started in run.performed] == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (Retry(), 1800.0),
        (Retry(patience=60.0), 60.0),
        (Retry(patience=60.0, max=0), 60.0),
        (Retry(max=0), 0.0),
        (Retry(patience=60.0, on=(Category.LOGIC,)), 0.0),
    ],
)
def test_k1_an_agent_waits_for_its_model_api_as_long_as_its_step_says_or_else_the_settings(
    policy: Retry, seconds: float
) -> None:
    assert patience_of(policy, 1800.0) == seconds


def test_k1_the_last_try_of_a_model_api_is_at_the_end_of_the_wait_and_none_comes_after_it() -> None:
    failure = Failure(Category.TRANSIENT, "busy", kind=MODEL_API)
    tries = [outlast(failure, 9, Retry(), now, NOW + 70, "x") for now in (NOW, NOW + 69, NOW + 70)]
    assert tries[0] is not None
    assert NOW < tries[0] <= NOW + 60
    assert tries[1:] == [NOW + 70, None]
