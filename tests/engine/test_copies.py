"""States and errors can be copied and passed on to another process (I5)."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

import windlass
from windlass import Plan, PlanInvalid, Step, ToolError, WindlassError
from windlass.client import Refused
from windlass.core.view import snapshot
from windlass.errors import ApprovalOutdated, CannotResume, Category, Damaged, Problem, UsageError

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(
    name="words",
    inputs={"words": ["rope", "pawl"]},
    steps=[Step(id="say", foreach="inputs.words", run="echo {{ item }}"), Step(id="end", needs="say", run="exit 3")],
)


async def test_i5_a_state_can_be_pickled_also_of_a_plan_with_templates(project: Project) -> None:
    async with windlass.open() as engine:
        state = await (await engine.start(PLAN)).wait()
    again = pickle.loads(pickle.dumps(state))
    assert snapshot(again) == snapshot(copy.deepcopy(state)) == snapshot(state)
    assert again.steps["say"].prepared is again.prepared.steps["say"]


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no such thing", advice=("look again",)),
        PlanInvalid([Problem("too long", "plan.yaml", 3), Problem("too short")], advice=("edit it",)),
        CannotResume(["it is gone", "it was changed"]),
        Damaged("01a1", 7, "it is missing"),
        Refused("no", status=409, category=Category.CONFIGURATION, problem={"reasons": ["late"]}),
        ToolError("busy", category="transient", advice=["wait"], retry_after=2.0, output={"n": 1}),
        ApprovalOutdated(["a.txt was changed", "b.txt is gone"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_i5_an_error_can_be_pickled_and_copied_whole(error: WindlassError | ToolError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))
        assert again.failure == error.failure


async def test_i5_an_engine_and_an_execution_are_shown_by_name(project: Project) -> None:
    async with windlass.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run="true")]))
        assert repr(execution) == f"<Execution {execution.id}>"
        assert repr(engine) == f"<Engine {engine.home}>"
    assert repr(engine) == f"<Engine {engine.home} (closed)>"
