"""The scripted model on the wire: what a client that knows nothing but HTTP sees, for each kind of reply."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest
from waiting import PATIENCE
from wire_client import ANTHROPIC, OPENAI, Answer, ask, connect

from windlass.testing import Reply, ScriptedModel, Served

BOTH = pytest.mark.parametrize("path", [ANTHROPIC, OPENAI])


# -- the Anthropic protocol --------------------------------------------------------------------------


def test_an_anthropic_text_streams_as_the_real_api_streams_it() -> None:
    with ScriptedModel([Reply.say("all is well", tokens_in=30, tokens_out=7, cache_read=12, cache_write=8)]) as model:
        answer = ask(model, f"{ANTHROPIC}?beta=true", stream=True)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"]
    events = answer.events
    assert all(name == data["type"] for name, data in events)
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0][1]["message"]
    assert (start["role"], start["model"], start["content"], start["stop_reason"]) == ("assistant", "m", [], None)
    read = {"input_tokens": 10, "cache_read_input_tokens": 12, "cache_creation_input_tokens": 8}
    assert start["usage"] == {**read, "output_tokens": 1}
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert deltas == [{"type": "text_delta", "text": text} for text in ("all", " is", " well")]
    assert events[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None}
    assert events[-2][1]["usage"] == {**read, "output_tokens": 7}


def test_anthropic_uses_of_tools_stream_as_pieces_of_json_after_the_text() -> None:
    reply = Reply.use("Write", {"path": "ä.txt", "n": [1, 2]}, text="I write").and_use("Read")
    with ScriptedModel([reply]) as model:
        events = ask(model, ANTHROPIC, stream=True).events
    starts = [data for name, data in events if name == "content_block_start"]
    assert [(s["index"], s["content_block"]["type"]) for s in starts] == [(0, "text"), (1, "tool_use"), (2, "tool_use")]
    assert [s["content_block"]["name"] for s in starts[1:]] == ["Write", "Read"]
    assert len({s["content_block"]["id"] for s in starts[1:]}) == 2
    inputs = {1: "", 2: ""}
    pieces = 0
    for name, data in events:
        if name == "content_block_delta" and data["delta"]["type"] == "input_json_delta":
            inputs[data["index"]] += data["delta"]["partial_json"]
            pieces += data["index"] == 1
    assert pieces > 2
    assert (json.loads(inputs[1]), json.loads(inputs[2])) == ({"path": "ä.txt", "n": [1, 2]}, {})
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"


def test_an_anthropic_message_comes_whole_when_no_stream_is_asked_for() -> None:
    with ScriptedModel([Reply.use("Write", {"a": 1}, text="so")]) as model:
        message = ask(model, ANTHROPIC).json
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "tool_use")
    text, use = message["content"]
    assert text == {"type": "text", "text": "so"}
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "Write", {"a": 1})
    assert message["usage"]["input_tokens"] == 10
    assert message["usage"]["output_tokens"] == 5


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_anthropic_error_has_its_shape_its_status_and_its_headers(status: int, kind: str) -> None:
    headers = {"retry-after": "7", "anthropic-ratelimit-unified-reset": "1900000000"}
    with ScriptedModel([Reply.error(status, "not now", headers=headers)]) as model:
        answer = ask(model, ANTHROPIC, stream=True)
    assert answer.status == status
    assert answer.json["type"] == "error"
    assert answer.json["error"] == {"type": kind, "message": "not now"}
    assert headers.items() <= answer.headers.items()
    assert model.served.replies == 0


def test_an_anthropic_error_can_come_in_the_middle_of_a_stream() -> None:
    with ScriptedModel([Reply.error(529, "overloaded", after="so far")]) as model:
        answer = ask(model, ANTHROPIC, stream=True)
    assert answer.status == 200
    assert answer.events[-1] == (
        "error",
        {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}},
    )
    assert [d["delta"]["text"] for n, d in answer.events if n == "content_block_delta"] == ["so", " far"]


def test_tokens_are_counted_without_a_reply_of_the_script() -> None:
    with ScriptedModel([]) as model:
        short = ask(model, "/v1/messages/count_tokens").json
        long = ask(model, "/v1/messages/count_tokens?beta=true", system="s" * 400).json
    assert short["input_tokens"] + 100 == long["input_tokens"]
    assert [call.path for call in model.count_tokens_calls] == [
        "/v1/messages/count_tokens",
        "/v1/messages/count_tokens?beta=true",
    ]
    assert model.requests == []
    model.check()


# -- the OpenAI protocol -----------------------------------------------------------------------------


def chunks(answer: Answer) -> list[Any]:
    assert answer.events[-1] == ("", "[DONE]")
    return [data for _, data in answer.events[:-1]]


def test_an_openai_text_streams_as_chunks_with_the_usage_last_when_it_is_asked_for() -> None:
    with ScriptedModel(
        [Reply.say("all is well", tokens_in=30, tokens_out=7, cache_read=12, cache_write=3)] * 2
    ) as model:
        plain = chunks(ask(model, OPENAI, stream=True))
        counted = chunks(ask(model, OPENAI, stream=True, stream_options={"include_usage": True}))
    assert {chunk["object"] for chunk in counted} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in counted}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in plain]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == "all is well"
    assert len(deltas) > 3
    assert [chunk["choices"][0]["finish_reason"] for chunk in plain] == [None] * (len(plain) - 1) + ["stop"]
    assert not any("usage" in chunk for chunk in plain)
    assert counted[-1]["choices"] == []
    assert counted[-1]["usage"]["prompt_tokens"] == 30
    assert counted[-1]["usage"]["completion_tokens"] == 7
    assert counted[-1]["usage"]["total_tokens"] == 37
    assert counted[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 12, "cache_write_tokens": 3}
    assert [chunk["usage"] for chunk in counted[:-1]] == [None] * (len(counted) - 1)


def test_openai_uses_of_tools_stream_as_deltas() -> None:
    with ScriptedModel([Reply.use("write", {"path": "ä.txt"}, text="I write").and_use("read", {"n": 1})]) as model:
        found = chunks(ask(model, OPENAI, stream=True))
    calls: dict[int, dict[str, str]] = {}
    for chunk in found:
        for call in chunk["choices"][0]["delta"].get("tool_calls") or ():
            known = calls.setdefault(call["index"], {"arguments": ""})
            known["arguments"] += call["function"]["arguments"]
            if "id" in call:
                known |= {"id": call["id"], "name": call["function"]["name"], "type": call["type"]}
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == [
        ("write", {"path": "ä.txt"}),
        ("read", {"n": 1}),
    ]
    assert calls[0]["id"] != calls[1]["id"]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_an_openai_completion_comes_whole_when_no_stream_is_asked_for() -> None:
    with ScriptedModel([Reply.use("write", {"a": 1})]) as model:
        completion = ask(model, OPENAI).json
    (choice,) = completion["choices"]
    assert (completion["object"], choice["finish_reason"]) == ("chat.completion", "tool_calls")
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "function",
        "write",
        {"a": 1},
    )
    assert completion["usage"]["total_tokens"] == 15


def test_an_openai_error_has_its_shape_its_status_and_its_headers() -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "retry-after": "3"}
    with ScriptedModel([Reply.error(429, "slow down", headers=headers), Reply.error(500, after="so")]) as model:
        answer = ask(model, OPENAI)
        within = ask(model, OPENAI, stream=True).events[-1][1]
    assert answer.status == 429
    assert answer.json["error"] == {
        "message": "slow down",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert headers.items() <= answer.headers.items()
    assert within["error"]["type"] == "server_error"


# -- what both have in common ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "anthropic", "openai"),
    [
        (Reply.say("x"), "end_turn", "stop"),
        (Reply.use("t", invented=True), "tool_use", "tool_calls"),
        (Reply.cut_short("x"), "max_tokens", "length"),
        (Reply.refuse("no"), "refusal", "content_filter"),
        (Reply.refuse(), "refusal", "content_filter"),
    ],
    ids=str,
)
def test_each_protocol_has_its_word_for_why_a_message_ended(reply: Reply, anthropic: str, openai: str) -> None:
    with ScriptedModel([reply] * 4) as model:
        assert ask(model, ANTHROPIC).json["stop_reason"] == anthropic
        assert ask(model, ANTHROPIC, stream=True).events[-2][1]["delta"]["stop_reason"] == anthropic
        assert ask(model, OPENAI).json["choices"][0]["finish_reason"] == openai
        assert chunks(ask(model, OPENAI, stream=True))[-1]["choices"][0]["finish_reason"] == openai
    model.check()


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_a_dropped_connection_breaks_after_what_was_said(path: str, stream: bool) -> None:
    with ScriptedModel([Reply.drop(after="half an answer")]) as model:
        line = connect(model)
        line.request("POST", path, json.dumps({"model": "m", "messages": [{"role": "user"}], "stream": stream}))
        got = line.getresponse()
        with pytest.raises(http.client.IncompleteRead) as broken:
            got.read()
        line.close()
    assert got.status == 200
    assert b"half" in broken.value.partial
    assert model.served == Served()


@BOTH
def test_a_connection_can_break_before_any_answer(path: str) -> None:
    with ScriptedModel([Reply.drop()]) as model:
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            ask(model, path)


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_garbage_has_a_good_status_and_no_meaning(path: str, stream: bool) -> None:
    with ScriptedModel([Reply.garbage()]) as model:
        answer = ask(model, path, stream=stream)
    assert answer.status == 200
    with pytest.raises(ValueError, match=r".*"):
        assert answer.events if stream else answer.json


@BOTH
def test_a_hanging_reply_ends_with_the_server(path: str) -> None:
    model = ScriptedModel([Reply.hang(), Reply.hang(after="so far")]).start()
    silent, begun = connect(model), connect(model)
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    silent.request("POST", path, json.dumps(body))
    model.wait_for(1)
    begun.request("POST", path, json.dumps(body))
    got = begun.getresponse()
    seen = got.read1()
    while b"far" not in seen:
        seen += got.read1()
    model.stop()
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        silent.getresponse()
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        got.read()
    silent.close()
    begun.close()


@BOTH
def test_a_held_reply_goes_on_when_it_is_let_go(path: str) -> None:
    start, middle = threading.Event(), threading.Event()
    script = [Reply.say("one two", hold=start), Reply.say("one two", hold=middle, hold_at="middle")]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True})
    with ScriptedModel(script) as model:
        line = connect(model)
        line.request("POST", path, body)
        model.wait_for(1)
        line.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            line.sock.recv(1)
        line.sock.settimeout(PATIENCE)
        start.set()
        assert b"two" in line.getresponse().read()
        line.request("POST", path, body)
        got = line.getresponse()
        seen = got.read1()
        while b"two" not in seen:
            seen += got.read1()
        assert model.served.replies == 1
        middle.set()
        assert b"stop" in got.read()
        line.close()
    assert model.served == Served(2, 20, 10)


@BOTH
@pytest.mark.parametrize("stream", [True, False])
def test_a_good_answer_may_have_headers_too(path: str, stream: bool) -> None:
    warning = {"anthropic-ratelimit-unified-status": "allowed_warning"}
    with ScriptedModel([Reply.say("x", headers=warning)]) as model:
        assert warning.items() <= ask(model, path, stream=stream).headers.items()


def test_delay_and_pace_are_kept() -> None:
    """Both are slept for at least so long: only a lower bound can be promised."""
    with ScriptedModel([Reply.say("one two", delay=0.1, pace=0.02)]) as model:
        before = time.monotonic()
        events = ask(model, ANTHROPIC, stream=True).events
    assert time.monotonic() - before >= 0.1 + 0.02 * (len(events) - 2)
