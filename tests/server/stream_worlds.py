"""What the tests of the stream share: a real uvicorn with nothing but the stream, and clients for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from waiting import PATIENCE, wait_until_async
from websockets.asyncio.client import ClientConnection, connect

from windlass import Call, Engine, Plan, Step, tool
from windlass.server.connections import StreamProtocol
from windlass.server.feed import Feed
from windlass.server.stream import stream_routes


@tool
async def quick(call: Call) -> str:
    """Is done at once."""
    return f"{call.step} is done"


def chain(length: int, name: str = "chain") -> Plan:
    steps = [Step(id=f"s{n}", tool="quick", needs=[f"s{n - 1}"] if n else []) for n in range(length)]
    return Plan(name=name, steps=steps)


class Host:
    """A server of the stream on a port of its own."""

    def __init__(self, engine: Engine, feed: Feed, server: uvicorn.Server, port: int) -> None:
        self.engine = engine
        self.feed = feed
        self.server = server
        self.port = port

    def url(self, path: str = "/api/stream") -> str:
        return f"ws://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def hosted(
    engine: Engine,
    *,
    port: int = 0,
    heartbeat: float = 15.0,
    ws: Any = StreamProtocol,
    deflate: bool = False,
    **limits: Any,
) -> AsyncIterator[Host]:
    """The stream of an engine's home, until the block ends; then the server stops as it does on SIGTERM."""
    feed = Feed(engine, **limits)
    await feed.start()
    app = FastAPI()
    app.include_router(stream_routes(feed, heartbeat))
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, ws=ws, ws_per_message_deflate=deflate, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await wait_until_async(lambda: server.started, "the server listens")
        yield Host(engine, feed, server, listening.getsockname()[1])
    finally:
        server.should_exit = True
        await serving
        await feed.close()


async def events(connection: ClientConnection, *, until: str = "", count: int = 0) -> list[dict[str, Any]]:
    """Messages without heartbeats, until one of a type or so many have come."""
    got: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while not count or len(got) < count:
            message = json.loads(await connection.recv())
            if message["type"] == "heartbeat":
                continue
            got.append(message)
            if message["type"] == until:
                return got
    return got


async def heartbeat(connection: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            message: dict[str, Any] = json.loads(await connection.recv())
            if message["type"] == "heartbeat":
                return message


def listen(url: str, compression: str | None = None) -> connect:
    """A client that closes nothing by itself: none that the machine, or a test, holds up for a while."""
    return connect(url, compression=compression, max_size=None, proxy=None, open_timeout=PATIENCE, ping_interval=None)


async def journal(engine: Engine, execution: str | None = None) -> list[tuple[int, str, int]]:
    """Where every event stands, read past the feed."""
    return [entry[:3] for entry in await engine.journal.read(execution)]


def places(got: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    return [(message["position"], message["execution"], message["seq"]) for message in got]
