"""A long-lived engine stays as it was: descriptors, children, tasks and memory do not grow with the work done."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest
from waiting import wait_until_async

import windlass
from windlass import Engine, Plan, tool


@tool
async def double(x: int) -> int:
    return 2 * x


PLAN = Plan.model_validate(
    {
        "name": "soak",
        "steps": [
            {"id": "a", "tool": "double", "with": {"x": 1}},
            {"id": "b", "tool": "double", "with": {"x": "{{ steps.a.output }}"}},
            {"id": "c", "run": ["true"], "needs": ["b"]},
        ],
    }
)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def run_many(engine: Engine, count: int) -> None:
    """So many executions, twenty at a time, with nothing in memory for those to come."""
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            state = await (await engine.start(PLAN)).wait()
            assert state.steps["b"].output == 4

    await asyncio.gather(*(work() for _ in range(20)))


async def test_executions_leave_no_descriptors_tasks_or_children_behind(tmp_path: Path) -> None:
    async with windlass.open(tmp_path / "home", tools=[double]) as engine:
        await run_many(engine, 20)
        before = descriptors(), len(asyncio.all_tasks())
        await run_many(engine, 60)
        await engine._checkpoints.close()
        await wait_until_async(lambda: descriptors() <= before[0] + 1, "descriptors are closed")
        await wait_until_async(lambda: len(asyncio.all_tasks()) <= before[1] + 1, "tasks are over")
        assert engine.driving == 0


@pytest.mark.soak
async def test_memory_does_not_grow_over_10_000_executions(tmp_path: Path) -> None:
    async with windlass.open(tmp_path / "home", tools=[double]) as engine:
        await run_many(engine, 500)
        gc.collect()
        before = resident_mb()
        await run_many(engine, 9_500)
        gc.collect()
        growth = resident_mb() / before - 1
        print(f"resident memory {before:.0f} MB, growth {growth:.1%}")
        assert growth < 0.05
