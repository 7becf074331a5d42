"""Replies as the Gemini API words them: whole, as a stream of events, and as errors.

Nothing here writes to a connection: functions give bodies and frames, `serve.py` sends them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.testing.scripted.reply import Received, Reply, Stream, pieces

__all__ = ["error", "error_frame", "listing", "message", "model", "stream"]

STOPS = {"end": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def message(reply: Reply, received: Received) -> dict[str, Any]:
    """The whole response at once."""
    said = [{"text": reply.text}] if reply.text else []
    return _response(received, [*said, *_uses(reply, received)], reply)


def stream(reply: Reply, received: Received) -> Stream:
    """The response as events: one for each piece of the text, and one with the rest."""
    text = [_data(_response(received, [{"text": piece}])) for piece in pieces(reply.text)]
    return Stream(text, [_data(_response(received, _uses(reply, received), reply))])


def error(status: int, text: str, number: int) -> dict[str, Any]:
    return {"error": {"code": status, "message": text, "status": ERRORS.get(status, "INTERNAL")}}


def error_frame(status: int, text: str) -> bytes:
    """An error that comes in a stream which had begun well."""
    return _data(error(status, text, 0))


def model(name: str) -> dict[str, Any]:
    return {"name": f"models/{name}", "displayName": name}


def listing(names: Sequence[str]) -> dict[str, Any]:
    return {"models": [model(name) for name in names]}


def _uses(reply: Reply, received: Received) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": f"call_{received.number:04}_{index}", "name": use.name, "args": dict(use.input)}}
        for index, use in enumerate(reply.uses)
    ]


def _response(received: Received, parts: list[dict[str, Any]], end: Reply | None = None) -> dict[str, Any]:
    """One response. With `end` it is the last, and says how the reply ended and what it used."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts or [{"text": ""}]}, "index": 0}
    body = {"candidates": [candidate], "modelVersion": received.model, "responseId": f"resp_{received.number:04}"}
    if end is None:
        return body
    candidate["finishReason"] = STOPS[end.stop]
    return {**body, "usageMetadata": _usage(end)}


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "promptTokenCount": reply.all_tokens_in,
        "cachedContentTokenCount": reply.cache_read,
        "candidatesTokenCount": reply.tokens_out,
        "totalTokenCount": reply.all_tokens_in + reply.tokens_out,
    }


def _data(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
