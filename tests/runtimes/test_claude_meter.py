"""What the real `claude` takes of the machine is on the meter of its attempt, however the turn ends (H1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import CLAUDE, agent, bash, serving
from claude_fixtures import SPEAKS, claude_world, program
from hosts import FakeHost

from windlass.core.resources import Resources
from windlass.ports import Meter
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

MB = 1 << 20


class Measuring(FakeHost):
    """A host that wants to know, as the engine's."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    @property
    def used(self) -> Resources:
        assert self.meter.used is not None
        return self.meter.used


def test_h1_an_agents_processes_and_those_of_its_commands_are_in_what_its_step_used(
    project: Project, windlass: Windlass
) -> None:
    hungry = "python3 -c 'held = bytearray(300 << 20); sum(range(10_000_000))'"
    with serving(project, [bash(CLAUDE, hungry), Reply.say("done")]):
        ran = windlass("run", "--task", "be hungry", "--runtime", CLAUDE, "--yes", "--json")
    step, _ = agent(ran)
    assert step["resources"]["cpu_s"] > 0.1
    assert step["resources"]["memory_bytes"] > 300 * MB
    assert step["resources"]["received_bytes"] is None, "what it says to its model is known to itself alone"
    assert ran.json["resources"] == step["resources"]


async def test_h1_a_turn_that_is_cancelled_has_told_what_it_took(tmp_path: Path, eventually: Any) -> None:
    waits = SPEAKS + "held = bytearray(80 << 20)\nopen('held', 'w').close()\ntime.sleep(600)\n"
    host = Measuring()
    async with claude_world(tmp_path, path=program(tmp_path / "claude", waits)) as world:
        running = asyncio.create_task(world.runner.run(world.request(), host))
        await eventually((world.home.workdir / "held").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert host.used.memory is not None
    assert host.used.memory > 80 * MB


async def test_h1_a_program_that_breaks_has_told_what_it_took(tmp_path: Path) -> None:
    host = Measuring()
    broken = program(tmp_path / "claude", SPEAKS + "sum(range(5_000_000))\nsys.exit(3)\n")
    async with claude_world(tmp_path, path=broken) as world:
        assert (await world.runner.run(world.request(), host)).failure is not None
    assert host.used.cpu
