"""The view of an execution: what `status`, `run` and the API say of it (C1, E1, K3)."""

from __future__ import annotations

from typing import Any

import pytest
from core_plans import plan_of

from windlass.core import events as ev
from windlass.core.resources import Resources
from windlass.core.state import State
from windlass.core.view import has_verified_work, shows_progress, snapshot, verdict_of
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.testing import Simulation

BROKEN = Failure(Category.LOGIC, "broken")


def steps_of(state: State) -> dict[str, dict[str, Any]]:
    return {step["id"]: step for step in snapshot(state)["steps"]}


def agent(**given: Any) -> Simulation:
    """A simulation with an agent step `a` that is at work."""
    steps = [{"id": "a", "agent": "developer", "prompt": "do it", **given}]
    run = Simulation(Plan.model_validate({"steps": steps}))
    run.start()
    return run


def began(run: Simulation, model: str = "m-0") -> None:
    attempt = run.state.steps["a"].attempts
    run.state.apply(ev.AgentBegan(run.clock.now(), "a", attempt, "cli", "developer", "who", "what", model))


def checked(run: Simulation, *passed: bool, of_form: bool = False, **more: Any) -> None:
    results = tuple(ev.CheckResult("make test", one, 1.5, 0 if one else 2, "out", of_form) for one in passed)
    run.state.apply(ev.AgentChecked(run.clock.now(), "a", 1, 1, results, **more))


def test_c1_percent_are_shown_until_it_ends_and_of_what_completed() -> None:
    shown = []
    for end in ("finish", "fail"):
        run = Simulation(plan_of({"id": "a"}))
        run.start()
        shown.append(shows_progress(run.state))
        run.finish("a") if end == "finish" else run.fail("a", BROKEN)
        shown.append(shows_progress(run.state))
    assert shown == [True, True, True, False]


def test_c6_a_refused_answer_is_named_with_its_step_if_it_had_one() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    assert "refused_answers" not in snapshot(run.state)
    for step in ("a", ""):
        run.state.apply(ev.AnswerRefused(run.clock.now(), "approve", "an agent", step))
    refused = snapshot(run.state)["refused_answers"]
    assert [(one["what"], one["step"], one["by"]) for one in refused] == [
        ("approve", "a", "an agent"),
        ("approve", None, "an agent"),
    ]


def test_c1_a_pause_has_its_reason_and_a_running_execution_none() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    assert snapshot(run.state)["reason"] is None
    run.interrupt()
    run.stop("a")
    assert snapshot(run.state)["reason"] == "interrupt"


def test_d4_a_step_that_was_undone_says_so_and_others_say_nothing() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b"}))
    run.start()
    run.finish("a")
    run.finish("b")
    run.state.apply(ev.StepUndone(run.clock.now(), "a", "ada"))
    assert {name: view.get("undone") for name, view in steps_of(run.state).items()} == {"a": True, "b": None}


def test_c6_the_question_of_a_step_is_shown_while_it_is_open() -> None:
    run = Simulation(plan_of({"id": "a", "approve": "always", "question": "Now?"}), hold=True)
    run.start()
    question = steps_of(run.state)["a"]["question"]
    assert (question["kind"], question["text"], question["tool"], question["input"]) == ("approval", "Now?", "t", {})
    run.approve("a")
    assert steps_of(run.state)["a"]["question"] is None
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    assert steps_of(run.state)["a"]["waiting_for"] == "retry"
    assert steps_of(run.state)["a"]["question"] is None, "a retry waits for nobody"
    once = Simulation(plan_of({"id": "a", "effect": "once"}))
    once.start()
    once.crash()
    once.resume()
    question = steps_of(once.state)["a"]["question"]
    assert (question["kind"], question["text"][:9]) == ("outcome", "attempt 1")


def test_e1_an_attempt_that_waits_for_budget_of_others_says_so_until_it_goes_on() -> None:
    run = agent()
    began(run)
    seen = []
    for message in ("others hold $2.00", ""):
        run.state.apply(ev.BudgetWaited(run.clock.now(), "a", 1, message))
        view = steps_of(run.state)["a"]
        seen.append((view["waiting_for"], view["waiting_because"]))
    assert seen == [("budget", "others hold $2.00"), (None, None)]
    run.state.apply(ev.BudgetWaited(run.clock.now(), "a", 1, "others hold $2.00"))
    run.fail("a", Failure(Category.TRANSIENT, "no"))
    run.pass_time(60.0)
    view = steps_of(run.state)["a"]
    assert (view["status"], view["attempts"], view["waiting_for"]) == ("running", 2, None)


def test_e1_limits_that_are_passed_name_their_step_or_their_scope() -> None:
    run = agent()
    for scope in ("step", "day"):
        run.state.apply(ev.BudgetWarned(run.clock.now(), "a", "passed", scope, "usd", 2.0, 2.5))
    passed = snapshot(run.state)["budget"]["overruns"]
    assert [(one["scope"], one["step"], one["spent"]) for one in passed] == [("step", "a", 2.5), ("day", None, 2.5)]


@pytest.mark.parametrize(
    ("passed", "of_form", "verdict"),
    [
        ((True,), False, "verified"),
        ((True, False), False, "refuted"),
        ((True,), True, "claimed"),
        ((), False, "claimed"),
    ],
)
def test_k3_the_verdict_on_work_is_that_of_its_checks(passed: tuple[bool, ...], of_form: bool, verdict: str) -> None:
    run = agent()
    began(run)
    step = run.state.steps["a"]
    assert (verdict_of(step), has_verified_work(run.state)) == (None, False), "it has come to no result yet"
    if passed:
        checked(run, *passed, of_form=of_form)
        assert verdict_of(step) == verdict
    run.finish("a", "done")
    assert (verdict_of(step), has_verified_work(run.state)) == (verdict, verdict == "verified")
    assert verdict_of(step, {"other"}) == verdict
    assert verdict_of(step, {"a"}) == ("stale" if verdict == "verified" else verdict)


def test_k3_work_of_a_failed_step_without_checks_has_no_verdict_and_a_refuted_one_keeps_it() -> None:
    for checks, verdict in (((), None), ((False,), "refuted")):
        run = agent()
        began(run)
        if checks:
            checked(run, *checks)
        run.fail("a", BROKEN)
        assert verdict_of(run.state.steps["a"]) == verdict


def test_k3_the_checks_of_an_agent_are_told_with_what_was_done_to_protected_files() -> None:
    run = agent()
    assert steps_of(run.state)["a"]["agent"] is None, "no runtime has it yet"
    began(run, "")
    assert (steps_of(run.state)["a"]["agent"]["model"], "checks" in steps_of(run.state)["a"]["agent"]) == (None, False)
    checked(run, True)
    view = steps_of(run.state)["a"]["agent"]
    assert view["checks"] == [{"check": "make test", "passed": True, "exit_code": 0, "output": "out", "seconds": 1.5}]
    lists = {"put_back", "touched", "unmatched"}
    assert not lists & view.keys()
    checked(run, False, put_back=("put_back",), touched=("touched",), unmatched=("unmatched",))
    view = steps_of(run.state)["a"]["agent"]
    assert {name: view[name] for name in lists} == {name: [name] for name in lists}


def test_e1_several_models_of_a_step_have_their_costs_each() -> None:
    run = agent(models=["small", "large"], check="make test")
    began(run)
    for attempt, model in ((1, "small"), (2, "large"), (3, "large"), (4, "")):
        usage = ev.Usage(10, 1, usd=0.5, source="runtime", model=model)
        run.state.apply(ev.UsageReported(run.clock.now(), "a", attempt, usage, "cli", "developer"))
    models = steps_of(run.state)["a"]["agent"]["models"]
    assert [(one["model"], one["cost"]["usd"]) for one in models] == [("small", 0.5), ("large", 1.0), (None, 0.5)]


def test_h1_what_a_step_used_of_the_machine_is_null_where_nobody_knows_it() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b"}))
    run.start()
    for step, used in (("a", Resources(cpu=0.25, memory=7)), ("b", Resources(received=3))):
        run.state.apply(ev.AttemptFinished(run.clock.now(), step, 1, None, used=used))
    shown = {name: view["resources"] for name, view in steps_of(run.state).items()}
    assert shown["a"] == {"cpu_s": 0.25, "memory_bytes": 7, "received_bytes": None, "sent_bytes": None}
    assert shown["b"]["cpu_s"] is None
