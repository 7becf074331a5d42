"""Plans made ready to run."""

from __future__ import annotations

from windlass.plan.load import load_text
from windlass.plan.model import Plan, Step
from windlass.plan.prepare import prepare


def test_d9_only_a_plan_that_a_program_built_is_copied_for_its_executions() -> None:
    built = Plan(name="copied or not", steps=[Step(id="a", tool="echo", with_={"data": [1]})])
    assert prepare(built).plan is not built
    assert prepare(built) is prepare(Plan.decode(built.encoded))
    read = load_text("name: read, so not copied\nsteps: [{id: a, run: 'true'}]").plan
    assert prepare(read).plan is read
    changed = read.model_copy(update={"name": "changed by a program"})
    assert prepare(changed).plan is not changed
