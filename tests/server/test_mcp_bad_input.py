"""What a model may well send: nothing of it may crash a tool, start something half, or end without words (C5)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import error_of, hosted, shown

from windlass import tool
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


STEP = {"id": "a", "run": "true"}
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing at all": ("engine_execute", {}),
    "an empty task": ("engine_execute", {"task": "  "}),
    "an empty list of tasks": ("engine_execute", {"task": []}),
    "a task without words": ("engine_execute", {"task": [{"id": "x"}]}),
    "tasks in a circle": (
        "engine_execute",
        {"task": [{"id": "a", "task": "x", "depends_on": ["b"]}, {"id": "b", "task": "y", "depends_on": ["a"]}]},
    ),
    "a plan that is no plan": ("engine_execute", {"plan": "just words"}),
    "a plan that is no YAML": ("engine_execute", {"plan": "steps: [\n  - {"}),
    "a plan without steps": ("engine_execute", {"plan": {}}),
    "a plan of many levels": ("engine_execute", {"plan": f"inputs: {{x: {'[' * 400}{']' * 400}}}\nsteps: []"}),
    "an unknown tool": ("engine_execute", {"plan": {"steps": [{"id": "a", "tool": "nope"}]}}),
    "an unknown role": ("engine_execute", {"task": "x", "role": "wizard"}),
    "an unknown runtime": ("engine_execute", {"task": "x", "runtime": "copilot"}),
    "an unknown strategy": ("engine_execute", {"task": "x", "strategy": "swarm"}),
    "a budget below nothing": ("engine_execute", {"task": "x", "budget": -1}),
    "an input that is not one": ("engine_execute", {"plan": {"steps": [STEP]}, "inputs": {"nope": 1}}),
    "a folder that is not there": ("engine_execute", {"plan": {"steps": [STEP]}, "workdir": "/nowhere/at/all"}),
    "a folder with a NUL": ("engine_execute", {"plan": {"steps": [STEP]}, "workdir": "a\0b"}),
    "a file that is not there": ("engine_execute", {"file": "nope.yaml"}),
    "a file that is a folder": ("engine_execute", {"file": "."}),
    "a file with a NUL": ("engine_execute", {"file": "a\0b"}),
    "a wait for ever": ("engine_status", {"execution": "x", "wait_s": 1e9}),
    "a wait below nothing": ("engine_status", {"execution": "x", "wait_s": -1}),
    "an empty id": ("engine_status", {"execution": ""}),
    "an id with signs in it": ("engine_status", {"execution": "%_'; DROP TABLE executions; --"}),
    "an id with a NUL": ("engine_status", {"execution": "\0"}),
    "a mode that is none": ("engine_interrupt", {"execution": "x", "mode": "explode"}),
    "an answer to nobody": ("engine_approve", {"execution": "x", "step": "y", "allow": True, "digest": "z"}),
    "a decision that is none": ("engine_resume", {"execution": "x", "decisions": {"a": "maybe"}}),
    "an argument that is none": ("engine_execute", {"plan": {"steps": [STEP]}, "budgett": 0.01}),
    "a change to a retry that is none": ("engine_resume", {"execution": "x", "retry": {"a": {"modell": "y"}}}),
    "a wait that is no number": ("engine_status", {"execution": "x", "wait_s": "x"}),
    "a heading that is none": ("engine_budget", {"by": "colour"}),
    "a field that is none": ("engine_history", {"by": "colour"}),
    "bottlenecks until a day": ("engine_history", {"slow": True, "until": "today"}),
    "bottlenecks by a field": ("engine_history", {"slow": True, "by": "model"}),
    "a step without its execution": ("engine_status", {"step": "a"}),
    "a day that is none": ("engine_history", {"since": "soon"}),
}


@pytest.mark.parametrize("name", BAD)
async def test_c5_what_makes_no_sense_is_an_error_that_says_why_and_starts_nothing(
    project: Project, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    called, arguments = BAD[name]
    runner = ScriptedRunner([Turn(repeat=True).say("done")], name="cli")
    async with hosted(project, runner) as server, server.client() as mcp:
        result = await mcp.call_tool(called, arguments)
    assert result.is_error, result.structured_content
    error, text = error_of(result)
    assert error["message"] in text
    assert f"category: {error['category']}" in text
    assert "pydantic" not in text
    assert "unexpected exception" not in caplog.text
    assert project.ids() == []


async def test_c5_an_argument_that_is_none_is_told_with_the_one_that_was_meant(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        asked = {"plan": {"steps": [STEP]}, "budgett": 0.01}
        error, _text = error_of(await mcp.call_tool("engine_execute", asked))
    assert error["message"] == "engine_execute has no argument 'budgett'; did you mean 'budget'?"


@pytest.mark.parametrize("value", [1e308, -(10**30), "\ud7ff\ue000", "\u0000", "🪢" * 1000, nested(60), {"": None}])
async def test_c5_odd_inputs_arrive_as_they_are_or_are_refused_with_words(project: Project, value: Any) -> None:
    plan = {"inputs": {"x": None}, "steps": [{"id": "a", "run": "true", "when": "{{ inputs.x is defined }}"}]}
    async with hosted(project) as server, server.client() as mcp:
        result = await mcp.call_tool("engine_execute", {"plan": plan, "inputs": {"x": value}, "wait_s": 60})
        if result.is_error:
            text = "".join(getattr(block, "text", "") for block in result.content)
            assert text != "Error executing tool engine_execute"
            assert project.ids() == []
        else:
            execution = shown(result)["execution"]
            assert project.state(execution).inputs == {"x": value}


async def test_i2_an_output_of_very_many_levels_is_given_as_text(project: Project) -> None:
    deep = nested(250)

    @tool
    def dig() -> Any:
        """Goes deep."""
        return deep

    async with hosted(project, tools=[dig]) as server, server.client() as mcp:
        plan = {"steps": [{"id": "a", "tool": "dig"}]}
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60}))
        whole = shown(await mcp.call_tool("engine_status", {"execution": seen["execution"], "step": "a"}))
    assert seen["status"] == "completed"
    assert json.loads(whole["steps"][0]["output"]) == deep


async def test_i2_many_calls_at_once_are_all_answered(project: Project) -> None:
    plan = {"steps": [{"id": "a", "run": "printf $WINDLASS_EXECUTION"}]}
    async with hosted(project) as server, server.client() as mcp:
        calls = [mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 120}) for _ in range(40)]
        found = [shown(result) for result in await asyncio.gather(*calls)]
    assert {one["status"] for one in found} == {"completed"}
    assert {one["execution"] for one in found} == set(project.ids())
    assert len(project.ids()) == 40
