"""The other end of a request, for answers that only a person may give (C6). The address is the socket's own."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.process import Peer, peer

__all__ = ["Peers", "peer_of"]


def peer_of(scope: Any) -> Peer | None:
    client, server = scope.get("client"), scope.get("server")
    return Peer(client[0], client[1], server[1] or 0) if client and server else None


class Peers:
    """Notes the peer of each request where the engine finds it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            peer.set(peer_of(scope))
        await self._app(scope, receive, send)
