"""Pass an agent's `session/update` notifications on to the engine's host, and add up its usage.

The protocol knows tools by their kinds (`read`, `edit`, `execute` …): these are their names here. A use of one of the
engine's tools has the engine's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from windlass.core.events import Usage
from windlass.ports import Host
from windlass.prices import Prices
from windlass.runners.tool_server import SERVER

__all__ = ["UpdateListener", "text_of", "tool_kind"]

WIDTH = 200
MCP_CALL = {"server", "tool", "arguments"}
"""The fields by which Codex describes the call of an MCP server's tool."""


class UpdateListener:
    """Collects the text, tool calls and usage of one turn."""

    def __init__(
        self, host: Host, prices: Prices, model: str, ours: Mapping[str, str], *, counts_calls: bool, names_server: bool
    ) -> None:
        """`ours`: the engine's tools by the names that the agent is told. `counts_calls`: each `usage_update` is about
        one call of the model, and they add up. `names_server`: the input of an MCP tool's call names its server."""
        self._host, self._prices, self._ours = host, prices, ours
        self._counts_calls, self._names_server = counts_calls, names_server
        self._calls: dict[str, Mapping[str, Any]] = {}
        """Tool calls by their ids, as far as they are known."""
        self._acted: set[str] = set()
        self._returned: set[str] = set()
        self._pieces: list[str] = []
        self._thoughts: list[str] = []
        self._message = ""
        self._before = ""
        self._used = 0
        self.model = model
        self.live = False
        """False while the agent repeats the conversation so far."""

    @property
    def output(self) -> str:
        """The text since the last use of a tool; where there is none, the text before it."""
        return self.last_output or self._before

    @property
    def last_output(self) -> str:
        """The text since the last use of a tool, be it empty."""
        return "".join(self._pieces)

    @property
    def has_answered(self) -> bool:
        return bool(self._pieces or self._before or self._calls or self._used)

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not self.live or not isinstance(update, Mapping):
            return
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._text(str(update.get("messageId") or ""), text_of(update.get("content")))
            case "agent_thought_chunk":
                self._thoughts.append(text_of(update.get("content")))
            case "tool_call" | "tool_call_update":
                call = self._calls[str(update.get("toolCallId"))] = self.known(update)
                self._tool(call)
            case "usage_update":
                self._context(update.get("used"))

    def known(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """The call, with all that was said of it before: updates and requests for permission have what changed."""
        before = self._calls.get(str(call.get("toolCallId")), {})
        return {**before, **{name: value for name, value in call.items() if value not in (None, [], "")}}

    def end_message(self) -> None:
        """Pass the agent's message on, whole."""
        self.finish()
        self._before = self.last_output or self._before
        self._pieces = []

    def finish(self) -> None:
        """Pass the last message on, whole; it stays the output."""
        text, thinking = self.last_output, "".join(self._thoughts)
        if text or thinking:
            self._host.spoke(text, thinking)
        self._thoughts = []

    def usage(self, responses: list[Mapping[str, Any]], *, complete: bool) -> Usage:
        """Return the usage of the turn. Not `complete`: it was cut off, so the cost is at least that much."""
        told = [found for response in responses if (found := _reported(response)) is not None]
        total = Usage(
            tokens_in=sum(usage.tokens_in for usage in told),
            tokens_out=sum(usage.tokens_out for usage in told),
            cache_read=sum(usage.cache_read for usage in told),
            cache_write=sum(usage.cache_write for usage in told),
            model=next((usage.model for usage in reversed(told) if usage.model), self.model),
        )
        if not told:
            return self._so_far()
        # The price of one request: above a size of prompt, a sum of several may be priced a little too high.
        cost = self._prices.cost(total.model, total) if total.model else None
        if cost is None:
            return total
        return replace(total, usd=cost, source="prices") if complete else replace(total, at_least=cost)

    def tell_usage(self, responses: list[Mapping[str, Any]]) -> None:
        """Tell the host what the responses so far report, if the last one does."""
        if _reported(responses[-1]) is not None:
            self._host.usage(self.usage(responses, complete=False))

    def ours(self, call: Mapping[str, Any]) -> str | None:
        """The engine's name of its tool that a call is about; None for a tool of the agent's own.

        The model must not be able to pass another tool off as one: of a tool's arguments nothing is believed, and of
        its title nothing but where no kind is known."""
        key = str(call.get("toolCallId"))
        first = self._calls.get(key, call)
        raw, title = first.get("rawInput"), str(first.get("title"))
        if self._names_server and isinstance(raw, Mapping) and raw.keys() == MCP_CALL and raw["server"] == SERVER:
            return self._ours.get(str(raw["tool"]))
        if tool_kind(first) != "other":
            return None
        for told, name in self._ours.items():
            if key.startswith(f"mcp_{SERVER}_{told}__") or title in (f"{SERVER}_{told}", f"mcp__{SERVER}__{told}"):
                return name  # Gemini CLI; OpenCode and Claude Code
        return None

    def _so_far(self) -> Usage:
        # It does not say which of them went in and which came out.
        return Usage(tokens_in=self._used, model=self.model)

    def _context(self, used: Any) -> None:
        if isinstance(used, int) and used > 0:
            self._used = self._used + used if self._counts_calls else max(self._used, used)
            self._host.usage(self._so_far())

    def _text(self, message: str, text: str) -> None:
        if message != self._message and self._pieces:
            self.end_message()
        self._message = message
        if text:
            self._pieces.append(text)
            self._host.text(text)

    def _tool(self, call: Mapping[str, Any]) -> None:
        key, status, tool = str(call.get("toolCallId")), call.get("status"), self.ours(call) or tool_kind(call)
        if key not in self._acted and status in ("in_progress", "completed", "failed"):
            self._acted.add(key)
            self.end_message()
            self._host.acted(tool, _one_line(str(call.get("title") or "")), call.get("rawInput"), key)
        if status in ("completed", "failed") and key not in self._returned:
            self._returned.add(key)
            self._host.returned(key, tool, _result(call), failed=status == "failed")


def tool_kind(call: Mapping[str, Any]) -> str:
    return str(call.get("kind") or "other")


def text_of(content: Any) -> str:
    """The text of a content block, or of a list of them."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_of, content)))
    if not isinstance(content, Mapping):
        return ""
    if content.get("type") == "content":
        return text_of(content.get("content"))
    if content.get("type") == "diff":
        return f"{content.get('path')} changed"
    text = content.get("text")
    return text if isinstance(text, str) else ""


def _result(call: Mapping[str, Any]) -> str:
    if text := text_of(call.get("content")):
        return text
    raw = call.get("rawOutput")
    if isinstance(raw, Mapping) and isinstance(said := raw.get("formatted_output") or raw.get("output"), str):
        return said
    return raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False) if raw is not None else ""


def _reported(response: Mapping[str, Any]) -> Usage | None:
    """The usage in the response to a prompt: the protocol's own, or Gemini CLI's, which came before it."""
    usage, meta = response.get("usage"), response.get("_meta")
    quota = meta.get("quota") if isinstance(meta, Mapping) else None
    quota = quota if isinstance(quota, Mapping) else {}
    models = [one for one in quota.get("model_usage") or () if isinstance(one, Mapping)]
    model = str(models[-1].get("model") or "") if models else ""
    if isinstance(usage, Mapping):
        out = _count(usage, "outputTokens") + _count(usage, "thoughtTokens")
        read, written = _count(usage, "cachedReadTokens"), _count(usage, "cachedWriteTokens")
        # Agents differ in whether the tokens of the cache are among the input; they are in the total.
        came_in = _count(usage, "totalTokens") - out or _count(usage, "inputTokens") + read + written
        return Usage(tokens_in=max(came_in, 0), tokens_out=out, cache_read=read, cache_write=written, model=model)
    counted = quota.get("token_count")
    if isinstance(counted, Mapping):
        return Usage(_count(counted, "input_tokens"), _count(counted, "output_tokens"), model=model)
    return None


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
