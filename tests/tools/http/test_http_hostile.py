"""Servers that mean no good: every one ends in a clear failure, within bounds (H2, C3)."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http_world import Web
from loopback import Asked, reply, serve

from windlass.errors import Category
from windlass.plan.quantities import MB

Writer = asyncio.StreamWriter


async def endless(asked: Asked, writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_empty_gzip(asked: Asked, writer: Writer) -> None:
    """Blocks that are compressed from nothing: bytes come for ever, and none of them becomes any."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n")
    packer = zlib.compressobj(wbits=31)
    writer.write(packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH))
    while True:
        writer.write(b"\x00\x00\x00\xff\xff" * 8192)
        await writer.drain()


async def slow_loris(asked: Asked, writer: Writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-a: b\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def informational_for_ever(asked: Asked, writer: Writer) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()


async def reset(asked: Asked, writer: Writer) -> None:
    socket_ = writer.get_extra_info("socket")
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
    await writer.drain()


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN = {
    "nothing": b"",
    "garbage": b"\x00\xff" * 1000,
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "no status": b"HTTP/1.1\r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-type: text",
    "a huge head": b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 100_000 + b"\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    "a NUL in a header": b"HTTP/1.1 200 OK\r\nx-a: \x00\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "less than its length": b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhello",
    "chunks of garbage": CHUNKED + b"zz\r\nhello\r\n",
    "a chunk longer than said": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "an endless chunk size": CHUNKED + b"f" * 200_000,
    "chunks that stop": CHUNKED + b"5\r\nhello\r\n",
    "not gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
    "six layers of gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip,gzip,gzip,gzip,gzip,gzip\r\n"
    b"content-length: 5\r\n\r\nhello",
    "a switch of protocol": b"HTTP/1.1 407 No\r\ncontent-length: x\r\n\r\n",
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("tool", ["get", "download"])
async def test_h2_a_broken_answer_is_a_transient_failure_in_words(web: Web, how: str, tool: str) -> None:
    async def answer(asked: Asked, writer: Writer) -> None:
        writer.write(BROKEN[how])
        await writer.drain()

    async with serve({"*": answer}) as server:
        failure = await web.failure(tool, server.url())
        assert failure.category is Category.TRANSIENT, failure
        assert str(server.port) in failure.message
        assert len(failure.message) < 500
    assert not [path for path in web.folder.rglob("*") if path.is_file()], "nothing half done is left"


async def test_h2_a_connection_that_is_reset_or_refused_is_transient(web: Web, port: int) -> None:
    async with serve({"*": reset}) as server:
        assert (await web.failure("get", server.url())).category is Category.TRANSIENT
    refused = await web.failure("get", f"http://127.0.0.1:{port}/")
    assert (refused.category, "no connection" in refused.message) == (Category.TRANSIENT, True)


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip"])
async def test_h2_a_gzip_bomb_is_cut_at_max_bytes_of_what_it_becomes(web: Web, coding: str) -> None:
    bomb = gzip.compress(bytes(200 * MB), 1)
    body = bomb if coding == "gzip" else gzip.compress(bomb)
    async with serve({"*": reply(body, content_type="text/plain", content_encoding=coding)}) as server:
        tracemalloc.start()
        found = await web.use("get", server.url(), max_bytes=100_000)
        assert (found["bytes"], found["truncated"], len(found["text"])) == (100_000, True, 100_000)
        too_large = await web.failure("download", server.url(), max_bytes="3mb")
        assert (too_large.category, "larger than 3mb" in too_large.message) == (Category.RESOURCE, True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 32 * MB, f"{peak} bytes of memory for a body of which 3 MiB may be kept"


async def test_h2_an_endless_body_is_cut(web: Web) -> None:
    async with serve({"/": endless, "/empty": endless_empty_gzip}) as server:
        found = await web.use("get", server.url())
        assert (found["bytes"], found["truncated"]) == (MB, True)
        nothing = await web.use("get", server.url("/empty"), max_bytes=1000)
        assert (nothing["bytes"], nothing["truncated"]) == (0, True)
        for path in ("/", "/empty"):
            failure = await web.failure("download", server.url(path), max_bytes="3mb")
            assert failure.category is Category.RESOURCE


@pytest.mark.parametrize("script", [slow_loris, informational_for_ever], ids=lambda script: script.__name__)
async def test_h2_signs_of_life_without_an_end_are_cut_by_the_timeout(web: Web, script: object) -> None:
    async with serve({"*": script}) as server:  # type: ignore[dict-item]
        failure = await web.failure("get", server.url(), timeout=0.4)
        assert failure.category is Category.TRANSIENT
        assert "not finished within 0.4 s" in failure.message or "not proper HTTP" in failure.message


async def test_h2_cancelling_ends_the_request_and_leaves_nothing(
    web: Web, eventually: Callable[..., Awaitable[Any]]
) -> None:
    async def hang(asked: Asked, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome")
        await asyncio.Event().wait()

    async with serve({"*": hang}) as server:
        work = web.folder / "work"
        task = asyncio.ensure_future(web.use("download", server.url("/big.bin"), path="big.bin"))
        await eventually(lambda: work.exists() and [path for path in work.iterdir() if path.stat().st_size == 4])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"[" * 500 + b"]" * 500, b'"\\ud800"', b"NaN", b"{", b""],
)
async def test_h2_json_that_is_none_or_could_fill_a_stack_is_text(web: Web, body: bytes) -> None:
    async with serve({"*": reply(body, content_type="application/json")}) as server:
        found = await web.use("get", server.url())
        assert found["text"] == body.decode()
        json.dumps(found)


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "unicode_escape", "zlib", "rot13", "no-such", "utf-7", "\x00", "a" * 500]
)
async def test_h2_a_charset_that_is_no_encoding_of_text_is_not_used(web: Web, charset: str) -> None:
    route = reply(b"caf\xc3\xa9 \\x41 +AEE-", content_type=f"text/plain; charset={charset}".replace("\x00", ""))
    async with serve({"*": route}) as server:
        assert (await web.use("get", server.url()))["text"] == "café \\x41 +AEE-"
