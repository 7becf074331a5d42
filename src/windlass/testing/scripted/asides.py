"""Which requests are asides: side calls of Claude Code and OpenCode that must not use up the script.

Both runtimes ask a model for more than the conversation: session titles, probes of a quota or a model, summaries of web
pages and of what was done. A request is an aside when all of this holds:

1. it comes from one of the two (by its `user-agent`): a plain client always gets the script;
2. it offers no tools: the conversations of both do, unless the user takes every tool away;
3. it asks for a single token (a probe), or its system prompt is one that the runtime keeps for side calls, or its
   session has offered tools before.

What this gets wrong for your test, `ScriptedModel(aside=…)` decides instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.testing.scripted.received import Received
from windlass.testing.scripted.reply import Reply

__all__ = ["Asides", "answer_to_aside"]

RUNTIMES = ("claude-cli/", "opencode/")
SESSIONS = ("x-claude-code-session-id", "x-session-id")
"""The headers in which they name the session."""
SIDE_PROMPTS = (
    "You are naming a coding session",  # Claude Code: the session's title
    "You are a title generator",  # OpenCode: the same
    "You are a context summarization agent",  # OpenCode: compaction
    "Summarize what was done in this conversation",  # OpenCode: a session's summary
)
ANSWER = "Scripted"


class Asides:
    """The rule, and the sessions that have offered tools so far."""

    def __init__(self) -> None:
        self._with_tools: set[str] = set()

    def __call__(self, received: Received) -> bool:
        if not received.headers.get("user-agent", "").startswith(RUNTIMES):
            return False
        session = next((received.headers[name] for name in SESSIONS if name in received.headers), "")
        if received.tools:
            self._with_tools.add(session)
            return False
        return (
            received.body.get("max_tokens") == 1
            or any(prompt in received.system for prompt in SIDE_PROMPTS)
            or (session != "" and session in self._with_tools)
        )


def answer_to_aside(received: Received) -> Reply:
    """Something short; where the answer must follow a schema, the smallest object that does.

    It costs nothing: what a runtime adds up is then what the script says, however many asides there were.
    """
    schema = _schema(received.body)
    return Reply.say(ANSWER if schema is None else json.dumps(_smallest(schema)), tokens_in=0, tokens_out=0)


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    anthropic = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    openai = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    found = anthropic or openai
    return found if isinstance(found, Mapping) else None


def _smallest(schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "object":
            properties = schema.get("properties") or {}
            return {name: _smallest(properties.get(name) or {}) for name in schema.get("required") or ()}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return 0
        case _:
            return (schema.get("enum") or [ANSWER])[0]
