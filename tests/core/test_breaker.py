"""Circuit breakers (C4): when they open, for how long, and what closes them."""

from __future__ import annotations

import pytest

from windlass.core.breaker import FAILURES, FIRST_REST, LONGEST_REST, PROBE_TAKES, Breaker, Circuit, counts
from windlass.errors import Category, Failure

DOWN = Failure(Category.TRANSIENT, "the server is down")


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker = breaker.failed(DOWN, now)
    return breaker


def test_c4_it_opens_after_failures_in_a_row_and_says_why() -> None:
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        breaker = breaker.failed(DOWN, 0.0)
        assert breaker.circuit(0.0) is Circuit.CLOSED
    breaker = breaker.failed(DOWN, 0.0)
    assert breaker.circuit(0.0) is Circuit.OPEN
    assert breaker.because == "the server is down"
    assert not breaker.admits(FIRST_REST - 0.1)


def test_c4_one_success_forgets_the_failures_before_it() -> None:
    breaker = Breaker()
    for _ in range(FAILURES * 3):
        breaker = breaker.failed(DOWN, 0.0).worked()
    assert breaker == Breaker()


def test_c4_after_its_rest_one_use_is_let_through_and_no_other() -> None:
    breaker = opened()
    assert breaker.circuit(FIRST_REST) is Circuit.HALF_OPEN
    assert breaker.admits(FIRST_REST)
    probing = breaker.probe(FIRST_REST)
    assert not probing.admits(FIRST_REST + 1)
    assert probing.worked().circuit(FIRST_REST + 1) is Circuit.CLOSED


def test_c4_a_probe_that_nobody_heard_of_again_does_not_keep_it_shut_for_ever() -> None:
    probing = opened().probe(FIRST_REST)
    assert probing.admits(FIRST_REST + PROBE_TAKES)


def test_c4_a_clock_that_was_set_back_does_not_keep_it_open_for_longer_than_its_longest_rest() -> None:
    now = 1_000_000.0
    ahead = opened(now + 86_400)
    assert ahead.admits(now)
    assert ahead.circuit(now) is Circuit.HALF_OPEN
    assert ahead.probe(now).tried_now(now), "one use tries it"
    assert not opened(now + LONGEST_REST - FIRST_REST).admits(now)


def test_c4_it_opens_at_the_fifth_failure_and_counts_those_of_probes_on() -> None:
    assert opened().failures == 5
    assert opened().probe(FIRST_REST).failed(DOWN, FIRST_REST).failures == 6


def test_c4_a_probe_that_is_called_off_leaves_it_open_for_a_first_rest() -> None:
    breaker = opened().probe(FIRST_REST).called_off()
    assert breaker.circuit(FIRST_REST + 1) is Circuit.OPEN
    assert not breaker.tried_now(FIRST_REST + 1)
    assert not breaker.admits(FIRST_REST * 2 - 1)
    assert breaker.admits(FIRST_REST * 2)


def test_c4_each_failed_probe_doubles_the_rest_up_to_a_limit() -> None:
    breaker, now, rests = opened(), 0.0, []
    for _ in range(8):
        rests.append(breaker.until - now)
        now = breaker.until
        breaker = breaker.probe(now).failed(DOWN, now)
    assert rests[:3] == [FIRST_REST, FIRST_REST * 2, FIRST_REST * 4]
    assert rests[-1] == LONGEST_REST


@pytest.mark.parametrize(
    ("category", "said"),
    [
        (Category.TRANSIENT, True),
        (Category.RESOURCE, True),
        (Category.LOGIC, False),
        (Category.PERMISSION, False),
        (Category.CONFIGURATION, False),
    ],
)
def test_c4_only_failures_of_the_tool_itself_count(category: Category, said: bool) -> None:
    assert counts(Failure(category, "x")) is said
    assert counts(Failure(category, "x", final=True)) is False
