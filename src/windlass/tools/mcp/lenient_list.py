"""A list of tools in which a malformed tool does not cost the others.

The library takes a list as a whole or not at all. So each tool is looked at before the library sees it: fields that we
do not use are left out, values that the protocol does not allow are replaced by empty ones, and `described` reports it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

__all__ = ["NO_SCHEMA", "LenientStream", "repair"]

NO_SCHEMA = "(what stood here was no schema of an object)"
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")


def repair(message: Any) -> None:
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
        tool["inputSchema"] = {"type": "object", "$comment": NO_SCHEMA}
    if isinstance(returns, dict) and returns.get("type") == "object":
        tool["outputSchema"] = returns
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
    running = raw.get("execution")
    if isinstance(running, dict) and running.get("taskSupport") == "required":
        tool["execution"] = {"taskSupport": "required"}
    return tool


class LenientStream:
    """A stream of messages of the library's, with every list repaired."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        return _repaired(await self._stream.receive())

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return _repaired(await self._stream.__anext__())

    async def __aenter__(self) -> LenientStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


def _repaired(item: Any) -> Any:
    repair(getattr(item, "message", None))
    return item
