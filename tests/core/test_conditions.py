"""Steps that the inputs of a plan skip are known before it runs, by the rules that skip them (C6, C7)."""

from __future__ import annotations

import msgspec
import pytest
from core_plans import plan_of, statuses

from windlass.core import events as ev
from windlass.core.forecast.knowledge import learn
from windlass.core.forecast.outlook import Outlook, Surroundings
from windlass.core.state import fold
from windlass.plan.conditions import foresee, items_before
from windlass.plan.prepare import prepare
from windlass.testing import simulate

PLAN = plan_of(
    {"id": "a", "when": "inputs.go", "approve": "always", "importance": "optional"},
    {"id": "after", "needs": ["a"], "approve": "always"},
    {"id": "instead", "needs": ["a"], "when": "steps.a.status == 'skipped'", "approve": "always"},
    {"id": "free", "approve": "always"},
    {"id": "maybe", "needs": ["free"], "when": "steps.free.output != 1"},
    {"id": "after_maybe", "needs": ["maybe"], "approve": "always"},
    {"id": "never", "needs": ["maybe"], "when": "inputs.go"},
    {"id": "each", "foreach": "inputs.names", "approve": "always"},
    {"id": "off", "when": False},
    inputs={"go": False, "names": []},
)


@pytest.mark.parametrize("go", [False, True])
def test_c6_the_steps_that_the_inputs_skip_are_those_that_the_rules_skip(go: bool) -> None:
    inputs = {"go": go, "names": []}
    found = foresee(prepare(PLAN), inputs)
    run = simulate(PLAN, inputs=inputs)
    skipped = {name for name, status in statuses(run).items() if status == "skipped"}
    assert found.skipped == skipped - found.undecided
    assert found.skipped == ({"off"} if go else {"a", "after", "never", "off"})
    assert found.undecided == {"instead", "maybe", "after_maybe"} | ({"never"} if go else set())


def test_c7_a_forecast_counts_no_approval_that_cannot_come() -> None:
    asked = {}
    for go in (False, True):
        inputs = {"go": go, "names": []}
        created = ev.ExecutionCreated(0.0, id="x", plan=msgspec.Raw(PLAN.encoded), inputs=inputs, workdir="/")
        known = learn(PLAN.name, PLAN.digest, [])
        asked[go] = Outlook(fold([created], PLAN), 0.0, known, Surroundings()).forecast().approvals
    assert asked == {False: 3, True: 5}, "instead, free and after_maybe; with a and after"


def test_c7_an_expression_that_fails_is_left_to_its_step() -> None:
    plan = plan_of({"id": "a", "when": "inputs.go + 1"}, {"id": "b", "foreach": "inputs.go"}, inputs={"go": "x"})
    prepared = prepare(plan)
    assert foresee(prepared, plan.inputs).undecided == {"a"}
    assert items_before(prepared, plan.steps[1], plan.inputs) is None
