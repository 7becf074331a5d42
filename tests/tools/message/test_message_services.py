"""H1: chat services through apprise and webhooks, on a real HTTP server: what arrives, and what a failure means."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import ssl
from typing import Any

import pytest
from apprise.plugins.ntfy import NotifyNtfy
from message_world import WebServer, World

from windlass.errors import Category, ToolError
from windlass.ports import health_of


def answer(status: str, body: str = "", header: str = "") -> str:
    return f"HTTP/1.1 {status}\r\n{header}Content-Length: {len(body)}\r\n\r\n{body}"


async def test_h1_a_chat_message_arrives(world: World, web: WebServer) -> None:
    (world.work / "a.txt").write_text("attached")
    told = {"title": "Done", "text": "All is **well**", "format": "markdown", "level": "success"}
    result = await world.use("message.send", service="chat", attachments="a.txt", **told)
    assert (result["kind"], result["service"], result["repeated"]) == ("JSON", "chat", False)
    (request,) = web.requests
    body = json.loads(request.body)
    assert request.path == "/chat"
    assert (body["title"], body["message"], body["type"]) == ("Done", "All is **well**", "success")
    assert [file["filename"] for file in body["attachments"]] == ["a.txt"]


async def test_h1_a_webhook_gets_json_with_a_key_for_repetitions_and_a_signature(world: World, web: WebServer) -> None:
    world.env["HOOK_SIGN"] = "a signing secret"
    world.services["hook"]["password_env"] = "HOOK_SIGN"
    data = {"name": "Grüße", "list": [1, None, True]}
    result = await world.use("message.webhook", service="hook", data=data)
    (request,) = web.requests
    assert json.loads(request.body) == data
    assert (result["status"], result["response"]) == (200, "ok")
    assert request.headers["idempotency-key"] == result["id"]
    at, _, made = request.headers["windlass-signature"].removeprefix("t=").partition(",v1=")
    assert made == hmac.new(b"a signing secret", f"{at}.".encode() + request.body, hashlib.sha256).hexdigest()


async def test_h2_a_webhook_reads_certificates_where_there_is_tls_alone(
    world: World, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Any] = []
    load = ssl.SSLContext.load_verify_locations

    def noted(context: ssl.SSLContext, *where: Any, **more: Any) -> None:
        files.append((where, more))
        load(context, *where, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", noted)
    await world.use("message.webhook", service="hook", data={})
    assert (len(web.requests), files) == (1, [])
    world.services["hook"]["url"] = "https://127.0.0.1:9/hook"
    with pytest.raises(ToolError):
        await world.use("message.webhook", step="t", service="hook", data={})
    assert len(files) == 1


STATUSES = {
    "401 Unauthorized": Category.PERMISSION,
    "403 Forbidden": Category.PERMISSION,
    "404 Not Found": Category.LOGIC,
    "400 Bad Request": Category.LOGIC,
    "302 Found": Category.LOGIC,
    "429 Too Many": Category.TRANSIENT,
    "500 Oops": Category.TRANSIENT,
    "503 Busy": Category.TRANSIENT,
}


@pytest.mark.parametrize("status", STATUSES)
async def test_h1_a_refusal_has_a_category_and_the_next_attempt_may_send(
    status: str, world: World, web: WebServer
) -> None:
    good = web.answer
    for tool, told in (
        ("message.send", {"service": "chat", "text": "x"}),
        ("message.webhook", {"service": "hook", "data": 1}),
    ):
        web.answer = answer(status, "no", "Retry-After: 7\r\nLocation: http://localhost:1/\r\n")
        failure = await world.failing(tool, step=tool, **told)
        assert (failure.category, failure.final) == (STATUSES[status], False)
        if tool == "message.webhook" and failure.category is Category.TRANSIENT:
            assert failure.retry_after == 7
        web.answer = good
        assert (await world.use(tool, step=tool, **told))["repeated"] is False


@pytest.mark.parametrize("end", ["hang up", "502 Bad Gateway", "504 Gateway Timeout"])
async def test_h1_without_a_word_of_the_service_nobody_knows_and_it_is_not_sent_again(
    end: str, world: World, web: WebServer
) -> None:
    web.answer = end if end == "hang up" else answer(end)
    for tool, told in (
        ("message.send", {"service": "chat", "text": "x"}),
        ("message.webhook", {"service": "hook", "data": 1}),
    ):
        web.requests.clear()
        for _ in range(2):
            failure = await world.failing(tool, **told)
            assert (failure.final, failure.kind) == (True, "cut_off")
            assert "may or may not" in failure.message
        assert len(web.requests) == 1


REFUSED, GATEWAY = answer("403 Forbidden"), answer("502 Bad Gateway")
SEVERAL = {
    "one has it": ([answer("200 OK", "{}"), REFUSED], "has arrived"),
    "of one nobody knows": (["hang up", REFUSED], "may or may not"),
    "of the other nobody knows": ([REFUSED, "hang up"], "may or may not"),
    "one is behind a gateway": ([GATEWAY, REFUSED], "may or may not"),
    "none has it": ([REFUSED, REFUSED], ""),
}


@pytest.mark.parametrize("name", SEVERAL)
async def test_h1_of_several_recipients_of_a_chat_service_the_least_that_is_known_counts(
    name: str, world: World, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NotifyNtfy, "request_rate_per_sec", 0)  # it would wait for seconds between the two
    web.answers, words = list(SEVERAL[name][0]), SEVERAL[name][1]
    world.services["chat"] = {"url": f"ntfy://localhost:{web.port}/one/two"}
    failure = await world.failing("message.send", service="chat", text="x")
    assert len(web.requests) == 2
    assert words in failure.message
    assert failure.final is bool(words)
    if not words:
        assert failure.category is Category.PERMISSION


async def test_h1_a_service_that_hangs_leaves_it_unknown(world: World, web: WebServer) -> None:
    web.answer = "hang"
    world.env["CHAT_ADDRESS"] += "?rto=0.2"
    assert "may or may not" in (await world.failing("message.send", service="chat", text="x")).message


async def test_h1_a_service_that_is_not_there_may_be_tried_again(world: World, port: int) -> None:
    world.services["chat"] = {"url": f"json://localhost:{port}/"}
    world.services["hook"] = {"url": f"http://localhost:{port}/"}
    for tool, told in (
        ("message.send", {"service": "chat", "text": "x"}),
        ("message.webhook", {"service": "hook", "data": 1}),
    ):
        for _ in range(2):
            failure = await world.failing(tool, **told)
            assert (failure.category, failure.final) == (Category.TRANSIENT, False)


async def test_h1_an_address_cannot_ask_for_repetitions_or_for_success(world: World, web: WebServer) -> None:
    world.env["CHAT_ADDRESS"] += "?retry=3&wait=0&optional=yes"
    web.answer = answer("500 Oops")
    assert (await world.failing("message.send", service="chat", text="x")).category is Category.TRANSIENT
    assert len(web.requests) == 1


async def test_h1_nothing_of_an_address_is_shown_or_logged(
    world: World, web: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-of-the-address"
    world.env["CHAT_ADDRESS"] = f"json://user:{secret}@localhost:{web.port}/{secret}?-key={secret}"
    web.answer = answer("403 Forbidden", f"no {secret}")
    world.services["hook"] = {"url_env": "HOOK_ADDRESS"}
    world.env["HOOK_ADDRESS"] = f"http://localhost:{web.port}/{secret}"
    for tool, told in (
        ("message.send", {"service": "chat", "text": "x"}),
        ("message.webhook", {"service": "hook", "data": 1}),
    ):
        failure = await world.failing(tool, **told)
        assert secret not in str(failure)
    assert secret not in "".join(world.said)
    assert secret.encode() not in (world.book.read_bytes() if world.book.exists() else b"")
    assert not [record for record in caplog.records if record.name == "apprise"]
    logging.getLogger("apprise").warning("somebody else's word")
    assert "somebody else's word" in caplog.text


async def test_h1_the_answer_of_a_webhook_is_bounded_and_has_no_secret(world: World, web: WebServer) -> None:
    world.env["HOOK_TOKEN"] = "canary-5f2c9e"
    web.answer = answer("200 OK", "canary-5f2c9e " + "x" * 100_000)
    result = await world.use("message.webhook", service="hook", data={})
    assert len(result["response"]) == 2000
    assert "canary" not in result["response"]


async def test_h1_a_service_that_is_set_up_wrong_is_told_what_to_do(world: World, web: WebServer) -> None:
    world.services["odd"] = {"url": "nosuch://x"}
    world.services["unset"] = {"url_env": "NOT_THERE"}
    expected = {
        ("message.send", "odd"): "apprise does not know this kind of address",
        ("message.send", "unset"): "NOT_THERE",
        ("message.webhook", "chat"): "http",
        ("message.webhook", "odd"): "http",
        ("message.send", "hok"): "did you mean 'hook'",
    }
    for (tool, service), words in expected.items():
        told = {"text": "x"} if tool == "message.send" else {"data": 1}
        failure = await world.failing(tool, service=service, **told)
        assert failure.category is Category.CONFIGURATION
        assert words in failure.message
        assert "json://" not in failure.message
    failure = await world.failing("message.send", text="x")
    assert "say which `service`" in failure.message
    assert "JSON cannot write" in (await world.failing("message.webhook", service="hook", data=float("nan"))).message


async def test_h1_health_reads_the_addresses_and_sends_nothing(world: World, web: WebServer) -> None:
    for name in ("message.send", "message.webhook"):
        assert (await health_of(world.tools()[name])).ok
    world.services["odd"] = {"url": "nosuch://x"}
    world.services["unset"] = {"url_env": "NOT_THERE"}
    health = await health_of(world.tools()["message.send"])
    assert not health.ok
    assert "odd" in health.detail
    assert "NOT_THERE" in health.detail
    assert web.requests == []


def test_h1_one_broken_service_is_not_all(world: World) -> None:
    world.services = {"a": {"url": "json://x"}, "b": {"url": "json://y"}}
    tool = world.tools()["message.send"]
    assert [tool.circuit({"service": name, "text": "x"}) for name in "ab"] == ["message.a", "message.b"]
    assert tool.circuit({"service": "none", "text": "x"}) is None
