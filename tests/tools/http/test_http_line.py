"""The connections that the tools share: kept, let go of, and not there at all (H2)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from http_world import NOW, Web
from loopback import reply, serve

from windlass.errors import Category, ToolError, UsageError
from windlass.ports import health_of
from windlass.settings import NetworkSettings
from windlass.tools.http import http_tools
from windlass.tools.net import AddressGuard, open_client

MakeWeb = Callable[..., Web]


def sockets() -> int:
    """Sockets that this process has open."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(1 for link in links if os.path.lexists(link) and os.readlink(link).startswith("socket:"))


async def test_h2_many_requests_share_a_few_connections_and_none_is_left(web: Web) -> None:
    async with serve({"*": reply("x" * 1000)}) as server:
        await asyncio.gather(*(web.use("get", server.url(f"/{n}")) for n in range(100)))
        assert len(server.asked) == 100
        many = server.connections
        for n in range(20):
            await web.use("get", server.url(f"/{n}"))
        assert server.connections == many, "those that are kept are used again"
    before = sockets()
    await web.close()
    assert sockets() < before
    await web.close()


async def test_h2_a_host_of_the_systems_own_is_opened_by_name(make_web: MakeWeb) -> None:
    async with serve({"*": reply("mine")}) as server:
        web = make_web((f"localhost:{server.port}",))
        assert (await web.use("get", server.url(host="localhost")))["text"] == "mine"
        assert (await web.failure("get", server.url())).category is Category.PERMISSION


async def test_h2_a_name_server_that_hangs_does_not_hold_anybody(
    make_web: MakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr("windlass.tools.net.guard.LOOK_UP", 0.05)
    failure = await make_web(more={"resolve": never}).failure("get", "http://slow.test/")
    assert failure.category is Category.TRANSIENT
    assert "slow.test was not found: no answer" in failure.message


def test_h2_tools_outlive_the_loop_that_they_were_first_used_in(tmp_path: Path) -> None:
    web = Web(tmp_path, NetworkSettings(private=("127.0.0.1",)))

    async def once() -> str:
        async with serve({"*": reply("again")}) as server:
            return str((await web.use("get", server.url()))["text"])

    assert [asyncio.run(once()), asyncio.run(once())] == ["again", "again"]
    asyncio.run(web.close())


async def test_h2_without_its_library_a_tool_says_how_to_install_it(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    failure = await web.failure("get", "http://127.0.0.1:1/")
    assert (failure.category, failure.advice) == (Category.CONFIGURATION, ("pip install 'windlass[web]'",))
    health = await health_of(web.tools["http.get"])
    assert (health.ok, health.advice) == (False, "pip install 'windlass[web]'")


async def test_h2_a_client_for_others_reaches_no_more_than_the_tools_do() -> None:
    async with serve({"*": reply("here")}) as server:
        async with open_client(AddressGuard(NetworkSettings(private=("127.0.0.1",)))) as client:
            assert (await client.get(server.url())).text == "here"
            for url in ("http://127.0.0.2/", "http://[::1]/", "ftp://127.0.0.1/"):
                with pytest.raises(ToolError, match=r"(?i)blocked"):
                    await client.get(url)


def test_h2_a_mistake_in_the_settings_is_told_when_the_tools_are_made() -> None:
    with pytest.raises(UsageError, match=r"network\.private: '10\.0\.0\.0/64'"):
        http_tools(NetworkSettings(private=("10.0.0.0/64",)), lambda: NOW)
