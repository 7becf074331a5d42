"""Slow, half-open, many and ambiguous connections: the server closes them, and steps go on (TRUST: connections)."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from waiting import PATIENCE, settled, skip_time, wait_until_async

from windlass.server import connections
from windlass.server.connections import BODY_SECONDS, HEADER_SECONDS, Connections, limited
from windlass.server.guard import LET_IN

if TYPE_CHECKING:
    from server_process import Serve, Server

HOSTILE = 400
PARALLEL = {
    "name": "many",
    "steps": [{"id": f"s{n}", "run": f"cat /etc/hostname /dev/null | wc -l; echo {n} > done-{n}"} for n in range(24)],
}


@contextmanager
def _few_descriptors(count: int) -> Iterator[None]:
    """For processes that are started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _connect(server: Server) -> socket.socket:
    address = urlsplit(server.address)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE)


def _hostile(server: Server, number: int) -> bytes:
    host = urlsplit(server.address).netloc
    token = f"Host: {host}\r\nAuthorization: Bearer {server.token}\r\n"
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    kinds = [
        b"",
        b"GET / HT",
        f"GET /api/executions HTTP/1.1\r\nHost: {host}\r\nX-Slow: ".encode(),
        f"POST /approve HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 1000\r\n\r\nhalf".encode(),
        f"GET /api/stream HTTP/1.1\r\nHost: {host}\r\n{upgrade}".encode(),
        f"POST /api/executions HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".encode(),
    ]
    # A few that are let in and never read what they are sent.
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    reader = f"GET /api/stream?after=0 HTTP/1.1\r\n{token}{upgrade}{key}".encode()
    return reader if number % 40 == 39 else kinds[number % len(kinds)]


def _closed(connection: socket.socket) -> bool:
    """Whether the server closes it; what it says before that is read."""
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def test_i3_with_400_hostile_connections_and_256_descriptors_every_step_ends(serve: Serve) -> None:
    with _few_descriptors(256):
        server = serve()
    with ExitStack() as stack:
        held = []
        for number in range(HOSTILE):
            connection = stack.enter_context(_connect(server))
            with suppress(ConnectionError):  # closed already, to make room
                connection.sendall(_hostile(server, number))
            held.append(connection)
        found = [server.api.start(PARALLEL, wait=120) for _ in range(3)]
        assert [execution["status"] for execution in found] == ["completed"] * 3
        # Those that were not let in are closed by the server, without anything from us.
        assert all(_closed(one) for number, one in enumerate(held) if number % 40 != 39)
    assert server.api.get("/health").status == 200
    assert not [line for line in server.log if line["level"] == "error"]
    assert server.stop().code == 0


REQUESTS: dict[str, tuple[str, int]] = {
    "sound": ("POST /api/executions HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}", 401),
    "two lengths": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}", 400),
    "lengths in a list": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2, 3\r\n\r\n{{}}", 400),
    "length and chunks": (
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunks twice": (
        "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "another encoding": ("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "chunks of HTTP/1.0": ("POST / HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "continued header": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\n\r\n", 400),
    "line feeds alone": ("GET / HTTP/1.1\nHost: {host}\n\n", 400),
    "one line feed alone": ("GET / HTTP/1.1\r\nHost: {host}\nX: a\r\n\r\n", 400),
    "carriage return alone": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n", 400),
    "NUL": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n", 400),
    "space before the colon": ("GET / HTTP/1.1\r\nHost : {host}\r\n\r\n", 400),
    "two hosts": ("GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil.test\r\n\r\n", 400),
    "no host": ("GET / HTTP/1.1\r\n\r\n", 400),
    "whole address": ("GET http://{host}/health HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "authority": ("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "asterisk": ("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "endless headers": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: " + "a" * 70_000, 400),
    "upgrade with a body": (
        "GET /api/stream HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Content-Length: 5\r\n\r\nhello",
        400,
    ),
    "no HTTP": ("\x16\x03\x01 hello\r\n\r\n", 400),
}


def test_i3_ambiguous_requests_are_refused_and_their_connections_closed(server: Server) -> None:
    host = urlsplit(server.address).netloc
    for what, (request, status) in REQUESTS.items():
        with _connect(server) as connection:
            sent = request.format(host=host).encode("latin-1")
            with suppress(ConnectionError):  # a long one is refused while it is still being sent
                # What a smuggler would want to be taken for a request of somebody else.
                connection.sendall(sent + f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = b""
            with suppress(ConnectionError):
                while piece := connection.recv(65536):
                    answer += piece
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (what, answer[:200])
        assert b'"ok":true' not in answer, f"{what}: the rest was taken for another request"
        told: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert told["status"] == status, what


def test_i3_a_look_at_the_login_link_does_not_use_it_up(server: Server) -> None:
    assert server.told["login"] is None, "stdout is a file that others can read"
    link = _link(server)
    assert server.api("HEAD", link).status == 405
    assert server.api("GET", link, headers={"Sec-Purpose": "prefetch"}).status == 405
    reply = server.api("GET", link)
    assert reply.status == 200
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert "SameSite=strict" in reply.headers["set-cookie"]
    assert server.api("GET", link).status == 403, "it works once"


def _link(server: Server) -> str:
    parts = urlsplit(Path(server.told["login_file"]).read_text().strip())
    return f"{parts.path}?{parts.query}"


class Hosted:
    """An application behind the protocol, in this process: every request is let in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.release = asyncio.Event()
        """Ends requests of `/held`."""
        self.asked: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope[LET_IN] = True
        self.asked.append(scope["path"])
        if scope["path"] == "/held":
            await self.release.wait()
        while scope["path"] == "/body" and (await receive()).get("more_body"):
            pass
        body = b"x" * 64_000_000 if scope["path"] == "/much" else scope["path"].encode()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    async def ask(self, *lines: str, body: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1000)
        writer.write(("\r\n".join((*lines, "Host: localhost", "", "")) + body).encode())
        return reader, writer


@asynccontextmanager
async def _hosted(registry: Connections) -> AsyncIterator[Hosted]:
    listening = socket.create_server(("127.0.0.1", 0))
    app = Hosted(listening.getsockname()[1])
    config = uvicorn.Config(app, http=limited(registry), lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield app
    finally:
        app.release.set()
        server.should_exit = True
        await serving


async def test_i3_requests_on_one_connection_are_answered_in_order() -> None:
    async with _hosted(Connections()) as app:
        more = "GET /two HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /body HTTP/1.1\r\nHost: localhost\r\n"
        reader, writer = await app.ask("GET /one HTTP/1.1", body=f"{more}Content-Length: 3\r\n\r\nabc")
        for path in (b"/one", b"/two", b"/body"):
            assert await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(path)) == path
        writer.close()


async def test_i3_a_slow_body_and_an_unread_answer_are_closed_for_clients_that_were_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Connections()
    async with _hosted(registry) as app:
        reader, writer = await app.ask("POST /body HTTP/1.1", "Content-Length: 10", body="half")
        await wait_until_async(lambda: app.asked == ["/body"])
        skip_time(HEADER_SECONDS)
        await settled()
        assert len(registry) == 1, "whoever is let in has longer"
        skip_time(BODY_SECONDS - HEADER_SECONDS)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        # From here on by the clock, which nobody else waits for: the answer has to have filled all buffers before.
        monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
        _unread, unreading = await app.ask("GET /much HTTP/1.1")
        await wait_until_async(lambda: "/much" in app.asked and len(registry) == 0, "both are closed")
        for one in (writer, unreading):
            one.close()


async def test_i3_with_all_connections_let_in_another_is_told_so_and_one_that_is_not_makes_room() -> None:
    registry = Connections(most=2)
    async with _hosted(registry) as app:
        held = [await app.ask("GET /held HTTP/1.1") for _ in range(2)]
        await wait_until_async(lambda: app.asked == ["/held"] * 2)
        reader, _writer = await app.ask("GET /one HTTP/1.1")
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        held[0][1].close()
        await wait_until_async(lambda: len(registry) == 1)
        silent, _ = await asyncio.open_connection("127.0.0.1", app.port)
        await wait_until_async(lambda: len(registry) == 2)
        reader, writer = await app.ask("GET /one HTTP/1.1")
        with suppress(ConnectionError):
            assert await silent.read() == b"", "it made room"
        assert (await reader.readuntil(b"/one")).startswith(b"HTTP/1.1 200 ")
        writer.close()
