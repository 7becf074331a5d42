"""A client that reaches what the guard allows, and the line that several tools share."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from windlass.errors import Category, ToolError
from windlass.ports import Health
from windlass.tools.net.guard import AddressGuard
from windlass.version import __version__

if TYPE_CHECKING:
    import httpx2

__all__ = ["SharedConnections", "installed", "open_client"]

INSTALL = "pip install 'windlass[web]'"
CONNECTIONS = 64
PATIENCE = 60.0
"""Seconds without a sign of life; how long all of it may take is for the tool to say."""


def open_client(guard: AddressGuard, *, tls: ssl.SSLContext | None = None) -> httpx2.AsyncClient:
    """A client that connects to nothing that the guard has not checked. Close it when done.

    It keeps no cookies, uses no proxies and no netrc of the environment, and follows no redirect by itself: see
    `exchange`.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    try:
        import httpx2

        from windlass.tools.net.wire import GuardedTransport
    except ImportError as error:
        raise ToolError(
            f"the web cannot be reached: {error.name} is not installed",
            category=Category.CONFIGURATION,
            advice=(INSTALL,),
        ) from error
    return httpx2.AsyncClient(
        transport=GuardedTransport(guard, tls, CONNECTIONS),
        headers={"User-Agent": f"windlass/{__version__}", "Accept-Encoding": "gzip, deflate"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=PATIENCE,
        trust_env=False,
        follow_redirects=False,
    )


async def installed() -> Health:
    """The health of the client library; no network is needed for that."""
    from importlib.util import find_spec

    if find_spec("httpx2") is None:
        return Health(False, "httpx2 is not installed", INSTALL)
    return Health(True)


class SharedConnections:
    """The connections that the tools of an engine share: opened with the first use, kept for the next ones."""

    def __init__(self, guard: AddressGuard, *, tls: ssl.SSLContext | None = None) -> None:
        self.guard = guard
        self._tls = tls
        self._open: tuple[asyncio.AbstractEventLoop, httpx2.AsyncClient] | None = None

    def client(self) -> httpx2.AsyncClient:
        # Connections belong to the loop that opened them; those of a loop that has ended are gone with it.
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop:
            self._open = (loop, open_client(self.guard, tls=self._tls))
        return self._open[1]

    async def close(self) -> None:
        """Let go of all connections; a later use opens new ones."""
        kept, self._open = self._open, None
        if kept is not None and kept[0] is asyncio.get_running_loop():
            await kept[1].aclose()
