"""MCP as `windlass serve` has it: at /mcp, behind the guard, beside the HTTP API (I2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import BOTH_ERAS, shown
from waiting import PATIENCE

from windlass.server.mcp.endpoint import McpEndpoint

if TYPE_CHECKING:
    from conftest import Project, Windlass

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@pytest.fixture
def served(project: Project, windlass: Windlass, until: Any) -> Iterator[dict[str, str]]:
    """A real server: its address, and where its token is. The user's settings have a secret for an MCP server."""
    project.user_file("config.toml", '[mcp.one]\ncommand = "one"\nenv = {ONE_KEY = "canary-of-one"}\n')
    server = windlass.background("serve", "--port", "0", "--json")
    until(lambda: server.out.strip().endswith("}"), "the server says where it is")
    yield json.loads(server.out)
    server.signal(15)
    assert server.ended().code in (0, 130), str(server.err)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@BOTH_ERAS
async def test_i2_a_client_with_the_token_has_the_tools(
    project: Project, served: dict[str, str], mode: str, path: str
) -> None:
    token = Path(served["token_file"]).read_text().strip()
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as http:
        async with Client(streamable_http_client(f"{served['address']}{path}", http_client=http), mode=mode) as mcp:
            plan = {"name": "greet", "steps": [{"id": "hello", "run": "printf 'hi canary-of-one'"}]}
            result = await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60})
    seen = shown(result)
    assert (seen["status"], seen["steps"][0]["output"]["stdout"]) == ("completed", "hi [mcp.one.ONE_KEY]")
    assert "canary" not in result.model_dump_json(), "nor in the text for the model (I6)"
    assert project.state(seen["execution"]).status == "completed"


async def test_i2_without_the_token_there_is_nothing(project: Project, served: dict[str, str]) -> None:
    accepts = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = await http.post(f"{served['address']}/mcp", json=INITIALIZE, headers={**accepts, **headers})
            assert answer.status_code == 401


class _Manager:
    """Stands for the library's sessions."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        self.open = True
        yield
        self.open = False

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.open
        self.asked += 1


async def test_i2_the_endpoint_is_made_once_by_the_first_requests_and_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    managers = [_Manager()]
    made: list[str] = []

    def make(self: McpEndpoint) -> _Manager:
        made.append("made")
        if len(made) == 1:
            raise ImportError("no room for the library")
        return managers[0]

    monkeypatch.setattr(McpEndpoint, "_make", make)
    endpoint: Any = McpEndpoint(cast("Any", None))
    async with endpoint:
        with pytest.raises(ImportError, match="no room"):
            await endpoint({}, None, None)
        await asyncio.gather(*(endpoint({}, None, None) for _ in range(5)))
        assert (len(made), managers[0].asked) == (2, 5)
    assert not managers[0].open, "the end of the server ends its sessions"


async def test_i2_an_endpoint_that_nobody_asked_ends_at_once() -> None:
    async with McpEndpoint(cast("Any", None)):
        pass
