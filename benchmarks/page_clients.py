"""Pages without a browser, in a process of their own: what the page of an execution asks for, as often as it does.

python -m benchmarks.page_clients ADDRESS COOKIE EXECUTION COUNT [CORE]

Each has its WebSocket, reads it and throws it away, and asks for what `dashboard/src/live/use_execution.ts` and
`dashboard/src/ui/home.ts` ask for while an execution runs. Prints `ready` when all have what a page begins with; when
its stdin is closed, the number of requests by path.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections import Counter
from urllib.parse import urlsplit

FIGURES_S = 2.0
"""`LATER` of the page: between an answer with the figures and the next question."""
HEALTH_S = 10.0
"""`LOOK_EVERY` of the page."""
UPGRADE = "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"


class PageClient:
    def __init__(self, address: str, cookie: str, execution: str) -> None:
        self._host = urlsplit(address).netloc
        self._headers = f"Host: {self._host}\r\nCookie: {cookie}\r\nAccept: */*\r\n"
        self._execution = execution
        self._seq = 0
        self.ready = asyncio.Event()
        self.asked: Counter[str] = Counter()
        self.received = 0

    async def run(self) -> None:
        reader, writer = await self._connect()
        for path in (f"/executions/{self._execution}", "/api/health", self._summary):
            await self._ask(reader, writer, path)
        self._seq = json.loads(await self._ask(reader, writer, self._path("steps")))["seq"]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._figures(reader, writer))
            tasks.create_task(self._health())

    async def _listen(self) -> None:
        reader, writer = await self._connect()
        origin = f"Origin: http://{self._host}\r\nConnection: Upgrade\r\n"
        writer.write(
            f"GET {self._path('stream')}?after={self._seq} HTTP/1.1\r\n{self._headers}{origin}{UPGRADE}\r\n".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in answer, answer
        self.ready.set()
        while piece := await reader.read(1 << 18):
            self.received += len(piece)

    async def _figures(self, reader: StreamReader, writer: StreamWriter) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(FIGURES_S, 3 * took))
            began = time.perf_counter()
            await self._ask(reader, writer, self._summary)
            took = time.perf_counter() - began

    async def _health(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_S)
            reader, writer = await self._connect()  # the server closes connections that are idle for 5 s
            await self._ask(reader, writer, "/api/health")
            writer.close()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        host, _, port = self._host.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def _path(self, what: str) -> str:
        return f"/api/executions/{self._execution}/{what}"

    @property
    def _summary(self) -> str:
        return self._path("summary") + "?seen=0"

    async def _ask(self, reader: StreamReader, writer: StreamWriter, path: str) -> bytes:
        writer.write(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200"), head
        length = next(line for line in head.splitlines() if line.startswith("content-length:"))
        body = await reader.readexactly(int(length.partition(":")[2]))
        self.asked[path] += 1
        return body


async def main(address: str, cookie: str, execution: str, count: str, core: str = "") -> None:
    if core:
        os.sched_setaffinity(0, {int(core)})
    clients = [PageClient(address, cookie, execution) for _ in range(int(count))]
    running = []
    for client in clients:
        running.append(asyncio.create_task(client.run()))
        await client.ready.wait()
    print("ready", flush=True)
    before = sum((client.asked for client in clients), Counter())
    await asyncio.to_thread(sys.stdin.read)
    asked = sum((client.asked for client in clients), Counter())
    asked.subtract(before)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    print(json.dumps(+asked), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
