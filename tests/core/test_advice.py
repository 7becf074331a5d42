"""Advice about failures names commands that are not refused (C5)."""

from __future__ import annotations

import pytest
from core_plans import plan_of

from windlass.cli.text import summary
from windlass.core.advice import retry_notes, ways_on
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
