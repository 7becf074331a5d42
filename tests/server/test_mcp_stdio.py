"""`windlass mcp` as clients use it: a process at the end of two pipes, started and killed as they please (I2)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import BOTH_ERAS, Ear, client, error_of, shown
from mcp_types import ElicitResult
from waiting import PATIENCE

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from forks import Zygote

PROGRAM = str(Path(sys.executable).with_name("windlass"))
GATE = "until [ -e open ]; do sleep 0.02; done; printf open"
GATED = {"name": "gated", "steps": [{"id": "gate", "run": GATE}, {"id": "after", "run": "printf x", "needs": ["gate"]}]}


@BOTH_ERAS
async def test_i2_an_execution_is_started_over_stdio_followed_and_its_output_comes_back(
    project: Project, windlass: Windlass, mode: str
) -> None:
    ear = Ear()
    async with client(project, mode, ear=ear) as mcp:
        tools = {tool.name for tool in (await mcp.list_tools()).tools}
        words = ("execute", "status", "transcript", "say", "context", "budget", "history", "estimate", "diff", "undo")
        words += ("workspaces", "interrupt", "resume", "approve", "tool")
        assert tools == {"code", "code_search", *(f"engine_{word}" for word in words)}
        plan = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi"}]}
        started = shown(await mcp.call_tool("engine_execute", {"plan": plan}))
        assert started["execution"] in project.ids()
        arguments = {"execution": started["execution"][:20], "wait_s": 60}
        ended = shown(await mcp.call_tool("engine_status", arguments, progress_callback=ear.on_progress))
    assert (ended["status"], ended["progress"]) == ("completed", 100.0)
    assert ended["steps"][0]["output"]["stdout"] == "hi"
    assert windlass("status", started["execution"], "--json").json["status"] == "completed"


async def test_i2_what_was_started_goes_on_when_the_client_closes_the_pipe(
    project: Project, windlass: Windlass, until: Any
) -> None:
    async with client(project) as mcp:
        started = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))
    execution = started["execution"]
    assert project.state(execution).status == "running"
    project.file("open", "")
    until(lambda: project.state(execution).status == "completed", "it ends though nobody waits for it")


async def test_i2_what_was_started_goes_on_when_the_server_is_killed(
    project: Project, windlass: Windlass, until: Any, tmp_path: Path
) -> None:
    server = Raw(project, tmp_path)
    server.initialize()
    number = server.send("tools/call", {"name": "engine_execute", "arguments": {"plan": GATED}})
    execution = (await asyncio.to_thread(server.answer, number))["result"]["structuredContent"]["execution"]
    waiting = {"name": "engine_status", "arguments": {"execution": execution, "wait_s": 600}}
    server.send("tools/call", {**waiting, "_meta": {"progressToken": "p"}})
    assert (await asyncio.to_thread(server.line))["method"] == "notifications/progress"
    server.process.kill()
    server.process.wait()
    project.file("open", "")
    until(lambda: project.state(execution).status == "completed", "its driver lives on")
    # Another server of the same home finds it.
    async with client(project) as mcp:
        assert shown(await mcp.call_tool("engine_status", {"execution": execution}))["status"] == "completed"


async def test_i2_an_interrupted_execution_is_resumed_by_a_detached_driver(
    project: Project, windlass: Windlass
) -> None:
    async with client(project) as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))["execution"]
        stopped = shown(await mcp.call_tool("engine_interrupt", {"execution": execution, "wait_s": 60}))
        assert (stopped["status"], stopped["reason"]) == ("paused", "interrupt")
        project.file("open", "")
        ended = shown(await mcp.call_tool("engine_resume", {"execution": execution, "wait_s": 60}))
    assert ended["status"] == "completed"
    assert windlass.pid_of(execution) > 0


async def test_i2_a_driver_that_cannot_begin_is_an_error_with_its_last_words(
    project: Project, windlass: Windlass
) -> None:
    async with client(project) as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))["execution"]
        await mcp.call_tool("engine_interrupt", {"execution": execution, "wait_s": 60})
        # Settings that the next driver refuses: this server has read them before.
        project.file(".windlass/config.toml", "nonsense = 1\n")
        error, _text = error_of(await mcp.call_tool("engine_resume", {"execution": execution}))
    assert "its process did not start" in error["message"]
    assert "nonsense" in error["message"]
    assert f"windlass resume {execution}" in error["advice"]


async def test_c6_the_client_can_be_kept_from_answering(project: Project) -> None:
    async with client(project, "auto", "--no-approve") as mcp:
        tools = {tool.name for tool in (await mcp.list_tools()).tools}
    assert "engine_approve" not in tools


@pytest.mark.parametrize("name", ["engine_execute", "engine_estimate"])
async def test_i2_a_plan_file_that_would_be_waited_for_is_refused(project: Project, name: str) -> None:
    os.mkfifo(project.path / "pipe")
    async with client(project) as mcp:
        for file in ("/dev/null", str(project.path / "pipe")):
            error, _text = error_of(await mcp.call_tool(name, {"file": file}))
            assert error["message"] == f"{file} is not a regular file, as a plan file must be here"


async def test_i2_looking_makes_no_home(project: Project) -> None:
    async with client(project) as mcp:
        error, _text = error_of(await mcp.call_tool("engine_status", {"execution": "0198"}))
        assert "no executions here yet" in error["message"]
        assert shown(await mcp.call_tool("engine_budget", {}))["day"]["spent_usd"] == 0.0
        assert shown(await mcp.call_tool("engine_history", {"by": "plan"}))["of"] == "executions"
        assert shown(await mcp.call_tool("engine_history", {"slow": True}))["of"] == "slow steps"
        plan = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi"}]}
        estimated = shown(await mcp.call_tool("engine_estimate", {"plan": plan}))
        assert estimated["forecast"]["unknown"] == ["hello"]
        assert estimated["expected_s"] is None
        assert not project.home.exists()
        shown(await mcp.call_tool("engine_execute", {"plan": {"steps": [{"id": "a", "run": "true"}]}, "wait_s": 60}))
        assert project.home.exists()
        ran = {"name": "plan", "steps": [{"id": "a", "run": "true"}]}
        assert shown(await mcp.call_tool("engine_estimate", {"plan": json.dumps(ran)}))["expected_s"] >= 0


MCP_SETTINGS = '[mcp.one]\ncommand = "one"\nenv = {{ONE_KEY = "{}"}}\n'


@pytest.mark.parametrize(("settings", "named"), [("", "DEPLOY_TOKEN"), (MCP_SETTINGS, "mcp.one.ONE_KEY")])
async def test_i6_secrets_of_the_environment_and_the_settings_do_not_reach_the_client(
    project: Project, settings: str, named: str
) -> None:
    secret = "pa55-of-the-deploy"
    if settings:
        project.user_file("config.toml", settings.format(secret))
    else:
        project.env["DEPLOY_TOKEN"] = secret
    key = "-----BEGIN PRIVATE KEY----- MIIE"
    steps = [
        {"id": "leak", "run": f"printf '%s' {secret}; echo '{key}' >&2"},
        {"id": "ask", "run": f"echo {secret}", "approve": "always", "needs": ["leak"]},
    ]
    ear = Ear(answers=[ElicitResult(action="cancel")])
    async with client(project, ear=ear, asks=True) as mcp:
        result = await mcp.call_tool(
            "engine_execute", {"plan": {"steps": steps}, "wait_s": 60}, progress_callback=ear.on_progress
        )
    seen = shown(result)
    assert seen["steps"][0]["output"]["stdout"] == f"[{named}]"
    assert seen["steps"][0]["output"]["stderr"] == "[private key]"
    assert f"[{named}]" in ear.asked[0]
    assert f"secrets: {named}" in ear.asked[0]
    everything = f"{result.model_dump_json()} {ear.asked} {ear.progress}"
    assert secret not in everything
    assert secret in str(project.state(seen["execution"]).steps["leak"].output), "the journal has it as it was"


class Raw:
    """A client that looks at every byte."""

    def __init__(self, project: Project, logs: Path, program: str = PROGRAM) -> None:
        self.err = logs / "mcp.err"
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [program, "mcp"],
                env=project.env,
                cwd=project.path,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        self._count = 0

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._count += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}))
        return self._count

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline())
        assert found["jsonrpc"] == "2.0"
        return dict(found)

    def answer(self, number: int) -> dict[str, Any]:
        while (found := self.line()).get("id") != number:
            assert "method" in found, found
        return found

    def initialize(self) -> dict[str, Any]:
        client_info = {"name": "raw", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info}
        found = self.answer(self.send("initialize", params))
        self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return found


async def test_i2_nothing_but_the_protocol_is_on_stdout(project: Project, windlass: Windlass, tmp_path: Path) -> None:
    server = Raw(project, tmp_path)
    server.write("this is no JSON")
    about = server.initialize()["result"]
    assert (about["serverInfo"]["name"], about["protocolVersion"]) == ("windlass", "2025-11-25")
    assert "logging" in about["capabilities"]
    plan = {"steps": [{"id": "loud", "run": "echo to stdout; echo to stderr >&2"}]}
    number = server.send("tools/call", {"name": "engine_execute", "arguments": {"plan": plan, "wait_s": 60}})
    result = (await asyncio.to_thread(server.answer, number))["result"]
    assert result["structuredContent"]["status"] == "completed"
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    out, _ = server.process.communicate(timeout=PATIENCE)
    assert (out, server.process.returncode) == (b"", 0), "it ends by itself when the pipe is closed"
    assert "Traceback" not in server.err.read_text()


def test_i2_a_person_who_starts_it_is_told_what_it_is_and_can_leave(project: Project, windlass: Windlass) -> None:
    terminal = windlass.terminal("mcp")
    terminal.expect("windlass mcp install claude-code")
    terminal.type("\x03")
    assert terminal.ended().code == -2


@pytest.mark.parametrize("number", [2, 15])
async def test_i2_a_signal_ends_it_at_once(project: Project, tmp_path: Path, zygote: Zygote, number: int) -> None:
    server = Raw(project, tmp_path, str(zygote.folder / "windlass"))
    server.initialize()
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == -number
    assert server.err.read_text() == ""
