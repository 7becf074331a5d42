"""The access table of TRUST: who is turned away at the door, and how, for requests and for sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from windlass.server.access import Access
from windlass.server.guard import Guard
from windlass.testing import FakeClock

OURS = "http://127.0.0.1:8642"


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    """Whoever gets here is in. It reads the body, as applications do."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        return
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    body = scope["path"].encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


class Door:
    def __init__(self, folder: Path, app: Any = inside, **options: Any) -> None:
        self.access = Access(folder, FakeClock().now)
        self.guard = Guard(app, self.access, **options)
        self.session = self.access.redeem(self.access.login_code()) or ""

    @property
    def token(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.access.token}"}

    @property
    def cookie(self) -> dict[str, str]:
        return {"cookie": f"a=b; {self.access.cookie}={self.session}"}

    async def knock(
        self,
        path: str = "/api/executions",
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        *,
        method: str = "GET",
        socket: bool = False,
        body: list[bytes] = [b""],  # noqa: B006 - never changed
        host: str | None = "127.0.0.1:8642",
    ) -> list[Message]:
        pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
        pairs += [("host", host)] if host is not None else []
        scope: Scope = {
            "type": "websocket" if socket else "http",
            "scheme": "ws" if socket else "http",
            "method": method,
            "path": path,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
            "extensions": {"websocket.http.response": {}},
        }
        parts = [{"type": "http.request", "body": part, "more_body": True} for part in body[:-1]]
        parts.append({"type": "http.request", "body": body[-1], "more_body": False})
        if socket:
            parts = [{"type": "websocket.connect"}]
        sent: list[Message] = []

        async def receive() -> Message:
            return parts.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await self.guard(scope, receive, send)
        return sent

    async def status(self, *args: Any, **options: Any) -> int:
        first = (await self.knock(*args, **options))[0]
        return 101 if first["type"] == "websocket.accept" else int(first["status"])


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


EITHER = pytest.mark.parametrize("socket", [False, True], ids=["request", "socket"])


@EITHER
async def test_without_token_or_session_nobody_gets_in(door: Door, socket: bool) -> None:
    wrong = [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": door.access.token},
        {"authorization": f"Basic {door.access.token}"},
        {"cookie": f"{door.access.cookie}=wrong"},
        {"cookie": f"{door.access.cookie}={door.access.token}"},
        {"x-token": door.access.token},
    ]
    for headers in wrong:
        assert await door.status(headers=headers, socket=socket) == 401
    for path in (
        "/",
        "/api/executions/x",
        "/api/stream",
        "/mcp",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/health/x",
        "//health",
    ):
        assert await door.status(path, socket=socket) == 401
    assert await door.status(f"/api?token={door.access.token}", socket=socket) == 401


@EITHER
async def test_the_token_gets_in(door: Door, socket: bool) -> None:
    assert await door.status(headers=door.token, socket=socket) == (101 if socket else 200)
    assert await door.status(headers=door.token | {"origin": OURS}, socket=socket) == (101 if socket else 200)


async def test_a_refusal_is_a_problem_with_advice_and_says_nothing_of_the_token(door: Door) -> None:
    start, body = await door.knock()
    told = json.loads(body["body"])
    assert dict(start["headers"])[b"content-type"] == b"application/problem+json"
    assert (told["status"], told["category"]) == (401, "permission")
    assert told["advice"]
    assert door.access.token.encode() not in body["body"]


@EITHER
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:8643",
        "http://127.0.0.1",
        "https://127.0.0.1:8642",
        "http://localhost:8642",
        "http://127.0.0.1:8642.evil.example",
        "http://127.0.0.1.evil.example:8642",
        "http://evil.example#127.0.0.1:8642",
        "http://user@127.0.0.1:8642",
        "http://127.0.0.1:8642/",
        "http://0x7f000001:8642",
        "file://",
        "",
    ],
)
async def test_another_origin_is_turned_away_whatever_it_brings(door: Door, origin: str, socket: bool) -> None:
    for known in (door.token, door.cookie, {}):
        assert await door.status(headers={**known, "origin": origin}, socket=socket) == 403


async def test_two_origins_are_none(door: Door) -> None:
    both = [*door.token.items(), ("origin", OURS), ("origin", "https://evil.example")]
    assert await door.status(headers=both) == 403


@EITHER
@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8642",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8642",
        "127.0.0.1.",
        "127.0.0.1:8642@evil.example",
        "0.0.0.0:8642",
        "127.1:8642",
        "[::1",
        "[::ffff:127.0.0.1]:8642",
        "localhost:8642, evil.example",
        "127.0.0.1:",
        "127.0.0.1:80:80",
    ],
)
async def test_another_host_is_turned_away_whatever_it_brings(door: Door, host: str | None, socket: bool) -> None:
    assert await door.status(headers=door.token, host=host, socket=socket) == 421
    assert await door.status("/health", host=host, socket=socket) == 421


async def test_two_hosts_are_none(door: Door) -> None:
    assert await door.status(headers=[*door.token.items(), ("host", "evil.example")]) == 421


async def test_loopback_names_and_given_ones_are_ours(tmp_path: Path) -> None:
    door = Door(tmp_path, hosts=["Build.Example"])
    for host in ("localhost", "LOCALHOST:1", "[::1]:8642", "127.0.0.1", "build.example:443"):
        assert await door.status(headers=door.token, host=host) == 200


async def test_a_session_reads_without_and_changes_with_our_own_origin(door: Door) -> None:
    assert await door.status(headers=door.cookie) == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert await door.status(headers=door.cookie, method=method) == 403
        assert await door.status(headers=door.cookie | {"origin": OURS}, method=method) == 200
    assert await door.status(headers=door.cookie, socket=True) == 403
    assert await door.status(headers=door.cookie | {"origin": OURS}, socket=True) == 101


async def test_a_page_elsewhere_that_embeds_us_gets_nothing_with_a_session(door: Door) -> None:
    assert await door.status(headers=door.cookie | {"sec-fetch-site": "cross-site"}) == 403
    assert await door.status("/login", headers={"sec-fetch-site": "cross-site"}) == 200


async def test_the_public_paths_need_no_token(door: Door) -> None:
    for path in ("/health", "/login", "/approve"):
        assert await door.status(path) == 200


@pytest.mark.parametrize("length", ["11", "99999999999999999999", "-1", "1e1", "x", ""])
async def test_a_body_that_says_it_is_too_long_is_not_read(tmp_path: Path, length: str) -> None:
    door = Door(tmp_path, max_body=10)
    assert await door.status(headers=door.token | {"content-length": length}, method="POST") == 413


async def test_a_body_that_becomes_too_long_is_cut_off(tmp_path: Path) -> None:
    door = Door(tmp_path, max_body=10)
    assert await door.status(headers=door.token, method="POST", body=[b"12345", b"67890"]) == 200
    assert await door.status(headers=door.token, method="POST", body=[b"12345", b"67890", b"1"]) == 413


async def test_secrets_do_not_leave_in_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", 'canary-"4711"-canary')

    async def leaky(scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps({"output": 'the key is canary-"4711"-canary', "token": door.access.token}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    door = Door(tmp_path, leaky)
    start, body = await door.knock(headers=door.token)
    assert json.loads(body["body"]) == {"output": "the key is [SOME_API_KEY]", "token": "[server token]"}
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()


async def test_a_server_that_cannot_answer_sockets_with_a_status_closes_them(door: Door) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "scheme": "ws", "path": "/api/stream", "headers": [(b"host", b"localhost")]}
    await door.guard(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "not logged in"}]
