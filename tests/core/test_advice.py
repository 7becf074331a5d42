"""Advice about failures names commands that are not refused (C5)."""

from __future__ import annotations

from typing import Any

import pytest
from core_plans import plan_of

from windlass.cli.text import summary
from windlass.core import events as ev
from windlass.core.advice import failure_advice, fork_notes, own_advice, retry_notes, ways_after, ways_on
from windlass.core.redo import check_retry
from windlass.core.view import snapshot
from windlass.errors import Category, Failure, UsageError
from windlass.testing import Simulation


def test_c5_a_failure_names_no_command_that_is_refused_after_the_end() -> None:
    """The advice of a failure is stored with it, and an execution that completes without the step is not reopened."""
    again, say = "go on: windlass retry ID 'each[1]'", "tell the agent how: windlass say ID 'each[1]' TEXT"
    failure = Failure(Category.LOGIC, "refuted", advice=(again, say))
    each = {"id": "each", "foreach": [1, 2], "importance": "optional"}
    run = Simulation(plan_of(each, {"id": "last", "needs": ["each"]}))
    run.start()
    run.fail("each[1]", failure)
    run.finish("each[0]", 1)
    shown = snapshot(run.state)["steps"]
    assert [again in one["error"]["advice"] for one in (shown[0], shown[2])] == [True, True]
    assert again in shown[0]["errors"]["1"]["advice"]
    run.finish("last", 1)
    assert run.state.status == "completed"
    each, _first, item, _last = snapshot(run.state)["steps"]
    for advice in (each["error"]["advice"], item["error"]["advice"], each["errors"]["1"]["advice"]):
        assert say in advice
        assert not any("windlass retry" in line for line in advice)
    assert item["error"]["advice"][-1].endswith(f"in a new execution: windlass fork {run.state.id}")
    told = "\n".join(summary(run.state))
    assert "windlass say " in told
    assert "windlass retry " not in told


def test_c5_the_ways_on_are_those_that_can_help_with_the_failure_most_useful_first() -> None:
    once: dict[str, Any] = {"retry": {"max": 0}}
    broken, cut = Failure(Category.LOGIC, "no"), Failure(Category.TRANSIENT, "cut")
    steps = [{"id": "a-b", **once}, {"id": "net", **once}, {"id": "many", "foreach": [1], **once}]
    run = Simulation(plan_of(*steps, {"id": "write", "tool": None, "prompt": "x", **once}))
    run.start()
    for step, failure in (("a-b", broken), ("net", cut), ("many[0]", broken), ("write", broken)):
        run.fail(step, failure)
    state, name = run.state, run.state.id

    def ways(step: str, changed_plan: str = "") -> list[str]:
        return [str(way) for way in ways_on(state, state.steps[step], changed_plan)]

    assert ways("a-b", "p.yaml") == [
        f"see what it did: windlass logs {name} --step a-b",
        f"try it again: windlass retry {name} a-b --accept-changes",
        f"try it with other arguments: windlass retry {name} a-b --with KEY=VALUE --accept-changes",
        f"continue without it: windlass skip {name} a-b --accept-changes",
    ]
    assert ways("net") == [
        f"see what it did: windlass logs {name} --step net",
        f"try it again: windlass retry {name} net",
        f"continue without it: windlass skip {name} net",
    ]
    assert ways("many")[:2] == [
        f"see what it did: windlass logs {name} --step many",
        f"try its failed items again: windlass retry {name} many",
    ]
    assert ways("write")[2] == f"try it on another runtime: windlass retry {name} write --runtime NAME"
    fork = f"windlass fork {name} --plan 'my plan.yaml'"
    again = f"run parts of it again in a new execution: windlass fork {name} --from STEP"
    rest = f"run failed and skipped steps in a new execution: {fork}"
    assert ways_after(state, "my plan.yaml") == (*ways("a-b", "my plan.yaml"), rest, again)
    assert fork_notes(state, "") == []
    assert fork_notes(state, "my plan.yaml", ["--from", "a-b"]) == [
        "the plan my plan.yaml has changed since, and this runs it as it was; to run the changed plan: "
        f"{fork} --from a-b"
    ]


def test_c5_a_failure_of_the_whole_execution_keeps_its_advice_while_it_can_go_on() -> None:
    redo, other = "go on: windlass retry ID a", "look at the plan"
    late = Failure(Category.LOGIC, "too long", "limits.timeout", (redo, other))
    ends: list[tuple[Any, tuple[str, ...]]] = [("failed", (redo, other)), ("cancelled", (other,))]
    for ended_as, kept in ends:
        run = Simulation(plan_of({"id": "a"}, {"id": "b"}))
        run.start()
        assert ways_after(run.state) == (
            f"run failed and skipped steps in a new execution: windlass fork {run.state.id}",
            f"run parts of it again in a new execution: windlass fork {run.state.id} --from STEP",
        )
        run.state.apply(ev.StepSkipped(1.0, "a", "its condition", condition=True))
        assert failure_advice(run.state, late) == (redo, other), "no step was cut off"
        run.state.apply(ev.StepSkipped(1.0, "b", "the time limit"))
        again = f"continue, with the same time limit again: windlass retry {run.state.id} b"
        assert failure_advice(run.state, late) == (again, redo, other)
        assert failure_advice(run.state, Failure(Category.LOGIC, "no", "b", (redo,))) == (redo,)
        run.state.apply(ev.ExecutionFinished(2.0, ended_as))
        assert own_advice(run.state, late) == kept
    done = Simulation(plan_of({"id": "a"}))
    done.start()
    done.finish("a", 1)
    assert ways_after(done.state) == (
        f"run parts of it again in a new execution: windlass fork {done.state.id} --from STEP",
    )


def test_c5_an_item_that_was_not_picked_is_run_again_by_a_fork_from_its_step() -> None:
    run = Simulation(plan_of({"id": "try", "foreach": [1, 2], "pick": "first"}, {"id": "last", "needs": ["try"]}))
    run.start()
    run.fail("try[1]", Failure(Category.LOGIC, "no"))
    run.finish("try[0]", 1)
    run.finish("last", 1)
    item = snapshot(run.state)["steps"][2]
    fork = f"windlass fork {run.state.id} --from try"
    assert item["error"]["advice"] == [f"run it and the steps after it again, in a new execution: {fork}"]
    with pytest.raises(UsageError) as refused:
        check_retry(run.state, run.state.steps["try[1]"])
    assert refused.value.advice == (f"run it again in a new execution: {fork}",)


def test_d10_a_retry_names_the_completed_steps_that_used_the_earlier_result() -> None:
    each = {"id": "each", "foreach": [1, 2], "importance": "optional"}
    rest = [{"id": "collect", "needs": ["each"]}, {"id": "report", "needs": ["collect"]}, {"id": "own"}]
    run = Simulation(plan_of(each, *rest, {"id": "beside", "needs": ["each"]}, {"id": "last", "needs": ["report"]}))
    run.start()
    run.finish("each[0]", 1)
    run.fail("each[1]", Failure(Category.LOGIC, "no"))
    item = run.state.steps["each[1]"]
    assert retry_notes(run.state, item) == []
    for step in ("own", "collect", "report"):
        run.finish(step, 1)
    start = "collect, report used the earlier result of each and do not run again; to run them, too, in a new execution"
    assert retry_notes(run.state, item) == [f"{start}: windlass fork {run.state.id} --from collect"]
    run.finish("beside", 1)
    (note,) = retry_notes(run.state, item)
    assert note.startswith("collect, beside, report used ")
    assert note.endswith(f"windlass fork {run.state.id} --from each"), "one step after which all of them come"


@pytest.mark.parametrize(
    ("count", "names", "verb"),
    [
        (1, "s0", "does"),
        (2, "s0, s1", "do"),
        (5, "s0, s1, s2, s3, s4", "do"),
        (6, "s0, s1, s2, s3, s4 and 1 more", "do"),
        (7, "s0, s1, s2, s3, s4 and 2 more", "do"),
    ],
)
def test_d10_a_retry_names_five_of_the_steps_that_used_the_earlier_result(count: int, names: str, verb: str) -> None:
    rest: list[dict[str, Any]] = [
        {"id": f"s{number}", "needs": [f"s{number - 1}" if number else "each"]} for number in range(count)
    ]
    run = Simulation(plan_of({"id": "each", "foreach": [1], "importance": "optional"}, *rest, {"id": "own"}))
    run.start()
    run.fail("each[0]", Failure(Category.LOGIC, "no"))
    for step in rest:
        run.finish(step["id"], 1)
    (note,) = retry_notes(run.state, run.state.steps["each[0]"])
    them = "it" if verb == "does" else "them"
    assert note == (
        f"{names} used the earlier result of each and {verb} not run again; to run {them}, too, in a new execution: "
        f"windlass fork {run.state.id} --from s0"
    )


def test_d8_a_failed_foreach_names_the_fork_that_makes_its_list_anew() -> None:
    """A retry and a plain fork keep the list of a completed step, also where the fault was in it."""
    load, each = {"id": "load"}, {"id": "each", "foreach": "steps.load.output.content | from_json"}
    run = Simulation(plan_of(load, each, {"id": "other", "foreach": [1]}))
    run.start()
    run.finish("load", {"content": "[1, 2]"})
    run.finish("each[0]", 1)
    for item in ("each[1]", "other[0]"):
        run.fail(item, Failure(Category.LOGIC, "no"))
    assert ways_on(run.state, run.state.steps["each"])[-1].command == f"windlass fork {run.state.id} --from load"
    assert not any("--from" in way.command for way in ways_on(run.state, run.state.steps["other"]))


def test_d8_a_failed_foreach_over_an_input_names_the_fork_with_another_list() -> None:
    run = Simulation(plan_of({"id": "each", "foreach": "inputs.parts"}, inputs={"parts": [1]}))
    run.start()
    run.fail("each[0]", Failure(Category.LOGIC, "no"))
    assert ways_on(run.state, run.state.steps["each"])[-1].command == f"windlass fork {run.state.id} -i parts=@FILE"


@pytest.mark.parametrize("listed", ["execution.workdir | list", "inputs.values() | list"])
def test_d8_a_failed_foreach_over_what_no_input_alone_gives_names_no_other_list(listed: str) -> None:
    run = Simulation(plan_of({"id": "each", "foreach": listed}, inputs={"part": "/"}))
    run.start()
    run.fail("each[0]", Failure(Category.LOGIC, "no"))
    assert ways_on(run.state, run.state.steps["each"])[-1].command == f"windlass skip {run.state.id} each"
