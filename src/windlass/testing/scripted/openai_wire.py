"""Replies as the OpenAI chat completions API words them: whole, as a stream of chunks, and as errors.

Nothing here writes to a connection: functions give bodies and frames, `serve.py` sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.testing.scripted.reply import Received, Reply, Stream, halves, pieces

__all__ = ["error", "error_frame", "listing", "message", "model", "stream"]

STOPS = {"end": "stop", "tool": "tool_calls", "length": "length", "refusal": "content_filter"}
ERRORS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
CREATED = 1_750_000_000
"""Creation time of every answer: the same in every test."""


def message(reply: Reply, received: Received) -> dict[str, Any]:
    """The whole completion at once."""
    said: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.stop == "refusal":
        said |= {"content": None, "refusal": reply.text or None}
    if reply.uses:
        said["tool_calls"] = [
            {
                "id": _call_id(received, index),
                "type": "function",
                "function": {"name": use.name, "arguments": json.dumps(use.input, ensure_ascii=False)},
            }
            for index, use in enumerate(reply.uses)
        ]
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": STOPS[reply.stop]}
    return {**_envelope(received, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def stream(reply: Reply, received: Received) -> Stream:
    """The completion as chunks: those up to the end of the text, and the rest."""
    return Stream(list(_opening(reply, received)), list(_rest(reply, received)))


def error(status: int, text: str, number: int) -> dict[str, Any]:
    kind, code = ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def error_frame(status: int, text: str) -> bytes:
    """An error that comes in a stream which had begun well."""
    return _data(error(status, text, 0))


def model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "windlass"}


def listing(names: Sequence[str]) -> dict[str, Any]:
    return {"object": "list", "data": [model(name) for name in names]}


def _opening(reply: Reply, received: Received) -> Iterator[bytes]:
    yield _chunk(received, {"role": "assistant", "content": "" if reply.text else None, "refusal": None})
    where = "refusal" if reply.stop == "refusal" else "content"
    for piece in pieces(reply.text):
        yield _chunk(received, {where: piece})


def _rest(reply: Reply, received: Received) -> Iterator[bytes]:
    for index, use in enumerate(reply.uses):
        start = {"id": _call_id(received, index), "type": "function", "function": {"name": use.name, "arguments": ""}}
        yield _chunk(received, {"tool_calls": [{"index": index, **start}]})
        for piece in halves(json.dumps(use.input, ensure_ascii=False)):
            yield _chunk(received, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk(received, {}, STOPS[reply.stop])
    if _wants_usage(received):
        yield _data({**_envelope(received, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def _chunk(received: Received, delta: dict[str, Any], stop: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
    chunk = {**_envelope(received, "chat.completion.chunk"), "choices": [choice]}
    # Asked for usage, the real API names it in every chunk, and fills it only in the last.
    return _data({**chunk, "usage": None} if _wants_usage(received) else chunk)


def _wants_usage(received: Received) -> bool:
    return bool((received.body.get("stream_options") or {}).get("include_usage"))


def _envelope(received: Received, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{received.number:04}", "object": kind, "created": CREATED, "model": received.model}


def _usage(reply: Reply) -> dict[str, Any]:
    """This API counts what came from a cache or went into one among the rest."""
    return {
        "prompt_tokens": reply.all_tokens_in,
        "completion_tokens": reply.tokens_out,
        "total_tokens": reply.all_tokens_in + reply.tokens_out,
        "prompt_tokens_details": {"cached_tokens": reply.cache_read, "cache_write_tokens": reply.cache_write},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _call_id(received: Received, index: int) -> str:
    return f"call_{received.number:04}_{index}"


def _data(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
