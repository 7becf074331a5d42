"""The SOCKS5 proxy of one execution's pages, on loopback: it asks the guard about every connection.

The browser is set to reach everything through it, by name: pages, their parts, redirects, websockets, workers. It
resolves nothing itself, so a name is looked up here, once for each connection, and the checked address is the one
connected to. The port of the browser's own controls and the proxies themselves are closed for pages, also against the
settings.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import suppress

from windlass.errors import Category, ToolError
from windlass.tools.net.guard import AddressGuard, AddressRefused
from windlass.tools.net.names import host_of

__all__ = ["SocksProxy"]

CONNECTIONS = 256
"""Open at a time; more are turned away."""
GREETING = 10.0
"""Seconds in which a connection has to say where it wants to go."""
EACH_ADDRESS = 10.0
KEPT = 200
"""Reasons that are remembered."""
_CHUNK = 64 * 1024
_DONE, _NOT_ALLOWED, _UNREACHABLE = 0, 2, 4


class SocksProxy:
    def __init__(self, guard: AddressGuard, ours: set[int]) -> None:
        """`ours`: ports of this machine that belong to us; the proxy adds its own."""
        self._guard, self._ours = guard, ours
        self._reasons: dict[tuple[str, int], ToolError] = {}
        self._news: dict[str, None] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._received = self._sent = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ours.add(self.port)

    def reason(self, host: str, port: int) -> ToolError | None:
        """The error of the last connection to there, if it was not made."""
        return self._reasons.get((host, port))

    @property
    def last(self) -> ToolError | None:
        """The error of the latest connection that was not made."""
        return next(reversed(self._reasons.values()), None)

    def news(self) -> list[str]:
        """The refusals since the last call."""
        told, self._news = list(self._news), {}
        return told

    def traffic(self) -> tuple[int, int]:
        """Bytes that came in and that went out since this was asked last."""
        since = self._received, self._sent
        self._received = self._sent = 0
        return since

    def _came(self, count: int) -> None:
        self._received += count

    def _went(self, count: int) -> None:
        self._sent += count

    async def close(self) -> None:
        self._ours.discard(self.port)
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):  # either side may leave at any time
                async with asyncio.timeout(GREETING):
                    host, port = await _asked_for(reader, writer)
                far = await self._reach(host, port, writer)
                if far is not None:
                    await self._join(reader, writer, *far)
        finally:
            writer.transport.abort()

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Both directions until both have ended, or one has broken."""
        both = [
            asyncio.ensure_future(_copy(reader, far_writer, self._went)),
            asyncio.ensure_future(_copy(far_reader, writer, self._came)),
        ]
        try:
            await asyncio.gather(*both)
        finally:
            for copying in both:
                copying.cancel()
            far_writer.transport.abort()

    async def _reach(
        self, host: str, port: int, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            far = await self._connect(host, port)
        except ToolError as error:
            self._remember(host, port, error)
            await _answer(writer, _NOT_ALLOWED if isinstance(error, AddressRefused) else _UNREACHABLE)
            return None
        self._reasons.pop((host, port), None)
        try:
            await _answer(writer, _DONE)
        except BaseException:
            far[1].transport.abort()
            raise
        return far

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            host = host_of(f"[{host}]" if ":" in host else host)
        except ValueError as error:
            raise ToolError(str(error), category=Category.LOGIC) from None
        addresses = await self._guard.addresses(host, port)
        if port in self._ours and any(_is_here(address) for address in addresses):
            raise AddressRefused(f"Blocked: {host}:{port} is the browser's own port")
        failed = "no address"
        for address in addresses:
            try:
                async with asyncio.timeout(EACH_ADDRESS):
                    return await asyncio.open_connection(address, port)
            except TimeoutError:
                failed = "no answer"
            except OSError as error:
                failed = (error.strerror or "it failed").lower()
        raise ToolError(f"{host}:{port} cannot be connected to: {failed}", category=Category.TRANSIENT)

    def _remember(self, host: str, port: int, error: ToolError) -> None:
        if isinstance(error, AddressRefused) and len(self._news) < KEPT:
            self._news[str(error)] = None
        self._reasons.pop((host, port), None)
        if len(self._reasons) >= KEPT:
            del self._reasons[next(iter(self._reasons))]
        self._reasons[(host, port)] = error


async def _asked_for(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """The host and port that SOCKS5 asks for (RFC 1928), without a password: only loopback gets here."""
    version, methods = await reader.readexactly(2)
    offered = await reader.readexactly(methods)
    if version != 5 or 0 not in offered:
        raise ValueError("not a SOCKS5 client")
    writer.write(b"\x05\x00")
    version, command, _, kind = await reader.readexactly(4)
    if version != 5 or command != 1:
        raise ValueError("not a request to connect")
    if kind == 1:
        host = str(ipaddress.IPv4Address(await reader.readexactly(4)))
    elif kind == 4:
        host = str(ipaddress.IPv6Address(await reader.readexactly(16)))
    elif kind == 3:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
    else:
        raise ValueError("not a kind of address")
    return host, int.from_bytes(await reader.readexactly(2), "big")


async def _answer(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0)))
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    while data := await reader.read(_CHUNK):
        count(len(data))
        writer.write(data)
        await writer.drain()
    await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _is_here(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return ip.is_loopback or ip.is_unspecified
