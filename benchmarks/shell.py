"""CPU time of a shell step, beside that of a process that asyncio starts alone.

    python -m benchmarks.shell

Both run `true` in turn, in the same process: its CPU time counts, and apart from it that of the processes below it.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

import windlass
from windlass import Engine, Plan

__all__ = ["ShellCost", "shell_cost"]

STEPS, ROUNDS = 60, 7


class ShellCost(NamedTuple):
    """Seconds of CPU time of a step."""

    added: float
    """In the engine's process, over asyncio alone."""
    alone: float
    """In a process that has asyncio alone."""
    below: float
    """In the processes below the engine's: the warden, the keeper, the shell."""
    below_alone: float
    """In the shell that asyncio starts."""


async def _ours(engine: Engine) -> None:
    steps = [{"id": f"s{i}", "run": "true", "needs": [f"s{i - 1}"] if i else []} for i in range(STEPS)]
    state = await (await engine.start(Plan.model_validate({"name": "shell", "steps": steps}))).wait()
    assert state.status == "completed", state.status


async def _alone() -> None:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    for _ in range(STEPS):
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "true", stdin=nothing, stdout=pipe, stderr=pipe)
        await process.communicate()
        assert process.returncode == 0


def _spent() -> tuple[float, float]:
    """CPU time of this process, and of all below it: those that have ended, and those that run."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    below = ended.ru_utime + ended.ru_stime
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended, and counts with its parent's children
            below += sum(process.cpu_times()[:4])
    return own.ru_utime + own.ru_stime, below


async def _measured(home: Path) -> ShellCost:
    rounds = []
    async with windlass.open(home) as engine:
        await _ours(engine)
        for _ in range(ROUNDS):
            begin = _spent()
            await _ours(engine)
            middle = _spent()
            await _alone()
            end = _spent()
            ours, alone = (middle[0] - begin[0], middle[1] - begin[1]), (end[0] - middle[0], end[1] - middle[1])
            rounds.append((ours[0] - alone[0], alone[0], ours[1], alone[1]))
    return ShellCost(*(statistics.median(figure) / STEPS for figure in zip(*rounds, strict=True)))


def shell_cost() -> ShellCost:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder) / "home"))


if __name__ == "__main__":
    print(shell_cost())
