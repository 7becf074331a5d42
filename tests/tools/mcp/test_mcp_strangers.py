"""MCP servers that nobody here wrote, from npm and from PyPI, as their users start them (H2).

`make dev` installs them (package.json and requirements.txt beside this file).
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_world import installed, run, world
from ports import KeptPort

import windlass
from windlass import Plan, Step
from windlass.errors import ToolError
from windlass.plan.model import Effect
from windlass.process import Supervisor
from windlass.settings import McpServerSettings
from windlass.tools.mcp import McpServer

if TYPE_CHECKING:
    from conftest import Project


def from_npm(name: str, *args: str) -> McpServer:
    program = installed("node_modules", ".bin", f"mcp-server-{name}")
    return McpServer(name, McpServerSettings(command=program, args=args))


def from_pypi(name: str, *args: str) -> McpServer:
    return McpServer(name, McpServerSettings(command=installed("python", "bin", f"mcp-server-{name}"), args=args))


@asynccontextmanager
async def everything_at_an_address(folder: Path, env: dict[str, str]) -> AsyncIterator[McpServer]:
    """server-everything over streamable HTTP: the older protocol, with sessions."""
    kept = KeptPort()
    port = kept.number
    async with Supervisor() as supervisor:
        argv = [installed("node_modules", ".bin", "mcp-server-everything"), "streamableHttp"]
        process = await supervisor.spawn(argv, cwd=str(folder), env={**env, "PORT": str(port)})
        while True:
            line = await process.stderr.readline()
            assert line, "the server did not start"
            if b"listening" in line:
                break
        draining = asyncio.create_task(process.stderr.read())
        yield McpServer("everything", McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"))
        draining.cancel()
    kept.close()


async def test_the_reference_server_from_npm_works_from_end_to_end(project: Project) -> None:
    async with world(project.path, from_npm("everything")) as mcp:
        assert (await run(mcp["mcp.everything.echo"], {"message": "hi"}))["output"] == "Echo: hi"
        assert (await run(mcp["mcp.everything.get_sum"], {"a": 1, "b": 2}))["output"] == "The sum of 1 and 2 is 3."
        weather = mcp["mcp.everything.get_structured_content"]
        assert set((await run(weather, {"location": "Chicago"}))["output"]) == set(weather.returns["properties"])
        image = (await run(mcp["mcp.everything.get_tiny_image"]))["output"]
        assert Path(image["files"][0]["path"]).read_bytes().startswith(b"\x89PNG")
        assert Path(image["files"][0]["path"]).is_relative_to(project.home / "artifacts")
        wrong = await run(mcp["mcp.everything.get_sum"], {"a": 1, "b": "{{ 'two' }}"})
        assert (wrong["status"], wrong["error"]["category"]) == ("failed", "configuration")
        await mcp.use("mcp.everything.trigger_long_running_operation", duration=0.3, steps=3)
        assert mcp.notes == ["1/3\n", "2/3\n", "3/3\n"]
        assert "simulate_research_query" not in " ".join(mcp.names)
        assert (await mcp.tools.check())["everything"].detail.endswith("MCP 2025-11-25")


async def test_the_reference_server_works_over_http_too(project: Project, eventually: Any) -> None:
    async with everything_at_an_address(project.path, project.env) as server:
        async with world(project.path, server) as mcp:
            assert mcp.tools.problems()[:-1] == []
            assert await mcp.use("mcp.everything.echo", message="hi") == "Echo: hi"
            await mcp.use("mcp.everything.trigger_long_running_operation", duration=0.3, steps=3)
            assert mcp.notes == ["1/3\n", "2/3\n", "3/3\n"]
            using = asyncio.create_task(
                mcp.use("mcp.everything.trigger_long_running_operation", duration=600, steps=1000)
            )
            await eventually(lambda: len(mcp.notes) > 3)
            using.cancel()
            with pytest.raises(asyncio.CancelledError):
                await using
            assert (await mcp.tools.check())["everything"].ok


async def test_the_filesystem_server_from_npm_stays_in_its_folder_and_says_what_its_tools_do(project: Project) -> None:
    inside = project.path / "inside"
    inside.mkdir()
    async with world(project.path, from_npm("filesystem", str(inside))) as mcp:
        write = mcp["mcp.filesystem.write_file"]
        assert (write.effect({}), write.terms.sensitive) == (Effect.REPEATABLE, True)
        assert mcp["mcp.filesystem.read_text_file"].effect({}) is Effect.NONE
        given = {"path": str(inside / "a.txt"), "content": "hello"}
        assert (await run(write, given, approve="never"))["status"] == "completed"
        assert (inside / "a.txt").read_text() == "hello"
        read = await run(mcp["mcp.filesystem.read_text_file"], {"path": str(inside / "a.txt")})
        assert read["output"] == {"content": "hello"}
        with pytest.raises(ToolError, match="outside allowed directories"):
            await mcp.use("mcp.filesystem.read_text_file", path="/etc/passwd")


def make_repository(project: Project) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(project.path)], check=True)
    project.file("new.txt", "x\n")


async def test_a_plan_puts_servers_from_pypi_together(project: Project) -> None:
    make_repository(project)
    async with world(project.path, from_pypi("git"), from_pypi("time", "--local-timezone", "UTC")) as mcp:
        steps: list[Any] = [
            Step(
                id="now",
                tool="mcp.time.convert_time",
                with_={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ),
            Step(id="state", tool="mcp.git.git_status", with_={"repo_path": str(project.path)}),
            Step(id="all", needs=["now", "state"], run="printf '%s' {{ steps.now.output.time_difference | quote }}"),
        ]
        async with windlass.open(tools=mcp.tools()) as engine:
            ended = await (await engine.start(Plan(steps=steps))).result()
        assert ended["status"] == "completed", ended
        now, state, both = (step["output"] for step in ended["steps"])
        assert now["target"]["timezone"] == "Asia/Tokyo"
        assert "new.txt" in str(state)
        assert both["stdout"] == "+9.0h"
        with pytest.raises(ToolError, match="Nowhere"):
            await mcp.use("mcp.time.get_current_time", timezone="Nowhere")
        assert (await mcp.tools.check())["time"].detail == "2 tools, MCP 2026-07-28"
