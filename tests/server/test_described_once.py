"""Routes and MCP tools are described when their modules are imported, not for each server of a process (J1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fastapi.routing
import httpx2
import pytest
from mcp.server.mcpserver.tools import Tool
from mcp_clients import hosted

import windlass
from windlass.server.app import create_routes
from windlass.server.service import Service

if TYPE_CHECKING:
    from conftest import Project


async def test_j1_a_server_describes_none_of_its_http_routes_anew(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    describe = fastapi.routing.get_dependant

    def noted(*, path: str, **more: Any) -> Any:
        described.append(path)
        return describe(path=path, **more)

    monkeypatch.setattr(fastapi.routing, "get_dependant", noted)
    async with windlass.open(project.home) as engine:
        app = create_routes(Service(engine))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://windlass") as client:
            assert (await client.get("/api/budget")).status_code == 200
    assert [path for path in described if not path.endswith("/stream")] == []


async def test_j1_two_servers_of_a_process_answer_for_themselves(project: Project) -> None:
    """Their routes are the same: each request must find the service of its own server."""
    homes = [project.path / name / ".windlass" for name in ("one", "two")]
    for home in homes:
        home.parent.mkdir()
    async with windlass.open(homes[0]) as first, windlass.open(homes[1]) as second:
        apps = [create_routes(Service(engine)) for engine in (first, second)]
        told = []
        for app in apps:
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://windlass") as client:
                told.append((await client.get("/api/settings")).json()["home"])
    assert told == [str(home) for home in homes]


async def test_j1_a_server_describes_none_of_its_mcp_tools_anew(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    import windlass.server.mcp.serve  # noqa: F401 - with its first request, a server imports this

    def described(*_about: Any, **_more: Any) -> Tool:
        raise AssertionError("a tool was described anew")

    monkeypatch.setattr(Tool, "from_function", described)
    async with hosted(project) as server, server.client() as mcp:
        assert not (await mcp.call_tool("engine_budget", {})).is_error
