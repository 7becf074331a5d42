"""What uses of `http.*` take, as the meter is told it: every hop, both ways, however it ends (H1)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from http_world import Web
from loopback import Asked, call_in, reply, serve

from windlass.core.resources import Resources
from windlass.errors import ToolError

KB = 1000


async def used(web: Web, name: str, url: str, /, **arguments: Any) -> Resources:
    """What one use took, whether it worked or failed."""
    call = call_in(web.folder, web.env)
    with suppress(ToolError):
        await web.tools[f"http.{name}"].execute({"url": url, **arguments}, call)
    assert call.meter.used is not None
    return call.meter.used


def between(found: int | None, least: int, most: int) -> bool:
    return found is not None and least <= found < most


async def test_h1_an_answer_counts_with_its_head_and_a_request_too(web: Web) -> None:
    async with serve({"/a": reply(b"x" * 100 * KB)}) as server:
        took = await used(web, "get", server.url("/a"))
        asked = server.asked[0]
    head = sum(len(name) + len(value) + 4 for name, value in asked.headers.items())
    assert took.sent == len("GET /a HTTP/1.1\r\n") + head + len("\r\n")
    assert took.received == len(reply(b"x" * 100 * KB))
    assert took.cpu is None
    assert took.memory is None


async def test_h1_what_is_sent_counts_as_it_travels(web: Web) -> None:
    packed = gzip.compress(bytes(500 * KB))
    async with serve({"/p": reply(packed, content_encoding="gzip")}) as server:
        took = await used(web, "post", server.url("/p"), text="y" * 100 * KB)
    assert between(took.sent, 100 * KB, 101 * KB)
    assert between(took.received, len(packed), len(packed) + 200), "packed, as it came"


async def test_h1_every_hop_of_a_redirect_counts(web: Web) -> None:
    routes = {
        "/from": reply(b"m" * 5 * KB, 307, location="/to"),
        "/to": reply(b"n" * 20 * KB),
    }
    async with serve(routes) as server:
        took = await used(web, "put", server.url("/from"), text="y" * 10 * KB)
    assert between(took.sent, 20 * KB, 21 * KB), "sent to both"
    assert between(took.received, 20 * KB, 26 * KB), "the body of a redirect may be left unread"


async def test_h1_a_download_counts_what_came_over_the_network(web: Web) -> None:
    async with serve({"/f.bin": reply(b"z" * 300 * KB)}) as server:
        took = await used(web, "download", server.url("/f.bin"), path="f.bin")
    assert between(took.received, 300 * KB, 301 * KB)
    assert between(took.sent, 1, KB)


@pytest.mark.parametrize(("status", "size"), [(404, 30 * KB), (503, 3 * KB)])
async def test_h1_a_refusal_counts_as_well(web: Web, status: int, size: int) -> None:
    async with serve({"/no": reply(b"n" * size, status)}) as server:
        took = await used(web, "get", server.url("/no"))
    assert between(took.received, size, size + 200)


async def test_h1_an_answer_that_breaks_off_counts_as_far_as_it_came(web: Web) -> None:
    async def half(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99000\r\n\r\n" + b"h" * 40 * KB)
        await writer.drain()

    async with serve({"/half": half}) as server:
        took = await used(web, "get", server.url("/half"))
    assert between(took.received, 40 * KB, 41 * KB)


async def test_h1_a_use_that_is_cancelled_has_told_what_it_took(web: Web, eventually: Callable[..., Any]) -> None:
    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99000\r\n\r\n" + b"s" * 40 * KB)
        await writer.drain()
        await asyncio.Event().wait()

    call = call_in(web.folder)
    async with serve({"/slow": slow}) as server:
        using = asyncio.create_task(web.tools["http.get"].execute({"url": server.url("/slow")}, call))
        await eventually(lambda: call.meter.used is not None and (call.meter.used.received or 0) >= 40 * KB)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
    assert call.meter.used is not None
    assert between(call.meter.used.sent, 1, KB)


async def test_h1_nothing_counts_for_a_connection_that_never_came_about(web: Web, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    call = call_in(web.folder)
    with pytest.raises(ToolError):
        await web.tools["http.post"].execute({"url": url, "text": "y" * 10 * KB}, call)
    assert call.meter.used is None
