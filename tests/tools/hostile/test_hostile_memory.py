"""Tools that leak memory (C8): what they take is theirs to lack, and never the engine's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import windlass as library
from windlass import Plan, Step, tool
from windlass.core import events as ev
from windlass.engine.gates.view import breakers
from windlass.engine.perform import MAX_RESULT

if TYPE_CHECKING:
    from conftest import Project, Windlass

MB = 1024 * 1024
LEAK = """
import os
print("reduced", os.environ["WINDLASS_REDUCED"], flush=True)
kept = [b"x" * 4_000_000 for _ in range(1000 if os.environ["WINDLASS_REDUCED"] == "0" else 1)]
"""


def resident() -> int:
    """Bytes of memory that this process has."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("nobody tells")


async def test_c8_a_command_that_leaks_is_killed_for_want_of_memory_and_the_next_attempt_does_less(
    project: Project, windlass: Windlass
) -> None:
    leaks = Step(
        id="a",
        run=[sys.executable, "-I", "-S", "-c", LEAK],
        with_={"limits": {"memory": "100mb"}},
        retry={"max": 2, "delay": "1ms"},
    )
    async with library.open(grace=0.2) as engine:
        await (await engine.start(Plan(steps=[Step(id="a", run="true")]))).result()  # what is loaded once is loaded
        before = resident()
        running = await engine.start(Plan(steps=[leaks]))
        (step,) = (await running.result())["steps"]
        grown = resident() - before
    assert (step["status"], step["attempts"]) == ("completed", 2)
    assert step["output"]["stdout"] == "reduced 1\n", "it was told to do less, and did"
    (failed,) = [event for event in project.events(running.id) if isinstance(event, ev.AttemptFailed)]
    assert (failed.failure.category, failed.output["stdout"]) == ("resource", "reduced 0\n")
    assert "100 MB of memory" in failed.failure.message
    assert grown < 50 * MB, "its 100 MB were never the engine's"
    assert windlass("tools", "check", "--json").json["breakers"] == {}, "a command says nothing about the next one"


async def test_c8_a_program_that_leaks_meets_the_limit_of_its_sandbox(project: Project) -> None:
    source = "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1));"
    async with library.open(grace=0.2) as engine:
        fine = Step(id="warm", code="return 1;")
        await (await engine.start(Plan(steps=[fine]))).result()
        before = resident()
        leaks = Step(id="a", code=source, with_={"limits": {"memory": "32mb"}}, retry={"max": 0})
        plan = Plan(steps=[leaks, Step(id="b", code="return 'fine';")])
        first, second = (await (await engine.start(plan)).result())["steps"]
        assert resident() - before < 50 * MB
    assert (first["error"]["kind"], first["error"]["category"]) == ("memory", "resource")
    assert second["output"] == "fine", "and its neighbours do not notice"


async def test_c8_a_result_too_large_to_keep_is_a_failure_that_says_what_to_do_and_is_not_kept(
    project: Project,
) -> None:
    @tool(name="hoard", effect="none")
    async def hoard() -> str:
        return "x" * (MAX_RESULT + 1)

    async with library.open(tools=[hoard]) as engine:
        running = await engine.start(Plan(steps=[Step(id="a", tool="hoard")]))
        (step,) = (await running.result())["steps"]
        assert breakers(engine.attempt_runner.gates) == {}
    assert (step["status"], step["attempts"], step["error"]["category"]) == ("failed", 1, "logic")
    assert "write large results to a file and return its path" in step["error"]["advice"]
    assert len(project.everything()) < MAX_RESULT
