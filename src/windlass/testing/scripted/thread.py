"""A thread with an event loop that serves connections on loopback until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable

from windlass.testing.scripted.http import MOST_HEAD

__all__ = ["Serving"]

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Serving:
    """Listens from the moment it is made."""

    def __init__(self, handler: Handler, port: int = 0) -> None:
        self._handler = handler
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        # Bound and listening here, so that a port that is taken is the caller's error, and the address is known and
        # good at once. Only loopback: no other machine ever gets an answer.
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._told_to_stop = asyncio.Event()
        # A daemon: a test that forgets to stop it must not keep the interpreter.
        self._thread = threading.Thread(target=self._run, name=f"scripted-model-{self.port}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Break what is open, free the port, end the thread. Asked again, it does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._told_to_stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=MOST_HEAD)
        await self._told_to_stop.wait()
        server.close()
        open_ones = dict(self._connections)
        for task, writer in open_ones.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*open_ones, return_exceptions=True)
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def handle() -> None:
            await self._handler(reader, writer)

        task = self._loop.create_task(handle())
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
