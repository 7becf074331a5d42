"""Bodies of requests to the API, checked to be sound JSON before anything else reads them.

Refused are other types than JSON, texts that are no UTF-8 or no JSON, numbers that are none (NaN), half characters, and
nesting so deep that code which walks through it would run out of stack. The guard has counted the bytes before.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.server.problems import problem

__all__ = ["BODY", "DEEPEST", "SoundBodies", "body_refusal", "trouble_with"]

BODY = "windlass.body"
"""Key in the scope of the whole body, for middleware that needs it."""
DEEPEST = 64
"""Lists and objects inside each other."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class SoundBodies:
    """Wraps an ASGI application; looks after what is under `prefix`."""

    def __init__(self, app: ASGIApp, prefix: str = "/api/") -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return  # whoever asked has left
        refused = body_refusal(Headers(scope=scope).get("content-type", ""), body) if body else None
        if refused is not None:
            await refused(scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        scope[BODY] = body  # in place: those outside look at the scope, too
        await self._app(scope, again, send)


async def _read(receive: Receive) -> bytes | None:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


def body_refusal(content_type: str, body: bytes) -> Response | None:
    """The answer to a body that is not sound JSON, or None."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        advice = ("send it with `Content-Type: application/json`",)
        return problem(415, "not JSON", f"the body is {kind or 'of no named type'}, but this takes JSON", advice=advice)
    trouble = trouble_with(body)
    return None if trouble is None else problem(400, "not valid JSON", f"the body {trouble}")


def trouble_with(body: bytes) -> str | None:
    """The fault of a body as JSON, or None."""
    try:
        found = msgspec.json.decode(body)
    except RecursionError:
        return f"is nested deeper than {DEEPEST} levels"
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        return f"cannot be read: {error}"
    return f"is nested deeper than {DEEPEST} levels" if _deeper(found, DEEPEST) else None


def _deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and objects are nested deeper than that; level by level, without recursion."""
    level = [value]
    for _ in range(levels + 1):
        inner = [v for v in level if isinstance(v, list | dict)]
        if not inner:
            return False
        level = [child for v in inner for child in (v.values() if isinstance(v, dict) else v)]
    return True
