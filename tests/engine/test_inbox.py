"""Messages to an execution that come too late, twice or with nonsense write nothing (D2, D10, C6, E3, K1)."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine.inbox import checked_limit, to_events
from windlass.errors import Category, Failure, UsageError
from windlass.plan.model import Plan
from windlass.ports import Message
from windlass.testing import Simulation

NOW = 50.0
AGENT = {"agent": "developer", "prompt": "do it"}


def simulation(*steps: dict[str, Any]) -> Simulation:
    run = Simulation(
        Plan.model_validate({"name": "p", "steps": [{"tool": "t", **s} if "agent" not in s else s for s in steps]})
    )
    run.start()
    return run


def given(state: State, kind: str, at: float = NOW, **body: Any) -> list[ev.Event]:
    return to_events(state, Message(1, state.id, at, {"kind": kind, **body}), at)


def test_d3_the_reason_of_a_first_request_stays_the_reason_of_the_pause() -> None:
    run = simulation({"id": "a"})
    closing = {"by": "the engine closing", "reason": "restart"}
    assert given(run.state, "interrupt", **closing) == [
        ev.ControlRequested(NOW, "interrupt", "the engine closing", False, "restart")
    ]
    run.state.apply(ev.ControlRequested(1.0, "pause", "me"))
    (asked,) = given(run.state, "interrupt", **closing)
    assert isinstance(asked, ev.ControlRequested)
    assert asked.reason == "pause"
    assert given(run.state, "cancel", by="me", now=True) == [ev.ControlRequested(NOW, "cancel", "me", True, "")]
    assert given(run.state, "dance") == []


def test_c6_an_answer_holds_for_the_open_question_until_it_expires() -> None:
    run = simulation({"id": "a"}, {"id": "b"})
    run.state.apply(ev.ApprovalAsked(9.0, "a", "digest", "t", {}, 99.0, 1))
    answer = {"step": "a", "digest": "digest", "allow": True, "by": "me", "request": "r"}
    said = ev.ApprovalAnswered(98.0, "a", "digest", True, "me", "", "r")
    assert given(run.state, "approve", 98.0, **answer) == [said]
    assert given(run.state, "approve", 99.0, **answer) == [], "it expires at that moment"
    assert given(run.state, "approve", 98.0, **{**answer, "digest": "other"}) == []
    assert given(run.state, "approve", 98.0, **{**answer, "step": "b"}) == []
    assert given(run.state, "approve", 98.0, **{**answer, "step": "gone"}) == []
    run.state.apply(said)
    assert given(run.state, "approve", 98.0, **{**answer, "allow": False}) == [], "it was answered before"


def test_d2_a_decision_counts_only_for_a_step_whose_outcome_is_unknown() -> None:
    run = simulation({"id": "a"}, {"id": "b"})
    decision = {"choice": "redo", "by": "me", "request": "r"}
    assert given(run.state, "decide", step="a", **decision) == []
    run.state.apply(ev.ApprovalAsked(9.0, "b", "digest", "t", {}, 99.0, 1))
    assert given(run.state, "decide", step="b", **decision) == [], "it asks for something else"
    run.state.apply(ev.StepWaiting(9.0, "a", "outcome", None, "did it?"))
    assert given(run.state, "decide", step="a", **decision) == [ev.DecisionMade(NOW, "a", "redo", "me", None, "r")]


def test_f3_a_summary_is_asked_of_an_agent_that_has_not_ended() -> None:
    run = simulation({"id": "work", **AGENT}, {"id": "plain"})
    asked = {"by": "me", "request": "r"}
    assert given(run.state, "summarise", step="work", **asked) == [ev.AgentSummaryRequested(NOW, "work", "me", "r")]
    assert given(run.state, "summarise", step="plain", **asked) == []
    assert given(run.state, "summarise", step="gone", **asked) == []
    run.finish("work")
    assert given(run.state, "summarise", step="work", **asked) == []


def test_d10_a_retry_or_skip_that_came_too_late_writes_nothing() -> None:
    run = simulation({"id": "a"}, {"id": "b"})
    assert given(run.state, "retry", step="gone") == []
    assert given(run.state, "retry", step="a", by="me") == [], "it runs"
    assert given(run.state, "skip", step="a", request="r") == [ev.StepSkipRequested(NOW, "a", "somebody", "r")]
    assert given(run.state, "skip", step="a", by="me") == [ev.StepSkipRequested(NOW, "a", "me", "")]
    run.finish("b")
    assert given(run.state, "skip", step="b", by="me") == [], "it is completed"
    run.fail("a", Failure(Category.LOGIC, "broken"))
    (retried,) = given(run.state, "retry", step="a", by="me", edits={"own": 1}, model="m", fresh=True, request="r")
    assert retried == ev.StepRetried(NOW, "a", "me", {"own": 1}, "", "m", True, "r")
    run.state.apply(retried)
    assert given(run.state, "retry", step="a", by="me") == [], "somebody else was first"


def test_k1_a_message_to_an_agent_that_cannot_get_it_any_more_writes_nothing() -> None:
    run = simulation({"id": "work", **AGENT}, {"id": "plain"})
    told = {"id": "m1", "text": "mind the tests", "by": "me"}
    assert given(run.state, "say", step="work", **told) == [ev.AgentTold(NOW, "work", "m1", "mind the tests", "me")]
    assert given(run.state, "say", step="plain", **told) == []
    assert given(run.state, "say", step="gone", **told) == []
    run.finish("work")
    assert given(run.state, "say", step="work", **told) == []


def test_e3_an_answer_about_the_budget_that_answers_nothing_writes_nothing() -> None:
    run = simulation({"id": "a"})
    assert given(run.state, "budget", allow=True, by="me") == [], "nobody asks"
    assert given(run.state, "budget", allow=True, usd=-1.0) == [], "there is no such limit"
    assert given(run.state, "budget", allow=True, usd=2.0, by="me", note="n", request="r") == [
        ev.BudgetAnswered(NOW, True, "me", "", "execution", 2.0, None, "n", "r")
    ]
    run.state.apply(ev.StepWaiting(9.0, "a", "budget", None, "more?", scope="day"))
    (answer,) = given(run.state, "budget", allow=False, scope="day", step="a")
    assert answer == ev.BudgetAnswered(NOW, False, "", "a", "day", None, None, "", "")


def test_e3_a_limit_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"^a budget of -1 tokens: "):
        checked_limit(None, -1)


def test_c1_an_answer_that_a_step_tried_to_give_is_on_record() -> None:
    run = simulation({"id": "a"})
    assert given(run.state, "refused", what="approve", by="step a", request="r") == [
        ev.AnswerRefused(NOW, "approve", "step a", "", "r")
    ]
