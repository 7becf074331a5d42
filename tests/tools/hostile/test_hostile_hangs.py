"""Tools that hang (H1, H3, C4): their time ends, whether they like it or not, and a substitute takes their place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hostile_world import notes
from waiting import skip_time, wait_until_async

import windlass as library
from windlass import Plan, Step, tool
from windlass.core.breaker import FAILURES
from windlass.engine.gates import ending
from windlass.engine.gates.view import breakers, open_breakers

if TYPE_CHECKING:
    from conftest import Project, Windlass

ONCE = {"max": 0}
SHORT = 0.05
"""Seconds that a hanging tool has. Nothing is measured: it never ends by itself."""


class Hanging:
    """A tool that never ends, and what became of its uses."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0

        @tool(name="hangs", effect="none")
        async def hangs() -> None:
            self.begun += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

        self.tool = hangs


def limit(project: Project, **more: str) -> None:
    """In the user's own settings: how long a use may take."""
    terms = "".join(f'{name} = "{value}"\n' for name, value in {"timeout": f"{SHORT}s", **more}.items())
    project.user_file("config.toml", f"[tools.hangs]\n{terms}")


@asynccontextmanager
async def gone_on_without(hangs: Any, whose: str, project: Project, begun: threading.Event) -> AsyncIterator[str]:
    """An execution that ended when the time of the tool or of the step was over, though the tool did not end."""
    if whose == "tool":
        limit(project)
    step = Step(id="a", tool="hangs", retry=ONCE, importance="optional", timeout=120 if whose == "step" else None)
    async with library.open(tools=[hangs], grace=0.05) as engine:
        running = await engine.start(Plan(steps=[step, Step(id="b", run="echo on", needs=["a"])]))
        await wait_until_async(begun.is_set)
        skip_time(120)
        result = await running.result()
        assert f"{120 if whose == 'step' else SHORT} s" in result["steps"][0]["error"]["message"]
        assert result["steps"][1]["output"]["stdout"] == "on\n"
        assert breakers(engine.attempt_runner.gates)["hangs"]["failures"] == 1
        yield running.id


async def test_h1_a_tool_that_hangs_is_stopped_at_its_own_time_and_its_breaker_counts_it(
    project: Project, windlass: Windlass, long_rest: None
) -> None:
    hanging = Hanging()
    steps = [Step(id=f"s{n}", tool="hangs", retry=ONCE, importance="optional") for n in range(FAILURES + 1)]
    limit(project)
    async with library.open(tools=[hanging.tool]) as engine:
        plan = Plan(steps=steps, limits={"parallel": 1})
        result = await (await engine.start(plan)).result()
        errors = [step["error"]["message"] for step in result["steps"]]
        assert errors[:-1] == ["hangs took longer than 0.05 s and was stopped"] * FAILURES
        assert "circuit open" in errors[-1]
        assert (hanging.begun, hanging.cancelled) == (FAILURES, FAILURES), "none of them is left"
        assert open_breakers(engine.attempt_runner.gates)["hangs"]["failures"] == FAILURES
    assert "! hangs: open" in windlass("status").out


async def test_c4_the_time_of_the_step_counts_for_the_breaker_and_a_persons_word_does_not(
    project: Project, eventually: Any
) -> None:
    hanging = Hanging()
    async with library.open(tools=[hanging.tool]) as engine:
        late = await engine.start(Plan(steps=[Step(id="a", tool="hangs", retry=ONCE, timeout=120)]))
        await eventually(lambda: hanging.begun == 1)
        skip_time(120)
        (step,) = (await late.result())["steps"]
        assert step["error"]["message"] == "took longer than its timeout of 120 s and was stopped"
        assert breakers(engine.attempt_runner.gates)["hangs"]["failures"] == 1
        running = await engine.start(Plan(steps=[Step(id="a", tool="hangs", timeout=3600)]))
        await eventually(lambda: hanging.begun == 2)
        await engine.cancel(running.id)
        await running.wait()
        assert hanging.cancelled == 2
        assert breakers(engine.attempt_runner.gates)["hangs"]["failures"] == 1


async def test_h3_the_substitute_takes_the_place_of_one_that_hangs_and_the_log_names_it(project: Project) -> None:
    hanging = Hanging()

    @tool(name="quick", effect="none")
    async def quick() -> str:
        return "instead"

    limit(project, fallback="quick")
    async with library.open(tools=[hanging.tool, quick]) as engine:
        for _ in range(FAILURES + 2):
            running = await engine.start(Plan(steps=[Step(id="a", tool="hangs")]))
            assert (await running.result())["steps"][0]["output"] == "instead"
            assert "using quick instead" in notes(project, running.id)
    assert "circuit open" in notes(project, running.id), "while its breaker is open, it is not even tried"
    assert hanging.begun == FAILURES


@pytest.mark.parametrize("whose", ["tool", "step"])
async def test_h1_one_that_swallows_its_cancellation_is_left_behind_and_the_execution_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", 0.05)
    released, begun = asyncio.Event(), threading.Event()

    @tool(name="hangs", effect="none")
    async def hangs() -> None:
        begun.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    async with gone_on_without(hangs, whose, project, begun) as execution:
        assert "hangs did not stop when cancelled" in notes(project, execution)
        released.set()


def test_h1_a_command_ends_though_a_tool_of_its_plan_never_does(project: Project, windlass: Windlass) -> None:
    project.file(
        "tools.py",
        """
        import asyncio
        from windlass import tool

        @tool
        async def hangs() -> None:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        """,
    )
    project.user_file("config.toml", 'grace = "50ms"\n')
    plan = project.plan(
        """
        tools: tools.py
        steps:
          - {id: a, tool: hangs, timeout: 2s, retry: {max: 0}, importance: optional}
          - {id: b, run: echo on, needs: [a]}
        """
    )
    ran = windlass("run", plan, "--yes")
    assert ran.out == "b: on\n"
    assert "did not stop when cancelled" in ran.err
    assert "destroyed" not in ran.err


@pytest.mark.parametrize("whose", ["tool", "step"])
async def test_h1_one_that_blocks_its_thread_does_not_keep_the_execution(project: Project, whose: str) -> None:
    begun, released, told = threading.Event(), threading.Event(), threading.Event()

    @tool(name="hangs", effect="none")
    def hangs(call: library.Call) -> None:
        begun.set()
        call.stopping.wait()
        told.set()
        released.wait()  # it knows, and does not care

    async with gone_on_without(hangs, whose, project, begun) as execution:
        assert "hangs is still running in its thread" in notes(project, execution)
    assert told.is_set(), "it was told to stop"
    released.set()
