"""The part of a scripted model that server and test share: which request gets which reply, and the notes of it all.

The server's thread writes, the test's thread reads: everything that changes, changes under `arrived`.

Side questions are calls of Claude Code, OpenCode and Gemini CLI that must not use up the script. They ask a model for
more than the conversation: session titles, probes of a quota or a model, summaries of web pages and of what was done. A
request is an aside when all of this holds:

1. it comes from one of them (by its `user-agent`): a plain client always gets the script;
2. it offers no tools: their conversations do, unless the user takes every tool away;
3. it asks for a single token (a probe), or its system prompt is one that the runtime keeps for side calls, or its
   session has offered tools before, or it is Gemini CLI's, which names no session.

Where this is wrong for your test, `ScriptedModel(aside=…)` decides instead.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from windlass.testing.scripted.http import Request
from windlass.testing.scripted.reply import Chooser, Received, Reply, Wire

__all__ = ["Aside", "ReplyScript", "ScriptedConversation", "Served", "SideQuestions"]

AGENT_PROGRAMS = ("claude-cli/", "opencode/", "GeminiCLI")
SESSIONS = ("x-claude-code-session-id", "x-session-id")
"""The headers in which they name the session."""
SIDE_PROMPTS = (
    "You are naming a coding session",  # Claude Code: the session's title
    "You are a title generator",  # OpenCode: the same
    "You are a context summarization agent",  # OpenCode: compaction
    "Summarize what was done in this conversation",  # OpenCode: a session's summary
)
ANSWER = "Scripted"


class SideQuestions:
    """The rule, and the sessions that have offered tools so far."""

    def __init__(self) -> None:
        self._with_tools: set[str] = set()

    def __call__(self, received: Received) -> bool:
        if not received.headers.get("user-agent", "").startswith(AGENT_PROGRAMS):
            return False
        session = next((received.headers[name] for name in SESSIONS if name in received.headers), "")
        if received.tools:
            self._with_tools.add(session)
            return False
        return (
            received.protocol == "gemini"
            or received.body.get("max_tokens") == 1
            or any(prompt in received.system for prompt in SIDE_PROMPTS)
            or (session != "" and session in self._with_tools)
        )


def answer_to_aside(received: Received) -> Reply:
    """Something short; where the answer must follow a schema, the smallest object that does.

    It costs nothing: a runtime's sum is that of the script, however many asides there were.
    """
    schema = _schema(received.body)
    return Reply.say(ANSWER if schema is None else json.dumps(_smallest(schema)), tokens_in=0, tokens_out=0)


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    anthropic = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    openai = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    gemini = (body.get("generationConfig") or {}).get("responseJsonSchema")
    found = anthropic or openai or gemini
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


NOTHING_LEFT = "the script has no reply left for this request"
ReplyScript: TypeAlias = Sequence[Reply] | Reply | Callable[[Received], Reply]
Aside: TypeAlias = Callable[[Received], bool | Reply]


class Served(NamedTuple):
    """Totals of all replies that were sent whole; errors, broken streams and asides count nothing."""

    replies: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0


class ScriptedConversation:
    """A `ReplySource` for `serve.py`."""

    def __init__(self, script: ReplyScript, aside: Aside, models: Sequence[str]) -> None:
        self.requests: list[Received] = []
        self.asides: list[Received] = []
        self.counts: list[Received] = []
        self.errors: list[str] = []
        self.total = Served()
        self.models = tuple(models)
        self.arrived = threading.Condition()
        self._chooser: Chooser[Received, Reply] = Chooser(_entries(script), lambda received: received.text)
        self._aside = aside
        self._numbers = 0

    def reply_to(self, wire: Wire, request: Request, body: dict[str, Any]) -> tuple[Received, Reply]:
        with self.arrived:
            received = self._receive(wire, request, body)
            try:
                return received, self._choose(received)
            except Exception as error:  # the user's function: its fault belongs in `errors`, not in a lost thread
                self.errors.append(f"{_name(received)}: the script raised {type(error).__name__}: {error}")
                return received, Reply.error(500, self.errors[-1])
            finally:
                self.arrived.notify_all()

    def counted(self, wire: Wire, request: Request, body: dict[str, Any]) -> int:
        """Four letters a token: nobody's truth, and always the same."""
        with self.arrived:
            received = self._receive(wire, request, body)
            self.counts.append(received)
        return len(received.text) // 4 + 1

    def served(self, received: Received, reply: Reply) -> None:
        with self.arrived:
            if any(aside is received for aside in self.asides):
                return
            was = self.total
            self.total = Served(
                was.replies + 1,
                was.tokens_in + reply.all_tokens_in,
                was.tokens_out + reply.tokens_out,
                was.cache_read + reply.cache_read,
                was.cache_write + reply.cache_write,
            )

    def wrong(self, what: str) -> None:
        with self.arrived:
            self.errors.append(what)

    def complaints(self) -> list[str]:
        """Everything that a test should not pass over."""
        with self.arrived:
            return [*self.errors, *self._chooser.unused()]

    def _receive(self, wire: Wire, request: Request, body: dict[str, Any]) -> Received:
        self._numbers += 1
        return Received(wire, request.target, request.headers, body, self._numbers)

    def _choose(self, received: Received) -> Reply:
        aside = self._aside(received)
        if aside:
            self.asides.append(received)
            return aside if isinstance(aside, Reply) else answer_to_aside(received)
        self.requests.append(received)
        reply = self._chooser.choose(received)
        if isinstance(reply, Reply):
            self._note_unknown_tools(received, reply)
            return reply
        if reply is not None:
            raise TypeError(f"it gave {reply!r} instead of a Reply")
        self.errors.append(f"{_name(received)}: {NOTHING_LEFT}")
        return Reply.error(400, NOTHING_LEFT)

    def _note_unknown_tools(self, received: Received, reply: Reply) -> None:
        """A misspelt tool would be used in vain, and the test would look as if all were well.

        Tools that are only named in the text count as offered: Claude Code lets a model search for some of its tools.
        """
        for use in () if reply.invented else reply.uses:
            if use.name not in received.tools and use.name not in received.text:
                offered = ", ".join(received.tools) or "none"
                self.errors.append(f"{_name(received)}: the reply uses {use.name!r}; the tools on offer are {offered}")


def _entries(script: ReplyScript) -> Sequence[Reply] | Callable[[Received], Reply]:
    if isinstance(script, Reply):
        return [script]
    if not callable(script):
        for reply in script:
            if not isinstance(reply, Reply):
                raise TypeError(f"a script is made of Reply values, and this is none: {reply!r}")
    return script


def _name(received: Received) -> str:
    """Describe a request in a list of errors."""
    said = " ".join(received.last_user_text.split())
    return f"request {received.number} ({received.path}, {len(received.messages)} messages, last: {said[-60:]!r})"
