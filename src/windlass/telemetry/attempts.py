"""Attempts as spans, and the parts of them that the GenAI conventions give a form: usage, providers, messages."""

from __future__ import annotations

from typing import Any

from windlass.core import events as ev
from windlass.plan.model import AGENT
from windlass.telemetry.spans import OpenSpan, as_json

__all__ = ["AttemptSpan", "message_text", "output_text", "provider_of", "set_usage"]


class AttemptSpan(OpenSpan):
    __slots__ = (
        "answered",
        "calls",
        "chat",
        "model",
        "replied",
        "runtime",
        "said",
        "since",
        "spoken_at",
        "tool",
        "usage",
    )

    def __init__(self, id: int, parent: int, event: ev.AttemptStarted) -> None:
        name = "invoke_agent" if event.tool == AGENT else f"execute_tool {event.tool}"
        super().__init__(id, parent, name, event.at)
        self.tool = event.tool
        self.calls = 0
        self.since = event.at
        """When the model was last given something to answer."""
        self.chat: OpenSpan | None = None
        """The call of the model whose reply is coming in."""
        self.said = ""
        self.spoken_at = event.at
        """The last part of that reply."""
        self.replied = False
        """The model was given something new since: only its usage may still belong to the reply."""
        self.answered = False
        """The last reply is complete, and the model was given nothing new."""
        self.model = self.runtime = ""
        self.usage: ev.Usage | None = None


def set_usage(span: OpenSpan, usage: ev.Usage) -> None:
    span.gen_ai(
        response__model=usage.model,
        usage__input_tokens=usage.tokens_in,
        usage__output_tokens=usage.tokens_out,
        usage__cache_read__input_tokens=usage.cache_read or None,
        usage__cache_creation__input_tokens=usage.cache_write or None,
    )
    span.set(cost_usd=usage.usd)


def provider_of(runtime: str, model: str) -> str:
    """The provider by the conventions' names where the model tells it, else the runtime."""
    before, colon, _ = model.partition(":")
    if colon:
        return before
    before, slash, _ = model.partition("/")
    if slash:
        return before
    known = {"claude": "anthropic", "gpt": "openai", "gemini": "gcp.gemini", "mistral": "mistral_ai"}
    return next((name for start, name in known.items() if model.startswith(start)), runtime)


def output_text(output: Any, agent: bool) -> str:
    return (
        message_text("assistant", output if isinstance(output, str) else as_json(output)) if agent else as_json(output)
    )


def message_text(role: str, text: str) -> str:
    return as_json([{"role": role, "parts": [{"type": "text", "content": text}]}])
