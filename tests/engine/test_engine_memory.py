"""J1: a finished execution is out of memory at once, so that the garbage collector has nothing to look for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import windlass
from windlass import Plan, tool
from windlass.core.state import State

if TYPE_CHECKING:
    from conftest import Project


@tool
async def increment(x: int) -> int:
    return x + 1


async def _finished_state(engine: windlass.Engine) -> weakref.ref[State]:
    steps = [
        {"id": "a", "tool": "increment", "with": {"x": 1}},
        {"id": "b", "tool": "increment", "with": {"x": "{{ steps.a.output }}"}},
    ]
    execution = await engine.start(Plan.model_validate({"name": "two", "steps": steps}))
    state = await execution.wait()
    assert state.steps["b"].output == 3
    return weakref.ref(state)


async def test_j1_a_finished_execution_leaves_memory_without_the_garbage_collector(
    project: Project, eventually: Callable[..., Awaitable[Any]]
) -> None:
    async with windlass.open(project.home, tools=[increment]) as engine:
        gc.disable()
        try:
            states = [await _finished_state(engine) for _ in range(2)]
            await eventually(lambda: all(state() is None for state in states))
        finally:
            gc.enable()
