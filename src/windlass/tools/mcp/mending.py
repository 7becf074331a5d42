"""A list of tools, so that one that is malformed does not cost the others.

The library takes a list as a whole or not at all. So each tool is looked at before the library sees it: what we do not
use is left out, what is not what the protocol says is replaced by what says nothing, and `described` tells of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

__all__ = ["MENDED", "Mending", "mend"]

MENDED = "(what stood here was no schema of an object)"
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")


def mend(message: Any) -> None:
    """Change the answer to `tools/list` in place; other messages stay as they are."""
    result = getattr(message, "result", None)
    if isinstance(result, dict) and isinstance(tools := result.get("tools"), list):
        result["tools"] = [_tool(raw) for raw in tools if isinstance(raw, dict) and isinstance(raw.get("name"), str)]


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    tool = {key: raw[key] for key in ("name", "title", "description") if isinstance(raw.get(key), str)}
    schema, returns = raw.get("inputSchema"), raw.get("outputSchema")
    if isinstance(schema, dict) and schema.get("type", "object") == "object":
        tool["inputSchema"] = {"type": "object", **schema}
    else:
        tool["inputSchema"] = {"type": "object", "$comment": MENDED}
    if isinstance(returns, dict) and returns.get("type") == "object":
        tool["outputSchema"] = returns
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
    running = raw.get("execution")
    if isinstance(running, dict) and running.get("taskSupport") == "required":
        tool["execution"] = {"taskSupport": "required"}
    return tool


class Mending:
    """A stream of messages of the library's, with every list mended."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        return _mended(await self._stream.receive())

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return _mended(await self._stream.__anext__())

    async def __aenter__(self) -> Mending:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


def _mended(item: Any) -> Any:
    mend(getattr(item, "message", None))
    return item
