"""A client's request as `Received`, with the properties that tests look at, for both protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Protocol", "Received"]

Protocol = Literal["anthropic", "openai"]


@dataclass(frozen=True, slots=True)
class Received:
    """One request for a reply."""

    protocol: Protocol
    path: str
    """With its query: `/v1/messages?beta=true`."""
    headers: Mapping[str, str] = field(repr=False)
    """By lower-case name."""
    body: Mapping[str, Any] = field(repr=False)
    number: int = 0
    """Its place among all requests, from 1, asides included."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True

    @property
    def system(self) -> str:
        """The system prompt's text."""
        if self.protocol == "anthropic":
            return "\n".join(_texts(self.body.get("system")))
        return "\n".join(text for m in self._all_messages if m.get("role") in _SYSTEM for text in _texts(m))

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The conversation as it was sent, without the system prompt."""
        return tuple(m for m in self._all_messages if m.get("role") not in _SYSTEM)

    @property
    def last_user_text(self) -> str:
        """The text of the last user message that has any; results of tools do not count."""
        for message in reversed(self.messages):
            if message.get("role") == "user" and (text := "\n".join(_texts(message, results=False))):
                return text
        return ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """Results of tools since the model's last message."""
        found: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                break
            blocks = [message] if message.get("role") == "tool" else _blocks(message)
            results = [b for b in blocks if b.get("role") == "tool" or b.get("type") == "tool_result"]
            found[:0] = ["\n".join(_texts(result)) for result in results]
        return tuple(found)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the model may use."""
        offered = [tool for tool in self.body.get("tools") or () if isinstance(tool, Mapping)]
        return tuple(str(tool.get("name") or (tool.get("function") or {}).get("name")) for tool in offered)

    @property
    def text(self) -> str:
        """All text for the model: system prompt, conversation, uses and results of tools; not their schemas."""
        told = [self.system, *(text for message in self.messages for text in _texts(message))]
        return "\n".join(text for text in told if text)

    @property
    def _all_messages(self) -> list[Mapping[str, Any]]:
        return [m for m in self.body.get("messages") or () if isinstance(m, Mapping)]


_SYSTEM = ("system", "developer")


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [b for b in content if isinstance(b, Mapping)] if isinstance(content, list) else []


def _texts(part: Any, *, results: bool = True) -> Iterator[str]:
    """Every text in a message, a block or a list of them."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for inner in part:
            yield from _texts(inner, results=results)
    elif isinstance(part, Mapping):
        if part.get("type") == "tool_result" and not results:
            return
        if isinstance(part.get("text"), str):
            yield part["text"]
        if part.get("type") == "tool_use":
            yield json.dumps(part.get("input"), ensure_ascii=False)
        for call in part.get("tool_calls") or ():
            yield str((call.get("function") or {}).get("arguments", ""))
        yield from _texts(part.get("content"), results=results)
