"""Servers on loopback that answer as told, honest or hostile, and a resolver that says what a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from windlass.ports import Call

__all__ = ["Asked", "Names", "Script", "Server", "call_in", "reply", "serve"]


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


Script = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
"""Answers by writing bytes itself; the connection is closed when it returns."""
Route = bytes | Callable[[Asked], bytes] | Script


def reply(body: bytes | str = b"", status: int = 200, **headers: str) -> bytes:
    """A proper answer; `content_type="…"` becomes a header."""
    data = body.encode() if isinstance(body, str) else body
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in given.items())]
    if "content-length" not in given and "transfer-encoding" not in given and status != 304:
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


@dataclass
class Server:
    routes: Mapping[str, Route]
    host: str = "127.0.0.1"
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    scheme: str = "http"
    greeting: bytes = b""

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(self.greeting)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                route = self.routes.get(asked.path) or self.routes.get("*") or reply("not here", 404)
                if isinstance(route, bytes):
                    writer.write(route)
                elif asyncio.iscoroutinefunction(route):
                    await route(asked, writer)
                    break
                else:
                    writer.write(route(asked))  # type: ignore[call-arg]
                await writer.drain()
        writer.transport.abort() if writer.transport.is_closing() else writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


@asynccontextmanager
async def serve(
    routes: Mapping[str, Route],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    greeting: bytes = b"",
) -> AsyncIterator[Server]:
    """A server for the time of a test; whoever is still connected then is thrown out."""
    server = Server(routes, host, scheme="https" if tls else "http", greeting=greeting)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.answer(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(connected, host, port, ssl=tls, limit=1 << 20)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Names:
    """A resolver that gives the next of several answers each time, and stays with the last one."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._answers:
            raise OSError(-2, "Name or service not known")
        given = self._answers[host]
        return given.pop(0) if len(given) > 1 else given[0]


def call_in(folder: Any, env: Mapping[str, str] | None = None, said: list[str] | None = None) -> Call:
    """An attempt in a folder of its own."""
    (folder / "work").mkdir(exist_ok=True)
    return Call(
        execution="e-1",
        step="a",
        attempt=1,
        workdir=folder / "work",
        folder=folder / "home" / "executions" / "e-1",
        processes=None,  # type: ignore[arg-type]  # nothing here starts any
        env=env or {},
        output=lambda stream, text: said.append(text) if said is not None else None,
    )
