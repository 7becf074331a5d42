"""The rules, one sentence each: what is decided in which state (B3, C1, C2, C3, C6, D2, D3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_plans import attempts_of, chain, plan_of, statuses

from windlass.core import events as ev
from windlass.core.decide import Policy, Record, decide
from windlass.core.history import record_of
from windlass.core.standing import standing_still
from windlass.core.state import fold
from windlass.core.view import percent_of, progress, snapshot, whole_percent
from windlass.errors import Category, Failure
from windlass.plan.model import MAX_STEPS, Plan
from windlass.testing import Done, Fail, FakeClock, Hang, Script, Simulation, simulate

LOGIC = Failure(Category.LOGIC, "it makes no sense")
TRANSIENT = Failure(Category.TRANSIENT, "the network is down")
RESOURCE = Failure(Category.RESOURCE, "out of memory")


def started(plan: Plan, **options: Any) -> Simulation:
    run = Simulation(plan, **options)
    run.start()
    return run


# -- B3: order and skips -------------------------------------------------------------------------


def test_b3_steps_run_in_dependency_order_and_get_their_prerequisites_outputs() -> None:
    plan = plan_of(
        {"id": "sum", "with": {"a": "{{ steps.left.output }}", "b": "{{ steps.right.output }}"}},
        {"id": "left"},
        {"id": "right"},
    )
    run = started(plan)
    assert list(run.running) == ["left", "right"]
    run.finish("right", 4)
    assert "sum" not in run.running
    run.finish("left", [3])
    assert run.running["sum"].input == {"a": [3], "b": 4}


def test_b3_no_more_attempts_run_at_once_than_the_limit_allows() -> None:
    run = started(plan_of(*({"id": f"s{n}"} for n in range(7)), limits={"parallel": 3}))
    assert list(run.running) == ["s0", "s1", "s2"]
    run.finish("s1")
    assert list(run.running) == ["s0", "s2", "s3"]


def test_b3_a_failed_prerequisite_skips_its_dependents_and_nothing_else() -> None:
    plan = plan_of(
        {"id": "a"},
        {"id": "b", "needs": ["a"]},
        {"id": "c", "needs": ["b"]},
        {"id": "d"},
        {"id": "e", "needs": ["d"]},
        {"id": "f", "needs": ["d", "c"]},
    )
    run = simulate(plan, Script({"a": [Fail()]}))
    assert statuses(run) == {
        "a": "failed",
        "b": "skipped",
        "c": "skipped",
        "d": "completed",
        "e": "completed",
        "f": "skipped",
    }
    because = {step.id: step.skipped_because for step in run.state.top_level() if step.skipped_because}
    assert because == {"b": "dependency failed: a", "c": "dependency failed: b", "f": "dependency failed: c"}
    assert run.state.status == "partial"
    assert run.state.lacks == ("a", "b", "c", "f")


def test_b3_a_step_whose_condition_reads_the_failure_runs_all_the_same() -> None:
    plan = plan_of(
        {"id": "try"},
        {"id": "mend", "needs": ["try"], "when": "steps.try.status == 'failed'"},
        {"id": "cheer", "needs": ["try"], "when": "steps.try.status == 'completed'"},
    )
    failed = simulate(plan, Script({"try": [Fail()]}))
    assert statuses(failed) == {"try": "failed", "mend": "completed", "cheer": "skipped"}
    fine = simulate(plan)
    assert statuses(fine) == {"try": "completed", "mend": "skipped", "cheer": "completed"}
    assert fine.state.status == "completed"


def test_b3_a_step_in_charge_of_a_failure_reads_what_failed() -> None:
    plan = plan_of(
        {"id": "try", "foreach": [1, 2, 3]},
        {"id": "one"},
        {
            "id": "mend",
            "when": "steps.try.status == 'failed' and steps.one.status == 'failed'",
            "with": {
                "given": "{{ steps.try.output }}",
                "errors": "{{ steps.try.errors }}",
                "none": "{{ steps.one.output }}",
                "error": "{{ steps.one.error.message }}",
                "no_error": "{{ steps.fine.error }}",
                "known": "{{ 'one' in steps and 'other' not in steps }}",
            },
        },
        {"id": "fine"},
    )
    run = started(plan)
    run.finish("try[0]", "first")
    run.fail("try[1]", LOGIC)
    run.fail("try[2]", TRANSIENT)
    run.skip("try[2]")
    now = run.clock.now()
    run.running.pop("one")
    run.state.apply(ev.AttemptFailed(now, "one", 1, LOGIC, {"exit_code": 3}))
    run.finish("fine")
    errors = {"1": {"category": "logic", "message": "it makes no sense", "where": "try[1]"}}
    assert run.running["mend"].input == {
        "given": ["first", None, None],
        "errors": errors,
        "none": None,
        "error": "it makes no sense",
        "no_error": None,
        "known": True,
    }


def test_b3_a_false_condition_skips_its_dependents_without_anything_having_failed() -> None:
    plan = plan_of({"id": "a", "when": "1 > 2"}, {"id": "b", "needs": ["a"]}, {"id": "c"})
    run = simulate(plan)
    assert statuses(run) == {"a": "skipped", "b": "skipped", "c": "completed"}
    assert run.state.steps["a"].skipped_because == "condition was false: 1 > 2"
    assert run.state.steps["b"].skipped_because == "dependency skipped: a"
    assert (run.state.status, run.state.lacks) == ("completed", ())


# -- B5: fan-out ---------------------------------------------------------------------------------


def test_b5_a_foreach_gives_its_outputs_in_the_items_order_whatever_order_they_end_in() -> None:
    run = started(plan_of({"id": "f", "foreach": [10, 20, 30], "with": {"x": "{{ item }}", "i": "{{ index }}"}}))
    assert [started.input for started in run.performed] == [{"x": 10, "i": 0}, {"x": 20, "i": 1}, {"x": 30, "i": 2}]
    for child, output in (("f[2]", "c"), ("f[0]", "a"), ("f[1]", "b")):
        run.finish(child, output)
    assert run.state.steps["f"].output == ["a", "b", "c"]
    assert run.state.status == "completed"


def test_b5_a_foreach_over_nothing_completes_with_nothing() -> None:
    run = simulate(plan_of({"id": "f", "foreach": []}, {"id": "g", "with": {"x": "{{ steps.f.output }}"}}))
    assert run.state.steps["f"].output == []
    assert run.performed[0].input == {"x": []}


def test_b5_one_failed_item_fails_the_foreach_after_all_others_had_their_chance() -> None:
    run = simulate(plan_of({"id": "f", "foreach": [1, 2, 3]}), Script({"f[1]": [Fail("logic", "no such thing")]}))
    assert [run.state.steps[f"f[{n}]"].status for n in range(3)] == ["completed", "failed", "completed"]
    error = run.state.steps["f"].error
    assert error is not None
    assert error.message == "1 of 3 items failed, first f[1]: no such thing"


def test_b5_a_foreach_over_something_that_is_no_list_fails_with_words() -> None:
    run = simulate(plan_of({"id": "a"}, {"id": "f", "foreach": "steps.a.output"}), Script({"a": [Done(7)]}))
    error = run.state.steps["f"].error
    assert error is not None
    assert "foreach needs a list, but 'steps.a.output' gives the number 7" in error.message
    assert "steps.ID.output.stdout | from_json" in error.message
    assert error.advice


def test_b5_all_foreach_of_a_plan_together_have_no_more_items_than_a_plan_may_have_steps() -> None:
    plan = plan_of(*({"id": name, "foreach": f"inputs.{name}"} for name in "ab"), inputs={"a": [], "b": []})
    for more in (0, 1):
        run = Simulation(plan, {"a": [0], "b": [0] * (MAX_STEPS - 1 + more)})
        run.state.apply(ev.ExecutionStarted(run.clock.now(), "driver"))
        run.state.apply(ev.StepExpanded(run.clock.now(), "a", [0]))
        (found,) = [command.event for command in decide(run.state, 0.0) if isinstance(command, Record)]
        if more:
            assert isinstance(found, ev.StepFailed)
            assert found.failure.message.endswith(
                f"foreach over {MAX_STEPS} items exceeds the limit of {MAX_STEPS} for a plan"
            )
        else:
            assert isinstance(found, ev.StepExpanded)


def test_b5_a_foreach_that_picks_and_has_nothing_to_pick_says_why() -> None:
    picking = {"id": "f", "foreach": [1, 2], "pick": "first"}
    failing = simulate(plan_of(picking), Script({"f": [Fail("logic", "no such thing")]}))
    skipping = started(plan_of(picking))
    for item in ("f[0]", "f[1]"):
        skipping.skip(item)
        skipping.stop(item)
    empty = simulate(plan_of({**picking, "foreach": []}))
    for run, message in (
        (failing, "2 of 2 items failed, first f[0]: no such thing"),
        (skipping, "no item was picked: none of 2 completed"),
        (empty, "there is no item to pick"),
    ):
        error = run.state.steps["f"].error
        assert error is not None
        assert error.message == message


def test_b5_an_item_that_a_person_skipped_before_another_was_picked_says_so() -> None:
    run = started(plan_of({"id": "f", "foreach": [1, 2, 3], "pick": "first"}))
    run.skip("f[0]")
    run.stop("f[0]")
    run.finish("f[1]", "second")
    run.stop("f[2]")
    assert run.state.steps["f"].output == "second"
    because = [run.state.steps[f"f[{item}]"].skipped_because for item in range(3)]
    assert because == ["skipped by somebody", None, "f[1] was picked"]


# -- C1: phases and records ----------------------------------------------------------------------


def test_c1_the_phases_are_initialise_execute_and_done() -> None:
    run = Simulation(chain("a", "b"))
    assert run.state.phase == "initialise"
    run.start()
    assert run.state.phase == "execute"
    run.finish("a")
    run.finish("b")
    assert run.state.phase == "done"


def test_c1_input_output_error_and_times_of_every_step_can_be_read_back() -> None:
    plan = plan_of({"id": "a", "with": {"n": 1}}, {"id": "b", "with": {"n": 2}})
    run = simulate(plan, Script({"a": [Done({"x": "é"}, after=2.0)], "b": [Fail("logic", "no", after=3.0)]}))
    view = {step["id"]: step for step in snapshot(fold(run.journal))["steps"]}
    assert (view["a"]["input"], view["a"]["output"], view["a"]["error"]) == ({"n": 1}, {"x": "é"}, None)
    assert view["a"]["duration_s"] == 2.0
    error = view["b"]["error"]
    assert (error["category"], error["message"], error["where"]) == ("logic", "no", "b")
    assert error["advice"] == [
        "see what it did: windlass logs simulated --step b",
        "try it again: windlass retry simulated b",
        "try it with other arguments: windlass retry simulated b --with KEY=VALUE",
        "continue without it: windlass skip simulated b",
    ]
    assert view["b"]["duration_s"] == 3.0


# -- C2: what a failure means for the rest ------------------------------------------------------


def test_c2_a_critical_failure_stops_what_runs_and_skips_the_rest() -> None:
    run = started(
        plan_of({"id": "vital", "importance": "critical"}, {"id": "other"}, {"id": "late", "needs": ["other"]})
    )
    run.fail("vital", LOGIC)
    assert {step: stop.reason for step, stop in run.stopping.items()} == {"other": "critical"}
    run.stop("other")
    assert statuses(run) == {"vital": "failed", "other": "skipped", "late": "skipped"}
    assert run.state.steps["late"].skipped_because == "critical step vital failed"
    assert run.state.status == "failed"
    assert run.state.error == LOGIC.located("vital")


def test_c2_nothing_is_started_beside_a_critical_step_that_fails_before_it_runs() -> None:
    plan = plan_of(
        {"id": "other"}, {"id": "vital", "importance": "critical", "with": {"x": "{{ inputs.a.b }}"}}, inputs={"a": {}}
    )
    run = started(plan)
    assert run.performed == []
    assert statuses(run) == {"other": "skipped", "vital": "failed"}
    assert not any(isinstance(event, ev.AttemptStarted) for event in run.journal)


def test_c2_what_was_to_start_in_the_turn_that_a_critical_step_failed_never_does() -> None:
    """The skip of one step makes the critical one ready, whose template fails: three decisions, one turn."""
    plan = plan_of(
        {"id": "other"},
        {"id": "skipped", "when": "1 > 2"},
        {
            "id": "vital",
            "importance": "critical",
            "when": "steps.skipped.status == 'skipped'",
            "with": {"x": "{{ inputs.a.b }}"},
        },
        inputs={"a": {}},
    )
    run = started(plan)
    assert run.performed == []
    assert statuses(run) == {"other": "skipped", "skipped": "skipped", "vital": "failed"}
    assert run.state.status == "failed"


def test_c2_a_critical_step_is_retried_like_any_other_before_it_counts_as_failed() -> None:
    run = simulate(plan_of({"id": "a", "importance": "critical"}), Script({"a": [Fail("transient"), Done(1)]}))
    assert run.state.status == "completed"


def test_c2_an_optional_failure_leaves_dependents_running_with_a_null_output() -> None:
    plan = plan_of({"id": "nice", "importance": "optional"}, {"id": "b", "with": {"x": "{{ steps.nice.output }}"}})
    run = simulate(plan, Script({"nice": [Fail()]}))
    assert run.performed[-1].input == {"x": None}
    assert (run.state.status, run.state.lacks) == ("completed", ("nice",))


def test_c2_an_execution_of_which_nothing_completed_has_failed_and_is_not_partial() -> None:
    run = simulate(chain("a", "b"), Script({"a": [Fail("logic", "first cause")]}))
    assert run.state.status == "failed"
    assert run.state.error is not None
    assert run.state.error.message == "first cause"


def test_c2_a_critical_step_that_a_person_declares_failed_stops_the_execution_too() -> None:
    run = started(plan_of({"id": "pay", "importance": "critical", "effect": "once"}, {"id": "b"}, {"id": "c"}))
    run.crash()
    run.resume()
    run.finish("b")
    run.finish("c")
    run.settle("pay", "fail")
    run.resume()
    assert statuses(run)["pay"] == "failed"
    assert run.state.status == "failed", "a critical failure is one, whoever says so"


def test_c2_a_template_that_cannot_be_filled_in_fails_its_step_and_says_what_to_do() -> None:
    plan = plan_of({"id": "a"}, {"id": "b", "with": {"x": "{{ steps.a.output.nothing }}"}})
    run = simulate(plan, Script({"a": [Done({"some": 1})]}))
    error = run.state.steps["b"].error
    assert error is not None
    assert error.category == "logic"
    assert "nothing" in error.message
    assert error.advice
    assert attempts_of(run, "b") == []


# -- C3: retries under the parallel limit -------------------------------------------------------


def test_c3_a_retry_that_is_due_waits_for_room() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}, limits={"parallel": 1}))
    run.fail("a", TRANSIENT)
    assert list(run.running) == ["b"]
    run.pass_time(60.0)
    assert list(run.running) == ["b"]
    run.finish("b")
    assert [started.attempt for started in run.running.values()] == [2]


def test_c3_a_timer_whose_time_has_come_is_waited_for_no_longer() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}, {"id": "c"}, limits={"parallel": 2}))
    run.fail("a", TRANSIENT)
    run.pass_time(60.0)
    now = run.clock.now()
    assert run.state.next_timer(now) is None, "it waits for room, and a driver that naps until then would not nap"
    run.fail("b", TRANSIENT)
    due = run.state.next_timer(run.clock.now())
    assert due is not None
    assert due > run.clock.now()


def test_c3_a_retry_after_a_resource_failure_runs_alone() -> None:
    run = started(plan_of({"id": "big"}, {"id": "b"}, {"id": "c", "needs": ["b"]}, limits={"parallel": 4}))
    run.fail("big", RESOURCE)
    run.pass_time(60.0)
    assert list(run.running) == ["b"], "it waits until nothing else runs"
    run.finish("b")
    assert list(run.running) == ["big"], "and nothing else starts beside it"
    run.finish("big")
    assert list(run.running) == ["c"]


def test_c3_a_retry_after_a_resource_failure_does_not_start_together_with_another_retry() -> None:
    run = started(plan_of({"id": "a", "retry": {"delay": "1ms"}}, {"id": "big"}))
    run.fail("a", TRANSIENT)
    run.fail("big", RESOURCE)
    run.pass_time(60.0)
    assert list(run.running) == ["a"]
    run.finish("a")
    assert list(run.running) == ["big"]


def test_c3_a_reduced_attempt_that_was_interrupted_is_alone_again_when_it_goes_on() -> None:
    run = started(plan_of({"id": "big"}, {"id": "b"}, {"id": "c", "needs": ["b"]}))
    run.fail("big", RESOURCE)
    run.clock.advance(60.0)
    run.finish("b")
    assert list(run.running) == ["big"]
    run.interrupt()
    run.stop("big")
    run.resume()
    alone = list(run.running)
    assert alone in (["c"], ["big"])
    run.finish(alone[0])
    assert list(run.running) == [({"c", "big"} - set(alone)).pop()]


def test_c3_a_retry_after_any_other_failure_that_was_interrupted_goes_on_beside_others() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}))
    run.fail("b", TRANSIENT)
    run.pass_time(60.0)
    run.interrupt()
    run.stop("a")
    run.stop("b")
    run.resume()
    assert list(run.running) == ["a", "b"]


# -- C6: approval --------------------------------------------------------------------------------

GATED = {"id": "send", "approve": "always", "with": {"to": "{{ inputs.to }}"}}


def gated(**options: Any) -> Simulation:
    plan = plan_of(GATED, inputs={"to": "ann"})
    return started(plan, **options)


def test_c6_nothing_runs_before_the_answer_and_the_exact_arguments_are_shown() -> None:
    run = gated(hold=True)
    assert run.running == {}
    asked = run.state.questions["send"].approval
    assert asked is not None
    assert (asked.tool, asked.input) == ("t", {"to": "ann"})
    assert isinstance(run.journal[asked.seq - 1], ev.ApprovalAsked)
    run.approve("send")
    assert run.running["send"].input == {"to": "ann"}
    assert (run.state.steps["send"].waiting_for, run.state.steps["send"].until) == (None, None)
    assert not asked.untold, "an agent is told of answers to its own questions alone"


def test_c6_a_question_in_the_plans_own_words_is_answered_once() -> None:
    run = started(plan_of({**GATED, "question": "To {{ inputs.to }}?"}, inputs={"to": "ann"}), hold=True)
    assert run.state.questions["send"].question == "To ann?"
    run.approve("send")
    assert (list(run.running), run.state.questions) == (["send"], {})


def test_c6_a_denied_step_fails_without_ever_running() -> None:
    run = gated(hold=True)
    run.approve("send", allow=False)
    assert run.performed == []
    error = run.state.steps["send"].error
    assert error is not None
    assert (error.category, error.message) == ("permission", "denied by somebody")


def test_c6_an_unanswered_question_fails_closed_when_it_expires() -> None:
    run = gated(hold=True, policy=Policy(approval_expiry=100.0))
    run.pass_time(99.0)
    assert run.state.status == "running"
    run.pass_time(1.0)
    assert run.performed == []
    error = run.state.steps["send"].error
    assert error is not None
    assert error.category == "permission"
    assert "expired without an answer" in error.message


def test_c6_an_unanswered_question_fails_closed_even_if_nobody_was_there_when_it_expired() -> None:
    run = gated(policy=Policy(approval_expiry=100.0))
    assert (run.state.status, run.state.paused_for) == ("paused", "approval")
    run.clock.advance(101.0)
    run.resume()
    assert run.performed == []
    assert run.state.steps["send"].status == "failed"


@pytest.mark.parametrize(
    ("approve", "policy", "asked"),
    [
        ("never", Policy(), False),
        ("never", Policy(ask_for=("t",)), True),
        ("never", Policy(ask_for=("u", "T")), False),
        ("never", Policy(sensitive=("t",)), False),
        ("sensitive", Policy(sensitive=("t",)), True),
        ("sensitive", Policy(sensitive=("u.*",)), False),
        ("sensitive", Policy(sensitive=("*",)), True),
        ("sensitive", Policy(ask_for=("?",)), True),
        ("always", Policy(), True),
        ("sensitive", Policy(by_nature="t".__eq__), True),
        ("sensitive", Policy(by_nature="u".__eq__, sensitive=("u",)), False),
        ("never", Policy(by_nature="t".__eq__, ask_for=("u",)), False),
    ],
)
def test_c6_the_stricter_word_of_plan_and_settings_holds(approve: str, policy: Policy, asked: bool) -> None:
    plan = plan_of({**GATED, "approve": approve}, inputs={"to": "ann"})
    run = started(plan, policy=policy, hold=True)
    assert ("send" in run.state.questions) is asked
    assert ("send" in run.running) is not asked


def test_c6_an_answer_after_the_expiry_is_refused() -> None:
    run = gated(policy=Policy(approval_expiry=100.0))
    run.clock.advance(100.0)
    with pytest.raises(ValueError, match="expired"):
        run.approve("send")


def test_c6_an_answer_to_other_arguments_is_no_answer() -> None:
    run = gated(hold=True)
    now = run.clock.now()
    run.state.apply(ev.ApprovalAnswered(now, "send", "another digest", True, "mallory"))
    assert decide(run.state, now) == []
    assert run.state.questions["send"].approval is not None
    assert run.state.questions["send"].approval.allow is None


def test_c6_approval_is_asked_again_when_the_arguments_changed_since() -> None:
    run = gated()
    run.approve("send")
    plan = plan_of({**GATED, "with": {"to": "{{ inputs.to }}", "bcc": "mallory"}}, inputs={"to": "ann"})
    replanned(run, plan)
    assert run.running == {}
    asked = run.state.questions["send"].approval
    assert asked is not None
    assert asked.input == {"to": "ann", "bcc": "mallory"}


def test_c6_an_approval_given_while_nobody_drove_it_holds_after_a_resume() -> None:
    run = gated()
    run.approve("send")
    assert run.performed == []
    run.resume()
    assert list(run.running) == ["send"]


def test_c6_a_question_names_the_changes_since_the_last_answer_and_none_from_before_it() -> None:
    run = gated(hold=True)
    run.approve("send")
    attempt = run.running.pop("send").attempt
    changed = ev.AttemptStopped(run.clock.now(), "send", attempt, "changed", changes=("a file has changed",))
    run.state.apply(changed)
    run.journal.append(changed)
    run.pass_time(1.0)
    assert "a file has changed" in run.state.questions["send"].question
    run.approve("send")
    run.fail("send", LOGIC)
    run.retry("send", {"to": "bob"})
    run.resume()
    assert run.state.questions["send"].question == ""


def test_c6_each_item_of_a_foreach_asks_for_itself() -> None:
    run = started(
        plan_of({"id": "f", "foreach": ["x", "y"], "approve": "always", "with": {"v": "{{ item }}"}}), hold=True
    )
    assert list(run.state.questions) == ["f[0]", "f[1]"]
    run.approve("f[1]")
    assert list(run.running) == ["f[1]"]


def test_c6_a_retry_of_what_was_approved_does_not_ask_again() -> None:
    run = gated(hold=True)
    run.approve("send")
    run.fail("send", TRANSIENT)
    run.pass_time(10.0)
    assert run.running["send"].attempt == 2


# -- D2: what was cut off ------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["none", "repeatable"])
def test_d2_a_lost_attempt_is_repeated_if_its_effect_allows(effect: str) -> None:
    run = started(plan_of({"id": "a", "effect": effect}))
    run.crash()
    run.resume()
    assert attempts_of(run, "a") == [1, 2]
    assert any(isinstance(event, ev.AttemptStopped) and event.reason == "lost" for event in run.journal)


def test_d2_what_was_cut_off_goes_on_before_other_items_begin() -> None:
    run = started(plan_of({"id": "all", "foreach": [1, 2, 3, 4]}, limits={"parallel": 2}))
    run.crash()
    run.resume()
    assert [attempts_of(run, f"all[{item}]") for item in range(4)] == [[1, 2], [1, 2], [], []]
    run.finish("all[0]")
    assert attempts_of(run, "all[2]") == [1]


def test_d2_a_lost_once_attempt_is_put_to_a_person_and_the_rest_goes_on() -> None:
    run = started(plan_of({"id": "pay", "effect": "once"}, {"id": "b"}, {"id": "after", "needs": ["pay"]}))
    run.crash()
    run.resume()
    assert attempts_of(run, "pay") == [1]
    assert "may or may not have taken effect" in run.state.questions["pay"].question
    assert attempts_of(run, "b") == [1, 2]
    run.finish("b")
    assert (run.state.status, run.state.paused_for) == ("paused", "decision")


@pytest.mark.parametrize(
    ("choice", "attempts", "status"),
    [("again", [1, 2], "completed"), ("done", [1], "completed"), ("fail", [1], "failed")],
)
def test_d2_the_persons_word_on_a_lost_once_attempt_is_followed(choice: Any, attempts: list[int], status: str) -> None:
    run = started(plan_of({"id": "pay", "effect": "once"}))
    run.crash()
    run.resume()
    run.settle("pay", choice, "receipt" if choice == "done" else None)
    assert run.state.questions == {}
    run.resume()
    if choice == "again":
        run.finish("pay", "receipt")
    assert attempts_of(run, "pay") == attempts
    assert run.state.status == status
    assert run.state.steps["pay"].output == (None if choice == "fail" else "receipt")


def test_d2_a_once_attempt_that_ran_out_of_time_is_put_to_a_person_and_any_other_is_retried() -> None:
    run = started(plan_of({"id": "pay", "effect": "once"}, {"id": "look"}))
    run.time_out("pay")
    run.time_out("look")
    run.pass_time(60.0)
    assert attempts_of(run, "pay") == [1]
    assert run.state.questions["pay"].waiting_for == "outcome"
    assert attempts_of(run, "look") == [1, 2]


def test_d2_a_once_attempt_whose_start_was_never_on_disk_is_no_doubt() -> None:
    run = started(chain("a", "pay"))
    plan = plan_of({"id": "a"}, {"id": "pay", "needs": ["a"], "effect": "once"})
    run = started(plan)
    run.crash("before_commit")
    run.finish("a")
    assert attempts_of(run, "pay") == []
    run.resume()
    run.finish("a")
    assert attempts_of(run, "pay") == [1]


def test_d2_a_once_attempt_on_disk_that_never_ran_is_a_doubt_all_the_same() -> None:
    plan = plan_of({"id": "a"}, {"id": "pay", "needs": ["a"], "effect": "once"})
    run = started(plan)
    run.crash("after_commit")
    run.finish("a")
    run.resume()
    assert attempts_of(run, "pay") == []
    assert run.state.questions["pay"].waiting_for == "outcome"


def test_d2_a_completed_step_is_not_started_again_by_any_number_of_crashes() -> None:
    run = started(chain("a", "b"))
    run.finish("a", 1)
    for _ in range(20):
        run.crash()
        run.resume()
    assert attempts_of(run, "a") == [1]


# -- D3: pause, interrupt, cancel ----------------------------------------------------------------


def test_d3_a_pause_lets_running_attempts_finish_and_starts_nothing_new() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}, {"id": "c", "needs": ["a"]}, limits={"parallel": 2}))
    run.pause()
    assert run.stopping == {}
    run.finish("a")
    assert run.state.status == "running"
    run.finish("b")
    assert (run.state.status, run.state.paused_for) == ("paused", "pause")
    assert attempts_of(run, "c") == []
    run.resume()
    assert list(run.running) == ["c"]


@pytest.mark.parametrize("how", ["interrupt", "pause now"])
def test_d3_an_interrupt_stops_running_attempts_and_a_resume_repeats_them(how: str) -> None:
    run = started(plan_of({"id": "a"}))
    run.interrupt() if how == "interrupt" else run.pause(now=True)
    assert run.stopping["a"].reason == "paused"
    run.stop("a")
    assert (run.state.status, run.state.paused_for) == ("paused", how.removesuffix(" now"))
    assert run.state.steps["a"].status == "paused"
    run.resume()
    assert run.running["a"].attempt == 2


def test_d3_an_outcome_that_comes_in_spite_of_an_interrupt_is_kept() -> None:
    run = started(chain("a", "b"))
    run.interrupt()
    run.finish("a", 5)
    assert run.state.status == "paused"
    run.resume()
    assert list(run.running) == ["b"]
    assert run.state.steps["a"].output == 5


def test_d3_an_interrupted_once_attempt_is_put_to_a_person() -> None:
    run = started(plan_of({"id": "pay", "effect": "once"}))
    run.interrupt()
    run.stop("pay")
    assert (run.state.status, run.state.paused_for) == ("paused", "interrupt")
    assert run.state.questions["pay"].waiting_for == "outcome"
    run.resume()
    assert attempts_of(run, "pay") == [1]
    assert run.state.paused_for == "decision"


def test_d3_a_pause_while_waiting_for_a_retry_keeps_the_retry() -> None:
    run = started(plan_of({"id": "a"}))
    run.fail("a", TRANSIENT)
    run.pause()
    assert run.state.status == "paused"
    run.clock.advance(3600.0)
    run.resume()
    assert run.running["a"].attempt == 2


def test_d3_a_pause_while_waiting_for_approval_keeps_the_question() -> None:
    run = gated(hold=True)
    run.pause()
    assert run.state.status == "paused"
    run.resume()
    assert list(run.state.questions) == ["send"]
    run.approve("send")
    assert list(run.running) == ["send"]


def test_d3_it_can_be_paused_and_resumed_many_times() -> None:
    run = started(chain("a", "b"))
    for attempt in range(1, 30):
        assert run.running["a"].attempt == attempt
        run.interrupt()
        run.stop("a")
        run.resume()
    run.finish("a")
    run.finish("b")
    assert run.state.status == "completed"


def test_d3_a_cancel_stops_everything_and_says_of_each_step_why_it_did_not_run() -> None:
    run = started(plan_of({"id": "a"}, {"id": "f", "foreach": [1, 2]}, {"id": "z", "needs": ["a"]}))
    run.finish("f[0]")
    run.cancel()
    assert {stop.reason for stop in run.stopping.values()} == {"cancelled"}
    run.stop("a")
    run.stop("f[1]")
    assert run.state.status == "cancelled"
    assert {step.skipped_because for step in run.state.steps.values() if step.status == "skipped"} == {
        "execution cancelled"
    }
    assert run.state.steps["f[0]"].status == "completed"
    assert statuses(run) == {"a": "skipped", "f": "skipped", "z": "skipped"}


def test_d3_a_pause_after_a_cancel_does_not_take_it_back() -> None:
    run = started(plan_of({"id": "a"}))
    run.cancel()
    run.pause()
    run.stop("a")
    assert run.state.status == "cancelled"


def test_d3_a_cancel_that_a_crash_came_between_is_still_carried_out() -> None:
    run = started(plan_of({"id": "a"}, {"id": "pay", "effect": "once"}))
    run.cancel()
    run.crash()
    run.resume()
    assert run.state.status == "cancelled"
    assert attempts_of(run, "a") == [1]


def test_d3_a_pause_that_a_crash_came_between_is_answered_by_the_resume() -> None:
    run = started(plan_of({"id": "a"}))
    run.pause()
    run.crash()
    run.resume()
    assert run.state.status == "running"


def test_d3_a_paused_execution_says_when_it_expires_and_what_becomes_of_it() -> None:
    run = started(plan_of({"id": "a"}), policy=Policy(pause_expiry=60.0, on_expiry="resume"))
    run.interrupt()
    run.stop("a")
    assert run.state.expires_at == run.clock.now() + 60.0
    assert run.state.on_expiry == "resume"


# -- limits of the whole execution --------------------------------------------------------------


def test_c8_the_time_limit_stops_it_and_pauses_do_not_count() -> None:
    run = started(plan_of({"id": "a"}, limits={"timeout": 100}))
    run.pass_time(60.0)
    run.interrupt()
    run.stop("a")
    run.clock.advance(10_000.0)
    run.resume()
    run.pass_time(39.0)
    assert run.stopping == {}
    run.pass_time(1.0)
    run.stop("a")
    assert run.state.status == "failed"
    assert run.state.error is not None
    assert "limit of 100 s" in run.state.error.message


def test_c8_a_crash_does_not_give_back_the_time_that_was_used_before_it() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}, limits={"timeout": 100}))
    run.clock.advance(60.0)
    run.finish("a")
    run.crash()
    run.resume()
    assert run.state.worked(run.clock.now()) == pytest.approx(60.0)
    run.pass_time(40.0)
    assert "b" in run.stopping


def test_a_hanging_attempt_ends_by_the_time_limit_of_its_step() -> None:
    plan = plan_of({"id": "a", "timeout": 5})
    run = simulate(plan, Script({"a": [Hang(), Done("at last")]}))
    assert run.state.steps["a"].output == "at last"


# -- standing still ------------------------------------------------------------------------------


def test_it_does_not_stand_still_while_a_retry_is_to_come() -> None:
    run = started(plan_of({"id": "a"}, {"id": "send", "approve": "always"}))
    run.fail("a", TRANSIENT)
    assert standing_still(run.state) is None
    run.pass_time(10.0)
    run.finish("a")
    assert run.state.paused_for == "approval"


def test_deciding_changes_nothing() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b", "foreach": [1, 2]}))
    run.finish("a")
    before = snapshot(run.state)
    for _ in range(3):
        decide(run.state, run.clock.now() + 1000.0)
    assert snapshot(run.state) == before


# -- a changed plan ------------------------------------------------------------------------------


def replanned(run: Simulation, plan: Plan) -> None:
    """Resume with another plan, as `windlass resume --accept-changes` does."""
    assert not run.driving
    history = fold(run.journal)
    raw = msgspec.Raw(plan.encoded)
    event = ev.ExecutionReplanned(run.clock.now(), raw, ev.Source())
    history.apply(event)
    run.journal.append(event)
    run.resume()


def test_d5_a_new_plan_keeps_what_completed_and_tries_again_what_failed() -> None:
    run = started(chain("a", "b"))
    run.finish("a", 1)
    run.interrupt()
    run.stop("b")
    replanned(run, chain("a", "b", "c"))
    assert list(run.running) == ["b"]
    run.finish("b")
    run.finish("c")
    assert (run.state.status, attempts_of(run, "a")) == ("completed", [1])


def test_d5_what_completed_or_asks_keeps_its_standing_although_it_now_needs_another_step() -> None:
    run = started(plan_of({"id": "a"}, {"id": "pay", "effect": "once"}, {"id": "late", "needs": ["pay"]}))
    run.finish("a", 1)
    run.crash()
    run.resume()
    assert run.state.paused_for == "decision"
    first = {"id": "first", "with": {"x": "{{ steps.a.output }}"}}
    pay = {"id": "pay", "effect": "once", "needs": ["a"]}
    replanned(run, plan_of({"id": "a", "needs": ["new"]}, {"id": "new"}, pay, {**first, "needs": ["a"]}))
    assert {name: started.input for name, started in run.running.items()} == {"new": {}, "first": {"x": 1}}
    assert list(run.state.questions) == ["pay"]
    run.finish("new")
    run.finish("first")
    run.settle("pay", "done")
    run.resume()
    assert (run.state.status, attempts_of(run, "a"), attempts_of(run, "pay")) == ("completed", [1], [1])


@pytest.mark.parametrize(("first", "status"), [("finish", "partial"), ("fail", "failed")])
def test_d5_what_completed_before_the_plan_changed_counts_at_the_end(first: str, status: str) -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}))
    run.finish("a") if first == "finish" else run.fail("a", LOGIC)
    run.interrupt()
    run.stop("b")
    replanned(run, plan_of({"id": "a"}, {"id": "b", "with": {"other": 1}}))
    if first == "fail":
        run.fail("a", LOGIC)
    assert run.running["b"].input == {"other": 1}, "the new plan holds for what is under way"
    run.fail("b", LOGIC)
    assert run.state.status == status


def test_d5_the_new_plans_inputs_have_their_values_from_before_or_else_their_defaults() -> None:
    given = {"to": "{{ inputs.to }}"}
    run = started(plan_of({"id": "a", "with": given}, inputs={"to": "ann", "old": 1}), inputs={"to": "bob"})
    run.interrupt()
    run.stop("a")
    both = {**given, "cc": "{{ inputs.cc }}"}
    replanned(run, plan_of({"id": "a", "with": both}, inputs={"to": "ann", "cc": "eve"}))
    assert run.running["a"].input == {"to": "bob", "cc": "eve"}
    assert run.state.inputs == {"to": "bob", "cc": "eve"}


@pytest.mark.parametrize(("words", "questions"), [("Now?", 1), ("Really?", 2)])
def test_d5_an_open_question_is_put_anew_only_if_the_plan_changed_its_step(words: str, questions: int) -> None:
    run = started(plan_of({"id": "a", "approve": "always", "question": "Now?"}))
    replanned(run, plan_of({"id": "a", "approve": "always", "question": words}, {"id": "new"}))
    assert sum(isinstance(event, ev.ApprovalAsked) for event in run.journal) == questions
    assert run.state.questions["a"].question == words


def test_d5_a_step_that_a_changed_plan_runs_without_its_question_has_worked_as_long_as_it_ran() -> None:
    run = started(plan_of({"id": "a", "approve": "always"}))
    run.clock.advance(100.0)
    replanned(run, plan_of({"id": "a"}))
    run.clock.advance(50.0)
    run.finish("a")
    step = run.state.steps["a"]
    assert (step.status, step.worked, step.waited, step.person) == ("completed", 50.0, 100.0, 100.0)
    assert step.waiting_since is None


def test_d7_a_wait_for_an_answer_counts_once_although_a_changed_plan_asks_anew() -> None:
    run = started(plan_of({"id": "a", "approve": "always", "question": "Now?"}))
    run.clock.advance(100.0)
    replanned(run, plan_of({"id": "a", "approve": "always", "question": "Really?"}))
    run.clock.advance(10.0)
    run.approve("a")
    run.resume()
    run.finish("a")
    (record,) = record_of(run.state).steps
    assert (record.waited_s, record.person_s) == (0.0, 110.0)


def test_d5_a_step_whose_question_a_changed_plan_withdrew_is_judged_by_the_new_plan() -> None:
    run = started(plan_of({"id": "a", "approve": "always", "question": "Now?"}))
    replanned(run, plan_of({"id": "a", "approve": "always", "when": "1 > 2"}))
    assert (statuses(run), run.state.status) == ({"a": "skipped"}, "completed")


def test_d5_an_item_that_ended_with_its_question_open_stays_ended_although_the_plan_changed_the_question() -> None:
    for how in ("skipped", "failed"):
        items = {"id": "f", "foreach": [1, 2], "approve": "always"}
        run = started(plan_of({**items, "question": "Now?"}), hold=True)
        run.approve("f[1]")
        run.skip("f[0]") if how == "skipped" else run.pass_time(86400.0)
        assert run.state.steps["f[0]"].status == how
        run.interrupt()
        run.stop("f[1]")
        replanned(run, plan_of({**items, "question": "Really?"}))
        assert run.state.status == "running", "the other item is asked about, and has not ended"
        run.approve("f[1]")
        run.finish("f[1]", 2)
        assert [run.state.steps[f"f[{item}]"].status for item in range(2)] == [how, "completed"]
        assert run.state.steps["f"].output == [None, 2]


def test_d5_what_was_cut_off_before_the_plan_changed_is_repeated_or_put_to_a_person() -> None:
    run = started(plan_of({"id": "a"}, {"id": "pay", "effect": "once"}))
    run.crash()
    replanned(run, plan_of({"id": "a"}, {"id": "pay", "effect": "once"}, {"id": "new"}))
    assert (attempts_of(run, "a"), attempts_of(run, "new"), attempts_of(run, "pay")) == ([1, 2], [1], [1])
    assert run.state.questions["pay"].waiting_for == "outcome"


def test_d5_a_foreach_whose_items_are_done_completes_although_the_plan_changed() -> None:
    run = started(plan_of({"id": "f", "foreach": [1, 2]}))
    run.interrupt()
    run.finish("f[0]", "one")
    run.finish("f[1]", "two")
    assert run.state.status == "paused"
    replanned(run, plan_of({"id": "f", "foreach": [1, 2]}, {"id": "after", "with": {"x": "{{ steps.f.output }}"}}))
    assert run.running["after"].input == {"x": ["one", "two"]}


def test_d5_an_approval_that_was_given_before_the_plan_changed_still_counts() -> None:
    run = gated()
    run.approve("send")
    replanned(run, plan_of(GATED, {"id": "new"}, inputs={"to": "ann"}))
    assert sorted(run.running) == ["new", "send"]


def test_d5_a_decision_that_was_made_before_the_plan_changed_still_counts() -> None:
    run = started(plan_of({"id": "pay", "effect": "once"}))
    run.crash()
    run.resume()
    run.settle("pay", "again")
    replanned(run, plan_of({"id": "pay", "effect": "once"}, {"id": "new"}))
    assert sorted(run.running) == ["new", "pay"]


def test_d5_a_once_step_that_was_cut_off_is_put_to_a_person_although_the_plan_changed() -> None:
    vital, pay = {"id": "vital", "importance": "critical"}, {"id": "pay", "effect": "once"}
    run = started(plan_of(vital, pay))
    run.fail("vital", LOGIC)
    run.stop("pay")
    run.retry("vital")
    replanned(run, plan_of(vital, pay, {"id": "new"}))
    assert list(run.running) == ["vital", "new"]
    assert run.state.questions["pay"].waiting_for == "outcome"
    run.settle("pay", "again")
    assert attempts_of(run, "pay") == [1, 2]


def test_d5_arguments_that_a_person_gave_hold_although_the_new_plan_wants_another_step_first() -> None:
    run = started(plan_of({"id": "a"}))
    run.fail("a", LOGIC)
    run.retry("a", {"own": 2})
    run.resume()
    run.interrupt()
    run.stop("a")
    replanned(run, plan_of({"id": "a", "needs": ["first"]}, {"id": "first"}))
    run.finish("first")
    assert (run.running["a"].input, run.running["a"].attempt) == ({"own": 2}, 3)


def test_d5_a_step_under_way_that_now_needs_another_one_waits_for_it() -> None:
    run = started(plan_of({"id": "a"}))
    run.interrupt()
    run.stop("a")
    replanned(run, plan_of({"id": "a", "needs": ["first"]}, {"id": "first"}))
    assert list(run.running) == ["first"]
    run.finish("first")
    run.finish("a")
    assert run.state.status == "completed"
    assert attempts_of(run, "a") == [1, 2]


def test_d5_attempts_are_counted_on_across_a_change_of_the_plan() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b"}))
    run.fail("a", Failure(Category.LOGIC, "wrong"))
    run.interrupt()
    run.stop("b")
    replanned(run, plan_of({"id": "a"}, {"id": "b"}, {"id": "c"}))
    assert run.state.steps["a"].attempts == 2
    assert attempts_of(run, "a") == [1, 2]


def test_progress_counts_a_foreach_by_its_items() -> None:
    run = started(plan_of({"id": "a"}, {"id": "b", "foreach": [1, 2, 3, 4]}, limits={"parallel": 10}))
    assert progress(run.state) == 0.0
    run.finish("b[2]")
    assert progress(run.state) == 12.5
    run.finish("a")
    assert progress(run.state) == 62.5
    for item in ("b[0]", "b[1]", "b[3]"):
        run.finish(item)
    assert progress(run.state) == 100.0


def test_i4_a_hundred_percent_are_said_of_what_is_done_alone() -> None:
    steps = [{"id": f"s{n}"} for n in range(400)]
    run = started(plan_of(*steps, limits={"parallel": 400}))
    for step in steps[:-1]:
        run.finish(step["id"])
    assert (progress(run.state), whole_percent(progress(run.state))) == (99.8, 99)
    assert percent_of(run.state, 399.99) == 99.9
    run.finish("s399")
    assert (progress(run.state), whole_percent(progress(run.state))) == (100.0, 100)


def test_the_fake_clock_can_be_turned_back_but_time_does_not_pass_backwards() -> None:
    clock = FakeClock(100.0)
    clock.advance(5.0)
    assert clock.now() == 105.0
    clock.set(50.0)
    assert clock.now() == 50.0
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1.0)
