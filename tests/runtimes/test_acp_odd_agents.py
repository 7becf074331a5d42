"""Agents of the Agent Client Protocol that behave oddly: written here, because no real one does so when asked (A9)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from acp_world import acp_world
from claude_fixtures import program
from hosts import Asked, FakeHost
from waiting import wait_until_async

from windlass.ports import Answer, ToolReturn, ToolSpec
from windlass.runners.acp import turn

LOOK = ToolSpec("look.at", "Look at it", {"type": "object", "properties": {"at": {"type": "string"}}})
BEGIN = f"""#!{sys.executable}
import json, pathlib, sys, time
def send(**message):
    print(json.dumps({{"jsonrpc": "2.0", **message}}), flush=True)
def read():
    return json.loads(sys.stdin.readline())
def serve(result):
    send(id=read()["id"], result=result)
"""
MEET = """
serve({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}})
serve({"sessionId": "one"})
"""


async def test_a9_an_agent_that_reads_nothing_any_more_is_ended_by_an_interrupt(tmp_path: Path) -> None:
    deaf = "sys.stdin.read(10)\npathlib.Path('reads').touch()\ntime.sleep(3600)\n"
    agent = program(tmp_path / "agent", BEGIN + MEET + deaf)
    async with acp_world("acp", tmp_path / "world", [], command=[agent]) as world:
        request = world.request("long " * 400_000, grace=0.1)
        running = asyncio.create_task(world.runner.run(request, FakeHost()))
        await wait_until_async((request.workdir / "reads").exists)
        await world.runner.interrupt(request.id)
        result = await running
        assert (result.interrupted, result.failure, result.session) == (True, None, "one")


async def test_a9_an_agent_that_never_says_a_word_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "PATIENCE", 0.1)
    agent = program(tmp_path / "agent", f"{BEGIN}time.sleep(3600)\n")
    async with acp_world("acp", tmp_path / "world", [], command=[agent]) as world:
        result = await world.runner.run(world.request(), FakeHost())
    assert result.failure is not None
    assert "says nothing for 0.1 s" in result.failure.message


async def test_a9_arguments_do_not_pass_a_tool_off_as_one_of_the_engines(tmp_path: Path) -> None:
    """The engine's own tools are not asked about here: they have their gates. Nothing else may look like them."""
    poses = """
number = read()["id"]
given = {"server": "windlass", "tool": "look__at", "arguments": {}}
call = {"toolCallId": "1", "title": "delete everything", "kind": "delete", "rawInput": given}
options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
send(id=7, method="session/request_permission", params={"toolCall": call, "options": options})
chosen = read()["result"]["outcome"]["optionId"]
said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "it said " + chosen}}
send(method="session/update", params={"update": said})
send(id=number, result={"stopReason": "end_turn"})
sys.stdin.read()
"""
    agent = program(tmp_path / "agent", BEGIN + MEET + poses)
    async with acp_world("acp", tmp_path / "world", [], command=[agent]) as world:
        host = FakeHost(lambda asked: Answer(False, "no"), tools=[LOOK], tool=lambda used: ToolReturn(None))
        result = await world.runner.run(world.request(), host)
    assert host.asks == [Asked("delete", {"title": "delete everything"})]
    assert result.output == "it said no"
