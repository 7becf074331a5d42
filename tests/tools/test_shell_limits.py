"""Limits of a shell step (C8): what it may use, how its end is told when it used more, and what it used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.tools.shell import Shell

if TYPE_CHECKING:
    from conftest import Project


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def run(run: str | list[str], retry: Any = None, **more: Any) -> dict[str, Any]:
    """The one step of a plan with this command, as it ended."""
    step = Step(id="a", run=run, with_=more, retry=retry or {"max": 0})
    async with windlass.open(grace=0.2) as engine:
        return (await (await engine.start(Plan(steps=[step]))).result())["steps"][0]


async def notes(project: Project, run: list[str], **more: Any) -> list[str]:
    """What the user was told beside the output."""
    async with windlass.open(grace=0.2) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run=run, with_=more)]))
        await execution.result()
    written = [e for e in project.events(execution.id) if isinstance(e, ev.OutputWritten)]
    return [e.text for e in written if e.stream == "note"]


@pytest.mark.parametrize(
    ("command", "limits", "said", "advice"),
    [
        (python("x = b'x' * (1 << 34)"), {"memory": "64mb"}, "64 MB of memory", "limits.memory"),
        ("head -c 4000000000 /dev/zero | tail -n 1", {"memory": "64mb"}, "64 MB of memory", "limits.memory"),
        ("(while :; do :; done) & while :; do :; done", {"cpu": "500ms"}, "0.5 s of computing", "limits.cpu"),
        ("for i in $(seq 30); do sleep 1000 & done; wait", {"processes": 8}, "8 processes", "limits.processes"),
    ],
    ids=["memory", "pipeline", "cpu", "processes"],
)
async def test_c8_a_step_that_passes_a_limit_fails_for_want_of_it_and_says_what_to_do(
    project: Project, command: str | list[str], limits: dict[str, Any], said: str, advice: str
) -> None:
    step = await run(command, limits=limits)
    assert (step["status"], step["error"]["category"]) == ("failed", "resource")
    assert said in step["error"]["message"]
    assert any(advice in line for line in step["error"]["advice"])


async def test_c8_what_a_step_printed_before_it_passed_a_limit_is_kept(project: Project) -> None:
    step = await run(python("print('begun', flush=True); x = b'x' * (1 << 34)"), limits={"memory": "64mb"})
    assert step["output"]["stdout"] == "begun\n"


async def test_c8_the_next_attempt_is_told_to_do_less_and_can_succeed(project: Project) -> None:
    code = "import os; x = b'x' * (200_000_000 >> 3 * int(os.environ['WINDLASS_REDUCED'])); print(len(x))"
    step = await run(python(code), retry={"max": 2, "delay": "10ms"}, limits={"memory": "100mb"})
    assert (step["status"], step["attempts"]) == ("completed", 2)
    assert step["output"]["stdout"] == "25000000\n"


async def test_c8_the_result_of_a_step_within_its_limits_is_as_it_would_be_without(project: Project) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    limited = await run(python(code), limits={"memory": "1gb", "cpu": "1m", "processes": 10})
    assert limited["output"] == (await run(python(code)))["output"]
    assert (await run("true", limits={}))["status"] == "completed"


async def test_c8_the_user_is_told_when_a_step_came_close_to_a_limit(project: Project) -> None:
    fill = python("x = b'x' * 95_000_000")
    (told,) = await notes(project, fill, limits={"memory": "105mb"})
    assert "of 105 MB of memory" in told
    assert await notes(project, fill, limits={"memory": "1gb"}) == []


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"memory": "lots"}, "limits.memory: 'lots' is not a size"),
        ({"memory": "1mb"}, "limits.memory: must be at least 16mb"),
        ({"cpu": "soon"}, "limits.cpu: 'soon' is not a duration"),
        ({"cpu": "8d"}, "limits.cpu: must be at most 7d"),
        ({"processes": 0}, "limits.processes"),
        ({"wall": "1m"}, "'limits.wall' is not an argument"),
    ],
    ids=str,
)
def test_c8_limits_that_make_no_sense_are_refused_before_anything_runs(limits: dict[str, Any], said: str) -> None:
    (complaint,) = Shell().validate({"line": "true", "limits": limits})
    assert said in complaint
