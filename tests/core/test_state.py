"""The facts that the events of an execution amount to: its driver, its times, its folder (C1, D2, D3)."""

from __future__ import annotations

import msgspec
import pytest
from core_plans import chain, plan_of

from windlass.core import events as ev
from windlass.core.record import folded, folded_on
from windlass.core.state import fold
from windlass.core.transitions import NOT_STARTED, IllegalMove
from windlass.errors import Category, Damaged, Failure
from windlass.testing import Simulation


def test_c1_an_execution_knows_its_driver_its_times_and_its_place_in_the_journal() -> None:
    run = Simulation(chain("a"))
    created = run.clock.now()
    run.clock.advance(1.0)
    run.start()
    state = fold(run.journal)
    assert (state.seq, state.driver, state.created_at, state.started_at) == (3, "driver-1", created, created + 1)
    run.clock.advance(5.0)
    run.finish("a")
    assert (run.state.seq, run.state.finished_at, run.state.updated_at) == (5, created + 6, created + 6)


def test_c1_an_execution_that_waits_to_be_started_says_so_until_it_is() -> None:
    run = Simulation(chain("a"))
    assert run.state.paused_for == "", "nothing holds it"
    run.start()
    created, started, *_ = run.journal
    assert isinstance(created, ev.ExecutionCreated)
    source = ev.Source("plan.yaml", "abc")
    waiting = ev.ExecutionCreated(created.at, "x", created.plan, {}, "/", source, on_overrun="ask", start=False)
    state = fold([waiting])
    assert (state.paused_for, state.driver, state.on_expiry) == (NOT_STARTED, "", "cancel")
    assert (state.source, state.on_overrun) == (source, "ask")
    assert fold([waiting, started]).paused_for == ""
    resumed = fold([waiting, ev.ExecutionResumed(created.at + 2, "driver-2")])
    assert (resumed.paused_for, resumed.started_at, resumed.driver) == ("", created.at + 2, "driver-2")


def test_d3_an_execution_goes_on_in_the_folder_and_with_the_versions_of_its_last_resume() -> None:
    plan = plan_of({"id": "a"}, {"id": "b", "needs": ["a"], "with": {"x": "{{ execution.workdir }}"}})
    run = Simulation(plan)
    run.start()
    begun = run.state.started_at
    run.finish("a")
    assert run.running["b"].input == {"x": "/"}
    run.interrupt()
    run.stop("b")
    assert (run.state.wanted, run.state.paused_for) == (None, "interrupt"), "it is carried out"
    run.clock.advance(9.0)
    moved = ev.ExecutionResumed(run.clock.now(), "driver-2", "/other", {"python": "3.13"})
    for event, driver in ((moved, "driver-2"), (ev.ExecutionResumed(run.clock.now(), "driver-3"), "driver-3")):
        run.state.apply(event)
        assert (run.state.driver, run.state.started_at, run.state.paused_for) == (driver, begun, "")
        assert (run.state.workdir, run.state.environment) == ("/other", {"python": "3.13"})
    run.driving = True
    run.pass_time(0.0)
    assert run.running["b"].input == {"x": "/other"}
    run.cancel()
    run.stop("b")
    assert (run.state.status, run.state.wanted) == ("cancelled", None)


def test_c1_a_failed_attempt_keeps_what_it_gave_until_the_next_one_is_done() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    now = run.clock.now()
    run.state.apply(ev.AttemptPlaced(now, "a", 1, "worker-7"))
    step = run.state.steps["a"]
    assert step.worker == "worker-7"
    run.state.apply(ev.AttemptFailed(now, "a", 1, Failure(Category.TRANSIENT, "no"), {"exit_code": 1}))
    assert (step.output, step.attempt_at) == ({"exit_code": 1}, now)
    run.running.clear()
    run.pass_time(0.0)
    run.pass_time(60.0)
    assert (step.worker, step.started_at, step.attempt_at) == ("", now, now + 60)
    run.finish("a", 7)
    assert (step.output, step.error, step.finished_at) == (7, None, now + 60)


def test_c1_an_attempt_after_one_that_was_stopped_has_no_worker_yet_and_has_waited_for_nobody() -> None:
    run = Simulation(plan_of({"id": "a"}), hold=True)
    run.start()
    now, step = run.clock.now(), run.state.steps["a"]
    run.state.apply(ev.AttemptPlaced(now, "a", 1, "worker-7"))
    run.state.apply(ev.ApprovalAsked(now, "a", "d", "Bash", {}, now + 1000, 1))
    run.state.apply(ev.ApprovalAnswered(now + 100, "a", "d", True, "ada"))
    assert (step.worker, step.off_work) == ("worker-7", 100.0)
    run.state.apply(ev.AttemptStopped(now + 100, "a", 1, "paused"))
    run.state.apply(ev.AttemptStarted(now + 100, "a", 2, "t", {}, "repeatable"))
    assert (step.worker, step.off_work) == ("", 0.0)


def test_d8_a_foreach_begins_with_its_expansion_and_is_over_nothing_at_once() -> None:
    for items, seconds in (([], 0.0), ([1], 4.0)):
        run = Simulation(plan_of({"id": "a"}, {"id": "f", "foreach": "steps.a.output"}))
        run.start()
        run.clock.advance(3.0)
        run.finish("a", items)
        expanded = run.clock.now()
        run.clock.advance(seconds)
        if items:
            run.finish("f[0]")
        step = run.state.steps["f"]
        assert (step.status, step.started_at, step.finished_at) == ("completed", expanded, expanded + seconds)


def test_d5_a_step_that_a_fork_brings_along_is_over_as_it_begins() -> None:
    run = Simulation(chain("a"))
    run.start()
    now = run.clock.now() + 1
    step = fold([run.journal[0], ev.StepCompleted(now, "a", 7)]).steps["a"]
    assert (step.output, step.started_at, step.finished_at) == (7, now, now)


def test_d2_an_attempt_that_failed_before_the_driver_died_is_judged_and_not_taken_for_cut_off() -> None:
    run = Simulation(plan_of({"id": "pay", "effect": "once"}))
    run.start()
    now = run.clock.now()
    failed = ev.AttemptFailed(now, "pay", 1, Failure(Category.TRANSIENT, "no"))
    state = fold([*run.journal, failed, ev.ExecutionResumed(now, "driver-2")])
    assert (list(state.to_judge), state.in_doubt, state.active) == (["pay"], {}, {})


def test_d2_the_time_until_a_person_decides_is_counted_as_the_persons() -> None:
    choices: tuple[tuple[ev.DecisionChoice, str], ...] = (
        ("again", "running"),
        ("done", "completed"),
        ("fail", "failed"),
    )
    for choice, status in choices:
        run = Simulation(plan_of({"id": "pay", "effect": "once"}), hold=True)
        run.start()
        run.crash()
        run.resume()
        run.clock.advance(100.0)
        run.settle("pay", choice)
        step = run.state.steps["pay"]
        assert (step.status, step.person, step.waited, step.waiting_for) == (status, 100.0, 100.0, None)
        assert run.state.completed == (status == "completed")


def test_c8_an_execution_that_stands_still_does_not_work() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    assert (run.state.worked(run.clock.now()), run.state.stopped_at) == (0.0, None)
    run.clock.advance(7.0)
    run.interrupt()
    run.stop("a")
    stopped = run.clock.now()
    assert (run.state.worked(stopped + 100), run.state.stopped_at) == (7.0, stopped)


def test_d8_an_item_that_waits_for_its_retry_is_skipped_as_soon_as_another_is_picked() -> None:
    run = Simulation(plan_of({"id": "f", "foreach": [1, 2], "pick": "first"}))
    run.start()
    run.fail("f[0]", Failure(Category.TRANSIENT, "for a moment"))
    run.finish("f[1]", 2)
    assert [step.status for step in run.state.steps.values()] == ["completed", "skipped", "completed"]


def test_c3_a_time_that_has_come_is_due_and_no_longer_waited_for() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    assert (run.state.due(run.clock.now()), run.state.next_timer()) == ([], None)
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    step, state = run.state.steps["a"], run.state
    assert step.until is not None
    assert (state.due(step.until - 1), state.next_timer(step.until - 1)) == ([], step.until)
    assert (state.due(step.until), state.next_timer(step.until)) == ([step], None)


def test_a_journal_whose_events_cannot_follow_each_other_is_refused() -> None:
    run = Simulation(chain("a", "b", "c"))
    run.start()
    run.finish("a")
    now = run.clock.now()
    endings: list[list[ev.Event]] = [
        *([ev.AttemptStarted(now, step, 2, "t", {}, "repeatable")] for step in "ab"),
        [ev.AttemptStopped(now, "c", 1, "paused")],
        [ev.ExecutionFinished(now, "completed"), ev.ExecutionResumed(now, "other")],
    ]
    for events in endings:
        state = fold([*run.journal, *events[:-1]])
        with pytest.raises(IllegalMove):
            state.apply(events[-1])


def test_d9_a_journal_that_is_damaged_names_the_event_that_cannot_be_used() -> None:
    run = Simulation(chain("a", "b"))
    run.start()
    run.finish("a")
    now, journal, last = run.clock.now(), run.journal, len(run.journal)
    again = ev.AttemptStarted(now, "a", 2, "t", {}, "repeatable")
    unknown = ev.AttemptFinished(now, "unknown", 1)
    contradicts = "it contradicts the events before it (KeyError: 'unknown')"
    cases: list[tuple[str, list[ev.Event], int, str]] = [
        ("simulated", [], 1, "it is missing"),
        ("simulated", [*journal, again, again], last + 1, "step a cannot go from completed to running"),
        ("simulated", [*journal, unknown], last + 1, contradicts),
        ("another", journal, 1, "it belongs to another execution (simulated)"),
    ]
    for execution, events, seq, reason in cases:
        with pytest.raises(Damaged) as damaged:
            folded(execution, events)
        assert (damaged.value.seq, damaged.value.reason) == (seq, reason)
    state = folded_on("simulated", None, journal[:2], lambda event: fold([event]))
    assert folded_on("simulated", state, journal[2:], lambda event: fold([event])) is state
    assert state.steps["a"].status == "completed"
    with pytest.raises(Damaged) as damaged:
        folded_on("simulated", state, [unknown], lambda event: fold([event]))
    assert (damaged.value.seq, damaged.value.reason) == (last + 1, contradicts)
    assert folded_on("simulated", state, [], lambda event: fold([event])) is state


def test_a_journal_without_its_beginning_is_refused() -> None:
    run = Simulation(chain("a"))
    run.start()
    with pytest.raises(ValueError, match=r"begins with execution\.created"):
        fold(run.journal[1:])


def test_c3_a_clock_that_is_set_back_makes_no_wait_for_a_retry_longer() -> None:
    run = Simulation(plan_of({"id": "a"}))
    run.start()
    run.fail("a", Failure(Category.TRANSIENT, "for a moment"))
    step = run.state.steps["a"]
    assert step.until is not None
    delay = step.until - run.clock.now()
    run.clock.set(run.clock.now() - 3600)
    run.crash()
    run.resume()
    assert (run.state.next_timer(), run.state.quotas) == (pytest.approx(run.clock.now() + delay), {})
    run.pass_time(delay + 0.001)
    assert run.running["a"].attempt == 2


def test_c1_the_time_without_a_driver_is_counted_as_a_persons_once() -> None:
    run = Simulation(plan_of({"id": "a", "approve": "always"}, {"id": "b"}, {"id": "c"}), hold=True)
    run.start()
    run.clock.advance(20.0)
    run.finish("b")
    run.crash()
    run.clock.advance(80.0)
    run.resume()
    run.clock.advance(50.0)
    run.approve("a")
    assert (run.state.steps["a"].person, run.state.steps["a"].waited) == (150.0, 150.0)


def test_c8_the_time_in_which_only_a_person_can_go_on_is_a_part_of_the_running_time() -> None:
    run = Simulation(plan_of({"id": "a", "approve": "always"}), hold=True)
    run.start()
    run.clock.advance(20.0)
    run.crash()
    run.clock.advance(80.0)
    run.resume()
    run.clock.advance(50.0)
    run.approve("a")
    assert (run.state.held_s, run.state.worked(run.clock.now())) == (50.0, 50.0), "nobody knows when the driver died"


def test_c8_the_time_in_which_a_driver_has_not_begun_what_is_ready_is_none_in_which_only_a_person_can_go_on() -> None:
    """It waits for disk space, for instance."""
    run = Simulation(plan_of({"id": "a", "approve": "always"}, {"id": "b"}))
    run.start()
    now, asked = run.clock.now(), run.state.steps["a"].approval
    assert asked is not None
    events = [event for event in run.journal if getattr(event, "step", "a") == "a"]
    for ready in (True, False):
        started = [ev.AttemptStarted(now, "b", 1, "t", {}, "repeatable"), ev.AttemptFinished(now, "b", 1)]
        answer = ev.ApprovalAnswered(now + 100, "a", asked.digest, True, "ada")
        state = fold([*events, *([] if ready else started), answer])
        assert state.held_s == (0.0 if ready else 100.0)


def test_d4_an_event_is_written_with_no_more_than_it_says() -> None:
    source, origin = ev.Source("plan.yaml"), ev.Origin("fork", "y")
    written = [
        (ev.ExecutionCreated(1.0, "x", msgspec.Raw(b"{}"), {}, "/", source, origin), CREATED),
        (ev.UsageReported(1.0, "a", 1, ev.Usage(5, usd=0.5)), USAGE),
    ]
    for event, line in written:
        assert ev.encode(event) == line
        assert ev.decode(line) == event


CREATED = (
    b'{"type":"execution.created","at":1.0,"id":"x","plan":{},"inputs":{},"workdir":"/",'
    b'"source":{"path":"plan.yaml"},"origin":{"kind":"fork","execution":"y"}}'
)
USAGE = b'{"type":"usage.reported","at":1.0,"step":"a","attempt":1,"usage":{"tokens_in":5,"usd":0.5}}'
