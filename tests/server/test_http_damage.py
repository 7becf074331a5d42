"""A server with damaged executions in its home goes on with all others, and tells of the damaged ones (D9)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from damage_worlds import DAMAGES, damage
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import shown
from waiting import PATIENCE

import windlass
from windlass import Plan, Step
from windlass.client import Client as WindlassClient

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Serve

WORK = Plan(name="work", steps=[Step(id="a", run="true"), Step(id="b", run="true", needs=["a"])])
ASKS = Plan(name="asks", steps=[Step(id="a", run="true"), Step(id="q", run="true", needs=["a"], approve="always")])


async def test_d9_a_server_goes_on_with_all_others_and_tells_of_the_damaged(
    project: Project, serve: Serve, eventually: Any
) -> None:
    async with windlass.open() as engine:
        asking = []
        for _ in DAMAGES:
            execution = await engine.start(ASKS, hold=False)
            await execution.wait()
            asking.append(execution.id)
        good = await engine.start(ASKS, hold=False)
        await good.wait()
        left = [await engine.create(WORK, to_start=True) for _ in range(3)]
    named = {name: damage(project.home, name, kind) for name, kind in zip(asking, DAMAGES, strict=True)}
    damage(project.home, left[1], "the first event cut")
    named[left[1]] = 1

    server = serve("--resume-orphans")
    api = server.api
    for name in (left[0], left[2]):
        assert api.get(f"/api/executions/{name}?wait=60").json["status"] == "completed", "taken up past the damaged one"
    await eventually(lambda: len(api.get("/api/health").json["damaged"]) == len(named))
    health = api.get("/api/health").json
    assert {one["execution"]: one["seq"] for one in health["damaged"]} == named
    assert (health["ok"], health["recovery"]) == (True, "ok")
    lines = {line["id"]: line for line in api.get("/api/executions?limit=100").json["executions"]}
    for name, seq in named.items():
        assert lines[name]["status"] == "damaged"
        assert lines[name]["damage"]["seq"] == seq
        one = api.get(f"/api/executions/{name}")
        assert (one.status, one.json["status"], one.json["damage"]["seq"]) == (200, "damaged", seq)
        assert api.post(f"/api/executions/{name}/resume").status == 409
    (question,) = api.get("/api/approvals").json
    assert question["execution"] == good.id
    assert any("is damaged" in str(line) for line in server.log)

    token = Path(server.told["token_file"]).read_text().strip()
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as http:
        async with Client(streamable_http_client(f"{server.address}/mcp", http_client=http)) as mcp:
            seen = shown(await mcp.call_tool("engine_status", {"execution": asking[0]}))
            assert (seen["status"], seen["error"]["category"]) == ("damaged", "resource")
            assert f"event {named[asking[0]]} " in seen["warnings"][0]
            every = shown(await mcp.call_tool("engine_status", {}))
            assert len(every["health"]["damaged"]) == len(named)
            assert {one["execution"] for one in every["executions"] if one["status"] == "damaged"} == set(named)

    async with WindlassClient(server.address, token) as client:
        async for event in client.stream(after=0):
            if event["execution"] == left[2] and event["type"] == "execution.finished":
                break  # the stream of the home goes past what cannot be read
    server.stop()


async def test_d9_a_server_tells_of_a_journal_that_was_deleted(project: Project, serve: Serve, eventually: Any) -> None:
    async with windlass.open() as engine:
        await (await engine.start(WORK)).result()
    (project.home / "windlass.db").unlink()
    server = serve()
    assert "has lost its executions" in server.api.get("/api/health").json["journal"]
    await eventually(lambda: any("has lost its executions" in str(line) for line in server.log))
    assert "has lost its executions" in server.api.get("/api/executions?status=running").json["warnings"][0]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, timeout=PATIENCE) as http:
        async with Client(streamable_http_client(f"{server.address}/mcp", http_client=http)) as mcp:
            health = shown(await mcp.call_tool("engine_status", {}))["health"]
    assert (health["ok"], "has lost its executions" in health["journal"]) == (False, True)
