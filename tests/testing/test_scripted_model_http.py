"""The house around a scripted model: listings, probes, clients that speak wrongly, connections, loopback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from waiting import PATIENCE, wait_until
from wire_client import ANTHROPIC, OPENAI, ask, connect, send

from windlass.testing import Reply, ScriptedModel


def test_models_are_listed_in_the_words_of_the_one_who_asks() -> None:
    with ScriptedModel([], models=("a", "b")) as model:
        ours = send(model, "GET", "/v1/models", **{"anthropic-version": "2023-06-01"}).json
        theirs = send(model, "GET", "/v1/models").json
        one = send(model, "GET", "/v1/models/b").json
    assert [(m["type"], m["id"]) for m in ours["data"]] == [("model", "a"), ("model", "b")]
    assert (ours["has_more"], ours["first_id"], ours["last_id"]) == (False, "a", "b")
    assert theirs["object"] == "list"
    assert [(m["object"], m["id"]) for m in theirs["data"]] == [("model", "a"), ("model", "b")]
    assert one["id"] == "b"
    model.check()


def test_a_look_at_the_door_is_answered_politely() -> None:
    with ScriptedModel([]) as model:
        assert send(model, "GET", "/").status == 200
        probe = send(model, "HEAD", "/api/hello")
        assert (probe.status, probe.body) == (200, b"")
    model.check()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/v1/embeddings", "{}", 404, "POST /v1/embeddings: a scripted model does not know this path"),
        ("POST", ANTHROPIC, "{", 400, "its body is no JSON"),
        ("POST", OPENAI, "[]", 400, "its body is no JSON object"),
        ("POST", ANTHROPIC, '{"messages": [{}]}', 400, "model: field required"),
        ("POST", OPENAI, '{"model": "m", "messages": []}', 400, "messages: at least one message is required"),
    ],
)
def test_a_client_that_speaks_wrongly_is_told_and_noted(
    method: str, path: str, body: str, status: int, said: str
) -> None:
    with ScriptedModel([]) as model:
        answer = send(model, method, path, body)
    assert answer.status == status
    assert said in answer.json["error"]["message"]
    (error,) = model.errors
    assert said in error
    with pytest.raises(AssertionError, match=r"found problems"):
        model.check()


def test_a_compressed_body_is_refused_in_so_many_words() -> None:
    with ScriptedModel([]) as model:
        answer = send(model, "POST", ANTHROPIC, b"...", **{"content-encoding": "gzip"})
    assert answer.status == 400
    assert "its body is compressed (gzip)" in answer.json["error"]["message"]
    assert model.errors


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"hello there\r\n\r\n", "this is not an HTTP/1.1 request"),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99\r\n\r\n{}", "cannot be read"),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", "cannot be read"),
        (b"POST /v1/mess", "ended within a request"),
    ],
)
def test_what_is_no_http_is_noted_and_the_server_goes_on(raw: bytes, said: str) -> None:
    with ScriptedModel([Reply.say("still here")]) as model:
        host, port = model.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
            line.sendall(raw)
            line.shutdown(socket.SHUT_WR)
            assert line.recv(1000) == b""
        assert ask(model, ANTHROPIC).json["content"][0]["text"] == "still here"
    (error,) = model.errors
    assert said in error


def test_one_connection_serves_many_requests_in_chunks_and_after_a_continue() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 5000}]}).encode()
    with ScriptedModel([Reply.say("a"), Reply.say("b"), Reply.say("c")]) as model:
        line = connect(model)
        line.request(
            "POST", ANTHROPIC, iter([body[:10], body[10:]]), {"transfer-encoding": "chunked"}, encode_chunked=True
        )
        assert b'"a"' in line.getresponse().read()
        first = line.sock
        line.request("POST", ANTHROPIC, body)
        assert b'"b"' in line.getresponse().read()
        assert line.sock is first
        first.sendall(b"POST /v1/messages HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
        assert first.recv(1000).startswith(b"HTTP/1.1 100")
        first.sendall(body)
        answer = first.recv(10000)
        while b'"c"' not in answer:
            piece = first.recv(10000)
            assert piece, answer
            answer += piece
        line.close()
    assert [len(received.text) for received in model.requests] == [5000] * 3


def test_it_listens_on_loopback_only() -> None:
    with ScriptedModel([]) as model:
        port = int(model.url.rpartition(":")[2])

        def ours() -> set[str]:
            """Where it listens; the list may lack a line, or have one twice, while others open and close sockets."""
            lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return {line[1] for line in lines if line[3] == "0A" and int(line[1].partition(":")[2], 16) == port}

        assert wait_until(ours) == {f"0100007F:{port:04X}"}
