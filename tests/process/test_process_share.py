"""A share of the processors (C8): a command is slowed down to it by the kernel, or at least comes after others."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from windlass.plan.model import Step
from windlass.plan.quantities import parse_share
from windlass.process import ProcessLimits, Supervisor, containment, cpu_share
from windlass.process.pipes import PIPE

SHARE = 0.25
SPIN = """
import os, time
print([line for line in open("/proc/self/cgroup") if ":cpu" in line or line.startswith("0::")], flush=True)
began, before = time.monotonic(), sum(os.times()[:4])
child = os.fork()
while time.monotonic() - began < 2:
    pass
if child == 0:
    os._exit(0)
os.wait()
print((sum(os.times()[:4]) - before) / (time.monotonic() - began))
"""
"""Two processes that compute for two seconds; then how many processors they had."""


def where() -> dict[str, Any]:
    return {"cwd": "/", "env": dict(os.environ)}


async def test_c8_a_command_is_slowed_down_to_its_share_of_the_processors_and_not_killed() -> None:
    layer = cpu_share()
    if not layer.active:
        pytest.skip(layer.detail)
    async with Supervisor() as supervisor:
        limits = ProcessLimits(cpu_share=SHARE)
        process = await supervisor.spawn([sys.executable, "-c", SPIN], limits=limits, **where())
        out = (await process.stdout.read()).decode().splitlines()
        ended = await process.wait()
    assert (ended.code, ended.limit) == (0, None)
    assert "windlass-" in out[0], "it runs in a cgroup of its own"
    assert float(out[1]) <= SHARE * 1.3
    folder = layer.detail.partition(", ")[2].partition(":")[0]
    assert not [name for name in os.listdir(folder) if name == f"windlass-{process.pid}"]


@pytest.mark.parametrize("mechanism", ["subreaper", "process group"])
async def test_c8_without_cgroups_a_share_is_a_lower_priority(mechanism: Any) -> None:
    if mechanism == "subreaper" and containment().mechanism != "subreaper":
        pytest.skip("no subreapers here")
    async with Supervisor(mechanism, cgroups=False) as supervisor:
        limits = ProcessLimits(cpu_share=SHARE)
        process = await supervisor.spawn(["sh", "-c", "read line; nice"], stdin=PIPE, limits=limits, **where())
        assert process.stdin is not None
        await process.stdin.write(b"go\n")
        said = await process.stdout.read()
        await process.wait()
    assert int(said) == min(os.nice(0) + 10, 19)


@pytest.mark.parametrize(("text", "share"), [("50%", 0.5), ("150%", 1.5), (0.5, 0.5), ("2", 2.0), ("1%", 0.01)])
def test_c8_a_share_is_written_as_people_write_it(text: Any, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)
    step = Step(id="a", run="true", limits={"cpu_share": text})
    assert step.limits is not None
    assert step.limits.cpu_share == pytest.approx(share)


@pytest.mark.parametrize("text", ["half", "0%", "-5%", "", True, "0.001", 5000, "nan"])
def test_c8_a_share_that_makes_no_sense_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="share"):
        parse_share(text)


def test_c8_only_a_command_has_a_share() -> None:
    with pytest.raises(ValueError, match="only a command can be slowed down"):
        Step(id="a", code="return 1", limits={"cpu_share": "50%"})
