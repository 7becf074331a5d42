"""The door of the server: every request and socket passes here before anything else sees it (TRUST: access).

| what | answer |
|---|---|
| a Host that is not ours (DNS rebinding) | 421 |
| an Origin that is not our own: foreign, `null`, a look-alike | 403, whatever else it brings |
| no token and no session | 401 |
| a session, or one of the pages, on something that changes, without our own Origin | 403 |
| a body that is too long | 413 |

A webhook checks its own requests, by their signature; host and origin are checked here, for these, too.

It reads headers and counts bytes; it never reads a body and never decides about executions.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.engine.hooks import HOOKS
from windlass.process import Peer, peer
from windlass.redact import Redactor
from windlass.server.access import Access

__all__ = ["LET_IN", "LOG_IN", "MAX_BODY", "PAGE_STYLE", "PUBLIC", "Guard", "Peers", "peer_of"]

LET_IN = "windlass.let_in"
"""Set in the scope of a request that brought a token or a session."""
MAX_BODY = 4 * 1024 * 1024
"""Bytes that a request may bring."""
PUBLIC = frozenset({"/health", "/login", "/approve"})
"""Paths that check access themselves, by a code or a signature, or give nothing away."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class RequestRefusal(NamedTuple):
    status: int
    title: str
    detail: str
    advice: str = ""


class _TooLong(Exception):
    """The body passed the limit while it was read."""


class Guard:
    """Wraps an ASGI application."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        hosts: Collection[str] = (),
        max_body: int = MAX_BODY,
        redactor: Redactor | None = None,
    ) -> None:
        """`hosts` are names by which the server is reached besides the loopback ones."""
        self._app = app
        self._access = access
        self._hosts = _LOOPBACK | {host.lower() for host in hosts}
        self._max_body = max_body
        self._redactor = redactor or Redactor(more={"server token": access.token})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
        elif scope["type"] == "http":
            await self._pass_on(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def refusal(self, scope: Scope) -> RequestRefusal | None:
        """The reason to refuse a request, or None."""
        headers = _Headers(scope)
        host = headers.only("host")
        name = _name_of(host) if host is not None else None
        if name is None or name not in self._hosts:
            return RequestRefusal(
                421, "not this server", "the Host of the request is not a name of this server", _NAME_IT
            )
        origin = headers.only("origin")
        if headers.count("origin") > 1 or (origin is not None and origin.lower() not in _origins(scope, str(host))):
            return RequestRefusal(403, "foreign origin", "the request comes from a page of another website")
        if headers.only("sec-fetch-site") == "cross-site" and scope["path"] not in PUBLIC:
            return RequestRefusal(403, "foreign origin", "the request comes from a page of another website")
        length = headers.only("content-length")
        if length is not None and (not length.isdigit() or int(length) > self._max_body):
            return _too_long(self._max_body)
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE
        if scope["path"] in PUBLIC:
            return _NO_ORIGIN if changes and origin is None else None
        if scope["path"].startswith(HOOKS) and scope.get("method") == "POST":
            return None
        refusal = self._unknown(headers, changes and origin is None)
        if refusal is None:
            scope[LET_IN] = True
        return refusal

    def _unknown(self, headers: _Headers, lacks_origin: bool) -> RequestRefusal | None:
        kind, _, token = (headers.only("authorization") or "").partition(" ")
        if kind.lower() == "bearer" and self._access.has_token(token.strip()):
            return None
        if not self._access.has_session(_cookie(headers, self._access.cookie)):
            return RequestRefusal(401, "not logged in", "a token or a session is needed", LOG_IN)
        return _NO_ORIGIN if lacks_origin else None

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body and removing secrets from the answer."""
        counted, begun = 0, False

        async def count() -> Message:
            nonlocal counted
            message = await receive()
            if message["type"] == "http.request":
                counted += len(message.get("body", b""))
                if counted > self._max_body:
                    raise _TooLong
            return message

        held: Message | None = None

        async def clean(message: Message) -> None:
            nonlocal begun, held
            if message["type"] == "http.response.start":
                held = {**message, "headers": [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]}
                return
            if message["type"] == "http.response.body" and held is not None:
                start, held, begun = held, None, True
                body = message.get("body", b"")
                cleaned = self._redactor.bytes(body)
                await send(_measured(start, len(cleaned)) if cleaned != body else start)
                message = {**message, "body": cleaned}
            elif message["type"] == "http.response.body":
                message = {**message, "body": self._redactor.bytes(message.get("body", b""))}
            await send(message)

        try:
            await self._app(scope, count, clean)
        except _TooLong:
            if not begun:
                await _refuse(_too_long(self._max_body), scope, receive, send)


class _Headers:
    def __init__(self, scope: Scope) -> None:
        self._pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]

    def count(self, name: str) -> int:
        return sum(name == key for key, _ in self._pairs)

    def only(self, name: str) -> str | None:
        """The value, if it is given once: of two, nobody knows which one others believe."""
        found = [value for key, value in self._pairs if key == name]
        return found[0] if len(found) == 1 else None

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]


def _name_of(host: str) -> str | None:
    """The name in a Host header, without its port; None for what cannot be one."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or (rest[0] == ":" and rest[1:].isdigit())) else None
    name, colon, port = host.partition(":")
    return name if name and (not colon or port.isdigit()) else None


def _origins(scope: Scope, host: str) -> set[str]:
    """Our own origin, as a page of ours would send it."""
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    return {f"{scheme}://{host.strip().lower()}"}


def _cookie(headers: _Headers, name: str) -> str:
    for line in headers.all("cookie"):
        try:
            found = SimpleCookie(line).get(name)
        except CookieError:
            continue
        if found is not None:
            return found.value
    return ""


_NO_ORIGIN = RequestRefusal(403, "no origin", "a browser says where it comes from; this request does not")


def _too_long(limit: int) -> RequestRefusal:
    return RequestRefusal(413, "too long", f"a request can have at most {limit:,} bytes")


def _measured(start: Message, length: int) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    return {**start, "headers": [*headers, (b"content-length", str(length).encode())]}


LOG_IN = "send `Authorization: Bearer TOKEN` (the token is in server.token in the home), or open a login link"
PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui;max-width:48rem;margin:3rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;padding:.75rem 1rem;border:1px solid #8886;border-radius:6px}"
)
"""Style of the pages that need no login and no script."""
_LOGGED_OUT = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>Not logged in · Windlass</title><style>{PAGE_STYLE}</style>"
    "<h1>Not logged in</h1><p>This page opens with a login link. Get one on the machine that runs the server:</p>"
    "<pre>windlass serve --open</pre><p>A server that is running keeps its link in <code>server.login</code> "
    "in its home.</p>"
).encode()
"""No script, nothing of the request in it."""
_NAME_IT = "if it is meant to be reached by that name: windlass serve --allow-host NAME"


def _is_for_a_person(scope: Scope) -> bool:
    """Tell whether a browser shows the answer as a page, rather than a program reads it."""
    return scope["type"] == "http" and "text/html" in (_Headers(scope).only("accept") or "")


async def _refuse(refusal: RequestRefusal, scope: Scope, receive: Receive, send: Send) -> None:
    advice = [refusal.advice] if refusal.advice else []
    kind, body = (
        b"application/problem+json",
        json.dumps(
            {
                "type": "about:blank",
                "title": refusal.title,
                "status": refusal.status,
                "detail": refusal.detail,
                "category": "permission",
                "advice": advice,
                "where": "",
            }
        ).encode(),
    )
    if refusal.status == 401 and _is_for_a_person(scope):
        kind, body = b"text/html; charset=utf-8", _LOGGED_OUT
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="windlass"'))
    if scope["type"] == "http":
        headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await receive()  # websocket.connect
    if "websocket.http.response" in scope.get("extensions", {}):
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.title})


def peer_of(scope: Any) -> Peer | None:
    client, server = scope.get("client"), scope.get("server")
    return Peer(client[0], client[1], server[1] or 0) if client and server else None


class Peers:
    """Notes the other end of each request where the engine finds it, for answers that only a person may give (C6)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            peer.set(peer_of(scope))
        await self._app(scope, receive, send)
