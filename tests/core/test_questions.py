"""The questions of an execution that lists show, and the resources that its steps used, as they add up (C6, E3, H1)."""

from __future__ import annotations

import msgspec
from core_plans import plan_of

from windlass.core import events as ev
from windlass.core.questions import (
    OpenQuestion,
    QuestionChanges,
    asked_beside_approval,
    changes_of,
    is_answer_on_budget,
    limits_asked_about,
    open_questions,
    question_id,
)
from windlass.core.resources import Resources, summed
from windlass.core.state import State
from windlass.testing import Simulation


def asking(*events: ev.Event) -> State:
    run = Simulation(plan_of(*({"id": name} for name in "abcd")))
    run.start()
    for event in events:
        run.state.apply(event)
    return run.state


def over_budget(step: str, scope: str) -> ev.StepWaiting:
    return ev.StepWaiting(9.0, step, "budget", None, "more?", scope=scope)


APPROVAL = ev.ApprovalAsked(9.0, "a", "digest", "t", {}, 99.0, 1)
OUTCOME = ev.StepWaiting(9.0, "b", "outcome", None, "did it?")


def test_c6_only_requests_for_approval_are_open_questions() -> None:
    state = asking(APPROVAL, OUTCOME, over_budget("c", "day"))
    name = question_id(state.id, "a", "digest")
    found = open_questions(state)
    assert found == {"a": OpenQuestion("a", state.seq - 2, name, "digest", state.workdir)}
    assert len({name, question_id("other", "a", "digest"), question_id(state.id, "b", "digest")}) == 3
    assert len(name) == 32
    state.apply(ev.ApprovalAnswered(10.0, "a", "digest", True, "me"))
    assert open_questions(state) == {}
    assert changes_of(found, found) is None
    assert changes_of({}, found) == QuestionChanges((found["a"],), ())
    assert changes_of(found, {}) == QuestionChanges((), ("a",))
    again = {"a": found["a"]._replace(seq=99)}
    assert changes_of(found, again) == QuestionChanges((again["a"],), ()), "it was asked anew"


def test_e3_the_limits_that_are_asked_about_are_those_that_stopped_a_step() -> None:
    state = asking(over_budget("d", "step"), over_budget("c", "day"), over_budget("b", "day"), APPROVAL)
    assert limits_asked_about(state) == [("day", ""), ("step", "d")]
    assert limits_asked_about(asking(APPROVAL, OUTCOME)) == [("execution", "")]


def test_e3_a_new_limit_says_something_at_any_time_and_any_other_answer_to_a_question() -> None:
    for state, asked in ((asking(APPROVAL, OUTCOME), False), (asking(over_budget("c", "day")), True)):
        assert is_answer_on_budget(state, True, 1.0, None)
        assert is_answer_on_budget(state, True, None, 0)
        assert is_answer_on_budget(state, True, None, None) is asked
        assert is_answer_on_budget(state, False, 1.0, 1) is asked


def test_d3_a_decision_is_named_before_a_budget() -> None:
    budget = over_budget("c", "day")
    for events, word in (((), ""), ((APPROVAL,), ""), ((budget,), "budget"), ((budget, OUTCOME), "decision")):
        assert asked_beside_approval(asking(*events)) == word


def test_h1_resources_add_up_and_what_is_not_known_is_never_0() -> None:
    used = [None, Resources(1.0, 5, 2), None, Resources(0.5, 3, None, 7), Resources(memory=4)]
    assert summed(used) == Resources(1.5, 5, 2, 7)
    assert summed([None, Resources(0.0)]) == Resources(0.0)
    assert summed([None]) is None
    assert Resources(received=0).plus(Resources(received=3)) == Resources(received=3)
    assert msgspec.json.encode(Resources(cpu=0.5)) == b'{"cpu":0.5}'


def test_c6_an_approved_step_whose_outcome_is_unknown_has_no_open_request_for_approval() -> None:
    run = Simulation(plan_of({"id": "pay", "approve": "always", "effect": "once"}), hold=True)
    run.start()
    assert list(open_questions(run.state)) == ["pay"]
    run.approve("pay")
    run.crash()
    run.resume()
    assert (list(run.state.questions), open_questions(run.state)) == (["pay"], {})
