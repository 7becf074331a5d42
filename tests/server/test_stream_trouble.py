"""Slow clients, cut lines, stalls and restarts: nobody else notices, and nothing is lost (I3)."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import pytest
from stream_worlds import chain, events, heartbeat, hosted, journal, listen, places, quick
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from waiting import PATIENCE, skip_time, wait_until_async
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

import windlass
from windlass import Call, Engine, Plan, Step, tool
from windlass.client import Client
from windlass.server.connections import StreamProtocol

if TYPE_CHECKING:
    from conftest import Project

HOSTS = pytest.mark.parametrize("ws", [StreamProtocol, WebSocketsSansIOProtocol], ids=["written directly", "sent"])


@tool
async def wordy(call: Call) -> str:
    """Says a lot."""
    return call.step.ljust(20_000, ".")


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with windlass.open(tools=[quick, wordy]) as engine:
        yield engine


def wordy_plan(steps: int) -> Plan:
    return Plan(name="wordy", steps=[Step(id=f"s{n}", tool="wordy") for n in range(steps)])


async def silent(url: str) -> socket.socket:
    """A client that says hello and never reads a byte after that."""
    host, _, path = url.removeprefix("ws://").partition("/")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", int(host.partition(":")[2])))
    request = (
        f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await loop.sock_sendall(connection, request.encode())
    return connection


async def until_closed(connection: ClientConnection, got: list[dict[str, Any]]) -> None:
    while True:
        got += await events(connection, count=1)


# ── slow clients ─────────────────────────────────────────────────────────────────────────────────────


@HOSTS
async def test_i3_a_client_that_does_not_read_is_cut_off_and_others_and_the_engine_go_on(
    engine: Engine, ws: Any
) -> None:
    async with hosted(engine, ws=ws, stall=60.0) as host, listen(host.url("/api/stream?after=0")) as good:
        stuck = [await silent(host.url("/api/stream?after=0")) for _ in range(5)]
        await wait_until_async(lambda: host.feed.clients == 6, "all are there")
        execution = await engine.start(wordy_plan(200))
        reading = asyncio.create_task(events(good, until="execution.finished"))
        assert (await execution.wait()).status == "completed"
        got = await reading
        skip_time(61.0)
        await wait_until_async(lambda: host.feed.clients == 1, "those who do not read are gone")
        for connection in stuck:
            connection.close()
    assert places(got) == await journal(engine)


async def test_i3_a_slow_client_is_told_4408_and_misses_nothing_when_it_comes_back(engine: Engine) -> None:
    async with hosted(engine, stall=30.0, most_events=50) as host:
        async with listen(host.url("/api/stream?after=0")) as slow:
            await heartbeat(slow)
            slow.transport.pause_reading()  # from here on it takes nothing
            execution = await engine.start(wordy_plan(300))
            await execution.wait()
            await wait_until_async(lambda: host.feed.clients == 0, "it is cut off")
            slow.transport.resume_reading()
            got: list[dict[str, Any]] = []
            with pytest.raises(ConnectionClosed) as cut:
                await until_closed(slow, got)
        assert cut.value.rcvd is not None
        assert cut.value.rcvd.code == 4408
        assert "after=" in cut.value.rcvd.reason
        expected = await journal(engine)
        assert 0 < len(got) < len(expected)
        async with listen(host.url(f"/api/stream?after={got[-1]['position']}")) as again:
            got += await events(again, count=len(expected) - len(got))
    assert places(got) == expected


async def test_i3_a_client_that_never_takes_its_close_frame_is_dropped_all_the_same(engine: Engine) -> None:
    """Its connection must not be held until TCP gives up."""
    async with hosted(engine, stall=0.1) as host:
        connection = await silent(host.url("/api/stream?after=0"))
        await wait_until_async(lambda: host.feed.clients == 1)
        await (await engine.start(wordy_plan(200))).wait()
        await wait_until_async(lambda: not host.server.server_state.connections, "its connection is gone")
        connection.close()


async def test_i3_a_server_stops_though_a_client_does_not_read(engine: Engine) -> None:
    async with hosted(engine, stall=60.0) as host:
        connection = await silent(host.url("/api/stream?after=0"))
        await wait_until_async(lambda: host.feed.clients == 1)
        await (await engine.start(wordy_plan(200))).wait()
    connection.close()


async def test_i3_a_long_past_is_sent_at_the_clients_own_pace(engine: Engine) -> None:
    """What is past is not in the ring, and whoever reads it is not too slow for it."""
    await (await engine.start(wordy_plan(400))).wait()
    expected = await journal(engine)
    async with hosted(engine, most_events=20) as host, listen(host.url("/api/stream?after=0")) as client:
        assert places(await events(client, count=len(expected))) == expected


# ── the network ──────────────────────────────────────────────────────────────────────────────────────

Fault = Literal["", "reset", "drop", "stall"]


class Network:
    """A line between clients and the server, on which things go wrong when told to."""

    def __init__(self) -> None:
        self.port = 0
        self.cuts = 0
        self._lines: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._down = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    @asynccontextmanager
    async def between(self, port: int) -> AsyncIterator[Network]:
        self._target = port
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._flowing.set()
            self._abort()
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._lines.append((writer, far_writer))
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(700):  # pieces that end in the middle of frames
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()

    def _abort(self) -> None:
        for line in self._lines:
            for writer in line:
                writer.transport.abort()
        self._lines.clear()

    def fail(self, how: Fault) -> None:
        self.cuts += 1
        if how == "stall":
            self._flowing.clear()
        else:
            self._down = how == "drop"
            self._abort()

    def heal(self) -> None:
        self._down = False
        if not self._flowing.is_set():
            self._abort()  # what stood still is not what goes on
            self._flowing.set()


@pytest.mark.parametrize("how", ["reset", "drop", "stall"])
async def test_i3_a_line_that_fails_again_and_again_loses_and_doubles_nothing(engine: Engine, how: Fault) -> None:
    network = Network()
    async with hosted(engine) as host, network.between(host.port):
        client = Client(f"http://127.0.0.1:{network.port}", "none-needed", silence=0.5)
        started = [await engine.start(chain(40, f"plan{n}")) for n in range(3)]
        got: list[dict[str, Any]] = []
        one: list[dict[str, Any]] = []

        async def all_of_it() -> None:
            async for event in client.stream(after=0):
                got.append(event)
                if len(got) % 60 == 0 and network.cuts < 5:
                    network.fail(how)
                    asyncio.get_running_loop().call_later(0.2, network.heal)
                if sum(e["type"] == "execution.finished" for e in got) == 3:
                    return

        async def one_of_them() -> None:
            async for event in client.events(started[1].id):
                one.append(event)

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(all_of_it(), one_of_them())
        await asyncio.gather(*(execution.wait() for execution in started))
    assert network.cuts >= 4
    assert places(got) == await journal(engine)
    assert places(one) == await journal(engine, started[1].id)


async def test_i3_many_clients_come_back_at_once_after_a_restart_and_miss_nothing(engine: Engine, port: int) -> None:
    async with hosted(engine, port=port):
        clients = [Client(f"http://127.0.0.1:{port}", "none-needed") for _ in range(30)]
        got: list[list[int]] = [[] for _ in clients]

        async def follow(number: int) -> None:
            async for event in clients[number].stream(after=0):
                got[number].append(event["position"])
                if event["type"] == "execution.finished" and event["execution"] == last:
                    return

        last = await engine.create(chain(10))
        following = [asyncio.create_task(follow(number)) for number in range(len(clients))]
        await (await engine.start(chain(20))).wait()
        await wait_until_async(lambda: all(got), "everybody has heard something")
    await (await engine.start(chain(20))).wait()  # while there is no server
    async with hosted(engine, port=port):
        await (await engine.resume(last)).wait()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*following)
    expected = [position for position, _e, _s in await journal(engine)]
    assert got == [expected] * len(clients)


# ── the journal ──────────────────────────────────────────────────────────────────────────────────────


@HOSTS
async def test_d9_a_damaged_execution_stops_its_own_stream_and_no_other_and_what_heals_goes_on(
    engine: Engine, project: Project, ws: Any
) -> None:
    async with hosted(engine, ws=ws) as host, listen(host.url("/api/stream?after=0")) as client:
        first = await engine.start(chain(1))
        await events(client, until="execution.finished")
        await first.wait()
        second = await engine.create(chain(1))  # another process could have written it, and of a newer version
        good = damage(project, second, b'{"type":"from.the.future","at":1.0}')
        own = host.url(f"/api/executions/{second}/stream?after=0")
        async with listen(own) as late:
            with pytest.raises(ConnectionClosed) as closed:
                await until_closed(late, [])
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, second in closed.value.rcvd.reason) == (1011, True)
        third = await engine.start(chain(1))
        more = await events(client, until="execution.finished")
        assert {event["execution"] for event in more} - {second} == {third.id}
        damage(project, second, good)
        await (await engine.resume(second)).wait()
        async with listen(own) as healed:
            assert (await events(healed, until="execution.finished"))[0]["seq"] == 1


def damage(project: Project, execution: str, body: bytes) -> bytes:
    """Replace an execution's first event; gives what it was."""
    db = sqlite3.connect(project.home / "windlass.db", timeout=30)
    try:
        where = "execution = (SELECT key FROM executions WHERE id = ?) AND seq = 1"
        (was,) = db.execute(f"SELECT body FROM events WHERE {where}", (execution,)).fetchone()
        db.execute(f"UPDATE events SET body = ? WHERE {where}", (body, execution))
        db.commit()
        return bytes(was)
    finally:
        db.close()
