"""Executions begin where their plan can run, and their handles follow them from the first event (D5, D8, I5, J2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld

from windlass.core import events as ev
from windlass.errors import UsageError
from windlass.plan.model import Plan

if TYPE_CHECKING:
    from conftest import Project

PLAIN = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": "true"}]})
GONE = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": ["no-such-program"]}]})
SERVED = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": "true", "service": {"line": "up"}}]})


async def test_d5_a_plan_whose_program_is_missing_starts_only_if_that_is_wanted(project: Project) -> None:
    world = AgentWorld(project)
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="no-such-program is not on PATH"):
            await engine.start(GONE)
        assert await world.journal.heads() == []
        execution = await engine.start(GONE, anyway=True)
        assert execution.warnings == ("step a: the program no-such-program is not on PATH",)
        assert (await execution.wait()).status == "failed"


async def test_d5_a_plan_starts_in_no_folder_that_is_not_there(project: Project) -> None:
    world = AgentWorld(project)
    async with world.engine() as engine:
        with pytest.raises(UsageError, match=f"the working directory {project.path}/gone does not exist"):
            await engine.start(PLAIN, workdir=project.path / "gone")
        assert await world.journal.heads() == []


async def test_i5_the_handle_of_an_execution_gives_its_events_from_the_first(project: Project) -> None:
    world = AgentWorld(project)
    async with world.engine() as engine:
        execution = await engine.start(PLAIN)
        given = [event async for event in execution.events(execution.since)]
    assert given == await world.events(execution.id)
    assert isinstance(given[0], ev.ExecutionCreated)
    assert given[0].start, "without its second event, it was cut off"


async def test_j2_a_plan_with_a_service_is_neither_created_nor_forked_for_workers(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AgentWorld(project)
    state = await world.left_behind(SERVED, ev.ExecutionPaused(9.0, "me"))
    async with world.engine() as engine:
        monkeypatch.setattr(engine._control._launcher, "_cluster", SimpleNamespace(driver="workers"))
        for refused in (engine.create(SERVED), engine.fork(state.id)):
            with pytest.raises(UsageError, match="the service a of plan p cannot run on workers"):
                await refused
        assert [head.id for head in await world.journal.heads()] == [state.id]
