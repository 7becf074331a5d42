"""The engine's tools as an MCP server, and its listener on loopback (K6), without a runtime."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hosts import FakeHost, Used
from waiting import PATIENCE

from windlass.errors import Category, Failure
from windlass.plan.model import Effect
from windlass.ports import AgentRequest, Answer, Brief, Permissions, ToolReturn, ToolSpec
from windlass.runners.tool_listener import LONGEST_BODY, ToolAccess, ToolListener
from windlass.runners.tool_server import ToolServer, offered, tool_server
from windlass.runners.toolbox import DATA_RULE, UNKNOWN_OUTCOME
from windlass.runners.use_log import FILE
from windlass.runtimes import CLAUDE_CODE
from windlass.settings import RuntimeSettings

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, f"does {name}", TEXT)


def asked(scratch: Path, **permissions: Any) -> AgentRequest:
    brief = Brief("You test.", "go")
    return AgentRequest("e:s:1", "go", brief, scratch, scratch, {}, permissions=Permissions(**permissions))


def server(scratch: Path, host: FakeHost) -> ToolServer:
    return ToolServer(host, asked(scratch), host.tools())


def call(name: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


async def nobody(message: dict[str, Any]) -> None:
    """Takes notifications."""


async def said(tools: ToolServer, message: dict[str, Any]) -> tuple[str, bool]:
    reply = await tools.answer(message, nobody)
    assert reply is not None
    return reply["result"]["content"][0]["text"], reply["result"]["isError"]


# -- the choice of tools -----------------------------------------------------------------------------


ALL = {"code": False, "code.search": False, "tidy": False, "shell": True, "message.send": True, "mcp.hub.list": False}


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ((), {"code", "code.search", "tidy"}),
        (("Read", "message.*"), {"code", "code.search", "tidy", "message.send"}),
        (("shell(git log:*)",), {"code", "code.search", "tidy", "shell"}),
    ],
)
def test_k6_an_agent_is_told_of_programs_of_its_own_tools_and_of_those_that_its_role_names(
    named: tuple[str, ...], told: set[str]
) -> None:
    assert offered(ALL, named, CLAUDE_CODE) == told


def test_k6_without_programs_an_agent_is_told_of_what_its_runtime_does_not_have() -> None:
    """A role without `code` has the engine's tools that it names, but no second shell."""
    assert offered({"shell": True, "message.send": True}, (), CLAUDE_CODE) == {"message.send"}


@pytest.mark.parametrize(("which", "count"), [("code", 1), ("all", 2), ("none", 0)])
def test_k6_a_setting_offers_all_tools_or_none(tmp_path: Path, which: Any, count: int) -> None:
    host = FakeHost(tools=[spec("code"), spec("mcp.hub.list")])
    tools = tool_server(host, asked(tmp_path), RuntimeSettings(engine_tools=which), CLAUDE_CODE)
    assert (len(tools.known) if tools is not None else 0) == count


# -- the protocol ------------------------------------------------------------------------------------


async def test_k6_it_introduces_itself_and_lists_the_tools_by_names_that_runtimes_take(tmp_path: Path) -> None:
    tools = server(tmp_path, FakeHost(tools=[spec("files.write")]))
    hello = await tools.answer({"id": 0, "method": "initialize", "params": {"protocolVersion": "2099-01-01"}}, nobody)
    assert hello is not None
    assert hello["result"]["protocolVersion"] == "2025-11-25"
    assert hello["result"]["capabilities"] == {"tools": {}}
    listed = await tools.answer({"id": 1, "method": "tools/list"}, nobody)
    assert listed is not None
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["files__write"]
    assert tools.name("mcp__windlass__files__write", "mcp__windlass__") == "files.write"
    assert tools.name("mcp__other__files__write", "mcp__windlass__") == "mcp__other__files__write"


async def test_k6_a_use_goes_through_the_host_and_its_result_is_marked_as_data(tmp_path: Path) -> None:
    host = FakeHost(tools=[spec("files.write")], tool=lambda used: ToolReturn({"said": used.arguments["text"]}))
    text, failed = await said(server(tmp_path, host), call("files__write", text="hi"))
    assert '{"said": "hi"}' in text
    assert text.startswith("<data id=")
    assert not failed
    assert [(used.tool, used.arguments) for used in host.uses] == [("files.write", {"text": "hi"})]


@pytest.mark.parametrize("message", [call("nothing"), call("greet", wrong=1), call("greet", text="\ud800")])
async def test_k6_a_call_that_cannot_be_made_is_answered_in_words(tmp_path: Path, message: dict[str, Any]) -> None:
    host = FakeHost(tools=[spec("greet")])
    text, failed = await said(server(tmp_path, host), message)
    assert failed
    assert text
    assert not host.uses


@pytest.mark.parametrize("message", [{}, {"id": 1}, {"method": 3, "id": 1}, {"method": "notifications/other"}])
async def test_k6_what_is_no_request_gets_no_reply(tmp_path: Path, message: dict[str, Any]) -> None:
    assert await server(tmp_path, FakeHost(tools=[spec("greet")])).answer(message, nobody) is None


async def test_k6_an_unknown_method_is_an_error_of_the_protocol(tmp_path: Path) -> None:
    reply = await server(tmp_path, FakeHost(tools=[spec("a")])).answer({"id": 1, "method": "server/discover"}, nobody)
    assert reply is not None
    assert reply["error"]["code"] == -32601


async def test_k6_a_denied_use_is_told_to_the_agent_and_to_the_user(tmp_path: Path) -> None:
    refusal = ToolReturn(None, Failure(Category.PERMISSION, "its role or the settings deny it"))
    tools = server(tmp_path, FakeHost(tools=[spec("greet")], tool=lambda _: refusal))
    text, failed = await said(tools, call("greet"))
    assert "deny it" in text
    assert failed
    assert tools.adjustments == ["greet was refused: its role or the settings deny it"]


async def test_k6_a_use_that_cannot_be_written_down_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file in the place of the folder")
    host = FakeHost(tools=[spec("greet")])
    text, failed = await said(server(tmp_path / "scratch", host), call("greet"))
    assert "nothing was done" in text
    assert failed
    assert not host.uses


async def test_k6_a_question_that_cannot_be_put_is_no_yes(tmp_path: Path) -> None:
    def nobody_there(asked: Any) -> Answer:
        raise RuntimeError("the engine is closing")

    host = FakeHost(nobody_there, tools=[spec("greet")], effects={"greet": Effect.ONCE})
    text, failed = await said(server(tmp_path, host), call("greet"))
    assert "the engine is closing" in text
    assert failed
    assert not host.uses


class Gated(FakeHost):
    """Its tool waits until it is let go."""

    def __init__(self, **how: Any) -> None:
        super().__init__(lambda _: Answer(True), tools=[spec("greet")], tool=self._wait, **how)
        self.go = asyncio.Event()
        self.cut_off = 0

    async def _wait(self, used: Used) -> ToolReturn:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut_off += 1
            self.note("cut off")
            raise
        return ToolReturn("done")


async def test_k6_a_use_that_is_called_off_ends_and_so_does_every_one_at_the_end(tmp_path: Path) -> None:
    host = Gated(effects={"greet": Effect.NONE})
    tools = server(tmp_path, host)
    first, second = (asyncio.create_task(said(tools, call("greet", id=id))) for id in (1, 2))
    await host.until(lambda told: len(told.uses) == 2)
    again = await tools.answer(call("greet", id=1), nobody)
    assert again is not None
    assert "under way already" in again["error"]["message"]
    await tools.answer({"method": "notifications/cancelled", "params": {"requestId": 1}}, nobody)
    assert await first == ("it was called off", True)
    await tools.close()
    assert await second == ("it was called off", True)
    assert host.cut_off == 2
    late = await tools.answer(call("greet", id=3), nobody)
    assert late is not None
    assert "has ended" in late["error"]["message"]
    assert len(host.uses) == 2


async def test_k6_a_long_use_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.runners.tool_server.BEAT", 0.01)
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    host = Gated()
    message = call("greet")
    message["params"]["_meta"] = {"progressToken": 7}
    use = asyncio.create_task(server(tmp_path, host).answer(message, told.put))
    assert [(await told.get())["params"]["progress"] for _ in range(2)] == [1, 2]
    host.go.set()
    assert await use


async def test_k6_uses_that_change_something_come_one_after_the_other(tmp_path: Path) -> None:
    host = Gated()
    tools = server(tmp_path, host)
    uses = [asyncio.create_task(said(tools, call("greet", id=id))) for id in (1, 2)]
    await host.until(lambda told: told.uses)
    assert len(host.uses) == 1
    host.go.set()
    await asyncio.gather(*uses)
    assert len(host.uses) == 2


# -- uses that were cut off --------------------------------------------------------------------------


async def test_k6_a_use_that_was_cut_off_is_told_once_and_not_repeated(tmp_path: Path) -> None:
    host = Gated(effects={"greet": Effect.ONCE})
    tools = server(tmp_path, host)
    task = asyncio.create_task(said(tools, call("greet", text="Ada")))
    await host.until(lambda told: told.uses)
    await tools.close()  # as kill -9 would: its end is not on record
    await task
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes() + b'{"begun": "cut o')

    after = FakeHost(lambda _: Answer(True), tools=[spec("greet")], tool=lambda _: ToolReturn("done"))
    tools = server(tmp_path, after)
    brief = tools.request().brief
    assert f'greet {{"text": "Ada"}}: {UNKNOWN_OUTCOME}' in brief.prompt
    assert DATA_RULE in brief.system
    assert UNKNOWN_OUTCOME in after.notes[0]
    await said(tools, call("greet", text="Ada"))  # the agent's own decision, and a use of its own
    assert after.uses[0].use_id != host.uses[0].use_id
    await tools.close()
    assert server(tmp_path, after).request().brief.prompt == "go"


async def test_k6_a_program_that_was_cut_off_is_taken_up_by_the_same_call_once(tmp_path: Path) -> None:
    host = Gated()
    tools = server(tmp_path, host)
    task = asyncio.create_task(said(tools, call("greet", text="Ada")))
    await host.until(lambda told: told.uses)
    await tools.close()
    await task
    await server(tmp_path, host).close()  # an attempt that was told, and did nothing about it

    after = FakeHost(tools=[spec("greet")], tool=lambda _: ToolReturn("done"))
    tools = server(tmp_path, after)
    for name in ("Bob", "Ada", "Ada"):
        await said(tools, call("greet", text=name))
    uses = [used.use_id for used in after.uses]
    assert uses[1] == host.uses[0].use_id
    assert len({*uses}) == 3
    assert not server(tmp_path, after).request().brief.prompt.removeprefix("go")


async def test_k6_waiting_for_an_approval_is_not_begun(tmp_path: Path) -> None:
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    host = FakeHost(lambda _: never, tools=[spec("greet")], effects={"greet": Effect.ONCE})
    tools = server(tmp_path, host)
    task = asyncio.create_task(said(tools, call("greet")))
    await host.until(lambda told: told.asks)
    await tools.close()
    await task
    assert server(tmp_path, host).request().brief.prompt == "go"


# -- the listener ------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(*all_tools: ToolServer) -> AsyncIterator[tuple[ToolListener, httpx2.AsyncClient, list[ToolAccess]]]:
    listener = ToolListener()
    ways = await asyncio.gather(*map(listener.open, all_tools))  # agents may begin at once
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            yield listener, client, ways
    finally:
        await listener.close()


def bearing(way: ToolAccess, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {way.token}", **more}


async def test_k6_each_token_of_agents_that_begin_at_once_reaches_its_own_attempt_alone(tmp_path: Path) -> None:
    hosts = [FakeHost(tools=[spec(name)], tool=lambda _: ToolReturn("done")) for name in ("one", "two")]
    both = [server(tmp_path / str(number), host) for number, host in enumerate(hosts)]
    async with listening(*both) as (_, client, ways):
        for way, name in zip(ways, ("one", "two"), strict=True):
            listed = await client.post(way.url, headers=bearing(way), json={"id": 1, "method": "tools/list"})
            assert [tool["name"] for tool in listed.json()["result"]["tools"]] == [name]
        other = await client.post(ways[0].url, headers=bearing(ways[0]), json=call("two"))
        assert "there is no tool 'two'" in other.text
    assert not hosts[1].uses


async def test_k6_without_the_token_nothing_runs(tmp_path: Path) -> None:
    host = FakeHost(tools=[spec("greet")], tool=lambda _: ToolReturn("done"))
    async with listening(server(tmp_path, host)) as (listener, client, (way,)):

        async def status(headers: dict[str, str], method: str = "POST", **what: Any) -> int:
            return (
                await client.request(method, way.url, headers=headers, **(what or {"json": call("greet")}))
            ).status_code

        assert await status({}) == 401
        assert await status({"authorization": "Bearer guess"}) == 401
        assert await status({"authorization": way.token}) == 401
        assert await status(bearing(way, origin="http://evil.example")) == 403
        assert await status(bearing(way, host="evil.example")) == 403
        assert await status(bearing(way), method="GET") == 405
        assert await status(bearing(way), content=b"[]") == 400
        assert await status(bearing(way), content=b"{") == 400
        assert await status(bearing(way), content=b" " * (LONGEST_BODY + 1)) == 413
        reader, writer = await asyncio.open_connection("127.0.0.1", int(way.url.split(":")[2].split("/")[0]))
        writer.write(b"no HTTP at all\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
        assert not host.uses
        assert "done" in (await client.post(way.url, headers=bearing(way), json=call("greet"))).text

        listener.shut(way)
        outlived = await client.post(way.url, headers=bearing(way), json=call("greet"))
        assert outlived.status_code == 410
        assert "has ended; nothing was done" in outlived.json()["error"]
    assert len(host.uses) == 1


async def test_k6_a_use_is_answered_as_events_and_called_off_when_its_client_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runners.tool_listener.ALIVE", 0.01)
    host = Gated()
    async with listening(server(tmp_path, host)) as (_, client, (way,)):
        async with client.stream("POST", way.url, headers=bearing(way), json=call("greet")) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": under way"
            host.go.set()
            async for line in lines:
                if line.startswith("data:"):
                    assert "done" in json.loads(line[5:])["result"]["content"][0]["text"]
        host.go.clear()
        async with client.stream("POST", way.url, headers=bearing(way), json=call("greet", id=2)) as stream:
            await host.until(lambda told: len(told.uses) == 2)
        await host.until(lambda told: told.notes)
