"""The tools, called by a real MCP client over streamable HTTP, in both eras of the protocol (I2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import BOTH_ERAS, Ear, error_of, hosted, shown

from windlass.plan.load import load_plan
from windlass.server.mcp import call as waiting
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

HELLO = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi"}]}
TWO = """
name: two
inputs: {who: world}
steps:
  - {id: first, run: "until [ -e open ]; do sleep 0.02; done; printf one-{{ inputs.who }}"}
  - {id: second, needs: [first], run: "printf two"}
"""


def waits_for(file: str, id: str = "gate") -> dict[str, Any]:
    """A step that goes on once there is such a file."""
    return {"id": id, "run": f"until [ -e {file} ]; do sleep 0.02; done; printf open"}


@BOTH_ERAS
async def test_i2_a_plan_runs_and_its_outputs_come_back_with_progress_on_the_way(project: Project, mode: str) -> None:
    ear = Ear(opens=project.path / "open")
    async with hosted(project) as server, server.client(mode, ear=ear) as mcp:
        arguments = {"plan": TWO, "inputs": {"who": "you"}, "wait_s": 60}
        seen = shown(await mcp.call_tool("engine_execute", arguments, progress_callback=ear.on_progress))
    assert (seen["status"], seen["progress"], seen["plan"]) == ("completed", 100.0, "two")
    assert [step["output"]["stdout"] for step in seen["steps"]] == ["one-you", "two"]
    assert project.state(seen["execution"]).status == "completed"
    numbers = [done for done, _total, _message in ear.progress]
    assert numbers == sorted(set(numbers)), "the protocol wants every number to be larger than the last"
    assert numbers[-1] == 100.0
    messages = [message for _done, _total, message in ear.progress]
    assert "first: completed" in messages
    assert "second: completed" in messages


async def test_i2_the_id_comes_at_once_and_the_rest_is_asked_for(project: Project) -> None:
    plan = {"name": "gated", "steps": [waits_for("open"), {"id": "after", "run": "printf x", "needs": ["gate"]}]}
    async with hosted(project) as server, server.client() as mcp:
        started = shown(await mcp.call_tool("engine_execute", {"plan": plan}))
        execution = started["execution"]
        assert started["status"] == "running"
        assert f"engine_status(execution='{execution}', wait_s=60)" in started["next"]
        assert f"windlass watch {execution}" in started["next"]
        still = shown(await mcp.call_tool("engine_status", {"execution": execution, "wait_s": 0.05}))
        assert still["status"] == "running", "the time is over, the execution is not"
        project.file("open", "")
        changed = shown(
            await mcp.call_tool("engine_status", {"execution": execution[:20], "wait_s": 60, "until": "change"})
        )
        assert changed["seq"] > still["seq"]
        ended = shown(await mcp.call_tool("engine_status", {"execution": execution, "wait_s": 60}))
    assert ended["status"] == "completed"


@BOTH_ERAS
async def test_i2_a_call_that_waits_gives_signs_of_life(
    project: Project, eventually: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(waiting, "HEARTBEAT", 0.01)
    ear = Ear()
    async with hosted(project) as server, server.client(mode) as mcp:
        arguments = {"plan": {"name": "quiet", "steps": [waits_for("open")]}, "wait_s": 600}
        call = asyncio.create_task(mcp.call_tool("engine_execute", arguments, progress_callback=ear.on_progress))

        def signs() -> bool:
            return [message for _done, _total, message in ear.progress].count("quiet: at gate") >= 5

        await eventually(signs, "it is said again and again that it goes on")
        project.file("open", "")
        assert shown(await call)["status"] == "completed"
    numbers = [done for done, _total, _message in ear.progress]
    assert numbers == sorted(set(numbers))


async def test_i2_a_plan_file_is_found_in_the_working_directory(project: Project) -> None:
    project.file("deep/plan.yaml", TWO)
    project.file("deep/open", "")
    async with hosted(project) as server, server.client() as mcp:
        arguments = {"file": "plan.yaml", "workdir": str(project.path / "deep"), "wait_s": 60}
        seen = shown(await mcp.call_tool("engine_execute", arguments))
    assert seen["status"] == "completed"
    assert seen["workdir"] == str(project.path / "deep")


async def test_c5_what_a_plan_probably_does_not_mean_is_a_warning(project: Project) -> None:
    project.file("plan.yaml", "steps: [{id: a, run: \"echo '{{ inputs.x }}'\"}]\ninputs: {x: 1}\n")
    warned = [str(line) for line in load_plan(project.path / "plan.yaml").warnings]
    assert warned
    async with hosted(project) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"file": "plan.yaml", "wait_s": 60}))
    assert [line.rpartition("plan.yaml")[2] for line in seen["warnings"]] == [
        line.rpartition("plan.yaml")[2] for line in warned
    ]


async def test_b2_a_task_becomes_a_plan_by_its_strategy(project: Project) -> None:
    runner = ScriptedRunner([Turn(repeat=True).say("done")], name="cli")
    async with hosted(project, runner) as server, server.client() as mcp:
        chained = shown(
            await mcp.call_tool("engine_execute", {"task": "greet", "chain": ["architect", "developer"], "wait_s": 60})
        )
        both = shown(await mcp.call_tool("engine_execute", {"task": ["one", "two"], "role": "reviewer", "wait_s": 60}))
    assert [step["role"] for step in chained["steps"]] == ["architect", "developer"]
    assert [(step["id"], step["role"]) for step in both["steps"]] == [("task-1", "reviewer"), ("task-2", "reviewer")]
    assert {step["output"] for step in both["steps"]} == {"done"}


@BOTH_ERAS
async def test_c5_an_error_has_its_category_and_what_to_do_about_it(project: Project, mode: str) -> None:
    async with hosted(project) as server, server.client(mode) as mcp:
        error, text = error_of(await mcp.call_tool("engine_status", {"execution": "0198"}))
        assert error["category"] == "configuration"
        assert error["advice"] == ["start one: windlass run PLAN"]
        assert "no executions here yet" in text
        assert "category: configuration" in text
        assert "→ start one: windlass run PLAN" in text
        bad = {"steps": [{"id": "a", "run": "x", "needs": ["b"]}, {"id": "a", "run": "y"}]}
        result = await mcp.call_tool("engine_execute", {"plan": bad})
        _error, text = error_of(result)
        assert result.structured_content is not None
        assert len(result.structured_content["problems"]) == 2, "all problems are told at once"
        _error, text = error_of(await mcp.call_tool("engine_execute", {"plan": HELLO, "task": "both"}))
        assert "name one thing to run" in text
        _error, text = error_of(await mcp.call_tool("engine_execute", {"plan": HELLO, "role": "developer"}))
        assert "`role` works only with `task`" in text
    assert project.ids() == []


async def test_c5_a_failed_step_says_why_and_what_to_do(project: Project) -> None:
    plan = {
        "steps": [{"id": "bad", "run": "echo no >&2; exit 3", "retry": 0}, {"id": "on", "run": "x", "needs": ["bad"]}]
    }
    async with hosted(project) as server, server.client() as mcp:
        _error, text = error_of(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60}))
        assert "step on: the program x is not on PATH" in text
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60, "anyway": True}))
    bad, on = seen["steps"]
    assert (bad["status"], bad["error"]["category"]) == ("failed", "logic")
    assert "3" in bad["error"]["message"]
    assert (on["status"], "bad" in on["skipped_because"]) == ("skipped", True)
    assert f"windlass fork {seen['execution']}" in seen["next"]


async def test_c5_a_completed_execution_without_an_optional_step_says_what_to_do(project: Project) -> None:
    plan = {"steps": [{"id": "bad", "run": "exit 3", "importance": "optional"}]}
    async with hosted(project) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60}))
    assert (seen["status"], seen["next"]) == ("completed", [f"windlass fork {seen['execution']}"])


async def test_i2_a_long_output_is_cut_and_can_be_had_whole(project: Project) -> None:
    steps = [{"id": f"s{n}", "run": "head -c 9000 /dev/zero | tr '\\0' x"} for n in range(70)]
    async with hosted(project) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": {"steps": steps}, "wait_s": 120}))
        whole = shown(await mcp.call_tool("engine_status", {"execution": seen["execution"], "step": "s69"}))
    assert (len(seen["steps"]), seen["steps_left_out"]) == (60, 10)
    assert all(step["cut"] > 8000 for step in seen["steps"])
    assert sum(len(step["output"]) for step in seen["steps"]) < 30_000
    assert [step["id"] for step in whole["steps"]] == ["s69"]
    assert len(whole["steps"][0]["output"]["stdout"]) == 9000
    assert "cut" not in whole["steps"][0], "what says nothing is left out"
