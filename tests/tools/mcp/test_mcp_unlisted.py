"""A tool of a server that nobody has asked yet: what it is, and what becomes of a start that fails (C3, C6)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_world import HERE, raw, started, world

import windlass
from windlass import Plan, Step
from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Tool
from windlass.settings import McpServerSettings
from windlass.tools.mcp import McpServer

if TYPE_CHECKING:
    from conftest import Project

SILENT = {"command": sys.executable, "args": [str(HERE / "raw_server.py"), "silent"]}


def ailing(starts: int) -> dict[str, Any]:
    """A server whose first starts end at once."""
    fails = f'echo x >> starts; test $(wc -l < starts) -gt {starts} || {{ echo "not yet" >&2; exit 9; }}; exec "$@"'
    return {"command": "sh", "args": ["-c", fails, "sh", sys.executable, str(HERE / "raw_server.py"), "plain"]}


def server(name: str, **told: Any) -> McpServer:
    return McpServer(name, McpServerSettings.model_validate(told))


async def used(mcp: Any, name: str) -> Any:
    tool: Tool | None = mcp.tools.find(name)
    assert tool is not None
    call = Call(execution="e", step="s", attempt=1, workdir=mcp.folder, folder=mcp.folder, processes=mcp.processes)
    return await tool.execute({}, call)


async def test_what_nobody_knows_is_sensitive_and_done_once_until_its_server_was_asked(tmp_path: Path) -> None:
    async with world(tmp_path, raw("plain"), discover=False) as mcp:
        unseen = mcp.tools.find("mcp.plain.ok")
        assert unseen is not None
        assert (unseen.terms.sensitive, unseen.effect({}), unseen.circuit({})) == (
            True,
            Effect.ONCE,
            "mcp.plain",
        )
        assert await used(mcp, "mcp.plain.ok") == "ok"
        known = mcp.tools.find("mcp.plain.ok")
        assert known is not None
        assert not known.terms.sensitive
        assert len(started(tmp_path)) == 1


@pytest.mark.parametrize(
    ("told", "category", "words"),
    [
        (ailing(9), Category.TRANSIENT, r"it ended with code 9.*not yet"),
        ({**SILENT, "timeout": 0.3}, Category.TRANSIENT, r"did not answer within 0\.3 s"),
        ({"command": "no-such-program"}, Category.CONFIGURATION, "no-such-program"),
        ({"url": "http://127.0.0.1:1/mcp"}, Category.TRANSIENT, r"no connection to 127\.0\.0\.1:1"),
    ],
    ids=["ended", "silent", "missing", "away"],
)
async def test_c3_a_start_that_failed_has_its_own_category(
    tmp_path: Path, told: dict[str, Any], category: Category, words: str
) -> None:
    async with world(tmp_path, server("ill", **told), discover=False) as mcp:
        with pytest.raises(ToolError, match=words) as caught:
            await used(mcp, "mcp.ill.ok")
        assert (caught.value.failure.category, caught.value.failure.kind) == (category, "")


async def test_c3_a_name_that_its_server_does_not_have_is_the_plans_mistake(tmp_path: Path) -> None:
    async with world(tmp_path, raw("plain"), discover=False) as mcp:
        with pytest.raises(ToolError, match=r"MCP server plain has no tool mcp\.plain\.other") as caught:
            await used(mcp, "mcp.plain.other")
        assert caught.value.failure.category is Category.CONFIGURATION


async def test_c3_a_step_is_tried_again_when_its_server_did_not_start(project: Project) -> None:
    """A start that failed did nothing: also what must happen only once is tried again unasked."""
    step = Step(id="a", tool="mcp.ill.ok", approve="never", retry={"max": 3, "delay": "1ms"})
    async with windlass.open(project.home, mcp={"ill": ailing(3)}) as engine:
        result = await (await engine.start(Plan(steps=[step]), workdir=project.path, hold=False)).result()
    (ended,) = result["steps"]
    assert (ended["status"], ended["output"], ended["attempts"]) == ("completed", "ok", 2), ended["error"]


async def test_c6_a_person_is_asked_before_a_tool_that_nobody_knows_and_never_again_once_it_is_known(
    project: Project,
) -> None:
    plan = Plan(steps=[Step(id="a", tool="mcp.ill.ok")])
    async with windlass.open(project.home, mcp={"ill": ailing(0)}) as engine:
        first = await (await engine.start(plan, workdir=project.path, hold=False)).result()
        assert first["steps"][0]["waiting_for"] == "approval"
        assert not (project.path / "starts").exists(), "no server runs for a plan that nobody has approved"
        assert engine.built_in is not None
        assert (await engine.built_in.check())["mcp.ill"].ok
        assert (project.path / "starts").exists()
        second = await (await engine.start(plan, workdir=project.path, hold=False)).result()
        assert second["status"] == "completed"
