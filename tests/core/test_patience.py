"""A model API that fails for a while is waited for, with patience (K1): the rules alone."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.transitions import StepStatus
from windlass.core.view import snapshot
from windlass.errors import MODEL_API, Category, Failure
from windlass.plan.model import Plan
from windlass.testing import Simulation

BUSY = Failure(Category.TRANSIENT, "cli: the model API answered 529: busy", kind=MODEL_API)


def begun(**step: Any) -> Simulation:
    whole = {"id": "a", "agent": "developer", "prompt": "do it", **step}
    run = Simulation(Plan.model_validate({"steps": [whole]}))
    run.start()
    return run


def began(run: Simulation, runtime: str = "cli") -> int:
    attempt = run.state.steps["a"].attempts
    run.state.apply(ev.AgentBegan(run.clock.now(), "a", attempt, runtime, "developer", "", ""))
    return attempt


def fail(run: Simulation, failure: Failure = BUSY, runtime: str = "cli") -> None:
    began(run, runtime)
    run.fail("a", failure)


def wait(run: Simulation) -> float:
    """Let the next try begin; returns the seconds until it did."""
    step = run.state.steps["a"]
    assert (step.status, step.waiting_for) == (StepStatus.WAITING, "retry")
    assert step.until is not None
    seconds = step.until - run.clock.now()
    run.pass_time(seconds)
    return seconds


def outage(run: Simulation, failure: Failure = BUSY) -> list[float]:
    """The API fails until the step gives up; returns the waits."""
    waits = []
    while run.running:
        fail(run, failure)
        if run.state.steps["a"].status is StepStatus.WAITING:
            waits.append(wait(run))
    return waits


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [({}, 1800), ({"patience": "5m"}, 300), ({"max": 10, "patience": "2m"}, None), ({"max": 0, "patience": 60}, 60)],
)
def test_k1_an_api_that_fails_is_tried_until_patience_ends(retry: dict[str, Any], seconds: float | None) -> None:
    run = begun(retry=retry)
    waits = outage(run)
    assert run.state.status == "failed"
    if seconds is not None:
        assert sum(waits) == pytest.approx(seconds), "the last try is at the end"
        assert max(waits) <= 60
    assert waits[0] <= 1, "a hiccup costs a second"


@pytest.mark.parametrize(
    "retry", [{"patience": 0}, {"patience": "0s"}, {"patience": "0"}, {"max": 3, "on": ["transient"], "patience": 0}]
)
def test_k1_without_patience_the_usual_retries_are_all(retry: dict[str, Any]) -> None:
    run = begun(retry=retry)
    assert len(outage(run)) == 3
    assert run.state.steps["a"].gives_up_at is None


@pytest.mark.parametrize("retry", [{"max": 0}, {"on": ["permission"]}])
def test_k1_who_wants_no_retries_waits_for_nothing(retry: dict[str, Any]) -> None:
    assert outage(begun(retry=retry)) == []


def test_k1_another_failure_has_its_usual_retries() -> None:
    died = Failure(Category.TRANSIENT, "the program died")
    assert len(outage(begun(), died)) == 3
    run = begun()
    for _ in range(9):
        fail(run)
        wait(run)
    assert len(outage(run, died)) == 3, "the outage before does not count against it"


def test_k1_the_wait_says_what_it_waits_for_and_until_when() -> None:
    run = begun()
    at = run.clock.now()
    fail(run)
    (step,) = snapshot(run.state)["steps"]
    assert (step["status"], step["waiting_for"]) == ("waiting", "retry")
    assert step["waiting_because"] == "waiting for the model API: answered 529: busy"
    assert run.state.steps["a"].gives_up_at == at + 1800
    assert step["gives_up_at"] > step["until"]
    wait(run)
    run.finish("a", "done")
    assert "gives_up_at" not in snapshot(run.state)["steps"][0]


def test_k1_a_wait_that_the_api_asks_for_is_kept_up_to_the_end() -> None:
    run = begun(retry={"max": 0, "patience": "100s"})
    slow = Failure(Category.TRANSIENT, "slow down", retry_after=80.0, kind=MODEL_API)
    assert outage(run, slow) == [80.0, pytest.approx(20.0)]


@pytest.mark.parametrize("kind", ["spoke", "acted", "returned"])
def test_k1_progress_starts_the_patience_anew(kind: str) -> None:
    run = begun(retry={"patience": "10m"})
    for _ in range(3):
        for _ in range(10):
            fail(run)
            wait(run)
        attempt, now = began(run), run.clock.now()
        progress: dict[str, ev.Event] = {
            "spoke": ev.AgentSpoke(now, "a", attempt, "I begin."),
            "acted": ev.AgentActed(now, "a", attempt, "shell", "ls"),
            "returned": ev.AgentReturned(now, "a", attempt, "1", "shell", "a.txt"),
        }
        run.state.apply(progress[kind])
    assert run.clock.now() - run.state.created_at > 600
    run.finish("a", "done")
    assert run.state.status == "completed"


def test_k1_a_step_falls_back_after_its_usual_retries_and_then_waits() -> None:
    run = begun(runtime="claude-code")
    elsewhere = Failure(BUSY.category, BUSY.message, elsewhere=True, kind=MODEL_API)
    waits = []
    for _ in range(4):
        fail(run, elsewhere, "claude-code")
        if run.state.steps["a"].status is StepStatus.WAITING:
            waits.append(wait(run))
    agent = run.state.steps["a"].agent
    assert agent is not None
    assert (len(waits), agent.instead) == (3, "open-code")
    while run.running:
        fail(run, elsewhere, "open-code")
        if run.state.steps["a"].status is StepStatus.WAITING:
            waits.append(wait(run))
    assert sum(waits[3:]) == pytest.approx(1800)


def test_k1_a_person_can_have_it_tried_at_once_and_the_patience_begins_anew() -> None:
    run = begun()
    for _ in range(12):
        fail(run)
        wait(run)
    fail(run)
    run.state.apply(ev.StepRetried(run.clock.now(), "a", "somebody"))
    run.pass_time(0)
    assert "a" in run.running
    at = run.clock.now()
    fail(run)
    assert run.state.steps["a"].gives_up_at == at + 1800
