"""Replies as the Anthropic Messages API words them: whole, as a stream of events, and as errors.

Nothing here writes to a connection: functions give bodies and frames, `serve.py` sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.testing.scripted.reply import Received, Reply, Stream, halves, pieces

__all__ = ["error", "error_frame", "listing", "message", "model", "stream"]

STOPS = {"end": "end_turn", "tool": "tool_use", "length": "max_tokens", "refusal": "refusal"}
NO_STOP: dict[str, Any] = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def message(reply: Reply, received: Received) -> dict[str, Any]:
    """The whole message at once."""
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    for index, use in enumerate(reply.uses):
        content.append({"type": "tool_use", "id": _use_id(received, index), "name": use.name, "input": use.input})
    return _message(received, content, _stop(reply), {**_read(reply), "output_tokens": reply.tokens_out})


def stream(reply: Reply, received: Received) -> Stream:
    """The message as events: those up to the end of the text, and the rest."""
    return Stream(list(_opening(reply, received)), list(_rest(reply, received)))


def error(status: int, text: str, number: int) -> dict[str, Any]:
    return {**_error(status, text), "request_id": f"req_{number:04}"}


def error_frame(status: int, text: str) -> bytes:
    """An error that comes in a stream which had begun well."""
    return _event(_error(status, text))


def model(name: str) -> dict[str, Any]:
    made = {"created_at": "2025-01-01T00:00:00Z", "lifecycle": "active"}
    return {"type": "model", "id": name, "display_name": name, **made}


def listing(names: Sequence[str]) -> dict[str, Any]:
    data = [model(name) for name in names]
    return {
        "data": data,
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _opening(reply: Reply, received: Received) -> Iterator[bytes]:
    empty = _message(received, [], NO_STOP, {**_read(reply), "output_tokens": min(1, reply.tokens_out)})
    yield _event({"type": "message_start", "message": empty})
    if reply.text:
        yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        yield _event({"type": "ping"})
        for piece in pieces(reply.text):
            delta = {"type": "text_delta", "text": piece}
            yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    else:
        yield _event({"type": "ping"})


def _rest(reply: Reply, received: Received) -> Iterator[bytes]:
    if reply.text:
        yield _event({"type": "content_block_stop", "index": 0})
    for order, use in enumerate(reply.uses):
        index = order + bool(reply.text)
        block = {"type": "tool_use", "id": _use_id(received, order), "name": use.name, "input": {}}
        yield _event({"type": "content_block_start", "index": index, "content_block": block})
        # The real API begins every input with an empty piece.
        for piece in ("", *halves(json.dumps(use.input, ensure_ascii=False))):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    usage = {**_read(reply), "output_tokens": reply.tokens_out}
    yield _event({"type": "message_delta", "delta": _stop(reply), "usage": usage})
    yield _event({"type": "message_stop"})


def _message(received: Received, content: list[dict[str, Any]], stop: dict[str, Any], usage: Any) -> dict[str, Any]:
    return {
        "id": f"msg_{received.number:04}",
        "type": "message",
        "role": "assistant",
        "model": received.model,
        "content": content,
        **stop,
        "usage": usage,
    }


def _stop(reply: Reply) -> dict[str, Any]:
    details = {"type": "refusal", "category": None, "explanation": None} if reply.stop == "refusal" else None
    return {**NO_STOP, "stop_reason": STOPS[reply.stop], "stop_details": details}


def _read(reply: Reply) -> dict[str, int]:
    """This API counts what came from a cache or went into one apart."""
    return {
        "input_tokens": reply.all_tokens_in - reply.cache_read - reply.cache_write,
        "cache_creation_input_tokens": reply.cache_write,
        "cache_read_input_tokens": reply.cache_read,
    }


def _use_id(received: Received, index: int) -> str:
    return f"toolu_{received.number:04}_{index}"


def _error(status: int, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": text}}


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
