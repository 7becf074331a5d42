"""A network that a test can cut: passes bytes on to a server, until it is cut, and then nothing gets through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from ports import KeptPort

__all__ = ["CutProxy"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CutProxy:
    """Takes connections at a port or a socket; in a thread of its own."""

    def __init__(self, reach: Callable[[], Awaitable[Streams]], socket: Path | None = None) -> None:
        """`reach` connects to the server. Without a `socket`, it listens at a port."""
        self._reach, self._socket = reach, socket
        self._kept = KeptPort() if socket is None else None
        self._talks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()

    @property
    def port(self) -> int:
        assert self._kept is not None
        return self._kept.number

    def cut(self) -> None:
        """Let nothing through. Connections stay open and silent, as when a cable is pulled."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def mend(self, *, drop: bool) -> None:
        """Let everything through; with `drop`, the connections of before are reset."""

        def mended() -> None:
            if drop:
                for talk in self._talks:
                    talk.cancel()
            self._open.set()

        self._loop.call_soon_threadsafe(mended)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._kept is not None:
            self._kept.close()

    async def _serve(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        if self._socket is not None:
            self._server = await asyncio.start_unix_server(self._met, str(self._socket))
        else:
            self._server = await asyncio.start_server(self._met, "127.0.0.1", self.port)

    async def _end(self) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            await self._open.wait()
            far_reader, far_writer = await self._reach()
            ends.append(far_writer)
            both = {
                asyncio.ensure_future(self._carry(reader, far_writer)),
                asyncio.ensure_future(self._carry(far_reader, writer)),
            }
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            return  # the server is not there
        finally:
            for end in ends:
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
