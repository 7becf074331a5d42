"""Damaged executions on the command line: shown, left alone, removed when asked to (D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from damage_worlds import DAMAGES, damage

import windlass as library
from windlass import Plan, Step

if TYPE_CHECKING:
    from conftest import Project, Windlass

ASKS = Plan(name="asks", steps=[Step(id="a", run="true"), Step(id="q", run="true", needs=["a"], approve="always")])
WORK = Plan(name="work", steps=[Step(id="a", run="true"), Step(id="b", run="true", needs=["a"])])


@pytest.fixture
async def damaged(project: Project) -> dict[str, int]:
    """A home with one good question, one execution that was left behind, and one execution of each kind of damage."""
    async with library.open() as engine:
        names = []
        for _ in range(len(DAMAGES) + 1):
            execution = await engine.start(ASKS, hold=False)
            await execution.wait()
            names.append(execution.id)
        await engine.create(WORK, to_start=True)
        left = await engine.create(WORK, to_start=True)
    found = {name: damage(project.home, name, kind) for name, kind in zip(names, DAMAGES, strict=False)}
    return {**found, left: damage(project.home, left, "the first event cut")}


def test_d9_damaged_executions_are_shown_and_removed_and_harm_no_other(
    project: Project, windlass: Windlass, damaged: dict[str, int]
) -> None:
    told = {one["id"]: one for one in windlass("list", "--json").json}
    assert {name: one["damage"]["seq"] for name, one in told.items() if one["status"] == "damaged"} == damaged
    assert len(told) == len(damaged) + 2
    first, seq = next(iter(damaged.items()))
    listed = windlass("list")
    assert f"{first}  " in listed.out
    assert f"damaged    asks (was paused; event {seq}: " in listed.out
    assert "windlass clean --damaged" in listed.err
    assert len(windlass("approvals", "--json").json) == 1
    status = windlass("status", first, code=1)
    assert f"event {seq} of it cannot be read" in status.err
    assert windlass("status", first, "--json", code=1).json["damage"]["seq"] == seq
    resumed = windlass("resume", "--all", "--progress=quiet", code=1)
    assert "is damaged" in resumed.err
    assert "work  completed" in resumed.err, "the other one that was left behind goes on"
    assert "Traceback" not in listed.err + status.err + resumed.err

    kept = windlass("clean", "--damaged", code=4)
    assert f"{len(damaged)} damaged executions would be removed" in kept.err
    assert len(project.ids()) == len(told)
    gone = windlass("clean", "--damaged", "--yes", "--json").json
    assert set(gone["removed"]) == set(damaged)
    assert {one["status"] for one in windlass("list", "--json").json} == {"paused", "completed"}
