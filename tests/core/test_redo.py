"""Retrying and skipping a step by a person: the rules (D10, D8)."""

from __future__ import annotations

import pytest
from core_plans import attempts_of, plan_of, statuses

from windlass.cli.text import describe, summary
from windlass.core import events as ev
from windlass.core.edit import misplaced
from windlass.core.redo import check_retry, check_skip, is_over
from windlass.core.say import LONGEST_MESSAGE, check_say, checked_message
from windlass.core.state import fold
from windlass.core.view import snapshot
from windlass.errors import Category, Failure, UsageError
from windlass.plan.model import Plan
from windlass.testing import Simulation

BROKEN = Failure(Category.LOGIC, "broken")


def failed(run: Simulation, step: str) -> None:
    run.fail(step, BROKEN)


def test_d10_a_retry_after_the_end_goes_on_in_the_same_execution_with_what_was_skipped() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c", "needs": ["b"]}, {"id": "other"}))
    run.start()
    failed(run, "a")
    run.finish("other", 1)
    assert (run.state.status, statuses(run)["c"]) == ("partial", "skipped")
    run.retry("a", {"own": 2})
    assert (run.state.status, run.state.paused_for, run.state.finished_at) == ("paused", "reopened", None)
    run.resume()
    assert run.running["a"].input == {"own": 2}
    assert run.running["a"].attempt == 2
    for step in ("a", "b", "c"):
        run.finish(step, step)
    assert run.state.status == "completed"
    assert attempts_of(run, "other") == [1], "what was completed is not repeated"


def test_d10_a_command_that_a_person_gives_takes_the_place_of_the_plans_as_a_line_or_as_words() -> None:
    commands: tuple[tuple[object, object, dict[str, object]], ...] = (
        ("make", "make test", {"line": "make test"}),
        ("make", ["make", "test"], {"argv": ["make", "test"]}),
        (["make"], "make test", {"line": "make test"}),
        (["make"], ["make", "test"], {"argv": ["make", "test"]}),
    )
    for planned, given, arguments in commands:
        run = Simulation(Plan.model_validate({"steps": [{"id": "a", "run": planned, "env": {"CI": "1"}}]}))
        run.start()
        failed(run, "a")
        run.retry("a", {"run": given})
        run.resume()
        assert run.running["a"].input == {**arguments, "env": {"CI": "1"}}


def test_d10_other_arguments_that_a_person_gives_leave_the_command_and_a_tools_own_run_is_no_command() -> None:
    for step, given, arguments in (
        ({"id": "a", "run": "make"}, {"env": {"CI": "1"}}, {"line": "make", "env": {"CI": "1"}}),
        ({"id": "a", "tool": "t", "with": {"run": 1}}, {"run": 2}, {"run": 2}),
    ):
        run = Simulation(Plan.model_validate({"steps": [step]}))
        run.start()
        failed(run, "a")
        run.retry("a", given)
        run.resume()
        assert run.running["a"].input == arguments


def test_d10_arguments_that_an_agent_has_not_are_named_and_those_of_other_steps_are_left_to_their_tools() -> None:
    plan = Plan.model_validate({"steps": [{"id": "a", "agent": "developer", "prompt": "x"}, {"id": "b", "tool": "t"}]})
    assert [misplaced(spec, ["prompt", "model", "text"]) for spec in plan.steps] == [["model", "text"], []]


def test_d10_a_step_that_took_charge_of_the_failure_stays_run_and_the_others_follow() -> None:
    run = Simulation(
        plan_of(
            {"id": "a"},
            {"id": "mends", "when": "steps.a.status == 'failed'"},
            {"id": "uses", "when": "steps.a.status == 'completed'"},
        )
    )
    run.start()
    failed(run, "a")
    run.finish("mends", "mended")
    assert statuses(run) == {"a": "failed", "mends": "completed", "uses": "skipped"}
    run.retry("a")
    run.resume()
    run.finish("a")
    run.finish("uses")
    assert (run.state.status, attempts_of(run, "mends")) == ("completed", [1])


ROLLBACK = {"id": "rollback", "when": "steps.deploy.status == 'failed'", "approve": "always"}


def test_d10_a_step_that_waits_because_of_a_failure_is_judged_anew_after_the_retry() -> None:
    run = Simulation(plan_of({"id": "deploy"}, ROLLBACK))
    run.start()
    failed(run, "deploy")
    assert run.state.steps["rollback"].waiting_for == "approval"
    run.retry("deploy")
    run.resume()
    assert statuses(run) == {"deploy": "running", "rollback": "pending"}
    assert not run.state.questions
    run.finish("deploy")
    assert statuses(run) == {"deploy": "completed", "rollback": "skipped"}
    assert run.state.status == "completed"


def test_d10_a_step_whose_prerequisite_fails_again_asks_again() -> None:
    run = Simulation(plan_of({"id": "deploy"}, ROLLBACK))
    run.start()
    failed(run, "deploy")
    run.retry("deploy")
    run.resume()
    failed(run, "deploy")
    assert (statuses(run)["rollback"], run.state.steps["rollback"].waiting_for) == ("waiting", "approval")


def test_d10_a_skip_that_is_taken_back_holds_what_waits_after_it() -> None:
    steps = ({"id": "b"}, {"id": "c", "needs": ["b"], "approve": "always"}, {"id": "d", "needs": ["c"]})
    run = Simulation(plan_of(*steps))
    run.start()
    failed(run, "b")
    run.skip("b")
    run.resume()
    assert run.state.steps["c"].waiting_for == "approval"
    run.retry("b")
    run.resume()
    assert statuses(run) == {"b": "running", "c": "pending", "d": "pending"}
    failed(run, "b")
    assert statuses(run) == {"b": "failed", "c": "skipped", "d": "skipped"}


def test_d10_a_step_that_waits_for_its_own_retry_waits_for_its_prerequisite_first() -> None:
    retry = {"delay": 60, "max_delay": 60}
    run = Simulation(plan_of({"id": "b", "importance": "optional"}, {"id": "c", "needs": ["b"], "retry": retry}))
    run.start()
    failed(run, "b")
    run.fail("c", Failure(Category.TRANSIENT, "for a moment"))
    run.retry("b")
    run.pass_time(3600.0)
    assert statuses(run) == {"b": "running", "c": "pending"}
    run.finish("b", 1)
    assert run.running["c"].attempt == 2


def test_d10_a_running_step_that_fails_meanwhile_waits_for_its_prerequisite_before_its_own_retry() -> None:
    retry = {"delay": 60, "max_delay": 60}
    run = Simulation(plan_of({"id": "b", "importance": "optional"}, {"id": "c", "needs": ["b"], "retry": retry}))
    run.start()
    failed(run, "b")
    run.retry("b")
    run.fail("c", Failure(Category.TRANSIENT, "for a moment"))
    run.pass_time(3600.0)
    assert list(run.running) == ["b"]
    run.finish("b", 1)
    assert run.running["c"].attempt == 2


def test_d10_items_of_a_foreach_wait_for_a_prerequisite_that_is_tried_again() -> None:
    each = {"id": "c", "needs": ["b"], "foreach": [1, 2, 3], "with": {"own": "{{ steps.b.output }}"}}
    run = Simulation(plan_of({"id": "b", "importance": "optional"}, each, limits={"parallel": 2}))
    run.start()
    failed(run, "b")
    assert list(run.running) == ["c[0]", "c[1]"]
    run.retry("b")
    run.finish("c[0]")
    assert list(run.running) == ["c[1]", "b"], "no item starts before its prerequisite has settled"
    run.interrupt()
    run.stop("c[1]")
    run.stop("b")
    run.resume()
    assert list(run.running) == ["b"]
    run.finish("b", 1)
    assert [run.running[name].input for name in ("c[1]", "c[2]")] == [{"own": 1}, {"own": 1}]


def test_d10_a_question_of_a_prerequisite_pauses_the_items_that_wait_for_it() -> None:
    steps = ({"id": "b", "importance": "optional", "approve": "always"}, {"id": "c", "needs": ["b"], "foreach": [1, 2]})
    run = Simulation(plan_of(*steps, limits={"parallel": 1}))
    run.start()
    run.approve("b")
    run.resume()
    failed(run, "b")
    run.retry("b", {"own": 2})
    run.finish("c[0]")
    assert (run.state.status, run.state.paused_for) == ("paused", "approval")


def test_d10_a_retry_that_waits_for_its_prerequisite_does_not_keep_an_execution_from_pausing() -> None:
    asks = {"id": "b", "importance": "optional", "approve": "always"}
    run = Simulation(plan_of(asks, {"id": "c", "needs": ["b"], "retry": {"delay": 60, "max_delay": 60}}))
    run.start()
    run.approve("b")
    run.resume()
    failed(run, "b")
    run.retry("b", {"own": 2})
    run.fail("c", Failure(Category.TRANSIENT, "for a moment"))
    assert (run.state.status, run.state.paused_for) == ("paused", "approval")


def test_d10_a_question_about_an_item_is_put_anew_after_the_retry_of_its_prerequisite() -> None:
    each = {"id": "c", "needs": ["b"], "foreach": [1], "approve": "always", "with": {"own": "{{ steps.b.output }}"}}
    run = Simulation(plan_of({"id": "b", "importance": "optional"}, each))
    run.start()
    failed(run, "b")
    assert list(run.state.questions) == ["c[0]"]
    run.retry("b")
    run.resume()
    assert (list(run.state.questions), list(run.running)) == ([], ["b"])
    run.finish("b", 1)
    assert run.state.questions["c[0]"].input == {"own": 1}


def test_c2_an_item_that_a_person_skipped_is_missing_from_the_result() -> None:
    run = Simulation(plan_of({"id": "a", "foreach": [1, 2]}, {"id": "b", "needs": ["a"]}))
    run.start()
    run.finish("a[0]", 1)
    failed(run, "a[1]")
    run.skip("a[1]")
    run.resume()
    run.finish("b")
    assert (run.state.status, run.state.lacks) == ("completed", ("a[1]",))


def test_d10_an_attempt_that_was_cut_off_is_repeated_after_the_retry_of_its_prerequisite() -> None:
    steps = ({"id": "b", "importance": "optional"}, {"id": "c", "needs": ["b"], "effect": "once"})
    run = Simulation(plan_of(*steps))
    run.start()
    failed(run, "b")
    run.crash()
    run.resume()
    assert run.state.questions["c"].waiting_for == "outcome"
    run.retry("b")
    run.resume()
    run.settle("c", "again")
    assert statuses(run) == {"b": "running", "c": "pending"}
    run.finish("b", 1)
    assert run.running["c"].attempt == 2


def test_d10_a_persons_retry_has_a_fresh_allowance_and_the_attempts_count_on() -> None:
    run = Simulation(plan_of({"id": "a", "retry": {"max": 1, "delay": 0.1}}))
    run.start()
    for _ in range(2):
        run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
        run.pass_time(1.0)
    assert run.state.status == "failed"
    run.retry("a")
    run.resume()
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    run.pass_time(1.0)
    assert run.running["a"].attempt == 4


def test_d10_a_retry_of_a_step_that_waits_means_now() -> None:
    run = Simulation(plan_of({"id": "a", "retry": {"delay": 3600, "max_delay": 3600}}))
    run.start()
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    assert run.state.steps["a"].waiting_for == "retry"
    run.retry("a")
    assert run.running["a"].attempt == 2


def test_d10_a_skipped_step_gives_null_and_the_execution_can_complete() -> None:
    run = Simulation(
        plan_of({"id": "a"}, {"id": "b", "with": {"got": "{{ steps.a.output }}", "how": "{{ steps.a.status }}"}})
    )
    run.start()
    failed(run, "a")
    run.skip("a")
    run.resume()
    assert run.running["b"].input == {"got": None, "how": "skipped"}
    run.finish("b")
    assert (run.state.status, run.state.lacks) == ("completed", ("a",))


def test_d10_a_running_step_is_stopped_before_it_is_skipped_also_across_a_crash() -> None:
    for crash in (False, True):
        run = Simulation(plan_of({"id": "a", "effect": "once"}, {"id": "b", "needs": ["a"]}))
        run.start()
        run.skip("a")
        assert run.stopping["a"].reason == "skipped"
        if crash:
            run.crash()
            run.resume()
        else:
            run.stop("a")
        assert (statuses(run)["a"], run.state.steps["a"].skipped_because) == ("skipped", "skipped by somebody")
        run.finish("b")
        assert run.state.status == "completed"


def test_d10_a_step_that_fails_while_it_is_stopped_to_be_skipped_is_skipped() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}))
    run.start()
    run.skip("a")
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    assert statuses(run) == {"a": "skipped", "b": "running"}


def test_d10_a_critical_failure_that_is_retried_lets_everything_run_that_its_end_had_skipped() -> None:
    run = Simulation(plan_of({"id": "vital", "importance": "critical"}, {"id": "x"}, {"id": "y", "needs": ["x"]}))
    run.start()
    failed(run, "vital")
    run.stop("x")
    assert statuses(run) == {"vital": "failed", "x": "skipped", "y": "skipped"}
    run.retry("vital")
    run.resume()
    for step in ("vital", "x", "y"):
        run.finish(step)
    assert run.state.status == "completed"


def test_d10_an_execution_out_of_time_has_its_time_again_when_it_is_reopened() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}, limits={"timeout": 10}))
    run.start()
    run.pass_time(11)
    run.stop("a")
    assert run.state.status == "failed"
    error = snapshot(run.state)["error"]
    assert "windlass retry simulated a" in error["advice"][0]
    run.retry("a")
    run.resume()
    run.pass_time(9)
    run.finish("a")
    assert statuses(run)["b"] == "running"


def test_d2_a_once_step_that_the_end_of_the_execution_cut_off_is_put_to_a_person_when_it_is_reopened() -> None:
    run = Simulation(plan_of({"id": "vital", "importance": "critical"}, {"id": "pay", "effect": "once"}))
    run.start()
    failed(run, "vital")
    run.stop("pay")
    assert run.state.status == "failed"
    run.retry("vital")
    run.resume()
    run.finish("vital")
    assert run.state.steps["pay"].waiting_for == "outcome"
    assert attempts_of(run, "pay") == [1]


def test_d8_a_retried_foreach_runs_its_failed_items_only_and_keeps_the_other_outputs() -> None:
    run = Simulation(
        plan_of({"id": "each", "foreach": [1, 2, 3], "with": {"i": "{{ item }}"}}, {"id": "z", "needs": ["each"]})
    )
    run.start()
    run.finish("each[0]", "one")
    failed(run, "each[1]")
    run.finish("each[2]", "three")
    view = next(step for step in snapshot(run.state)["steps"] if step["id"] == "each")
    assert view["output"] == ["one", None, "three"]
    assert view["items"] == {"done": 2, "failed": 1, "skipped": 0, "total": 3}
    assert view["errors"]["1"]["message"] == "broken"
    run.retry("each")
    run.resume()
    assert list(run.running) == ["each[1]"]
    run.finish("each[1]", "two")
    run.finish("z")
    assert run.state.steps["each"].output == ["one", "two", "three"]
    assert run.state.status == "completed"


def test_d8_a_skipped_item_gives_null_and_does_not_fail_its_foreach() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2]}))
    run.start()
    run.finish("each[0]", "one")
    failed(run, "each[1]")
    run.skip("each[1]")
    run.resume()
    assert (run.state.status, run.state.steps["each"].output) == ("completed", ["one", None])


def test_d8_a_skipped_foreach_keeps_what_its_items_gave() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2]}))
    run.start()
    run.finish("each[0]", "one")
    run.fail("each[1]", BROKEN)
    run.skip("each")
    run.resume()
    assert (run.state.status, statuses(run)["each"]) == ("completed", "skipped")
    assert run.state.steps["each"].output == ["one", None]


def test_d8_a_foreach_that_is_skipped_while_it_runs_keeps_what_its_items_gave() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2]}, {"id": "z", "needs": ["each"]}))
    run.start()
    run.finish("each[0]", "one")
    run.skip("each")
    run.stop("each[1]")
    assert statuses(run)["each"] == "skipped"
    assert run.state.steps["each"].output == ["one", None]


def test_d10_a_denied_step_that_is_retried_asks_again() -> None:
    run = Simulation(plan_of({"id": "a", "approve": "always"}), hold=True)
    run.start()
    run.approve("a", allow=False)
    assert run.state.status == "failed"
    run.retry("a")
    run.resume()
    assert run.state.steps["a"].waiting_for == "approval"


def test_k1_a_message_is_as_long_as_the_bound_says() -> None:
    longest = "é" * (LONGEST_MESSAGE // 2)
    assert checked_message(longest) == longest
    with pytest.raises(UsageError, match="bytes"):
        checked_message(f"{longest}.")


@pytest.mark.parametrize(
    ("count", "advice"),
    [
        (0, ()),
        (2, ("its items: 'each[0]', 'each[1]'",)),
        (5, ("its items: 'each[0]', 'each[1]', 'each[2]', 'each[3]', 'each[4]'",)),
        (6, ("its items: 'each[0]', 'each[1]', 'each[2]', 'each[3]', 'each[4]', …",)),
    ],
)
def test_k1_a_message_to_all_items_is_refused_with_the_names_of_five_of_them(
    count: int, advice: tuple[str, ...]
) -> None:
    each = {"id": "each", "agent": "developer", "prompt": "x", "foreach": "steps.list.output"}
    run = Simulation(Plan.model_validate({"steps": [{"id": "list", "tool": "t"}, each]}))
    run.start()
    if count:
        run.finish("list", [*range(count)])
    with pytest.raises(UsageError) as refused:
        check_say(run.state, run.state.steps["each"])
    assert refused.value.advice == advice


def test_k1_nothing_is_said_to_an_agent_that_cannot_be_tried_again() -> None:
    steps = [{"id": "a", "run": "make"}, {"id": "b", "prompt": "go on", "needs": ["a"]}, {"id": "c", "run": "make"}]
    run = Simulation(Plan.model_validate({"steps": steps}))
    run.start()
    failed(run, "a")
    assert not is_over(run.state, run.state.steps["b"])
    with pytest.raises(UsageError, match="step b"):
        check_say(run.state, run.state.steps["b"])


@pytest.mark.parametrize(
    ("ends", "step", "advice"),
    [
        ("finish", "a", "windlass fork simulated --from a"),
        ("fail", "b", "windlass retry simulated a"),
        ("run", "a", "windlass interrupt simulated"),
        ("run", "b", "windlass status simulated"),
        ("cancel", "a", "windlass fork simulated --from a"),
    ],
)
def test_d10_a_retry_that_does_not_apply_is_refused_with_what_to_do_instead(ends: str, step: str, advice: str) -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c"}))
    run.start()
    match ends:
        case "finish":
            run.finish("a")
        case "fail":
            failed(run, "a")
        case "cancel":
            run.cancel()
            run.stop("a")
            run.stop("c")
    with pytest.raises(UsageError) as refused:
        check_retry(run.state, run.state.steps[step])
    assert any(advice in line for line in refused.value.advice)
    if ends in ("finish", "cancel"):
        with pytest.raises(UsageError):
            check_skip(run.state, run.state.steps[step])


def refused_retry(run: Simulation, step: str, *, driven: bool = True) -> UsageError:
    with pytest.raises(UsageError) as refused:
        check_retry(run.state, run.state.steps[step], driven=driven)
    return refused.value


def test_d10_a_retry_of_a_step_whose_process_is_gone_names_resume() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    found = refused_retry(run, "a", driven=False)
    assert str(found) == "step a of simulated has not ended: its process is gone"
    assert found.advice[0] == "continue it: windlass resume simulated"


def test_d10_a_retry_of_a_foreach_names_the_items_that_wait_and_their_answers() -> None:
    run = Simulation(plan_of({"id": "pay", "foreach": [1, 2, 3], "effect": "once"}))
    run.start()
    run.finish("pay[0]")
    run.crash()
    run.resume()
    found = refused_retry(run, "pay")
    assert str(found) == "items of step pay of simulated wait for an answer: pay[1], pay[2]"
    assert found.advice == (
        "run it again: windlass resume simulated --again 'pay[1]'",
        "it took effect: windlass resume simulated --done 'pay[1]'",
        "count it as failed: windlass resume simulated --fail 'pay[1]'",
    )


def test_d10_a_retry_of_a_foreach_names_five_of_the_items_that_wait_and_counts_the_others() -> None:
    names = "pay[0], pay[1], pay[2], pay[3], pay[4]"
    for count, told in ((5, names), (6, f"{names} and 1 more"), (8, f"{names} and 3 more")):
        run = Simulation(plan_of({"id": "pay", "foreach": list(range(count)), "approve": "always"}), hold=True)
        run.start()
        assert str(refused_retry(run, "pay")) == f"items of step pay of simulated wait for an answer: {told}"


def test_d10_a_retry_of_a_foreach_does_not_name_items_that_wait_for_no_person() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2], "approve": "always"}), hold=True)
    run.start()
    run.approve("each[0]")
    run.fail("each[0]", Failure(Category.TRANSIENT, "for a moment"))
    assert run.state.steps["each[0]"].waiting_for == "retry"
    assert str(refused_retry(run, "each")) == "items of step each of simulated wait for an answer: each[1]"
    run.approve("each[1]")
    assert str(refused_retry(run, "each")) == "step each of simulated is running"


def test_d10_what_is_completed_or_an_item_of_it_or_ended_for_good_is_over() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "each", "foreach": [1, 2], "importance": "optional"}, {"id": "b"}))
    run.start()
    run.finish("a")
    run.finish("each[0]")
    assert [step.id for step in run.state.steps.values() if is_over(run.state, step)] == ["a", "each[0]"]
    run.skip("each[1]")
    run.stop("each[1]")
    assert is_over(run.state, run.state.steps["each[1]"]), "its foreach is completed"
    assert not is_over(run.state, run.state.steps["b"])
    run.cancel()
    run.stop("b")
    assert is_over(run.state, run.state.steps["b"])


def test_d10_a_retry_of_a_step_that_waits_for_a_person_names_the_answer() -> None:
    asking = Simulation(plan_of({"id": "send", "approve": "always"}), hold=True)
    asking.start()
    doubtful = Simulation(plan_of({"id": "pay", "effect": "once"}))
    doubtful.start()
    doubtful.crash()
    doubtful.resume()
    spent = Simulation(plan_of({"id": "a"}))
    spent.start()
    spent.state.apply(ev.StepWaiting(spent.clock.now(), "a", "budget", None, "$2.00 are spent"))
    for run, step, told, advice in (
        (asking, "send", "is waiting for approval", "answer it: windlass approve simulated send"),
        (
            doubtful,
            "pay",
            "is waiting for a decision: attempt 1",
            "run it again: windlass resume simulated --again pay",
        ),
        (spent, "a", "is waiting for budget: $2.00", "raise the limit: windlass resume simulated --budget USD"),
    ):
        found = refused_retry(run, step)
        assert str(found).startswith(f"step {step} of simulated {told}")
        assert found.advice[0] == advice


def test_d10_a_retry_of_a_step_whose_condition_was_false_names_the_fork_with_other_inputs() -> None:
    run = Simulation(plan_of({"id": "a", "when": "inputs.go"}, {"id": "b"}, inputs={"go": False}))
    run.start()
    found = refused_retry(run, "a")
    assert str(found) == "step a of simulated was skipped because condition was false: inputs.go"
    assert found.advice == ("run it with other inputs: windlass fork simulated --from a -i KEY=VALUE",)


def test_d10_a_retry_of_a_foreach_that_is_paused_names_resume() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2]}))
    run.start()
    run.pause(now=True)
    run.stop("each[0]")
    run.stop("each[1]")
    found = refused_retry(run, "each", driven=False)
    assert str(found) == "step each of simulated has not ended: its execution is paused"
    assert found.advice[0] == "continue it: windlass resume simulated"


def test_d10_a_result_that_a_person_skipped_is_not_called_optional() -> None:
    run = Simulation(plan_of({"id": "a"}, {"id": "b"}, {"id": "c", "importance": "optional"}))
    run.start()
    run.finish("a")
    failed(run, "b")
    failed(run, "c")
    run.skip("b")
    run.resume()
    assert "  missing from the result: b (skipped by somebody), c (optional)" in summary(run.state)


def test_c1_the_time_of_an_attempt_is_told_apart_into_queue_wait_and_work() -> None:
    run = Simulation(plan_of({"id": "a", "retry": {"delay": 4, "max": 1}}))
    run.start()
    run.clock.advance(3.0)
    run.running.clear()
    events = [
        *run.journal,
        ev.AttemptFailed(run.clock.now(), "a", 1, Failure(Category.TRANSIENT, "no"), queued=2.0),
        ev.StepWaiting(run.clock.now(), "a", "retry", run.clock.now() + 4),
        ev.AttemptStarted(run.clock.now() + 5, "a", 2, "t", {}, "repeatable"),
        ev.AttemptFinished(run.clock.now() + 6, "a", 2),
    ]
    state = fold(events)
    (view,) = snapshot(state)["steps"]
    assert (view["queued_s"], view["waited_s"], view["worked_s"], view["duration_s"]) == (2.0, 5.0, 2.0, 9.0)
    assert describe(events[-1], state) == "✓ a  4.0 s, 2 attempts", "all of them, without the wait between them"


def test_d10_a_step_that_somebody_skipped_is_not_skipped_again() -> None:
    run = Simulation(plan_of({"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "needs": ["a"]}))
    run.start()
    failed(run, "a")
    run.skip("a")
    with pytest.raises(UsageError, match="already skipped by"):
        check_skip(run.state, run.state.steps["a"])


def test_d10_a_retry_names_the_failed_step_behind_several_skipped_ones() -> None:
    run = Simulation(plan_of(*({"id": i, "tool": "t", "needs": n} for i, n in (("a", []), ("b", ["a"]), ("c", ["b"])))))
    run.start()
    failed(run, "a")
    with pytest.raises(UsageError, match=r"\ba\b") as caught:
        check_retry(run.state, run.state.steps["c"])
    assert any(" a" in advice for advice in caught.value.advice), caught.value.advice


def test_d10_a_failure_that_a_completed_step_did_without_is_not_named_as_the_cause_of_a_skip() -> None:
    extra, done = {"id": "extra", "importance": "optional"}, {"id": "done", "needs": ["extra"]}
    broken, after = {"id": "broken"}, {"id": "after", "needs": ["broken"]}
    run = Simulation(plan_of(extra, done, broken, after, {"id": "last", "needs": ["done", "after"]}))
    run.start()
    failed(run, "extra")
    failed(run, "broken")
    run.finish("done")
    assert str(refused_retry(run, "last")) == "step last of simulated was skipped because broken failed"


@pytest.mark.parametrize("ended", [True, False])
def test_d10_a_retry_of_several_skipped_ways_runs_the_step_behind_them_once(ended: bool) -> None:
    steps = ({"id": "a"}, *({"id": i, "needs": ["a"]} for i in "bc"), {"id": "d", "needs": ["b", "c"]}, {"id": "other"})
    run = Simulation(plan_of(*steps))
    run.start()
    failed(run, "a")
    if ended:
        run.finish("other")
    run.retry("a")
    if ended:
        run.resume()
    else:
        run.finish("other")
    for step in "abcd":
        run.finish(step)
    assert (run.state.status, run.state.unsettled, attempts_of(run, "d")) == ("completed", 0, [1])


def test_d10_a_retry_of_an_item_runs_that_item_alone_whether_its_foreach_ended_or_not() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2, 3]}))
    run.start()
    failed(run, "each[0]")
    run.retry("each[0]")
    assert (list(run.running), run.running["each[0]"].attempt) == (["each[1]", "each[2]", "each[0]"], 2)
    for item in range(3):
        failed(run, f"each[{item}]")
    assert run.state.status == "failed"
    run.clock.advance(60.0)
    reopened = run.clock.now()
    run.retry("each[1]")
    run.resume()
    assert list(run.running) == ["each[1]"]
    run.finish("each[1]", 2)
    each = run.state.steps["each"]
    assert (each.status, each.output, each.started_at) == ("failed", [None, 2, None], reopened)


def test_d10_an_item_that_failed_just_before_a_pause_is_tried_again_before_its_foreach_ends() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1]}))
    run.start()
    run.pause()
    failed(run, "each[0]")
    assert (run.state.status, statuses(run)) == ("paused", {"each": "running"})
    run.retry("each[0]")
    run.resume()
    run.finish("each[0]", "one")
    assert run.state.steps["each"].output == ["one"]


def test_d10_a_step_whose_prerequisite_failed_just_before_a_pause_waits_for_the_retry_of_it() -> None:
    run = Simulation(plan_of({"id": "b"}, {"id": "c", "needs": ["b"]}))
    run.start()
    run.pause()
    failed(run, "b")
    run.retry("b")
    run.resume()
    assert statuses(run) == {"b": "running", "c": "pending"}


def test_d10_a_foreach_that_was_skipped_runs_its_failed_items_after_all_when_it_is_retried() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": [1, 2]}, {"id": "b"}))
    run.start()
    run.finish("each[0]", "one")
    failed(run, "each[1]")
    failed(run, "b")
    run.skip("each")
    run.resume()
    assert (run.state.status, statuses(run)) == ("failed", {"each": "skipped", "b": "failed"})
    run.retry("each")
    run.resume()
    run.finish("each[1]", "two")
    assert (statuses(run)["each"], run.state.steps["each"].output) == ("completed", ["one", "two"])


def test_d10_a_step_that_fails_again_after_a_retry_is_missing_from_the_result() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    for _ in range(2):
        failed(run, "a")
        assert (run.state.status, run.state.lacks, run.state.steps["a"].undone) == ("failed", ("a",), False)
        run.retry("a")
        run.resume()


def test_d10_an_answer_that_allowed_a_step_holds_for_its_retry_with_the_same_arguments() -> None:
    run = Simulation(plan_of({"id": "a", "approve": "always"}), hold=True)
    run.start()
    run.approve("a")
    failed(run, "a")
    run.retry("a")
    run.resume()
    assert run.running["a"].attempt == 2


def test_d10_a_step_that_was_stopped_by_a_pause_goes_on_when_it_is_retried() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    run.pause(now=True)
    run.stop("a")
    run.retry("a", {"own": 2})
    run.resume()
    assert (run.running["a"].attempt, run.running["a"].input) == (2, {"own": 2})


def test_d2_a_once_step_that_was_stopped_to_be_skipped_and_is_retried_is_put_to_a_person() -> None:
    run = Simulation(plan_of({"id": "pay", "effect": "once"}))
    run.start()
    run.skip("pay")
    run.interrupt()
    run.stop("pay")
    assert (run.state.status, statuses(run)) == ("paused", {"pay": "paused"})
    run.retry("pay")
    assert (list(run.state.in_doubt), list(run.state.ready)) == (["pay"], [])
    run.resume()
    assert (run.state.steps["pay"].waiting_for, attempts_of(run, "pay")) == ("outcome", [1])


def test_c2_a_retry_of_one_of_two_critical_failures_leaves_the_other_in_the_way() -> None:
    vital = [{"id": name, "importance": "critical"} for name in ("one", "two")]
    run = Simulation(plan_of({"id": "usual"}, *vital))
    run.start()
    failed(run, "usual")
    failed(run, "one")
    failed(run, "two")
    run.retry("one")
    run.resume()
    assert (run.state.status, run.state.steps["one"].skipped_because) == ("failed", "critical step two failed")
    assert "was skipped because two failed" in str(refused_retry(run, "one"))
    run.retry("two")
    run.resume()
    assert list(run.running) == ["one", "two"], "the failure of a usual step is in nobody's way"
