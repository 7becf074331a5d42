"""Budgets under MCP: an overrun goes on, with a warning that reaches the caller (E3); what runs on what (A6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import BOTH_ERAS, Ear, hosted, shown

from windlass import Plan, Step
from windlass.ports import Health
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

GONE = Health(False, "not installed", "install it")


def spends(usd: float | None, name: str = "cli") -> ScriptedRunner:
    return ScriptedRunner([Turn(repeat=True).say("done").spend(tokens_in=900, tokens_out=100, usd=usd)], name=name)


TWO: dict[str, Any] = {
    "name": "costly",
    "steps": [
        {"id": "a", "agent": "developer", "prompt": "do a"},
        {"id": "b", "agent": "developer", "prompt": "do b", "needs": ["a"]},
    ],
}


@BOTH_ERAS
async def test_e3_an_overrun_goes_on_and_the_caller_is_warned(project: Project, mode: str) -> None:
    ear = Ear(opens=project.path / "open")
    gate = {"id": "gate", "run": "until [ -e open ]; do sleep 0.02; done"}
    plan = {**TWO, "steps": [gate, {**TWO["steps"][0], "needs": ["gate"]}, TWO["steps"][1]]}
    async with hosted(project, spends(3.0)) as server, server.client(mode, ear=ear) as mcp:
        arguments = {"plan": plan, "budget": 1.0, "wait_s": 60}
        seen = shown(await mcp.call_tool("engine_execute", arguments, progress_callback=ear.on_progress))
        again = shown(await mcp.call_tool("engine_status", {"execution": seen["execution"]}))
    assert (seen["status"], seen["cost"]["usd"]) == ("completed", 6.0)
    goes_on = (
        "step b: the limit of $1.00 for this execution is exceeded ($3.00 spent); continuing, as it was started to do"
    )
    passed = "the limit of $1.00 for this execution is exceeded: $6.00 spent, $5.00 over"
    assert seen["warnings"][-2:] == [goes_on, f"step b: {passed}"]
    assert not any("$3.00 spent, $2.00 over" in line for line in seen["warnings"]), "the newest figure is enough"
    assert [one["text"] for one in seen["budget"]["overruns"]] == [passed]
    assert again["warnings"] == seen["warnings"], "whoever asks later is told, too"
    assert {f"warning: {line}" for line in seen["warnings"]} <= set(ear.logs)


async def test_e3_a_fork_continues_at_a_limit_as_the_execution_before_it(project: Project) -> None:
    async with hosted(project, spends(3.0)) as server, server.client() as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": TWO, "budget": 1.0, "wait_s": 60}))[
            "execution"
        ]
        said = shown(await mcp.call_tool("engine_say", {"execution": execution, "step": "a", "text": "once more"}))
        assert said["forked"]
        seen = shown(await mcp.call_tool("engine_status", {"execution": said["execution"], "wait_s": 60}))
    assert (seen["status"], seen["cost"]["usd"]) == ("completed", 6.0)


async def test_e3_the_days_limit_is_warned_of_the_same_way(project: Project) -> None:
    async with hosted(project, spends(3.0), budget={"day": 2}) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": TWO, "wait_s": 60}))
        budget = shown(await mcp.call_tool("engine_budget", {}))
    assert seen["status"] == "completed"
    assert any("the limit of $2.00 for today is" in line for line in seen["warnings"])
    assert (budget["day"]["limit_usd"], budget["day"]["spent_usd"], budget["day"]["left_usd"]) == (2.0, 6.0, 0.0)


async def test_e3_only_what_is_started_here_goes_on_past_its_budget(project: Project) -> None:
    async with hosted(project, spends(3.0)) as server, server.client() as mcp:
        steps = [
            Step(id="a", agent="developer", prompt="do a"),
            Step(id="b", agent="developer", prompt="b", needs=["a"]),
        ]
        other = await server.engine.start(Plan(steps=steps, budget=1), hold=False)
        assert (await other.wait()).paused_for == "budget"
        seen = shown(await mcp.call_tool("engine_status", {"execution": other.id}))
        (question,) = seen["questions"]
        assert (seen["status"], seen["reason"], question["kind"]) == ("paused", "budget", "budget")
        ended = shown(await mcp.call_tool("engine_resume", {"execution": other.id, "budget": 10.0, "wait_s": 60}))
    assert ended["status"] == "completed"


async def test_e3_resume_raises_the_limit_that_it_stands_before(project: Project) -> None:
    async with hosted(project, spends(3.0), budget={"day": 2}) as server, server.client() as mcp:
        other = await server.engine.start(Plan.model_validate(TWO), hold=False)
        assert (await other.wait()).paused_for == "budget"
        (question,) = shown(await mcp.call_tool("engine_status", {"execution": other.id}))["questions"]
        assert "limit of the day" in question["answer"]
        ended = shown(await mcp.call_tool("engine_resume", {"execution": other.id, "budget": 50.0, "wait_s": 60}))
    assert ended["status"] == "completed"


async def test_e1_an_unknown_cost_is_not_shown_as_nothing(project: Project) -> None:
    async with hosted(project, spends(None)) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": TWO, "wait_s": 60}))
        budget = shown(await mcp.call_tool("engine_budget", {"by": "runtime"}))
    assert (seen["cost"]["usd"], seen["cost"]["known"]) == (None, False)
    assert (budget["day"]["unknown"], budget["month"]["unknown"]) == (2, 2)
    (row,) = budget["spending"]
    assert (row["heading"], row["attempts"], row["unknown"], row["tokens_in"]) == ("cli", 2, 2, 1800)


# -- which runtime -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "healthy", "expected"),
    [
        ("claude-code", {"claude-code", "open-code", "cli"}, "claude-code"),
        ("opencode", {"claude-code", "open-code", "cli"}, "open-code"),
        ("somebody", {"claude-code", "open-code", "cli"}, "claude-code"),
        ("opencode", {"claude-code", "cli"}, "claude-code"),
        ("claude-code", {"cli"}, "cli"),
    ],
)
@BOTH_ERAS
async def test_a6_agents_run_on_the_callers_own_runtime_if_it_is_healthy(
    project: Project, mode: str, client: str, healthy: set[str], expected: str
) -> None:
    runners = [spends(0.0, name) for name in healthy]
    async with hosted(project, *runners) as server, server.client(mode, name=client) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"task": "do it", "strategy": "single", "wait_s": 60}))
    assert [step["runtime"] for step in seen["steps"]] == [expected]


async def test_a6_a_runtime_that_is_named_wins_and_so_do_the_settings(project: Project) -> None:
    runners = [spends(0.0, name) for name in ("claude-code", "open-code", "cli")]
    async with hosted(project, *runners) as server, server.client(name="claude-code") as mcp:
        named = shown(await mcp.call_tool("engine_execute", {"task": "x", "runtime": "cli", "wait_s": 60}))
    async with hosted(project, *runners, runtime="open-code") as server, server.client(name="claude-code") as mcp:
        settings = shown(await mcp.call_tool("engine_execute", {"task": "x", "wait_s": 60}))
    assert [named["steps"][0]["runtime"], settings["steps"][0]["runtime"]] == ["cli", "open-code"]


async def test_a7_a_fallback_is_told_to_the_caller(project: Project) -> None:
    failing = ScriptedRunner([Turn().fail("overloaded", category="transient", elsewhere=True)], name="claude-code")
    plan = {"steps": [{"id": "a", "agent": "developer", "prompt": "x", "retry": {"max": 0}}]}
    async with hosted(project, failing, spends(0.0, "open-code")) as server, server.client(name="claude-code") as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60}))
    assert seen["steps"][0]["runtime"] == "open-code"
    assert "step a: switched from claude-code to open-code: overloaded" in seen["warnings"]
