"""Timelines that are kept between questions are those of the journal as it is (D4, I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import windlass
from windlass import Plan, Step
from windlass.engine.timelines import Timelines

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(name="asks", steps=[Step(id="a", run="true", approve="always"), Step(id="b", run="true", needs=["a"])])


async def test_d4_a_restored_execution_shows_nothing_of_the_removed_one(project: Project) -> None:
    async with windlass.open() as engine:
        started = await engine.start(PLAN, hold=False)
        assert (await started.wait()).status == "paused"
        file = await engine.checkpoint(started.id)
        half = project.path / "half.json"
        half.write_bytes(file.read_bytes())
        await engine.approve(started.id, "a")
        assert (await (await engine.resume(started.id)).wait()).status == "completed"
        timelines = Timelines(engine.journal)
        whole = (await timelines.at(started.id)).seq
        assert (await timelines.at(started.id, whole - 1)).seq == whole - 1
        await engine.journal.remove(started.id)
        await engine.restore(half)
        now = await timelines.at(started.id)
        assert now.seq == len(await engine.journal.read(started.id)) < whole
        await engine.approve(started.id, "a", allow=False)
        assert (await (await engine.resume(started.id)).wait()).status == "failed"
        events = [entry.event for entry in await engine.journal.read(started.id)]
        assert (await timelines.at(started.id)).seq == len(events)
        assert (await timelines.at(started.id, len(events))).state.status == "failed"
