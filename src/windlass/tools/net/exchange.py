"""A request and its answer, along redirects: each hop is decided about anew, and carries no more than it must.

To another host go only headers that are no secret. From https to http goes nothing that was meant for one host alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from windlass.errors import Category, ToolError
from windlass.plan.quantities import MB
from windlass.ports import Meter
from windlass.tools.net.failures import in_words
from windlass.tools.net.guard import AddressRefused
from windlass.tools.net.names import Address
from windlass.tools.net.transport import SharedConnections

if TYPE_CHECKING:
    import httpx2

__all__ = ["Ask", "HttpAnswer", "exchange"]

MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRAVELS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "range", "user-agent"})
"""Headers that another host gets to see."""


@dataclass(frozen=True, slots=True)
class Ask:
    method: str
    url: str
    headers: dict[str, str]
    """In lower case."""
    body: bytes | None = None
    follow: bool = True
    most: int = 64 * MB
    """Bytes that the network may bring, compressed or not: then it is `TooMuch`."""

    @property
    def confidential(self) -> bool:
        """True if it holds something that is meant for its host alone."""
        return self.body is not None or any(name not in _TRAVELS for name in self.headers)

    def onward(self, status: int, old: Address, new: Address) -> Ask:
        """The request for the next hop."""
        if old.scheme == "https" and new.scheme == "http" and self.confidential:
            raise AddressRefused(
                f"{old.shown} redirects from https to http: the request is not repeated unencrypted",
                "request the new address directly, without credentials",
            )
        method, headers, body = self.method, self.headers, self.body
        if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
            headers = {name: value for name, value in headers.items() if name != "content-type"}
        if old.origin != new.origin:
            headers = {name: value for name, value in headers.items() if name in _TRAVELS}
        return replace(self, method=method, url=new.url, headers=headers, body=body)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    response: httpx2.Response
    """Its body is still to be read."""
    address: Address
    """The address that answered, after all redirects."""
    redirects: tuple[str, ...]
    """The addresses that led there, the first one first."""


@asynccontextmanager
async def exchange(line: SharedConnections, ask: Ask, meter: Meter) -> AsyncIterator[HttpAnswer]:
    """Send it and give the answer's head; the body is read inside, and the connection is free afterwards.

    The meter counts every hop, as far as it came.
    """
    client = line.client()
    from windlass.tools.net.wire import coming_in, going_out

    address = line.guard.read(ask.url)
    redirects: list[str] = []
    while True:
        what = f"{ask.method} {address.shown}" + (" (redirected)" if redirects else "")
        with in_words(what):
            request = client.build_request(
                ask.method, address.url, headers=ask.headers, content=ask.body, extensions={"most": ask.most}
            )
            going_out(request, meter)
            response = await client.send(request, stream=True)
            coming_in(response, meter)
            try:
                location = response.headers.get("location") if response.status_code in _REDIRECTS else None
                if location is None or not ask.follow:
                    yield HttpAnswer(response, address, tuple(redirects))
                    return
            finally:
                await response.aclose()
        if len(redirects) == MOST_REDIRECTS:
            raise ToolError(
                f"{what}: more than {MOST_REDIRECTS} redirects",
                category=Category.LOGIC,
                advice=("request the final address directly",),
            )
        redirects.append(address.url)
        following = line.guard.read(_joined(address, location))
        ask = ask.onward(response.status_code, address, following)
        address = following


def _joined(address: Address, location: str) -> str:
    try:
        return urljoin(address.url, location)
    except ValueError as error:
        raise ToolError(
            f"{address.shown} redirects to an address that cannot be read: {error}", category=Category.LOGIC
        ) from error
