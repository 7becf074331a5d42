"""Tools of MCP servers at an address: streamable HTTP, with what an HTTP server can answer besides (H2, C3)."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp_world import HERE, forked_python, world
from ports import KeptPort
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from waiting import PATIENCE

from windlass.clock import SystemClock
from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.process import Supervisor
from windlass.settings import McpServerSettings, NetworkSettings
from windlass.tools.mcp import McpServer
from windlass.tools.mcp.described import Described
from windlass.tools.mcp.toolset import ToolListCache
from windlass.tools.net.guard import AddressGuard
from windlass.tools.net.transport import open_client


@asynccontextmanager
async def hosted(folder: Path, port: int = 0) -> AsyncIterator[int]:
    """The odd server behind streamable HTTP, in a process of its own."""
    kept = KeptPort()
    port = port or kept.number
    async with Supervisor() as supervisor:
        argv = [str(forked_python()), str(HERE / "odd_server.py"), str(port)]
        process = await supervisor.spawn(argv, cwd=str(folder), env={"PATH": "/bin"})
        while True:
            line = await process.stderr.readline()
            assert line, "the server did not start"
            if b"running on" in line:
                break
        draining = asyncio.create_task(process.stderr.read())
        yield port
        draining.cancel()
    kept.close()


@asynccontextmanager
async def answering(answer: Callable[[Request], Awaitable[Response]]) -> AsyncIterator[str]:
    """A web server that is asked for MCP and answers as it likes."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/mcp", endpoint=answer, methods=["GET", "POST", "DELETE"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


def at(url: str, **more: Any) -> McpServer:
    return McpServer("web", McpServerSettings(url=url, **{"timeout": PATIENCE, **more}))


async def test_tools_at_an_address_are_used_tell_progress_and_change(tmp_path: Path, eventually: Any) -> None:
    async with hosted(tmp_path) as port, world(tmp_path, at(f"http://127.0.0.1:{port}/mcp")) as mcp:
        assert mcp.tools.problems() == []
        assert await mcp.use("mcp.web.add", a=2, b=3) == {"result": 5}
        assert await mcp.use("mcp.web.work", steps=2) == {"result": "done"}
        assert mcp.notes == ["1/2 step 1[31m of 2\n", "2/2 step 2[31m of 2\n"]
        await mcp.use("mcp.web.grow")
        await eventually(lambda: "mcp.web.grown" in mcp.names)
        assert (await mcp.tools.check())["web"].ok


async def test_a_use_at_an_address_that_is_cancelled_is_cancelled_there(tmp_path: Path, eventually: Any) -> None:
    async with hosted(tmp_path) as port, world(tmp_path, at(f"http://127.0.0.1:{port}/mcp")) as mcp:
        using = asyncio.create_task(mcp.use("mcp.web.hang"))
        await eventually((tmp_path / "hanging").exists)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        await eventually((tmp_path / "cancelled").exists)
        assert await mcp.use("mcp.web.add", a=1, b=1) == {"result": 2}


async def test_an_answer_that_is_too_large_is_refused_and_the_next_use_works(tmp_path: Path) -> None:
    async with hosted(tmp_path) as port, world(tmp_path, at(f"http://127.0.0.1:{port}/mcp")) as mcp:
        assert len((await mcp.use("mcp.web.flood", size=10_000_000))["text"]) == 1024 * 1024
        with pytest.raises(ToolError):
            await mcp.use("mcp.web.flood", size=20_000_000)
        assert await mcp.use("mcp.web.add", a=1, b=1) == {"result": 2}


async def test_a_server_that_goes_away_is_a_transient_failure_and_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    async with hosted(tmp_path) as port:
        server = at(f"http://127.0.0.1:{port}/mcp")
        async with world(tmp_path, server) as mcp:
            with pytest.raises(ToolError) as caught:
                await mcp.use("mcp.web.die", code=1)
            assert caught.value.failure.category is Category.TRANSIENT
            with pytest.raises(ToolError) as caught:
                await mcp.use("mcp.web.add", a=1, b=1)
            assert caught.value.failure.category is Category.TRANSIENT
            assert f"127.0.0.1:{port}" in str(caught.value)
            async with hosted(tmp_path, port):
                assert await mcp.use("mcp.web.add", a=1, b=1) == {"result": 2}


async def test_i6_headers_come_from_variables_and_a_refusal_says_nothing_of_them(tmp_path: Path) -> None:
    seen: list[str] = []

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("authorization", ""))
        return PlainTextResponse(f"not with {seen[-1]}", 401)

    async with answering(answer) as url:
        server = at(url, headers_env={"Authorization": "WEB_AUTH"})
        async with world(tmp_path, server, environ={"WEB_AUTH": "Bearer abcdefgh12345678"}) as mcp:
            health = (await mcp.tools.check())["web"]
    assert set(seen) == {"Bearer abcdefgh12345678"}
    assert not health.ok
    assert "HTTP 401" in health.detail
    assert "headers_env" in health.advice
    assert "abcdefgh" not in health.detail + "".join(mcp.tools.problems())


@pytest.mark.parametrize(
    ("status", "category", "retry_after"),
    [(403, "permission", None), (429, "transient", 17.0), (503, "transient", 17.0), (500, "transient", 17.0),
     (413, "resource", None)],
)  # fmt: skip
async def test_c3_what_http_says_decides_the_category(
    tmp_path: Path, status: int, category: str, retry_after: float | None
) -> None:
    async def answer(request: Request) -> Response:
        return PlainTextResponse("no", status, {"retry-after": "17"})

    cache = tmp_path / "mcp.json"
    async with answering(answer) as url:
        known = Described("x", "", {"type": "object"}, None, Effect.NONE, False)
        ToolListCache(cache, SystemClock()).keep(at(url).digest, [known])
        async with world(tmp_path, at(url), cache=cache) as mcp:
            with pytest.raises(ToolError) as caught:
                await mcp.use("mcp.web.x")
        assert (caught.value.failure.category, caught.value.failure.retry_after) == (category, retry_after)


@pytest.mark.parametrize("kind", ["page", "json", "redirect", "endless", "bomb"])
async def test_an_address_that_is_no_mcp_server_is_told_and_does_not_hold_anything_up(
    tmp_path: Path, kind: str
) -> None:
    async def answer(request: Request) -> Response:
        match kind:
            case "page":
                return PlainTextResponse("<html>welcome</html>", media_type="text/html")
            case "json":
                return JSONResponse({"hello": "world"})
            case "redirect":
                return Response(status_code=307, headers={"location": "http://169.254.169.254/secrets"})
            case "bomb":
                small = gzip.compress(b" " * (64 << 20))
                return Response(small, headers={"content-encoding": "gzip"}, media_type="application/json")
        return Response(b'"' + b"x" * (20 << 20) + b'"', media_type="application/json")

    async with answering(answer) as url, world(tmp_path, at(url)) as mcp:
        assert mcp.names == []
        (problem,) = mcp.tools.problems()
        assert problem.startswith("MCP server web, starting it: ")


async def test_the_client_is_made_by_whoever_guards_the_network(tmp_path: Path) -> None:
    async with hosted(tmp_path) as port:
        server = at(f"http://127.0.0.1:{port}/mcp")
        async with world(tmp_path, server, http=lambda _: open_client(AddressGuard())) as mcp:
            (problem,) = mcp.tools.problems()
            assert "127.0.0.1" in problem
        guard = AddressGuard(NetworkSettings(private=(f"127.0.0.1:{port}",)))
        async with world(tmp_path, server, http=lambda _: open_client(guard)) as mcp:
            assert await mcp.use("mcp.web.add", a=2, b=3) == {"result": 5}
            assert await mcp.use("mcp.web.work", steps=1) == {"result": "done"}
