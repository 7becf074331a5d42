"""Requests of the OpenAI Responses API and of the Gemini API in the shape of chat completions.

`Received` reads every request through `as_chat`, so that scripts ask the same of all protocols. A tool's use becomes a
`tool_calls` entry of the assistant, its result a message with the role `tool`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

__all__ = ["Wire", "as_chat", "gemini_call"]

Wire: TypeAlias = Literal["anthropic", "openai", "responses", "gemini"]

_GEMINI = re.compile(r"/v1(?:beta)?/models/([^/:?]+):(\w+)")


def gemini_call(path: str) -> tuple[str, str] | None:
    """The model and the method of a path of the Gemini API; None for another path."""
    found = _GEMINI.match(path)
    return (found[1], found[2]) if found else None


def as_chat(wire: Wire, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request as chat completions would word it; those of Anthropic and OpenAI's own are left as they are."""
    match wire:
        case "responses":
            system = {"role": "system", "content": body.get("instructions") or ""}
            items = body.get("input")
            items = [{"role": "user", "content": items}] if isinstance(items, str) else items or []
            messages = [_message(item) for item in items if isinstance(item, Mapping)]
            return {**body, "messages": [system, *messages] if messages else [], "tools": list(_functions(body))}
        case "gemini":
            model, method = gemini_call(path) or ("", "")
            system = {"role": "system", "content": _parts(body.get("systemInstruction"))}
            messages = [message for content in _mappings(body.get("contents")) for message in _contents(content)]
            tools = [one for tool in _mappings(body.get("tools")) for one in tool.get("functionDeclarations") or ()]
            return {
                "model": model,
                "stream": method == "streamGenerateContent",
                "messages": [system, *messages] if messages else [],
                "tools": tools,
            }
        case _:
            return body


def _functions(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tools of a request; those of a namespace by their full names, as clients with one level have them."""
    for tool in _mappings(body.get("tools")):
        if tool.get("type") != "namespace":
            yield tool if "name" in tool else {"name": tool.get("type")}
        for inner in _mappings(tool.get("tools")):
            yield {**inner, "name": f"{tool.get('name')}__{inner.get('name')}"}


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            return _use(item.get("name"), item.get("arguments") or item.get("input"))
        case "function_call_output" | "custom_tool_call_output":
            return {"role": "tool", "content": item.get("output")}
        case _:
            return item


def _contents(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    role = "assistant" if content.get("role") == "model" else "user"
    for part in _mappings(content.get("parts")):
        if isinstance(call := part.get("functionCall"), Mapping):
            yield _use(call.get("name"), json.dumps(call.get("args") or {}, ensure_ascii=False))
        elif isinstance(result := part.get("functionResponse"), Mapping):
            yield {"role": "tool", "content": json.dumps(result.get("response"), ensure_ascii=False)}
        else:
            yield {"role": role, "content": str(part.get("text") or "")}


def _use(name: Any, arguments: Any) -> Mapping[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments or ""}}]}


def _parts(content: Any) -> str:
    return "\n".join(str(part.get("text") or "") for part in _mappings((content or {}).get("parts")))


def _mappings(found: Any) -> list[Mapping[str, Any]]:
    return [one for one in found or () if isinstance(one, Mapping)]
