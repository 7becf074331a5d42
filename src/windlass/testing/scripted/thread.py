"""A thread with an event loop that serves connections on loopback until it is told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from windlass.testing.scripted.http import MOST_HEAD

__all__ = ["Serving"]

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Serving:
    """Listens from the moment it is made."""

    def __init__(self, handler: Handler, port: int = 0) -> None:
        self.port = port
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        try:
            # Only loopback: no other machine ever gets an answer.
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._connected, "127.0.0.1", port, limit=MOST_HEAD)
            )
        except OSError:
            self._loop.close()
            raise
        self.port = int(self._server.sockets[0].getsockname()[1])
        # A daemon: a test that forgets to stop it must not keep the interpreter.
        self._thread = threading.Thread(target=self._run, name=f"scripted-model-{self.port}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Break what is open, free the port, end the thread. Asked again, it does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        open_ones = dict(self._connections)
        for task, writer in open_ones.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*open_ones, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def handle() -> None:
            await self._handler(reader, writer)

        task = self._loop.create_task(handle())
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
