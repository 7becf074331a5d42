"""Replies as the OpenAI Responses API words them: whole, as a stream of events, and as errors.

Nothing here writes to a connection: functions give bodies and frames, `serve.py` sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from windlass.testing.scripted.openai_wire import CREATED, error, listing, model
from windlass.testing.scripted.reply import Received, Reply, Stream, pieces

__all__ = ["error", "error_frame", "listing", "message", "model", "stream"]

REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}


def message(reply: Reply, received: Received) -> dict[str, Any]:
    """The whole response at once."""
    why = REASONS.get(reply.stop)
    return {
        **_envelope(received, "incomplete" if why else "completed"),
        "incomplete_details": {"reason": why} if why else None,
        "output": _items(reply, received),
        "usage": {
            "input_tokens": reply.all_tokens_in,
            "input_tokens_details": {"cached_tokens": reply.cache_read},
            "output_tokens": reply.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.all_tokens_in + reply.tokens_out,
        },
    }


def stream(reply: Reply, received: Received) -> Stream:
    """The response as events: those up to the end of the text, and the rest."""
    return Stream(list(_opening(reply, received)), list(_rest(reply, received)))


def error_frame(status: int, text: str) -> bytes:
    """An error that comes in a stream which had begun well."""
    code = "server_error" if status >= 500 else "rate_limit_exceeded" if status == 429 else "invalid_request"
    return _event({"type": "response.failed", "response": {"error": {"code": code, "message": text}}})


def _opening(reply: Reply, received: Received) -> Iterator[bytes]:
    yield _event({"type": "response.created", "response": _envelope(received, "in_progress")})
    if reply.text:
        said = {**_said(received, ""), "status": "in_progress", "content": []}
        yield _event({"type": "response.output_item.added", "output_index": 0, "item": said})
        where = {"item_id": said["id"], "output_index": 0, "content_index": 0}
        for piece in pieces(reply.text):
            yield _event({"type": "response.output_text.delta", **where, "delta": piece})


def _rest(reply: Reply, received: Received) -> Iterator[bytes]:
    for index, item in enumerate(_items(reply, received)):
        yield _event({"type": "response.output_item.done", "output_index": index, "item": item})
    whole = message(reply, received)
    yield _event({"type": f"response.{whole['status']}", "response": whole})


def _items(reply: Reply, received: Received) -> list[dict[str, Any]]:
    said = [_said(received, reply.text)] if reply.text else []
    return said + [
        {
            "type": "function_call",
            "id": f"fc_{received.number:04}_{index}",
            "call_id": f"call_{received.number:04}_{index}",
            **_named(use.name, received),
            "arguments": json.dumps(use.input, ensure_ascii=False),
            "status": "completed",
        }
        for index, use in enumerate(reply.uses)
    ]


def _named(tool: str, received: Received) -> dict[str, str]:
    """A tool of a namespace is called by both names."""
    offered = (one for one in received.body.get("tools") or () if one.get("type") == "namespace")
    space = next((str(one["name"]) for one in offered if tool.startswith(f"{one['name']}__")), "")
    return {"name": tool.removeprefix(f"{space}__"), "namespace": space} if space else {"name": tool}


def _said(received: Received, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = f"msg_{received.number:04}"
    return {"type": "message", "id": item, "role": "assistant", "status": "completed", "content": content}


def _envelope(received: Received, status: str) -> dict[str, Any]:
    name = f"resp_{received.number:04}"
    return {"id": name, "object": "response", "created_at": CREATED, "status": status, "model": received.model}


def _event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
