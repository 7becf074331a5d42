"""Executions as a whole: restored, removed, and dealt with when they were paused for too long (D3, D4, D9)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, done, plan

from windlass import Engine, Step
from windlass.core import events as ev
from windlass.errors import Damaged, UsageError
from windlass.ports import AgentRequest, Head
from windlass.testing import FakeClock, MemoryJournal, ScriptedRunner, Turn
from windlass.workspaces.worktrees import place_of

if TYPE_CHECKING:
    from conftest import Project


def world_of(project: Project, *script: Turn) -> AgentWorld:
    return AgentWorld(project, ScriptedRunner(script or [done()], name="cli"), clock=FakeClock())


async def damage(world: AgentWorld, execution: str, *, driver: str = "gone") -> None:
    """Leave an execution of which nothing can be read; `driver` is who drives it."""
    await world.journal.remove(execution)
    head = Head(execution, "", "running", 1.0, 2.0, driver)
    await world.journal.append(execution, 0, [ev.AttemptFinished(1.0, "a", 1, None)], head=head)


async def find_damage(engine: Engine, execution: str) -> None:
    with pytest.raises(Damaged):
        await engine.state(execution)
    assert set(engine.damaged) == {execution}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of the executions; folders of agents have a place of their own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    caplog.set_level(logging.WARNING, "windlass.engine")
    told: list[str] = []

    def note(record: logging.LogRecord) -> None:
        if record.module == "housekeeping":
            told.append(record.getMessage())

    monkeypatch.setattr(caplog.handler, "emit", note)
    return told


async def test_d9_a_damaged_execution_that_is_restored_or_removed_is_not_damaged_any_more(project: Project) -> None:
    world = world_of(project)
    state = await world.run(plan())
    async with world.engine() as engine:
        file = await engine.checkpoint(state.id)
        await damage(world, state.id)
        await find_damage(engine, state.id)
        assert await engine.restore(file) == state.id
        assert engine.damaged == {}
        assert (await engine.state(state.id)).status == "completed"
        await damage(world, state.id)
        await find_damage(engine, state.id)
        await engine.forget(state.id)
        assert engine.damaged == {}
    assert await world.journal.heads() == []


async def test_d9_a_damaged_execution_that_another_process_drives_is_neither_restored_nor_removed(
    project: Project,
) -> None:
    world = world_of(project)
    state = await world.run(plan())
    async with world.engine() as engine:
        file = await engine.checkpoint(state.id)
        assert isinstance(world.journal, MemoryJournal)
        await damage(world, state.id, driver=world.journal.enlist("other"))
        for refused in (engine.restore(file), engine.forget(state.id)):
            with pytest.raises(UsageError, match=f"execution {state.id} is running") as error:
                await refused
            assert error.value.advice == (f"windlass cancel {state.id}",)
    assert len(await world.journal.read(state.id)) == 1, "nothing was written or removed"


async def test_d4_a_whole_execution_is_not_replaced_by_a_file_of_it(project: Project) -> None:
    world = world_of(project)
    state = await world.run(plan())
    async with world.engine() as engine:
        file = await engine.checkpoint(state.id)
        with pytest.raises(UsageError, match=r"already exists here \(completed\)"):
            await engine.restore(file)


async def test_d4_what_a_restored_execution_spent_elsewhere_is_in_the_ledger_here(project: Project) -> None:
    spends = Turn().say("a").spend(tokens_in=10, tokens_out=2, usd=0.5, model="sonnet")
    first = world_of(project, spends.fail("no"), Turn().say("b").spend(tokens_in=4, tokens_out=1, usd=None))
    async with first.engine() as engine:
        state = await (await engine.start(plan(agent("a", importance="optional"), agent("b")))).wait()
        file = await engine.checkpoint(state.id)
    here = world_of(project)
    async with here.engine() as engine:
        await engine.restore(file)
    for by in ("execution", "model", "runtime", "role"):
        assert await here.ledger.spent(by) == await first.ledger.spent(by)
    (found,) = await here.ledger.spent("execution")
    assert (found.heading, found.usd, found.unknown, found.attempts) == (state.id, 0.5, 1, 2)


async def test_d3_a_pause_expires_at_its_time_and_not_before(project: Project) -> None:
    world = world_of(project)
    asks = plan(agent(approve="always"))
    ends = await world.run(asks, pause_expiry="1h", on_pause_expiry="cancel")
    goes_on = await world.run(asks, pause_expiry="1h", on_pause_expiry="resume")
    forever = await world.run(asks)
    assert isinstance(world.clock, FakeClock)
    async with world.engine() as engine:
        assert ends.expires_at is not None
        world.clock.set(ends.expires_at - 0.5)
        assert await engine.sweep() == []
        world.clock.set(ends.expires_at)
        assert sorted(await engine.sweep()) == sorted([(ends.id, "cancel"), (goes_on.id, "resume")])
        statuses = [(await engine.state(one.id)).status for one in (ends, goes_on, forever)]
    assert statuses == ["cancelled", "paused", "paused"]
    (finished,) = [event for event in await world.events(ends.id) if isinstance(event, ev.ControlRequested)]
    assert finished.by == "pause_expiry"


async def test_d3_one_that_can_be_neither_cancelled_nor_resumed_at_its_time_is_named(
    project: Project, warnings: list[str]
) -> None:
    world = world_of(project)
    await damage(world, "x" * 32)
    head = Head("x" * 32, "", "paused", 1.0, 2.0, "gone", expires_at=world.clock.now())
    await world.journal.append(head.id, 1, [ev.AttemptFinished(2.0, "a", 1, None)], head=head)
    async with world.engine() as engine:
        assert await engine.sweep() == []
    said = f"{head.id} reached its pause limit, and could not be cancelled or resumed: execution {head.id} is damaged"
    assert [warning[: len(said)] for warning in warnings] == [said]


# -- folders of agents ----------------------------------------------------------------------------


async def test_k4_a_folder_with_work_that_would_be_lost_stays_and_is_named(
    project: Project, warnings: list[str]
) -> None:
    def work(request: AgentRequest) -> Turn:
        if request.task == "do new":
            (request.workdir / "new.txt").write_text("new")
        return done()

    world = AgentWorld(project, ScriptedRunner(work, name="cli"))
    state = await world.run(plan(agent("new", workspace="copy"), agent("idle", workspace="copy")))
    async with world.engine() as engine:
        await engine.forget(state.id)
    assert len(warnings) == 1, warnings
    assert warnings[0].startswith(f"new of {state.id} stays (")
    assert warnings[0].endswith(f"): {place_of(state.id, 'new')}")
    assert [place.name for place in place_of(state.id, "new").parent.iterdir()] == ["new"]
    assert await world.journal.heads() == []


async def test_k4_folders_of_a_damaged_execution_stay_and_that_is_said(project: Project, warnings: list[str]) -> None:
    world = world_of(project)
    state = await world.run(plan(Step(id="a", run="true")))
    place_of(state.id, "a").mkdir(parents=True)
    await damage(world, state.id)
    async with world.engine() as engine:
        await engine.forget(state.id)
    assert len(warnings) == 1, warnings
    assert warnings[0].startswith(f"the folders of the agents of {state.id} stay: execution {state.id} is damaged")
    assert place_of(state.id, "a").is_dir()


# -- space ----------------------------------------------------------------------------------------


class Reclaiming(MemoryJournal):
    """A journal that notes up to which size its file may be rewritten."""

    def __init__(self) -> None:
        super().__init__()
        self.most: list[int | None] = []

    async def reclaim(self, most: int | None = None) -> int:
        self.most.append(most)
        return 0


async def test_d9_while_an_execution_runs_only_a_file_of_some_hundred_megabytes_is_rewritten(project: Project) -> None:
    journal = Reclaiming()
    hangs = ScriptedRunner([Turn(when="do hangs").hang(), done()], name="cli")
    world = AgentWorld(project, hangs, journal=journal)
    first, second = [await world.run(plan()) for _ in range(2)]
    async with world.engine() as engine:
        await engine.forget(first.id)
        running = await engine.start(plan(agent("hangs")))
        await engine.forget(second.id)
        await running.cancel()
    quiet, busy = journal.most
    assert quiet is None, "nobody has to wait for it"
    assert busy is not None
    assert 100 * 2**20 < busy < 2**30
