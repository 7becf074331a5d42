"""Rebuild a conversation from the journal, when its file is lost, damaged or shorter than it was (K1).

The journal has the prompts, the text of each reply, the tool calls that were begun and their results. It lacks
thoughts, and calls that were never begun: the model can make those again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from windlass.core import events as ev
from windlass.ports import ToolSpec
from windlass.runners.model_api.conversation import Conversation
from windlass.runners.toolbox import UNKNOWN_OUTCOME, ModelTools
from windlass.runtimes import CLI

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

__all__ = ["completed", "rebuilt"]

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def rebuilt(folder: Path, session: str, history: Sequence[ev.Event]) -> Conversation | None:
    """The conversation of that name as far as a step's events hold it; None without any reply in them."""
    events = _of_session(session, history)
    if not any(isinstance(event, ev.AgentSpoke | ev.AgentActed) for event in events):
        return None
    found = Conversation(folder, session)
    found.carry(_messages(session, events, history), _last_number(events))
    return found


def completed(found: Conversation, folder: Path, history: Sequence[ev.Event]) -> Conversation | None:
    """The conversation with the replies that the journal has and its file lost; None where the file has them all.

    Where the file also lost what those replies answer, all of it comes from the journal.
    """
    events = _of_session(found.session, history)
    lost = next((i for i, e in enumerate(events) if isinstance(e, ev.AgentSpoke) and e.number > found.replies), None)
    if lost is None:
        return None
    if not found.awaits_reply:
        return rebuilt(folder, found.session, history)
    found.carry(_messages(found.session, events[lost:], history), _last_number(events))
    return found


def _messages(session: str, events: Sequence[ev.Event], history: Sequence[ev.Event]) -> list[ModelMessage]:
    turns = _Turns(session, [event.tool for event in history if isinstance(event, ev.AgentActed)])
    told = {event.id: event.text for event in history if isinstance(event, ev.AgentTold)}
    for event in events:
        if isinstance(event, ev.AgentHeard):
            turns.say(told[id] for id in event.ids if id in told)
        else:
            turns.take(event)
    turns.close()
    return turns.messages


def _last_number(events: Sequence[ev.Event]) -> int:
    return max((event.number for event in events if isinstance(event, ev.AgentSpoke)), default=0)


def _of_session(session: str, history: Sequence[ev.Event]) -> list[ev.Event]:
    """The events from the attempt that began the conversation."""
    named = next((i for i, e in enumerate(history) if isinstance(e, ev.AgentSession) and e.session == session), None)
    if named is None:
        return []
    begins = [i for i, e in enumerate(history[:named]) if isinstance(e, ev.AgentBegan)]
    end = next(
        (
            i
            for i, e in enumerate(history[named:], named)
            if isinstance(e, ev.AgentSession) and e.session not in (session, None) and e.runtime == CLI.name
        ),
        len(history),
    )
    found = history[begins[-1] if begins else named : end]
    runtimes = {e.attempt: e.runtime for e in found if isinstance(e, ev.AgentBegan)}
    return [e for e in found if runtimes.get(getattr(e, "attempt", 0)) == CLI.name]


class _Turns:
    """Puts the messages together: calls follow the reply that they belong to, and their results follow all of them."""

    def __init__(self, session: str, tools: Sequence[str]) -> None:
        self.messages: list[ModelMessage] = []
        self._session = session
        specs = [ToolSpec(tool, "", {}) for tool in dict.fromkeys(tools)]
        wired = ModelTools(specs).specs
        self._names = {spec.name: wire.name for spec, wire in zip(specs, wired, strict=True)}
        self._prompt: str | None = None
        self._text: str | None = None
        self._calls: dict[str, ev.AgentActed] = {}
        self._results: dict[str, ev.AgentReturned] = {}

    def say(self, texts: Iterable[str]) -> None:
        """Add messages of people."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        self.close()
        self.messages += [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]

    def take(self, event: ev.Event) -> None:
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        match event:
            case ev.AgentBegan():
                self.close()
                if event.prompt and (event.prompt != self._prompt or self.messages[-1].kind == "response"):
                    part, self._prompt = UserPromptPart(event.prompt), event.prompt
                    self.messages.append(ModelRequest(parts=[part], instructions=event.system or None))
            case ev.AgentSpoke():
                self.close()
                self._text = event.text
            case ev.AgentActed() if event.call:
                self._calls[event.call] = event
            case ev.AgentReturned() if event.call:
                self._results[event.call] = event

    def close(self) -> None:
        """End the reply: every call has a result in what is sent, so one without gets the word that it is unknown."""
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

        text = [TextPart(self._text)] if self._text else []
        calls, returns = [], []
        for call, acted in self._calls.items():
            # As an API takes them: letters, digits and few of them.
            id = f"call-{_FOREIGN.sub('-', call.removeprefix(f'{self._session}:'))}"[-40:]
            name, result = self._names[acted.tool], self._results.get(call)
            calls.append(ToolCallPart(name, acted.input if acted.input is not None else {}, id))
            outcome: Literal["success", "failed"] = "success" if result and not result.failed else "failed"
            returns.append(ToolReturnPart(name, result.text if result else UNKNOWN_OUTCOME, id, outcome=outcome))
        if text or calls:
            self.messages.append(ModelResponse(parts=[*text, *calls]))
        if returns:
            self.messages.append(ModelRequest(parts=returns))
        self._text, self._calls, self._results = None, {}, {}
