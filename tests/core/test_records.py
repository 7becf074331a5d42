"""Records of stopped executions: waiting for a person and pauses apart from other waits, and from work (D7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.history import ExecutionRecord, ModelUsage, StepRecord, has_stopped, matches, record_of
from windlass.core.resources import Resources
from windlass.core.state import State, fold
from windlass.core.tally import HistoryTally
from windlass.errors import Category, Failure
from windlass.plan.model import Plan


def begun(*steps: dict[str, Any], **plan: Any) -> State:
    made = Plan.model_validate({"name": "p", "steps": list(steps), **plan})
    state = fold([ev.ExecutionCreated(0.0, id="x", plan=msgspec.Raw(made.encoded), inputs={}, workdir="/")], made)
    state.apply(ev.ExecutionStarted(10.0, "d"))
    return state


def ran(state: State, step: str, at: float, until: float, attempt: int = 1, queued: float = 0.0) -> None:
    state.apply(ev.AttemptStarted(at, step, attempt, "shell", {"line": "true"}, "repeatable"))
    state.apply(ev.AttemptFinished(until, step, attempt, "ok", None, queued))


def failed(state: State, step: str, at: float, until: float) -> None:
    state.apply(ev.AttemptStarted(at, step, 1, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFailed(until, step, 1, Failure(Category.TRANSIENT, "no", step)))


def finished(state: State, at: float, status: Any = "completed") -> ExecutionRecord:
    state.apply(ev.ExecutionFinished(at, status))
    return record_of(state)


def waits(step: StepRecord | ExecutionRecord) -> tuple[float, float, float, float]:
    return step.queued_s, step.waited_s, step.person_s, step.worked_s


def asked(step: str, at: float) -> ev.ApprovalAsked:
    return ev.ApprovalAsked(at, step, "digest", "shell", {}, at + 1000.0)


A = {"id": "a", "run": "true"}
B = {"id": "b", "run": "true", "needs": "a"}


def test_d7_work_queue_and_the_times_of_an_execution() -> None:
    state = begun(A, B)
    ran(state, "a", 11.0, 15.0, queued=1.0)
    ran(state, "b", 15.0, 17.0)
    record = finished(state, 18.0)
    assert [waits(step) for step in record.steps] == [(1.0, 0.0, 0.0, 3.0), (0.0, 0.0, 0.0, 2.0)]
    assert (record.created, record.started, record.ended) == (0.0, 10.0, 18.0)
    assert (record.took_s, record.person_s, record.attempts) == (8.0, 0.0, 2)
    assert waits(record) == (1.0, 0.0, 0.0, 5.0)
    assert [step.after for step in record.steps] == ["", "a"]
    assert record.steps[0].input_bytes == len('{"line":"true"}')


def test_d7_computing_and_memory_are_those_that_are_known() -> None:
    state = begun(A, B, {"id": "many", "run": "true", "foreach": [1, 2]}, {"id": "c", "run": "true"})
    state.apply(ev.AttemptStarted(11.0, "a", 1, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFailed(12.0, "a", 1, Failure(Category.TRANSIENT, "no", "a"), used=Resources(0.5, 3_000)))
    state.apply(ev.StepWaiting(12.0, "a", "retry", 13.0))
    state.apply(ev.AttemptStarted(13.0, "a", 2, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFinished(14.0, "a", 2, "ok", Resources(0.25, 2_000)))
    ran(state, "b", 15.0, 17.0)
    state.apply(ev.StepExpanded(15.0, "many", [1, 2]))
    for item, memory in ((0, 5_000), (1, None)):
        state.apply(ev.AttemptStarted(15.0, f"many[{item}]", 1, "shell", {}, "repeatable"))
        state.apply(ev.AttemptFinished(16.0, f"many[{item}]", 1, "ok", Resources(1.0, memory)))
    state.apply(ev.AttemptStarted(16.0, "c", 1, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFinished(17.0, "c", 1, "ok", Resources(received=7)))
    record = finished(state, 18.0)
    assert {step.step: (step.cpu_s, step.memory) for step in record.steps} == {
        "a": (0.75, 3_000),
        "b": (None, None),
        "many": (2.0, 5_000),
        "c": (None, None),
    }
    assert (record.cpu_s, record.memory) == (2.75, 5_000)
    state = begun(A)
    ran(state, "a", 11.0, 12.0)
    assert ((empty := finished(state, 13.0)).cpu_s, empty.memory) == (None, None)


def test_d7_what_the_steps_used_is_also_counted_where_none_of_them_just_completed() -> None:
    state = begun(A)
    state.apply(ev.AttemptStarted(11.0, "a", 1, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFailed(12.0, "a", 1, Failure(Category.LOGIC, "no", "a"), used=Resources(0.5, 3_000)))
    state.apply(ev.StepFailed(12.0, "a", Failure(Category.LOGIC, "no", "a")))
    record = finished(state, 13.0, "failed")
    assert (record.cpu_s, record.memory) == (0.5, 3_000)


def test_d8_a_step_that_a_fork_kept_counts_in_the_original_alone() -> None:
    made = Plan.model_validate({"name": "p", "steps": [A, {"id": "none", "run": "true", "foreach": []}, B]})
    origin = ev.Origin("fork", "original")
    state = fold(
        [ev.ExecutionCreated(0.0, id="x", plan=msgspec.Raw(made.encoded), inputs={}, workdir="/", origin=origin)], made
    )
    state.apply(ev.StepCompleted(0.0, "a", "ok"))
    state.apply(ev.ExecutionStarted(10.0, "d"))
    state.apply(ev.StepExpanded(10.0, "none", []))
    state.apply(ev.StepCompleted(10.0, "none", []))
    ran(state, "b", 11.0, 12.0)
    assert [step.step for step in finished(state, 13.0).steps] == ["none", "b"]


def test_d7_a_wait_for_a_retry_is_no_wait_for_a_person() -> None:
    state = begun(A)
    failed(state, "a", 10.0, 12.0)
    state.apply(ev.StepWaiting(12.0, "a", "retry", 20.0))
    ran(state, "a", 20.0, 21.0, attempt=2)
    record = finished(state, 21.0)
    assert waits(record.steps[0]) == (0.0, 8.0, 0.0, 3.0)
    assert (record.took_s, record.person_s) == (11.0, 0.0)


def test_d7_a_wait_for_an_approval_is_for_a_person_and_not_in_the_time_it_took() -> None:
    state = begun({**A, "approve": "always"})
    state.apply(asked("a", 11.0))
    state.apply(ev.ApprovalAnswered(111.0, "a", "digest", True, "me"))
    ran(state, "a", 112.0, 114.0)
    record = finished(state, 114.0)
    assert waits(record.steps[0]) == (0.0, 1.0, 100.0, 2.0)
    assert (record.took_s, record.person_s) == (4.0, 100.0)


def test_d7_an_approval_beside_running_work_holds_up_nobody() -> None:
    state = begun({**A, "approve": "always"}, {"id": "c", "run": "true"})
    state.apply(asked("a", 10.0))
    ran(state, "c", 10.0, 40.0)
    state.apply(ev.ApprovalAnswered(50.0, "a", "digest", True, "me"))
    ran(state, "a", 50.0, 51.0)
    record = finished(state, 51.0)
    assert (record.took_s, record.person_s) == (31.0, 10.0)


def test_d7_a_pause_in_a_wait_for_a_retry_counts_as_a_pause() -> None:
    state = begun(A)
    failed(state, "a", 10.0, 12.0)
    state.apply(ev.StepWaiting(12.0, "a", "retry", 20.0))
    state.apply(ev.ExecutionPaused(15.0, "pause"))
    paused = record_of(state)
    assert (paused.status, paused.ended, paused.took_s) == ("paused", 15.0, 5.0)
    assert waits(paused.steps[0]) == (0.0, 3.0, 0.0, 2.0)
    assert (paused.steps[0].status, paused.steps[0].category) == ("waiting", ""), "it has not failed"
    state.apply(ev.ExecutionResumed(1000.0, "d"))
    ran(state, "a", 1001.0, 1003.0, attempt=2)
    record = finished(state, 1003.0)
    assert waits(record.steps[0]) == (0.0, 4.0, 985.0, 4.0)
    assert (record.took_s, record.person_s) == (8.0, 985.0)


def test_d7_the_time_between_a_crash_and_the_resume_is_neither_work_nor_a_retry() -> None:
    state = begun(A)
    failed(state, "a", 10.0, 12.0)
    state.apply(ev.StepWaiting(12.0, "a", "retry", 20.0))
    state.apply(ev.ExecutionResumed(500.0, "other"))
    ran(state, "a", 500.0, 501.0, attempt=2)
    record = finished(state, 501.0)
    assert waits(record.steps[0]) == (0.0, 0.0, 488.0, 3.0)
    assert (record.took_s, record.person_s) == (3.0, 488.0)


def test_d7_items_of_a_foreach_are_summed_up_under_their_step() -> None:
    state = begun({"id": "each", "run": "echo", "foreach": [1, 2, 3]})
    state.apply(ev.StepExpanded(10.0, "each", [1, 2, 3]))
    for number in range(3):
        ran(state, f"each[{number}]", 10.0, 12.0)
    state.apply(ev.StepCompleted(12.0, "each", []))
    (step,) = finished(state, 12.0).steps
    assert (step.step, step.items, step.attempts, step.worked_s) == ("each", 3, 3, 6.0)


def test_d7_a_question_about_a_foreach_and_those_of_its_items_count_together() -> None:
    state = begun({"id": "each", "run": "echo", "foreach": [1], "approve": "always"})
    state.apply(asked("each", 10.0))
    state.apply(ev.ApprovalAnswered(15.0, "each", "digest", True, "me"))
    state.apply(ev.StepExpanded(15.0, "each", [1]))
    state.apply(asked("each[0]", 16.0))
    state.apply(ev.ApprovalAnswered(26.0, "each[0]", "digest", True, "me"))
    ran(state, "each[0]", 26.0, 28.0)
    state.apply(ev.StepCompleted(28.0, "each", []))
    (step,) = finished(state, 28.0).steps
    assert waits(step) == (0.0, 0.0, 15.0, 2.0)


def test_d7_a_foreach_that_is_tried_again_has_not_failed() -> None:
    failure = Failure(Category.LOGIC, "no")
    state = begun({"id": "each", "run": "echo", "foreach": [1]})
    state.apply(ev.StepExpanded(10.0, "each", [1]))
    failed(state, "each[0]", 10.0, 11.0)
    state.apply(ev.StepFailed(11.0, "each[0]", failure))
    state.apply(ev.StepFailed(11.0, "each", failure))
    state.apply(ev.ExecutionPaused(12.0, "pause"))
    assert [step.category for step in record_of(state).steps] == ["logic"]
    state.apply(ev.StepRetried(13.0, "each"))
    assert [step.category for step in record_of(state).steps] == [""]


def test_d7_an_agent_that_never_began_has_the_role_of_the_plan() -> None:
    for named, role in (({"agent": "developer"}, "developer"), ({}, "")):
        state = begun({"id": "ask", "prompt": "x", **named})
        state.apply(ev.StepSkipped(10.0, "ask", "its condition"))
        assert finished(state, 11.0).steps[0].role == role


def test_d7_an_unknown_cost_is_not_nothing() -> None:
    state = begun({"id": "ask", "prompt": "x"})
    state.apply(ev.AttemptStarted(10.0, "ask", 1, "agent", {}, "repeatable"))
    state.apply(ev.AgentBegan(10.0, "ask", 1, "cli", "coder", "gpt", "x"))
    state.apply(ev.UsageReported(11.0, "ask", 1, ev.Usage(100, 10, model="gpt-x"), "cli"))
    state.apply(ev.AttemptFinished(12.0, "ask", 1, "ok"))
    record = finished(state, 12.0)
    (step,) = record.steps
    assert (step.runtime, step.model, step.role) == ("cli", "gpt-x", "coder")
    assert (step.usd, step.unknown, step.tokens_in, step.tokens_out) == (None, 1, 100, 10)
    assert record.usd is None


@pytest.mark.parametrize(
    ("usage", "figures"),
    [
        (ev.Usage(usd=1.5), (1.5, 0, 0, 0)),
        (ev.Usage(), (0.0, 1, 0, 0)),
        (ev.Usage(7, 3, usd=0.0), (0.0, 0, 7, 3)),
        (ev.Usage(usd=0.0), None),
    ],
)
def test_e3_the_spending_of_a_step_that_a_changed_plan_replaced_still_counts(
    usage: ev.Usage, figures: tuple[float, ...] | None
) -> None:
    state = begun({"id": "ask", "prompt": "x"}, A)
    state.apply(ev.AttemptStarted(10.0, "ask", 1, "agent", {}, "repeatable"))
    state.apply(ev.AgentBegan(10.0, "ask", 1, "cli", "coder", "gpt", "x"))
    state.apply(ev.UsageReported(11.0, "ask", 1, usage, "cli"))
    state.apply(ev.AttemptStopped(12.0, "ask", 1, "paused"))
    state.apply(ev.ExecutionPaused(12.0, "pause"))
    changed = Plan.model_validate({"name": "p", "steps": [A]})
    state.apply(ev.ExecutionReplanned(13.0, msgspec.Raw(changed.encoded), ev.Source()))
    state.apply(ev.ExecutionResumed(14.0, "d"))
    ran(state, "a", 14.0, 15.0)
    record = finished(state, 16.0)
    whole = (record.known_usd, record.unknown, record.tokens_in, record.tokens_out)
    if figures is None:
        assert [step.step for step in record.steps] == ["a"]
        return
    replaced = record.steps[-1]
    assert (replaced.step, replaced.status, replaced.attempts, replaced.input_bytes) == ("", "replaced", 0, 0)
    assert (replaced.known_usd, replaced.unknown, replaced.tokens_in, replaced.tokens_out) == figures == whole
    assert record.attempts == 1
    tally = HistoryTally()
    tally.add(record)
    cells = {kind.step: cell for (span, kind, *_), cell in tally.cells.items() if span > 0 and kind.plan == "p"}
    assert (cells["(replaced steps)"].usd, cells["(replaced steps)"].unknown) == (round(figures[0] * 1e9), figures[1])
    assert cells[""].runs == 1, "one execution"


def agent_ran(state: State, step: str, attempt: int, runtime: str, model: str, tokens: int) -> None:
    state.apply(ev.AttemptStarted(10.0, step, attempt, "agent", {}, "repeatable"))
    state.apply(ev.AgentBegan(10.0, step, attempt, runtime, "coder", "", "x", "asked"))
    state.apply(ev.UsageReported(11.0, step, attempt, ev.Usage(tokens, 0, usd=tokens / 100, model=model), runtime))


def test_d7_attempts_and_usage_are_those_of_the_model_that_had_them() -> None:
    state = begun({"id": "ask", "prompt": "x"})
    agent_ran(state, "ask", 1, "cli", "haiku", 100)
    state.apply(ev.AttemptStopped(12.0, "ask", 1, "paused"))
    agent_ran(state, "ask", 2, "cli", "haiku", 200)
    state.apply(ev.AttemptStopped(12.0, "ask", 2, "paused"))
    agent_ran(state, "ask", 3, "cli", "sonnet", 50)
    state.apply(ev.AttemptFinished(13.0, "ask", 3, "ok"))
    record = finished(state, 14.0)
    (step,) = record.steps
    assert (step.model, step.attempts, step.tokens_in, step.known_usd) == ("sonnet", 3, 350, 3.5)
    assert step.shares == (
        ModelUsage("cli", "sonnet", 1, 0.5, 0, 50, 0),
        ModelUsage("cli", "haiku", 2, 3.0, 0, 300, 0),
    )
    tally = HistoryTally()
    tally.add(record)
    cells = {kind.model: cell for (span, kind, *_), cell in tally.cells.items() if span > 0 and kind.step}
    assert {name: (cell.runs, cell.attempts, cell.tokens_in, cell.usd) for name, cell in cells.items()} == {
        "sonnet": (1, 1, 50, 500_000_000),
        "haiku": (0, 2, 300, 3_000_000_000),
    }
    assert not cells["haiku"].times


def test_d7_an_agent_that_goes_on_for_a_merge_has_no_attempt_of_its_step() -> None:
    state = begun({"id": "ask", "prompt": "x"})
    agent_ran(state, "ask", 1, "cli", "haiku", 100)
    state.apply(ev.AttemptFinished(13.0, "ask", 1, "ok"))
    state.apply(ev.AgentBegan(14.0, "ask", 2, "cli", "coder", "", "x", "asked"))
    state.apply(ev.UsageReported(15.0, "ask", 2, ev.Usage(50, 0, usd=0.5, model="sonnet"), "cli"))
    (step,) = finished(state, 16.0).steps
    assert step.attempts == 1
    assert step.shares == (
        ModelUsage("cli", "sonnet", 0, 0.5, 0, 50, 0),
        ModelUsage("cli", "haiku", 1, 1.0, 0, 100, 0),
    )


def test_d7_items_of_a_foreach_have_their_usage_under_their_models() -> None:
    state = begun({"id": "each", "prompt": "x", "foreach": [1, 2, 3]})
    state.apply(ev.StepExpanded(10.0, "each", [1, 2, 3]))
    for number, model in enumerate(("haiku", "sonnet", "haiku")):
        agent_ran(state, f"each[{number}]", 1, "cli", model, 10)
        state.apply(ev.AttemptFinished(12.0, f"each[{number}]", 1, "ok"))
    state.apply(ev.StepCompleted(12.0, "each", []))
    (step,) = finished(state, 12.0).steps
    assert {share.model: (share.attempts, share.tokens_in) for share in step.shares} == {
        "haiku": (2, 20),
        "sonnet": (1, 10),
    }


def test_d7_a_clock_that_was_set_back_makes_no_negative_times() -> None:
    state = begun(A)
    state.apply(ev.AttemptStarted(11.0, "a", 1, "shell", {}, "repeatable"))
    state.apply(ev.AttemptFinished(3.0, "a", 1, "ok"))
    record = finished(state, 2.0)
    assert (record.took_s, record.person_s, record.steps[0].worked_s) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("status", ["failed", "partial", "cancelled"])
def test_d7_a_step_that_never_ran_has_no_attempt_and_no_category(status: str) -> None:
    state = begun(A, B)
    state.apply(ev.StepSkipped(10.0, "a", "its condition"))
    state.apply(ev.StepSkipped(10.0, "b", "its condition"))
    record = finished(state, 11.0, status)
    assert {(step.status, step.attempts, step.category) for step in record.steps} == {("skipped", 0, "")}
    assert record.status == status


def test_d7_only_records_with_nothing_but_times_are_plain() -> None:
    state = begun(A, B)
    ran(state, "a", 11.0, 15.0, queued=1.0)
    ran(state, "b", 15.0, 17.0)
    assert finished(state, 18.0).plain
    for at, until, plain in ((10.0, 10.0, True), (10.0, 18.0, True), (9.0, 9.5, False), (17.0, 18.5, False)):
        timed = begun(A)
        ran(timed, "a", at, until)
        assert finished(timed, 18.0).plain == plain, "the clock was set in the meantime"
    measured = begun(A)
    measured.apply(ev.AttemptStarted(11.0, "a", 1, "shell", {}, "repeatable"))
    measured.apply(ev.AttemptFinished(12.0, "a", 1, "ok", Resources(cpu=0.5)))
    assert not finished(measured, 18.0).plain
    skipped = begun(A, B)
    failed(skipped, "a", 11.0, 12.0)
    assert not finished(skipped, 18.0, "failed").plain


@pytest.mark.parametrize(
    "given",
    [{"edits": {"prompt": "y"}}, {"runtime": "cli"}, {"model": "m"}, {}],
    ids=["edits", "runtime", "model", "none"],
)
def test_d7_a_step_to_which_a_person_gave_other_arguments_or_another_model_is_edited(given: dict[str, Any]) -> None:
    state = begun({"id": "ask", "prompt": "x"})
    failed(state, "ask", 11.0, 12.0)
    state.apply(ev.StepRetried(13.0, "ask", "ada", **given))
    (step,) = finished(state, 14.0, "failed").steps
    assert step.edited == bool(given)


def test_d7_steps_are_found_by_what_they_used_and_only_those_that_ran_to_their_end() -> None:
    ran = StepRecord("a", "agent", 1, 1.0, 2.0, 1.0, 2, runtime="cli", model="m")
    assert matches(ran, None, None, None, None)
    assert matches(ran, "a", "agent", "cli", "m")
    for wanted in (
        ("b", None, None, None),
        (None, "shell", None, None),
        ("a", None, "", None),
        (None, None, None, "n"),
    ):
        assert not matches(ran, *wanted)
    assert matches(msgspec.structs.replace(ran, status="failed"), "a", None, None, None)
    for changed in ({"ended": None}, {"attempts": 0}, {"status": "skipped"}):
        assert not matches(msgspec.structs.replace(ran, **changed), "a", None, None, None)


def test_d7_an_execution_has_a_record_while_it_is_paused_and_when_it_has_ended() -> None:
    state = begun(A)
    assert not has_stopped(state)
    state.apply(ev.ExecutionPaused(11.0, "pause"))
    assert has_stopped(state)
    state.apply(ev.ExecutionResumed(12.0, "d"))
    assert not has_stopped(state)
    state.apply(ev.ExecutionFinished(13.0, "cancelled"))
    assert has_stopped(state)


def test_d7_records_are_kept_as_arrays_in_the_order_of_their_fields() -> None:
    """A field may be added at the end; any other change is another `RECORD_FORMAT`."""
    share = ModelUsage("cli", "m", 1, 0.5)
    step = StepRecord("a", "agent", 1, 1.0, 2.0, 0.75, 9, runtime="cli", model="m", shares=(share,))
    whole = ExecutionRecord("x", "p", "d", "completed", "", 0.0, 1.0, 2.0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1, (step,))
    kept = msgspec.json.decode(msgspec.json.encode(whole))
    assert kept[:8] == ["x", "p", "d", "completed", "", 0.0, 1.0, 2.0]
    assert kept[-5:] == [[msgspec.json.decode(msgspec.json.encode(step))], None, None, None, False]
    assert kept[-5][0][:9] == ["a", "agent", 1, 1.0, 2.0, 0.75, 9, "", 0]
    assert kept[-5][0][-1] == [["cli", "m", 1, 0.5, 0, 0, 0]]
    assert msgspec.json.decode(b'["a","agent",1,1.0,2.0,0.75,9]', type=StepRecord).status == "completed"
