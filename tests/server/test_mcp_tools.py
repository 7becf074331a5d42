"""The tools, called by a real MCP client over stdio, in both eras of the protocol (I2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_clients import BOTH_ERAS, Ear, client, error_of, shown

if TYPE_CHECKING:
    from conftest import Project, Windlass

HELLO = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi"}]}
TWO = """
name: two
inputs: {who: world}
steps:
  - {id: first, run: "printf one-{{ inputs.who }}"}
  - {id: second, needs: [first], run: "printf two"}
"""


@BOTH_ERAS
async def test_i2_an_execution_is_started_followed_and_its_output_comes_back(
    project: Project, windlass: Windlass, mode: str
) -> None:
    ear = Ear()
    async with client(project, mode, ear=ear) as mcp:
        tools = {tool.name for tool in (await mcp.list_tools()).tools}
        assert tools == {
            "engine_execute",
            "engine_status",
            "engine_budget",
            "engine_interrupt",
            "engine_resume",
            "engine_approve",
        }
        started = shown(await mcp.call_tool("engine_execute", {"plan": HELLO}))
        assert started["execution"] in project.ids()
        ended = shown(
            await mcp.call_tool(
                "engine_status",
                {"execution": started["execution"][:13], "wait_s": 60},
                progress_callback=ear.on_progress,
            )
        )
    assert (ended["status"], ended["progress"]) == ("completed", 100.0)
    assert ended["steps"][0]["output"]["stdout"] == "hi"
    assert project.state(started["execution"]).status == "completed"
