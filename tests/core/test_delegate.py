"""Who does an agent step's work, what it is handed, and who takes over (A6, A7, B2): the rules alone."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.agent import next_in_family
from windlass.core.decide import Policy
from windlass.core.delegate import falls_back, handoff_of, last_word, named_model, runtime_of, successor
from windlass.core.step import StepState
from windlass.errors import UNAVAILABLE, Category, Failure
from windlass.plan.model import Plan
from windlass.runtimes import RUNTIMES
from windlass.testing import Simulation

LATER = Failure(Category.TRANSIENT, "overloaded", elsewhere=True)


def begun(*steps: dict[str, Any], **rest: Any) -> Simulation:
    full = [{"agent": "developer", "prompt": "do it", **step} if "tool" not in step else step for step in steps]
    run = Simulation(Plan.model_validate({"steps": full, **rest}))
    run.start()
    return run


def step_of(run: Simulation, name: str = "a") -> StepState:
    return run.state.steps[name]


def began(run: Simulation, runtime: str, step: str = "a", **more: Any) -> None:
    attempt = step_of(run, step).attempts
    run.state.apply(ev.AgentBegan(run.clock.now(), step, attempt, runtime, **{"role": "developer", **more}, **TOLD))


TOLD = {"system": "", "prompt": ""}


@pytest.mark.parametrize(
    ("runtime", "given_up", "expected"),
    [
        ("claude-code", (), "open-code"),
        ("open-code", (), "claude-code"),
        ("open-code", ("claude-code",), None),
        ("claude-code", ("open-code",), None),
        ("cli", (), None),
        ("somebody-elses", (), None),
    ],
)
def test_a7_a_runtime_is_followed_by_another_of_its_family(
    runtime: str, given_up: tuple[str, ...], expected: str | None
) -> None:
    assert next_in_family(runtime, given_up) == expected
    assert expected is None or RUNTIMES[expected].family == RUNTIMES[runtime].family


def test_a6_who_took_over_comes_before_every_name() -> None:
    run = begun({"id": "a", "runtime": "claude-code"}, runtime="cli")
    policy = Policy(runtime="cli")
    assert runtime_of(run.state, step_of(run), policy) == "claude-code"
    run.state.apply(ev.RuntimeFellBack(run.clock.now(), "a", "claude-code", "open-code", "why", final=False))
    assert runtime_of(run.state, step_of(run), policy) == "claude-code", "for one attempt alone"
    began(run, "claude-code")
    run.fail("a", Failure(Category.CONFIGURATION, "no", elsewhere=True))
    assert runtime_of(run.state, step_of(run), policy) == "open-code"


@pytest.mark.parametrize("of_step", [None, True, False])
@pytest.mark.parametrize("of_plan", [None, True, False])
@pytest.mark.parametrize("of_settings", [True, False])
def test_a7_the_nearest_word_on_falling_back_holds(
    of_step: bool | None, of_plan: bool | None, of_settings: bool
) -> None:
    run = begun({"id": "a", "fallback": of_step}, fallback=of_plan)
    words = [word for word in (of_step, of_plan, of_settings) if word is not None]
    assert falls_back(run.state, step_of(run), Policy(fallback=of_settings)) is words[0]


def test_a7_only_a_failure_that_another_could_survive_has_a_successor() -> None:
    run = begun({"id": "a", "runtime": "claude-code"})
    assert successor(run.state, step_of(run), LATER, Policy()) is None, "it never began"
    began(run, "claude-code")
    assert successor(run.state, step_of(run), LATER, Policy()) == "open-code"
    assert successor(run.state, step_of(run), Failure(Category.TRANSIENT, "x"), Policy()) is None
    assert successor(run.state, step_of(run), LATER, Policy(fallback=False)) is None


def test_a7_a_failure_for_good_tells_of_the_runtime_that_it_began_on() -> None:
    run = begun({"id": "a", "runtime": "claude-code", "retry": 0})
    began(run, "claude-code")
    assert last_word(step_of(run), LATER) is LATER
    run.fail("a", LATER)
    began(run, "open-code")
    run.fail("a", Failure(Category.LOGIC, "no sense"))
    error = step_of(run).error
    assert error is not None
    assert error.message == "no sense; before that, claude-code failed: overloaded"
    assert (error.category, error.where) == (Category.LOGIC, "a")


def test_a7_a_runtime_that_could_not_take_over_is_not_why_the_step_failed() -> None:
    run = begun({"id": "a", "runtime": "claude-code", "retry": 0})
    began(run, "claude-code")
    run.fail("a", LATER)
    gone = Failure(Category.CONFIGURATION, "not installed", kind=UNAVAILABLE, advice=("install it",))
    word = last_word(step_of(run), gone)
    assert (word.category, word.message) == (Category.TRANSIENT, "overloaded; not installed")
    assert word.advice == ("install it",)


def handed(run: Simulation, step: str) -> list[str]:
    return [given["step"] for given in handoff_of(run.state, step_of(run, step))]


def test_b2_an_agent_is_handed_what_the_agents_it_needs_said_in_the_plans_order() -> None:
    run = begun(
        {"id": "a", "agent": "architect"},
        {"id": "b"},
        {"id": "t", "tool": "t"},
        {"id": "c", "needs": ["t", "b", "a"]},
        limits={"parallel": 8},
    )
    began(run, "cli", "a", role="architect")
    run.finish("b", "words of b")
    run.finish("a", "words of a")
    run.finish("t", {"of": "a tool"})
    assert run.running["c"].input["handoff"] == [
        {"step": "a", "role": "architect", "output": "words of a"},
        {"step": "b", "role": "developer", "output": "words of b"},
    ]


def test_b2_the_plan_says_otherwise() -> None:
    needs = {"needs": ["a", "t"]}
    run = begun(
        {"id": "a"},
        {"id": "t", "tool": "t"},
        {"id": "none", "handoff": False, **needs},
        {"id": "some", "handoff": ["t"], **needs},
        limits={"parallel": 8},
    )
    run.finish("a", "x")
    run.finish("t", 7)
    assert run.running["none"].input["handoff"] == []
    assert run.running["some"].input["handoff"] == [{"step": "t", "role": "", "output": 7}]


def test_b2_who_did_not_complete_hands_nothing_over() -> None:
    run = begun({"id": "a", "importance": "optional", "retry": 0}, {"id": "b", "needs": ["a"]})
    run.fail("a", Failure(Category.LOGIC, "no"))
    assert "b" in run.running
    assert handed(run, "b") == []


def test_b2_a_fan_out_hands_over_the_list_of_its_words() -> None:
    run = begun({"id": "a", "foreach": ["x", "y"]}, {"id": "b", "needs": ["a"]}, limits={"parallel": 8})
    run.finish("a[0]", "first")
    run.finish("a[1]", "second")
    (given,) = run.running["b"].input["handoff"]
    assert (given["step"], given["output"]) == ("a", ["first", "second"])


def test_k2_the_next_of_several_models_is_named_after_two_failed_checks_and_the_last_one_stays() -> None:
    run = begun({"id": "a", "check": "make test", "tries": 9, "models": ["haiku", "sonnet"]})
    assert named_model(run.state, step_of(run)) == "haiku"
    began(run, "cli")
    named = []
    for number in range(1, 6):
        results = (ev.CheckResult("make test", False, 1.0),)
        run.state.apply(ev.AgentChecked(run.clock.now(), "a", 1, number, results))
        named.append(named_model(run.state, step_of(run)))
    assert named == ["haiku", "sonnet", "sonnet", "sonnet", "sonnet"]
