"""What tools took, as a user finds it: by step and in all, for every attempt, long after the run (H1)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import windlass as package
from windlass import Call, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.core.resources import Resources

if TYPE_CHECKING:
    from conftest import Project, Windlass

NOTHING = {"cpu_s": None, "memory_bytes": None, "received_bytes": None, "sent_bytes": None}


@tool
async def takes(call: Call, received: int = 0, sent: int = 0, memory: int = 0, fails: bool = False) -> str:
    """A tool of the user's own, which says what it takes."""
    call.meter.add(received=received, sent=sent, memory=memory)
    if fails:
        raise ToolError("it does not work", category="transient")
    return "done"


async def ran(*steps: Step, **more: Any) -> dict[str, Any]:
    async with package.open(tools=[takes]) as engine:
        return await (await engine.start(Plan(steps=list(steps), **more))).result()


def by_step(told: dict[str, Any]) -> dict[str, Any]:
    return {step["id"]: step["resources"] for step in told["steps"]}


async def test_h1_the_steps_of_a_foreach_are_summed_and_of_memory_the_most_counts(project: Project) -> None:
    each = Step(
        id="each",
        tool="takes",
        with_={"received": "{{ item }}", "sent": 1, "memory": "{{ item }}"},
        foreach=[1000, 200, 30],
    )
    told = await ran(each, Step(id="one", tool="takes", with_={"sent": 5, "memory": 7}))
    found = by_step(told)
    assert found["each"] == {**NOTHING, "received_bytes": 1230, "sent_bytes": 3, "memory_bytes": 1000}
    assert found["each[1]"] == {**NOTHING, "received_bytes": 200, "sent_bytes": 1, "memory_bytes": 200}
    assert found["one"] == {**NOTHING, "received_bytes": 0, "sent_bytes": 5, "memory_bytes": 7}
    assert told["resources"] == {**NOTHING, "received_bytes": 1230, "sent_bytes": 8, "memory_bytes": 1000}


async def test_h1_attempts_that_failed_count_with_those_that_follow(project: Project) -> None:
    again = {"max": 2, "delay": "1ms", "max_delay": "2ms"}
    told = await ran(Step(id="a", tool="takes", with_={"sent": 100, "fails": True}, retry=again))
    assert told["steps"][0]["attempts"] == 3
    assert told["steps"][0]["resources"]["sent_bytes"] == 300


async def test_h1_what_a_program_calls_counts_for_its_step_and_each_call_by_itself(project: Project) -> None:
    source = """
        await Promise.all([tools.takes({received: 1000}), tools.takes({received: 200})]);
        await tools.files.write({path: "a.txt", content: "x".repeat(5000)});
        try { await tools.takes({received: 30, fails: true}); } catch (error) { console.log(error.category); }
        let sum = 0;
        for (let n = 0; n < 300000; n++) sum += n;
        return sum;
    """
    told = await ran(Step(id="work", code=source))
    used = told["steps"][0]["resources"]
    assert (used["received_bytes"], used["sent_bytes"]) == (1230, 5000)
    assert used["cpu_s"] > 0
    assert used["memory_bytes"] > 100_000
    events = project.events(told["id"])
    finished = [event.used for event in events if isinstance(event, ev.CallFinished)]
    assert sorted(one.received or 0 for one in finished if one is not None) == [0, 200, 1000]
    assert [e.used for e in events if isinstance(e, ev.CallFailed)] == [Resources(memory=0, received=30, sent=0)]


async def test_h1_a_step_that_is_waited_for_has_used_nothing_that_is_known(project: Project) -> None:
    async with package.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run="true", approve="always")]), hold=False)
        told = await execution.result()
    assert told["steps"][0]["resources"] is None
    assert told["resources"] is None


@pytest.mark.parametrize("elsewhere", [False, True])
def test_h1_it_is_the_same_in_every_process_and_after_a_restore(
    project: Project, windlass: Windlass, elsewhere: bool
) -> None:
    steps = [
        {"id": "make", "tool": "files.write", "with": {"path": "a.txt", "content": "x" * 100_000}},
        {"id": "look", "tool": "files.read", "with": {"path": "a.txt"}, "needs": ["make"]},
        {"id": "say", "run": "cat a.txt; exit 3", "needs": ["look"], "retry": {"max": 0}},
    ]
    project.file("plan.json", json.dumps({"name": "used", "steps": steps}))
    first = windlass("run", "plan.json", "--json", "--progress", "quiet", code=1).json
    found = by_step(first)
    assert (found["make"]["sent_bytes"], found["make"]["received_bytes"]) == (100_000, 0)
    assert (found["look"]["sent_bytes"], found["look"]["received_bytes"]) == (0, 100_000)
    assert found["say"]["received_bytes"] == 100_000
    assert found["say"]["memory_bytes"] > 0
    (execution,) = project.ids()
    home: list[str] = []
    if elsewhere:
        file = windlass("checkpoint", execution).out.strip()
        home = ["--home", str(project.path / "elsewhere")]
        windlass("restore", file, *home)
    later = windlass("status", execution, "--json", *home).json
    assert by_step(later) == found
    assert later["resources"] == first["resources"]
    assert later["resources"]["received_bytes"] == 200_000
