"""One unreadable execution harms no other (D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from damage_worlds import DAMAGES, damage

import windlass
from windlass import Plan, Step
from windlass.core.view import snapshot
from windlass.engine.damage import damaged_view
from windlass.errors import Damaged, NotFound

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(name="work", steps=[Step(id="a", run="true"), Step(id="b", run="true", needs=["a"])])
ASKS = Plan(name="asks", steps=[Step(id="a", run="true", approve="always"), Step(id="b", run="true", needs=["a"])])


@pytest.mark.parametrize("kind", DAMAGES)
async def test_d9_a_damaged_execution_is_named_and_harms_no_other(project: Project, kind: str) -> None:
    async with windlass.open() as engine:
        good = await engine.start(PLAN)
        await good.wait()
        bad = await engine.start(PLAN)
        await bad.wait()
        file = await engine.checkpoint(bad.id)
        await engine.create(PLAN)
    seq = damage(project.home, bad.id, kind)
    async with windlass.open() as engine:
        with pytest.raises(Damaged) as error:
            await engine.state(bad.id)
        assert (error.value.execution, error.value.seq) == (bad.id, seq)
        assert "clean --damaged" in error.value.advice[-1]
        whole = snapshot(await engine.state(good.id))
        (head,) = await engine.journal.heads(prefix=bad.id)
        shown = damaged_view(head, error.value)
        assert shown.keys() - {"damage"} == whole.keys()
        assert shown["cost"] == {"usd": None, "known": False, "tokens_in": 0, "tokens_out": 0, "text": "unknown"}
        heads = await engine.executions()
        assert len([state async for state in engine.states(heads)]) == 2
        assert set(engine.damaged) == {bad.id}
        assert (await engine.estimate(PLAN, engine.attempt_runner.tools)).samples >= 2, "estimates do without it"
        every = {entry.execution for entry in await engine.journal.read(None)}
        assert good.id in every, "the events of the others are read past it"
        assert (await engine.resume(heads[0].id)).id == heads[0].id
        restored = await engine.restore(file)
        assert restored == bad.id, "a checkpoint file takes the damaged one's place"
        assert (await engine.state(bad.id)).status == "completed"
        assert not engine.damaged
        damage(project.home, bad.id, kind)
        await engine.forget(bad.id)
        with pytest.raises(NotFound):
            await engine.state(bad.id)


async def test_d9_one_that_was_paused_for_too_long_and_is_damaged_does_not_hold_up_the_others(
    project: Project,
) -> None:
    async with windlass.open(pause_expiry=1e-6) as engine:
        ids = []
        for _ in range(3):
            execution = await engine.start(ASKS, hold=False)
            assert (await execution.wait()).status == "paused"
            ids.append(execution.id)
        damage(project.home, ids[1], "a plan that is none")
        dealt = await engine.sweep()
        assert {name for name, _what in dealt} == {ids[0], ids[2]}
