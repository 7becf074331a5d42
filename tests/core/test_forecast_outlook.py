"""Forecasts of executions from their state: honest labels for all that is not known (C7, D7)."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from core_plans import chain, plan_of

from windlass.cli.forecast_text import estimate_lines, score_lines
from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.core.forecast.calibration import Band, Calibration, ScoredForecast
from windlass.core.forecast.knowledge import Knowledge, StepHabits, learn
from windlass.core.forecast.outlook import Outlook, Surroundings, elapsed_of
from windlass.core.forecast.scores import cost_scores, scored_costs, scored_times, scores
from windlass.core.forecast.simulation import Gate
from windlass.core.forecast.value import Forecast
from windlass.core.history import ExecutionRecord, StepRecord
from windlass.core.state import State, StepState, fold
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.prices import Price

NOW = 1000.0


def state_of(plan: Plan, *events: ev.Event) -> State:
    created = ev.ExecutionCreated(NOW, id="x", plan=msgspec.Raw(plan.encoded), inputs={}, workdir="/")
    return fold([created, ev.ExecutionStarted(NOW, "d"), *events], plan)


def began(step: str, at: float = NOW, attempt: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(at, step, attempt, "t", {}, "none")


def ended(step: str, at: float, attempt: int = 1) -> ev.AttemptFinished:
    return ev.AttemptFinished(at, step, attempt, None)


def seen(step: str, seconds: float, **fields: Any) -> StepRecord:
    told: dict[str, Any] = dict.fromkeys(("runtime", "model", "role", "category", "after"), "")
    told |= dict.fromkeys(("items", "unknown", "tokens_in", "tokens_out"), 0)
    told |= dict.fromkeys(("queued_s", "waited_s", "person_s", "known_usd", "started"), 0.0)
    told |= {"step": step, "tool": "t", "status": "completed", "attempts": 1, "ended": seconds, "worked_s": seconds}
    told |= {"input_bytes": 2, "edited": False}
    return StepRecord(**{**told, **fields})


def run_of(number: int, *steps: StepRecord, plan: str = "test", digest: str = "d") -> ExecutionRecord:
    return ExecutionRecord(
        f"r{number}", plan, digest, "completed", "", 0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0, 0, 0, 1, steps
    )


def runs(count: int, *steps: StepRecord, digest: str = "d") -> list[ExecutionRecord]:
    return [run_of(number, *steps, digest=digest) for number in range(count)]


def knowledge(plan: Plan, *records: ExecutionRecord) -> Knowledge:
    return learn(plan.name, plan.digest, [r for r in records if r.plan == plan.name], records, "x")


def forecast(state: State, known: Knowledge, now: float = NOW, **around: Any) -> Forecast:
    return Outlook(state, now, known, Surroundings(**around)).forecast()


def sane(found: Forecast) -> Forecast:
    """Never negative, never infinite, always in order."""
    for band in (found.left, found.raw, found.usd):
        if band is not None:
            assert 0 <= band.low <= band.middle <= band.high < math.inf
    return found


def test_c7_without_a_history_nothing_is_made_up() -> None:
    plan = chain("a", "b")
    found = forecast(state_of(plan), knowledge(plan))
    assert (found.left, found.usd, found.unknown) == (None, None, ("a", "b"))
    assert found.low_confidence
    assert found.text(NOW) == ""
    assert found.as_dict(NOW)["left_s"] is None


def test_c7_one_run_is_enough_for_a_wide_band_of_low_confidence() -> None:
    plan = chain("a", "b")
    found = sane(forecast(state_of(plan), knowledge(plan, *runs(1, seen("a", 60.0), seen("b", 120.0)))))
    assert found.left is not None
    assert found.left.middle == pytest.approx(180, rel=0.25)
    assert found.left.high > 1.5 * found.left.low
    assert found.low_confidence
    assert "low confidence" in found.text(NOW)


def test_d7_after_many_runs_the_band_is_narrow_and_the_label_gone() -> None:
    plan = chain("a", "b")
    found = sane(forecast(state_of(plan), knowledge(plan, *runs(20, seen("a", 60.0), seen("b", 120.0)))))
    assert found.left is not None
    assert found.left.middle == pytest.approx(180, rel=0.1)
    assert found.left.high < 1.5 * found.left.low
    assert not found.low_confidence
    assert found.text(NOW).startswith("3 min left")
    fewer = [
        forecast(state_of(plan), knowledge(plan, *runs(count, seen("a", 60.0), seen("b", 60.0)))) for count in (14, 15)
    ]
    assert [one.low_confidence for one in fewer] == [True, False]


def test_d7_wildly_different_runs_give_a_wide_band() -> None:
    plan = chain("a")
    found = sane(forecast(state_of(plan), knowledge(plan, *(run_of(n, seen("a", 10.0**n)) for n in range(7)))))
    assert found.left is not None
    assert found.left.high > 100 * max(found.left.low, 0.01)


def test_d7_a_running_step_counts_with_the_time_that_it_has_left() -> None:
    plan, known = chain("a", "b"), knowledge(chain("a", "b"), *runs(20, seen("a", 60.0), seen("b", 120.0)))
    found = sane(forecast(state_of(plan, began("a")), known, NOW + 40))
    assert found.left is not None
    assert found.left.middle == pytest.approx(140, rel=0.15)
    assert found.elapsed_s == 40


def test_d7_a_running_step_that_waits_has_not_worked_in_that_time() -> None:
    plan, known = chain("a"), knowledge(chain("a"), *runs(20, seen("a", 60.0)))

    def left(*events: ev.Event) -> float:
        found = sane(forecast(state_of(plan, began("a"), *events), known, NOW + 50)).left
        assert found is not None
        return found.middle

    assert left() == pytest.approx(10, abs=3)
    assert left(ev.OutputWritten(NOW + 1, "a", 1, "wait.place", "waits for a place")) == pytest.approx(60, rel=0.1)
    asked = ev.ApprovalAsked(NOW + 10, "a", "digest", "t", {}, NOW + 900, 1)
    answered = ev.ApprovalAnswered(NOW + 20, "a", "digest", True, "me")
    assert left(asked, answered) == pytest.approx(20, rel=0.1)


def test_d7_a_slow_run_stays_slow() -> None:
    """Steps that took twice as long as usual say that the others will, too."""
    plan = chain("a", "b", "c")
    records = [run_of(n, *(seen(s, 60.0 * 2.0 ** (n % 3 - 1)) for s in ("a", "b", "c"))) for n in range(24)]
    known = knowledge(plan, *records)
    done = [began("a"), ended("a", NOW + 120), began("b", NOW + 120), ended("b", NOW + 240)]
    slow = sane(forecast(state_of(plan, *done), known, NOW + 240))
    done = [began("a"), ended("a", NOW + 30), began("b", NOW + 30), ended("b", NOW + 60)]
    fast = sane(forecast(state_of(plan, *done), known, NOW + 60))
    assert slow.left is not None
    assert fast.left is not None
    assert slow.left.middle > 1.8 * fast.left.middle


def test_d7_a_step_ten_times_longer_than_ever_is_named() -> None:
    plan = chain("a", "b")
    known = knowledge(plan, *runs(20, seen("a", 60.0), seen("b", 60.0)))
    found = sane(forecast(state_of(plan, began("a")), known, NOW + 600))
    assert found.overdue == ("a",)
    assert found.low_confidence
    assert "a runs longer than ever before" in found.text(NOW + 600)
    assert found.left is not None
    assert found.left.high > 200


def test_d7_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    plan = chain("a", "b")
    known = knowledge(plan, *runs(20, seen("a", 60.0), seen("b", 60.0)))
    found = sane(forecast(state_of(plan, began("a", NOW + 500)), known, NOW - 300))
    assert found.elapsed_s == 0
    assert found.left is not None
    assert found.left_at(NOW - 9000) == found.left
    assert found.left_at(NOW + 1e9) == Band(0, 0, 0)
    assert elapsed_of(state_of(plan), NOW - 1) == 0


def test_d7_a_renamed_step_is_known_by_its_tool() -> None:
    plan = chain("a", "renamed")
    found = sane(forecast(state_of(plan), knowledge(plan, *runs(20, seen("a", 60.0), seen("old", 60.0)))))
    assert found.origins == {"step": 1, "tool": 1}
    assert found.left is not None
    assert found.left.high > 150, "a step that never ran under this name is known less well"
    assert (found.runs, found.unchanged) == (20, 0), "all of them before it changed"


def test_d7_a_running_agent_is_known_by_the_model_that_it_has() -> None:
    plan = plan_of({"id": "new", "tool": None, "prompt": "x"})
    times = {"m": 60.0, "n": 6000.0}
    steps = [seen(f"on-{model}", took, tool="agent", runtime="cli", model=model) for model, took in times.items()]
    known = knowledge(plan, *(run_of(number, *steps, plan="other") for number in range(20)))

    def middle(model: str) -> float:
        task = ev.AgentBegan(NOW, "new", 1, "cli", "", "", "x", model)
        found = sane(forecast(state_of(plan, began("new"), task), known)).left
        assert found is not None
        return found.middle

    assert 2 * middle("m") < middle("") < middle("n") / 2


def test_d7_steps_after_one_that_may_fail_and_one_that_is_skipped() -> None:
    """Only what cannot run any more is left out: nothing is known of `last`, which says so."""
    first = {"id": "a", "retry": 0, "importance": "optional"}
    plan = plan_of(first, {"id": "b"}, {"id": "c"}, {"id": "last", "needs": ["a", "b", "c"]})
    handling = plan_of({"id": "a", "retry": 0}, {"id": "last", "when": "steps.a.status == 'failed'"}, {"id": "c"})
    failure = Failure(Category.LOGIC, "no")
    failed = [began("a"), ev.AttemptFailed(NOW + 5, "a", 1, failure), ev.StepFailed(NOW + 5, "a", failure)]
    by_condition = ev.StepSkipped(NOW + 6, "b", "its condition", condition=True)
    by_word = ev.StepSkipped(NOW + 6, "b", "skipped by me")
    for which, events, runs_on in (
        (plan, failed, True),
        (plan, [*failed, began("b"), ended("b", NOW + 6)], True),
        (plan, [*failed, by_condition], False),
        (plan, [*failed, by_word], False),
        (handling, failed, True),
    ):
        unknown = forecast(state_of(which, *events), knowledge(which), NOW + 6).unknown
        assert ("last" in unknown) is runs_on


def test_d7_a_plan_without_a_like_in_its_home_uses_the_kind_of_its_steps() -> None:
    plan = plan_of({"id": "a", "tool": "http.get"})
    other = [run_of(n, seen("z", 30.0, tool="files.read"), plan="other") for n in range(9)]
    found = sane(forecast(state_of(plan), knowledge(plan, *other)))
    assert found.origins == {"kind": 1}
    assert found.left is not None
    assert found.left.high > 3 * found.left.low


@pytest.mark.parametrize("told", [0.0, 0.5, 40.0, -1.0, math.inf, math.nan, None])
def test_d7_the_estimate_of_a_tool_counts_if_it_is_a_time(told: float | None) -> None:
    plan = plan_of({"id": "a"})
    found = sane(forecast(state_of(plan), knowledge(plan), estimates=lambda _step: (told, None)))
    if told in (0.0, 0.5, 40.0):
        assert (found.estimated, found.unknown) == (("a",), ())
        assert found.left is not None
        assert found.left.middle == pytest.approx(told, rel=0.15, abs=0.01)
    else:
        assert (found.estimated, found.unknown, found.left) == ((), ("a",), None)


def test_d7_a_foreach_of_unknown_length_is_labelled() -> None:
    plan = plan_of({"id": "a"}, {"id": "b", "foreach": "steps.a.output", "needs": ["a"]})
    known = knowledge(plan, *runs(20, seen("a", 60.0)))
    found = sane(forecast(state_of(plan), known))
    assert found.uncounted == ("b",)
    assert found.low_confidence
    assert found.text(NOW).startswith("at least ")


def test_d7_a_foreach_has_as_many_items_as_in_earlier_runs() -> None:
    plan = plan_of({"id": "b", "foreach": "inputs.list"}, inputs={"list": {}}, limits={"parallel": 2})
    known = knowledge(plan, *runs(20, seen("b", 600.0, items=10, attempts=10)))
    found = sane(forecast(state_of(plan), known))
    assert not found.uncounted
    assert found.left is not None
    assert found.left.middle == pytest.approx(300, rel=0.25), "ten items of a minute, two at once"


def test_d7_items_that_have_ended_say_how_long_the_others_take() -> None:
    plan = plan_of({"id": "b", "foreach": [1, 2, 3, 4, 5, 6]}, limits={"parallel": 1})
    events: list[ev.Event] = [ev.StepExpanded(NOW, "b", [1, 2, 3, 4, 5, 6])]
    for n in range(3):
        events += [began(f"b[{n}]", NOW + 40 * n), ended(f"b[{n}]", NOW + 40 * n + 40)]
    found = sane(forecast(state_of(plan, *events), knowledge(plan), NOW + 120))
    assert found.origins == {"run": 1}
    assert found.left is not None
    assert found.left.middle == pytest.approx(120, rel=0.4)
    assert found.done == pytest.approx(0.5)


def test_d7_the_figures_of_items_while_some_have_ended() -> None:
    plan = plan_of({"id": "b", "foreach": [1, 2, 3, 4, 5, 6]}, limits={"parallel": 1})
    events: list[ev.Event] = [ev.StepExpanded(NOW, "b", [1, 2, 3, 4, 5, 6])]
    for n, noted in enumerate((None, None, None, (38.6448, 79.9198, 177.0057), (12.9852, 35.5095, 88.7403))):
        events += [began(f"b[{n}]", NOW + 40 * n), ended(f"b[{n}]", NOW + 40 * n + 36 + n)]
        if noted:
            found = forecast(state_of(plan, *events), knowledge(plan), NOW + 200)
            assert found.left == pytest.approx(noted, rel=1e-5)


def test_d7_a_step_that_is_mostly_skipped_mostly_takes_no_time() -> None:
    plan = plan_of({"id": "a"}, {"id": "b", "when": "steps.a.output == 1"}, {"id": "c", "needs": ["b"]})
    skipped = seen("b", 0.0, status="skipped", attempts=0)
    records = [
        run_of(n, seen("a", 10.0), seen("b", 1000.0) if n % 10 == 0 else skipped, seen("c", 1000.0)) for n in range(30)
    ]
    known = knowledge(plan, *records)
    found = sane(forecast(state_of(plan), known))
    assert found.left is not None
    assert found.left.middle < 30
    assert found.left.high > 100
    begun = forecast(state_of(plan, began("a"), ended("a", NOW + 10), began("b", NOW + 10)), known, NOW + 10)
    assert begun.left is not None
    assert begun.left.low > 1000, "its condition was true this time"


def test_d7_a_step_that_looks_at_a_skipped_one_is_counted() -> None:
    looks = {"id": "b", "when": "steps.maybe.status == 'skipped'"}
    plan = plan_of({"id": "a"}, {"id": "maybe", "when": "steps.a.output == 1"}, looks)
    skipped = seen("maybe", 0.0, status="skipped", attempts=0)
    found = sane(forecast(state_of(plan), knowledge(plan, *runs(20, seen("a", 1.0), skipped, seen("b", 100.0)))))
    assert found.left is not None
    assert found.left.middle == pytest.approx(101, rel=0.1)


def test_d7_a_step_that_often_fails_takes_longer_if_it_is_tried_again() -> None:
    def left(retry: Any) -> Band:
        plan = plan_of({"id": "a", "retry": retry})
        found = sane(forecast(state_of(plan), knowledge(plan, *runs(20, seen("a", 20.0, attempts=2))))).left
        assert found is not None
        return found

    again, never = left({"max": 3, "delay": 100.0}), left({"max": 3, "delay": 100.0, "on": ["resource"]})
    assert again.high > 100
    assert never.high < 20


def test_d7_steps_after_a_failed_one_take_no_time() -> None:
    plan = plan_of({"id": "a", "retry": 0}, {"id": "b", "needs": ["a"]}, {"id": "c"})
    known = knowledge(plan, *runs(20, seen("a", 10.0), seen("b", 1000.0), seen("c", 10.0)))
    failure = Failure(Category.LOGIC, "no")
    events = [began("a"), ev.AttemptFailed(NOW + 5, "a", 1, failure), ev.StepFailed(NOW + 5, "a", failure)]
    found = sane(forecast(state_of(plan, *events), known, NOW + 5))
    assert found.left is not None
    assert found.left.high < 100


def test_d7_a_step_that_cannot_run_any_more_is_no_question_and_no_unknown() -> None:
    never = {"id": "b", "tool": None, "prompt": "x", "approve": "always", "needs": ["a"]}
    plan = plan_of({"id": "a", "retry": 0}, never, {"id": "c"})
    known = knowledge(plan, *runs(20, seen("a", 10.0), seen("c", 10.0)))
    failure = Failure(Category.LOGIC, "no")
    events = [began("a"), ev.AttemptFailed(NOW + 5, "a", 1, failure), ev.StepFailed(NOW + 5, "a", failure)]
    before, after = forecast(state_of(plan), known), forecast(state_of(plan, *events), known, NOW + 5)
    assert (before.unknown, before.unpriced, before.approvals) == (("b",), ("b",), 1)
    assert (after.unknown, after.unpriced, after.approvals) == ((), (), 0)


def test_d7_a_used_up_quota_and_a_retry_are_waited_for() -> None:
    plan = plan_of({"id": "a"})
    known = knowledge(plan, *runs(20, seen("a", 10.0)))
    failure = Failure(Category.TRANSIENT, "no")
    events = [
        began("a"), ev.AttemptFailed(NOW + 5, "a", 1, failure), ev.StepWaiting(NOW + 5, "a", "retry", NOW + 305)
    ]  # fmt: skip
    found = sane(forecast(state_of(plan, *events), known, NOW + 5))
    assert found.left is not None
    assert found.left.middle == pytest.approx(310, rel=0.1)


@pytest.mark.parametrize("account", ["", "somebody's"])
def test_d7_all_agents_of_a_runtime_wait_for_its_quota(account: str) -> None:
    agents = [{"id": name, "agent": "developer", "prompt": "x", "runtime": "cli"} for name in "ab"]
    other = {"id": "c", "agent": "developer", "prompt": "x", "runtime": "open-code"}
    last = {"id": "d", "run": "true", "needs": ["a", "b"]}
    plan = Plan.model_validate({"name": "test", "steps": [*agents, other, last, {**other, "id": "e"}]})
    steps = [seen(name, 60.0, tool="agent", runtime="cli", model="m") for name in "ab"]
    steps += [seen("c", 60.0, tool="agent", runtime="open-code", model="m"), seen("d", 60.0, tool="shell")]
    known = knowledge(plan, *runs(20, *steps))
    free = sane(forecast(state_of(plan), known))
    failure = Failure(Category.RESOURCE, "5-hour limit reached", resets_at=NOW + 3600)
    waits = ev.StepWaiting(NOW, "a", "quota", NOW + 3600, "", "cli", account=account)
    held = [began("a"), ev.AttemptFailed(NOW, "a", 1, failure), waits]
    found = sane(forecast(state_of(plan, *held), known))
    assert free.left is not None
    assert found.left is not None
    assert free.left.middle == pytest.approx(120, rel=0.2)
    assert found.left.middle == pytest.approx(3720, rel=0.05), "the wait, then a and b beside each other, then d"
    tasks = {
        step.id: task
        for step, task in zip(
            plan.steps, Outlook(state_of(plan, *held), NOW, known, Surroundings())._tasks, strict=True
        )
    }
    assert [tasks[name].due for name in "abcde"] == [3600, 3600, 0, 0, 0], "the other runtime goes on"
    again = [began("c"), ev.AttemptFailed(NOW, "c", 1, failure), ev.StepWaiting(NOW, "c", "retry", NOW + 50)]
    ahead = Outlook(state_of(plan, *held, *again), NOW, known, Surroundings())
    assert [task.due for task in ahead._tasks] == [3600, 3600, 50, 0, 0], "a retry is no quota"
    half = sane(forecast(state_of(plan, *held), known, NOW + 1800))
    assert half.left is not None
    assert half.left.middle == pytest.approx(1920, rel=0.05)
    over = sane(forecast(state_of(plan, *held), known, NOW + 3600))
    assert over.left is not None
    assert over.left.middle == pytest.approx(120, rel=0.2)


def test_d7_the_places_of_a_tool_are_kept() -> None:
    plan = plan_of(*({"id": name} for name in "abcd"))
    known = knowledge(plan, *runs(20, *(seen(name, 60.0) for name in "abcd")))
    free = forecast(state_of(plan), known)
    narrow = forecast(state_of(plan), known, gates={"t": Gate(places=1)})
    assert free.left is not None
    assert narrow.left is not None
    assert free.left.middle == pytest.approx(60, rel=0.3)
    assert narrow.left.middle == pytest.approx(240, rel=0.2)


def test_d7_waiting_for_a_person_is_kept_apart() -> None:
    plan = plan_of({"id": "a"}, {"id": "b", "approve": "always", "needs": ["a"]})
    known = knowledge(plan, *runs(20, seen("a", 60.0), seen("b", 60.0, person_s=3600.0)))
    found = sane(forecast(state_of(plan), known, policy=Policy()))
    assert found.left is not None
    assert found.left.high < 300
    assert (found.approvals, found.approval_s) == (1, 3600.0)
    assert "without 1 approval ahead, usually 60 min each" in found.text(NOW)


def test_d7_the_time_that_a_person_was_asked_is_not_in_the_time_so_far() -> None:
    plan = plan_of({"id": "a", "approve": "always"}, {"id": "b", "approve": "always", "needs": ["a"]})
    asked = [
        ev.ApprovalAsked(at, step, "digest", "t", {}, at + 900) for at, step in ((NOW + 10, "a"), (NOW + 120, "b"))
    ]
    answered = ev.ApprovalAnswered(NOW + 110, "a", "digest", True, "me")
    events: list[ev.Event] = [asked[0], answered, began("a", NOW + 110), ended("a", NOW + 120), asked[1]]
    state = state_of(plan, *events)
    assert [elapsed_of(state, NOW + at) for at in (120, 150, 90)] == [20, 20, 0]
    assert elapsed_of(state_of(plan, *events[:-1]), NOW + 125) == 25


def test_d7_a_step_that_grows_with_its_input_is_forecast_by_the_size_of_it() -> None:
    sizes = [100 * 2**number for number in range(8)] * 3
    records = [run_of(n, seen("a", size / 100, input_bytes=size)) for n, size in enumerate(sizes)]

    def middle(*events: ev.Event, **step: Any) -> float:
        plan = plan_of({"id": "a", **step}, inputs={"text": "", "list": []})
        left = sane(forecast(state_of(plan, *events), knowledge(plan, *records))).left
        assert left is not None
        return left.middle

    text = {"text": "x" * 6390}
    assert middle(**{"with": text}) == pytest.approx(64, rel=0.1)
    unknown = {"with": {"text": "{{ inputs.text }}"}}
    assert middle(**unknown) == pytest.approx(11, rel=0.1), "its templates are not filled in yet"
    started: list[ev.Event] = [
        ev.AttemptStarted(NOW, "a", 1, "t", text, "none"),
        ev.AttemptStopped(NOW, "a", 1, "paused"),
    ]
    assert middle(*started, **unknown) == pytest.approx(64, rel=0.1)
    expanded = ev.StepExpanded(NOW, "a", [1, 2])
    items = [ev.AttemptStarted(NOW, f"a[{n}]", 1, "t", text, "none") for n in range(2)]
    stopped = [ev.AttemptStopped(NOW, f"a[{n}]", 1, "paused") for n in range(2)]
    listed = middle(expanded, items[0], stopped[0], items[1], stopped[1], foreach=[1, 2], **unknown)
    assert listed == pytest.approx(70, rel=0.2), "both at once"


def agent(usd: float, **fields: Any) -> StepRecord:
    return seen(
        fields.pop("step", "a"), 60.0, **{"tool": "agent", "runtime": "cli", "model": "m", "known_usd": usd, **fields}
    )


def agent_plan(**fields: Any) -> Plan:
    steps = [{"id": "a", "agent": "developer", "prompt": "x"}]
    return Plan.model_validate({"name": "test", "steps": steps, **fields})


def priced(plan: Plan, prices: dict[str, Price], *records: ExecutionRecord) -> Knowledge:
    return learn(plan.name, plan.digest, records, (), "x", prices.get)


def test_d7_the_cost_comes_from_earlier_runs() -> None:
    found = sane(forecast(state_of(agent_plan()), knowledge(agent_plan(), *runs(20, agent(2.0)))))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(2.0, rel=0.1)
    assert "$0.00 of about $" in found.text(NOW)


def test_d7_a_cost_that_is_not_known_is_not_guessed() -> None:
    found = sane(forecast(state_of(agent_plan()), knowledge(agent_plan(), *runs(20, agent(0.0, unknown=1)))))
    assert (found.usd, found.unpriced) == (None, ("a",))
    assert "$" not in found.text(NOW)


def test_d7_a_step_with_another_model_is_priced_by_its_tokens() -> None:
    """The tokens that cost $4 with the old model cost 15 + 5 dollars with the new one."""
    tokens = {"tokens_in": 1_000_000, "tokens_out": 100_000, "model": "old"}
    records = runs(20, agent(4.0, **tokens))
    plan = agent_plan(model="new")
    found = sane(forecast(state_of(plan), priced(plan, {"new": Price(15.0, 50.0, 0.0, 0.0)}, *records)))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(20.0, rel=0.1)
    assert (found.priced, found.unpriced) == (("a",), ())
    assert found.as_dict(NOW)["cost_by_price"] == ["a"]
    assert "cost: $20." in "\n".join(estimate_lines(found))
    assert "by tokens and price: a" in "\n".join(estimate_lines(found))
    same = forecast(state_of(agent_plan(model="old")), priced(plan, {"new": Price(15.0, 50.0, 0.0, 0.0)}, *records))
    assert same.usd is not None
    assert same.usd.middle == pytest.approx(4.0, rel=0.1)
    assert same.priced == (), "its own runs say what it costs"


def test_d7_several_models_are_forecast_by_what_they_cost_together() -> None:
    """Its runs end with another model than they began with: their dollars count, and not all tokens at one price."""
    steps = [{"id": "a", "agent": "developer", "prompt": "x", "check": "true", "models": ["small", "large"]}]
    plan = Plan.model_validate({"name": "test", "steps": steps})
    records = runs(20, agent(4.0, tokens_in=1_000_000, model="large", asked="large"))
    found = sane(forecast(state_of(plan), priced(plan, {"small": Price.of(0.1, 0.1)}, *records)))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(4.0, rel=0.1)


def test_d7_cached_tokens_have_their_own_price() -> None:
    used = agent(0.0, unknown=1, tokens_in=1_000_000, tokens_out=0, cache_read=800_000, cache_write=100_000)
    price = Price(10.0, 50.0, cache_read=1.0, cache_write=20.0)
    found = sane(forecast(state_of(agent_plan()), priced(agent_plan(), {"m": price}, *runs(20, used))))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(0.8 + 2.0 + 1.0, rel=0.1)


def test_d7_an_unknown_cost_is_priced_and_one_without_a_price_stays_unknown() -> None:
    records = runs(20, agent(0.0, unknown=1, tokens_in=2_000_000))
    found = forecast(state_of(agent_plan()), priced(agent_plan(), {"m": Price.of(1.0, 5.0)}, *records))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(2.0, rel=0.1)
    for plan, prices in ((agent_plan(), {}), (agent_plan(model="new"), {"m": Price.of(1.0, 5.0)})):
        unknown = forecast(state_of(plan), priced(plan, prices, *records))
        assert (unknown.usd, unknown.unpriced) == (None, ("a",))
        assert "cost: unknown, because these agents have no known cost or price here (a)" in list(
            estimate_lines(unknown)
        )
    fresh = forecast(state_of(agent_plan()), priced(agent_plan(), {"m": Price.of(1.0, 5.0)}))
    assert (
        "cost: unknown, because these agents have not run here yet, so their number of tokens is not known (a)"
        in estimate_lines(fresh)
    )
    without = runs(20, agent(0.0, unknown=1))
    nothing = forecast(state_of(agent_plan()), priced(agent_plan(), {"m": Price.of(1.0, 5.0)}, *without))
    assert (nothing.usd, nothing.unpriced) == (None, ("a",)), "neither a cost nor a token"


def test_d7_a_new_agent_is_priced_by_the_tokens_of_others_with_its_own_model() -> None:
    records = runs(20, agent(1.0, tokens_in=1_000_000))
    steps = [{"id": "b", "agent": "developer", "prompt": "x", "model": "dear", "runtime": "cli"}]
    plan = Plan.model_validate({"name": "test", "steps": steps})
    found = sane(forecast(state_of(plan), priced(plan, {"dear": Price.of(30.0, 0.0)}, *records)))
    assert found.usd is not None
    assert found.usd.middle == pytest.approx(30.0, rel=0.3)
    assert found.priced == ("b",)


def test_d7_a_new_agent_costs_what_others_did_that_were_asked_for_the_same_model() -> None:
    """Its model is known by the name that the plan gives it, and not by the one that answered."""
    dear = agent(50.0, asked="largest", model="large", step="c")
    records = runs(20, agent(1.0, asked="large", model="large-2026"), dear)
    steps = [{"id": "b", "agent": "developer", "prompt": "x", "model": "large", "runtime": "cli"}]
    plan = Plan.model_validate({"name": "test", "steps": steps})
    found = sane(forecast(state_of(plan), priced(plan, {}, *records)))
    assert found.usd is not None
    assert found.usd.middle < 7.0, "nearer to what it costs than to the cost of the other"


def test_d7_the_cost_of_agents_that_have_ended_says_what_the_others_will_cost() -> None:
    writers = [{"id": name, "tool": None, "agent": "developer", "prompt": "x"} for name in "ab"]
    plan = plan_of(*writers)
    one = {"tool": "agent", "runtime": "cli", "model": ""}
    costs = [0.5 * 2.0 ** (n % 3) for n in range(24)]
    records = [run_of(n, *(seen(name, 60.0, known_usd=usd, **one) for name in "ab")) for n, usd in enumerate(costs)]

    def rest(usd: float | None, *seen_before: ExecutionRecord, **around: Any) -> Forecast:
        spent = ev.UsageReported(NOW + 60, "a", 1, ev.Usage(500, 50, usd=usd), "cli")
        task = ev.AgentBegan(NOW, "a", 1, "cli", "developer", "", "x")
        state = state_of(plan, began("a"), task, spent, ended("a", NOW + 60))
        return sane(forecast(state, knowledge(plan, *seen_before), NOW + 60, **around))

    dear, cheap = rest(2.0, *records).usd_raw, rest(0.5, *records).usd_raw
    assert dear is not None
    assert cheap is not None
    assert dear == pytest.approx((0.99240, 1.57200, 2.67788), rel=1e-4)
    assert cheap.middle < dear.middle / 2
    assert rest(None, *records).usd is None
    told = rest(2.0, estimates=lambda _step: (None, 0.5)).usd
    assert told is not None
    assert told.middle == pytest.approx(2.5, rel=0.1)


def test_d7_an_agent_that_nothing_is_known_of_has_no_known_cost() -> None:
    found = forecast(state_of(agent_plan()), knowledge(agent_plan()))
    assert (found.usd, found.unknown, found.unpriced) == (None, ("a",), ("a",))


def test_d7_the_cost_band_is_scored() -> None:
    made = forecast(state_of(agent_plan()), knowledge(agent_plan(), *runs(20, agent(2.0))))
    found = cost_scores([(made, 2.0), (made, 2.01), (made, 9.0), (made, None)])
    assert [(score.bucket, score.forecasts) for score in found] == [(0, 3), (None, 3)]
    assert found[0].inside == pytest.approx(2 / 3)
    lines = "\n".join(score_lines([], found, 3))
    assert "cost" in lines
    assert "67 %" in lines


def test_d7_the_end_is_called_wrapping_up() -> None:
    plan = chain("a")
    known = knowledge(plan, *runs(30, seen("a", 60.0)))
    found = sane(forecast(state_of(plan, began("a")), known, NOW + 59))
    assert found.text(NOW + 120) == "wrapping up"
    assert found.as_dict(NOW + 120)["wrapping_up"]


def test_c7_neither_a_person_nor_a_step_that_never_ran_here_is_called_wrapping_up() -> None:
    asks = plan_of({"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "needs": "a", "approve": "always"})
    known = knowledge(asks, *runs(30, seen("a", 60.0), seen("b", 0.2, person_s=0.2)))
    found = sane(forecast(state_of(asks, began("a"), ended("a", NOW + 60)), known, NOW + 60))
    assert found.left is not None
    assert found.left.middle < 1
    assert found.text(NOW + 61) == "without 1 approval ahead, usually 0.2 s each"
    other = knowledge(chain("new"), *runs(30, seen("old", 0.2), digest="other"))
    found = sane(forecast(state_of(chain("new"), began("new")), other, NOW))
    assert (found.left is not None, found.unknown) == (True, ()), "by the runs of other steps with its tool"
    assert (found.as_dict(NOW + 1)["wrapping_up"], "wrapping" in found.text(NOW + 1)) == (False, False)


def test_c7_a_plan_that_has_not_begun_is_not_called_wrapping_up() -> None:
    known = knowledge(chain("a"), *runs(30, seen("a", 0.2)))
    found = sane(forecast(state_of(chain("a")), known)).as_estimate()["forecast"]
    assert (found["wrapping_up"], found["text"].partition(" (")[0]) == (False, "0.2 s left")


def test_d7_an_early_end_is_noticed() -> None:
    plan = chain("a", "b", "c", "d")
    known = knowledge(plan, *runs(30, *(seen(name, 60.0) for name in "abcd")))
    first = forecast(state_of(plan), known)
    done = [began("a"), ended("a", NOW + 5), began("b", NOW + 5), ended("b", NOW + 9)]
    later = forecast(state_of(plan, *done), known, NOW + 9).compared_with(first)
    assert later.trend == "earlier"
    assert "earlier than first forecast (" in later.text(NOW + 9)


def test_d7_a_plan_that_is_done_has_no_time_left() -> None:
    plan = chain("a")
    found = sane(forecast(state_of(plan, began("a"), ended("a", NOW + 9)), knowledge(plan), NOW + 9))
    assert found.left is not None
    assert found.left.high < 0.1


def test_d7_ten_thousand_steps_are_forecast() -> None:
    plan = plan_of(*({"id": f"s{n}"} for n in range(10_000)), limits={"parallel": 4})
    records = runs(2, *(seen(f"s{n}", 4.0) for n in range(10_000)))
    found = sane(forecast(state_of(plan), knowledge(plan, *records)))
    assert found.left is not None
    assert found.left.middle == pytest.approx(10_000, rel=0.3)


def test_d7_the_same_state_gives_the_same_forecast() -> None:
    plan = chain("a", "b")
    known = knowledge(plan, *runs(5, seen("a", 60.0), seen("b", 120.0)))
    assert forecast(state_of(plan), known) == forecast(state_of(plan), known)


def test_d7_scores_count_what_was_shown() -> None:
    plan = chain("a")
    made = forecast(state_of(plan), knowledge(plan, *runs(20, seen("a", 60.0))))
    found = scores([(made, 60.0), (made, 60.5), (made, 1000.0)])
    assert [score.bucket for score in found] == [0, None]
    assert found[0].inside == pytest.approx(2 / 3)
    assert found[0].as_dict()["done_percent"] == "0-25"
    assert len(scored_times([(made, 60.0)])) == 1
    assert scored_costs([(made, None)]) == []
    unknown = forecast(state_of(plan), knowledge(plan))
    assert scores([(unknown, 60.0)]) == []


def test_c7_the_steps_that_are_left_have_their_own_times() -> None:
    several = {"id": "several", "foreach": "{{ steps.a.output }}", "needs": ["a"]}
    plan = plan_of({"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c", "needs": ["b"]}, several)
    known = knowledge(plan, *runs(20, seen("a", 10.0), seen("b", 20.0), seen("c", 40.0)))
    state = state_of(plan, began("a"), ended("a", NOW + 10), began("b", NOW + 10))
    outlook = Outlook(state, NOW + 15, known, Surroundings())
    found, whole = outlook.by_step(), outlook.forecast()
    assert whole.uncounted == ("several",)
    assert set(found) == {"b", "c"}, "those that have ended, and those that are not known, have no times"
    assert found["b"].begins == 0
    assert found["b"].ends == pytest.approx(15, rel=0.2)
    assert found["c"].begins == pytest.approx(found["b"].ends, rel=0.01)
    assert found["c"].ends - found["c"].begins == pytest.approx(40, rel=0.2)
    assert all(one.begins <= one.ends <= one.late for one in found.values())


@pytest.mark.parametrize("whole", [30.0, 0.3])
def test_c7_the_last_step_ends_with_the_calibrated_forecast(whole: float) -> None:
    plan = chain("a", "b")
    known = knowledge(plan, *runs(20, seen("a", whole / 3), seen("b", whole * 2 / 3)))
    longer = Calibration([ScoredForecast(0, Band(whole / 1.2, whole, whole * 1.2), whole * 2)] * 50)
    outlook = Outlook(state_of(plan), NOW, known, Surroundings(times=longer))
    left = outlook.forecast().left
    assert left is not None
    assert left.middle > 1.01 * whole
    last = outlook.by_step()["b"]
    assert (last.ends, last.late) == pytest.approx((left.middle, left.high), rel=0.05)


def test_c7_without_a_history_no_step_has_times() -> None:
    plan = chain("a", "b")
    assert Outlook(state_of(plan), NOW, knowledge(plan), Surroundings()).by_step() == {}
    done = state_of(plan, began("a"), ended("a", NOW + 1), began("b"), ended("b", NOW + 2))
    assert Outlook(done, NOW + 3, knowledge(plan), Surroundings()).by_step() == {}
    empty = plan_of({"id": "a", "foreach": []})
    known = knowledge(empty, *runs(3, seen("a", 1.0)))
    assert Outlook(state_of(empty), NOW, known, Surroundings()).by_step() == {}, "there is nothing to do"


# -- the figures of the method, as the replay has measured them --------------------------------------


def half_way() -> tuple[State, Knowledge, Surroundings]:
    """A plan with every kind of step, some of them done, running, waiting or skipped, after thirty runs."""
    developer = {"tool": None, "agent": "developer", "prompt": "x"}
    plan = plan_of(
        {"id": "done"},
        {"id": "runs", "needs": ["done"]},
        {"id": "many", "foreach": [1, 2, 3, 4, 5, 6, 7], "needs": ["done"]},
        {"id": "listed", "foreach": "steps.runs.output", "needs": ["runs"]},
        {"id": "again", "retry": {"max": 2, "delay": 30.0}, "needs": ["done"]},
        {"id": "write", **developer},
        {"id": "review", **developer, "needs": ["write"]},
        {"id": "told", "tool": "priced", "needs": ["write"]},
        {"id": "new", "needs": ["told"]},
        {"id": "maybe", "when": "steps.runs.output == 1", "needs": ["runs"]},
        {"id": "asks", "approve": "always", "needs": ["many", "again"]},
        {"id": "spare", "importance": "optional", "retry": 0},
        {"id": "after", "needs": ["spare"]},
        limits={"parallel": 3},
    )
    records = []
    for number in range(30):
        slow = 1.0 + number % 5 / 4
        one = {"tool": "agent", "runtime": "cli", "model": "m"}
        steps = [
            seen("done", 20 * slow), seen("runs", 60 * slow), seen("many", 90 * slow, items=6, attempts=7),
            seen("listed", 50 * slow, items=2 + number % 3, attempts=4), seen("again", 30 * slow, attempts=2),
            seen("write", 200 * slow, **one, known_usd=0.25 * slow, tokens_in=900, tokens_out=100),
            seen("review", 80 * slow, **one, unknown=1, tokens_in=4_000, tokens_out=500),
            seen("maybe", 0.0, status="skipped", attempts=0) if number % 3 else seen("maybe", 15.0),
            seen("asks", 12 * slow, person_s=300.0 + number), seen("spare", 9.0), seen("after", 6 * slow),
        ]  # fmt: skip
        records.append(run_of(number, *steps, digest=plan.digest if number < 12 else "old"))
    failure, list_of = Failure(Category.TRANSIENT, "no"), [1, 2, 3, 4, 5, 6, 7]
    events: list[ev.Event] = [
        began("done"), ended("done", NOW + 30), began("spare"), began("write"), began("again"),
        ev.AgentBegan(NOW, "write", 1, "cli", "developer", "", "x", "m"),
        ev.UsageReported(NOW + 60, "write", 1, ev.Usage(500, 50, usd=0.125, model="m"), "cli"),
        ev.AttemptFailed(NOW + 20, "spare", 1, failure), ev.StepFailed(NOW + 20, "spare", failure),
        ev.AttemptFailed(NOW + 25, "again", 1, failure), ev.StepWaiting(NOW + 25, "again", "retry", NOW + 145),
        began("runs", NOW + 30), ev.StepExpanded(NOW + 30, "many", list_of),
    ]  # fmt: skip
    for number in range(5):
        events += [began(f"many[{number}]", NOW + 30), ended(f"many[{number}]", NOW + 45 + number)]
    events.append(began("many[5]", NOW + 90))
    known = learn(plan.name, plan.digest, records, (), "x", {"m": Price(100.0, 500.0, 10.0, 125.0)}.get)

    def estimates(step: StepState) -> tuple[float | None, float | None]:
        return (40.0, 0.5) if step.id == "told" else (None, None)

    return state_of(plan, *events), known, Surroundings(gates={"t": Gate(places=2)}, estimates=estimates)


def test_d7_the_figures_of_an_execution_on_its_way() -> None:
    state, known, around = half_way()
    found = Outlook(state, NOW + 100, known, around).forecast()
    assert (found.elapsed_s, found.done, found.runs, found.unchanged, found.samples) == (100.0, 0.209, 30, 12, 500)
    assert (found.origins, found.estimated) == ({"step": 9, "estimate": 1, "tool": 1}, ("told",))
    assert (found.priced, found.unpriced, found.unknown, found.uncounted, found.overdue) == (
        ("review",),
        (),
        (),
        (),
        (),
    )
    assert (found.approvals, found.approval_s, found.low_confidence) == (1, 314.5, False)
    assert found.raw == pytest.approx((243.221, 331.955, 446.661), rel=1e-5)
    assert found.left == pytest.approx(found.raw), "nothing was learned about forecasts yet"
    assert found.usd == pytest.approx((1.114595, 1.568545, 2.414875), rel=1e-5)
    assert (found.spent_usd, found.usd_raw) == (0.125, None), "a tool's own estimate is not scored"
    times = {
        "runs": (0.0, 19.28, 39.18),
        "many": (0.0, 26.88, 52.24),
        "listed": (23.75, 83.13, 146.83),
        "again": (47.51, 82.74, 183.88),
        "write": (0.0, 198.43, 270.38),
        "review": (198.43, 319.33, 403.98),
        "told": (198.43, 250.09, 362.01),
        "new": (250.09, 280.86, 409.94),
        "asks": (99.18, 118.39, 202.72),
        "after": (17.67, 27.5, 42.33),
    }
    by_step = Outlook(state, NOW + 100, known, around).by_step()
    assert by_step.keys() == times.keys(), "`maybe` is skipped more often than not"
    assert all(by_step[name] == pytest.approx(one, abs=0.006) for name, one in times.items()), by_step
    late = Outlook(state, NOW + 700, known, around).forecast()
    assert late.left == pytest.approx((441.2256, 1322.7498, 5709.4629), rel=1e-5)
    assert (late.overdue, late.low_confidence) == (("runs", "many", "write"), True)


def test_d7_the_figures_of_a_calibrated_execution() -> None:
    state, known, around = half_way()
    learned = Calibration([ScoredForecast(0, Band(5.0, 10.0, 20.0), 30.0)] * 9)
    around = Surroundings(around.policy, around.gates, lambda _step: (None, None), learned, learned)
    found = Outlook(state, NOW + 100, known, around).forecast()
    assert found.raw == pytest.approx((234.9170, 327.3524, 449.4153), rel=1e-5)
    assert found.left == pytest.approx((259.8718, 345.8400, 548.0091), rel=1e-5)
    assert found.usd_raw == pytest.approx((0.7315620, 0.8905601, 1.0358408), rel=1e-5)
    assert found.usd == pytest.approx((0.8968218, 1.0392144, 1.2634654), rel=1e-5)
    assert (found.samples, found.origins) == (750, {"step": 9, "kind": 1, "tool": 1})
    by_step = Outlook(state, NOW + 100, known, around).by_step()
    assert by_step["write"] == pytest.approx((0.0, 207.79, 321.66), abs=0.006)
    assert by_step["review"] == pytest.approx((207.79, 334.18, 484.36), abs=0.006), "stretched, as the whole is"


def test_d7_the_figures_of_the_habits_of_steps() -> None:
    _, known, _ = half_way()
    repeats = [known.repeats(name) for name in ("again", "runs", "maybe", "never seen")]
    assert repeats == pytest.approx([0.477320, 0.016132, 0.039177, 0.137121], rel=1e-4)
    assert [known.skips(name) for name in ("maybe", "runs", "never seen")] == pytest.approx([0.661290, 0.5 / 31, 0])
    assert (known.failures, known.person_s) == pytest.approx((0.137121, 314.5), rel=1e-5)


def test_d7_the_habits_of_a_step_are_counted_over_the_runs_of_its_plan() -> None:
    each, odd = seen("each", 10.0, items=2, attempts=3), seen("each", 10.0, items=9, attempts=90, person_s=5.0)
    kept = seen("e", 1.0, status="skipped", attempts=2)
    own = runs(61, kept, each, seen("b", 1.0, status="failed", person_s=9.0), seen("c", 0.0, attempts=0))
    own[0] = msgspec.structs.replace(own[0], status="failed", digest="old")
    own[1] = msgspec.structs.replace(own[1], digest="old")
    itself = msgspec.structs.replace(run_of(99, odd), id="x")
    elsewhere = [run_of(7, seen("d", 80.0), plan="other"), run_of(8, odd)]
    elsewhere.append(msgspec.structs.replace(run_of(9, seen("e", 80.0), plan="other"), id="x"))
    known = learn("test", "d", [itself, *own], elsewhere, "x")
    assert (known.runs, known.unchanged, known.person_s) == (60, 59, 9.0)
    assert known.habits["each"] == StepHabits(attempts=183, repeated=61, seen=61, counts=[2] * 60)
    assert known.habits["b"] == StepHabits()
    assert known.habits["c"] == StepHabits(seen=61)
    assert known.habits["e"] == StepHabits(seen=61, skipped=61)
    assert known.failures == pytest.approx((61 + 50 * 0.01) / (183 + 50))
    assert sorted(known.seconds.steps) == [("other", "d"), ("test", "each")]
    fewer = learn("test", "d", runs(3, seen("each", 1.0, items=4, attempts=2)))
    assert fewer.failures == pytest.approx(0.5 / 56)
    assert fewer.habits["each"].repeated == 0, "some were kept by a fork"
