"""Memory that the steps of an execution share (C8): the one that grows beyond it is ended, and no other."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from process_probes import stat
from waiting import wait_until_async

import windlass as library
from windlass import Plan, Step
from windlass.plan.quantities import MB
from windlass.process import MemoryPool, ProcessLimits, Supervisor, cgroups, containment
from windlass.process.gauge import PooledMemory
from windlass.process.pipes import PIPE

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.skipif(containment().mechanism != "subreaper", reason="memory is shared among keepers alone")

HOLD = "import sys; x = bytearray(60 << 20); print('held', flush=True); sys.stdin.readline()"
GROW = "x = []\nwhile True: x.append(bytearray(1 << 20))"


def where() -> dict[str, Any]:
    return {"cwd": "/", "env": dict(os.environ)}


def place() -> str | None:
    """Where cgroups can be made, if anywhere."""
    try:
        return cgroups.find().folder
    except (cgroups.NoCgroup, OSError):
        return None


def cgroups_left() -> list[str]:
    folder = place()
    return [name for name in os.listdir(folder) if name.startswith("windlass.test-pool")] if folder else []


async def seen_at_rest(pid: int, memory: Path) -> None:
    """Wait until a command sleeps and its keeper has told what it holds: one that grows later is the one to end."""
    await wait_until_async(lambda: stat(pid)[0] == "S")
    for _ in range(2):  # the first look may have begun before
        (told,) = memory.iterdir()
        last = told.stat().st_mtime_ns
        await wait_until_async(lambda told=told, last=last: told.stat().st_mtime_ns != last)


@pytest.mark.parametrize("kernel", [True, False], ids=["cgroups", "watched alone"])
async def test_c8_the_command_that_grows_beyond_shared_memory_ends_and_the_others_go_on(
    tmp_path: Path, kernel: bool
) -> None:
    pool = MemoryPool(f"test-pool-{os.getpid()}", 160 * MB, str(tmp_path / "memory"))
    limits = ProcessLimits(pool=pool)
    async with Supervisor(cgroups=kernel) as supervisor:
        holder = await supervisor.spawn([sys.executable, "-c", HOLD], stdin=PIPE, limits=limits, **where())
        assert await holder.stdout.readline() == b"held\n"
        await seen_at_rest(holder.pid, tmp_path / "memory")
        if kernel and place() is not None:
            assert "/windlass.test-pool" in Path(f"/proc/{holder.pid}/cgroup").read_text()
        grower = await supervisor.spawn([sys.executable, "-c", GROW], limits=limits, **where())
        ended = await grower.wait()
        assert holder.stdin is not None
        await holder.stdin.write(b"go\n")
        other = await holder.wait()
    assert (ended.limit, ended.code) == ("pool", None)
    assert ended.used is not None
    assert ended.used.memory > 40 * MB
    if kernel and place() is not None:  # else, on a busy machine, it is seen too late
        assert ended.used.memory < 160 * MB, "it had less than all of it: the other had the rest"
    assert (other.limit, other.code) == (None, 0)
    assert not (tmp_path / "memory").exists()
    assert cgroups_left() == []


def test_c8_what_a_dead_keeper_told_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "999999-1").write_bytes(b"99999999999999999999")
    (tmp_path / f"{os.getppid()}-1").write_bytes(b"99999999999999999999")  # another process has its pid now
    pool = PooledMemory(str(tmp_path), 100)
    assert not pool.passed(90)
    assert (pool.room(90), len(list(tmp_path.iterdir()))) == (10, 1)
    assert pool.passed(110)
    assert pool.room(0) == 100
    pool.close()
    assert not tmp_path.exists()


async def test_c8_an_execution_has_its_own_limit_of_memory_and_the_failure_says_so(project: Project) -> None:
    steps = [Step(id="grow", run=[sys.executable, "-c", GROW], retry={"max": 0}), Step(id="other", run="echo fine")]
    async with library.open() as engine:
        result = await (await engine.start(Plan(steps=steps, limits={"memory": "64mb"}))).result()
    grow, other = result["steps"]
    assert (grow["status"], other["status"]) == ("failed", "completed")
    assert grow["error"]["category"] == "resource"
    assert "all steps of the execution together may use 64 MB of memory" in grow["error"]["message"]
    assert "raise `limits.memory` of the plan" in grow["error"]["advice"][0]
