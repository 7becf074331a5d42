"""The conversation, in a file that survives the process (`conversation.json` in the step's scratch folder).

    {"format": "windlass.conversation", "version": 1, "session": "…", "begun": ["…"], "messages": […]}

It is written under another name, fsynced and renamed, after every reply and after every tool's result: a reader finds
a whole one or none. `begun` names the uses of tools that must not be repeated and were begun: one that has no result
when the file is read again was under way when the process was stopped, and its outcome is unknown.
`messages` are pydantic_ai's own, which are the same for every provider.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from windlass.runners.toolbox import ModelCall, clean

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart

__all__ = ["FILE", "Conversation", "Lost", "Unwritable"]

FILE = "conversation.json"
_FORMAT, _VERSION = "windlass.conversation", 1


class Lost(Exception):
    """The conversation to go on with cannot be had; the text says why."""


class Unwritable(Exception):
    """The conversation cannot be written down: going on would not be durable."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Conversation:
    def __init__(self, folder: Path, session: str, messages: list[ModelMessage], begun: Sequence[str] = ()) -> None:
        self._folder = folder
        self.session = session
        self.messages = messages
        self._begun = list(begun)
        self._turn = asyncio.Lock()

    @classmethod
    def new(cls, folder: Path) -> Conversation:
        return cls(folder, str(uuid.uuid4()), [])

    @classmethod
    def load(cls, folder: Path, session: str) -> Conversation:
        """The conversation of that name, or `Lost`."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        path = folder / FILE
        try:
            found = json.loads(path.read_bytes())
        except OSError as error:
            raise Lost(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise Lost(f"{path} is damaged: {error}") from error
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise Lost(f"{path} is no conversation of this runtime")
        if found.get("version") != _VERSION:
            raise Lost(f"{path} has version {found.get('version')!r}, this Windlass reads {_VERSION}")
        if found.get("session") != session:
            raise Lost(f"{path} holds another conversation than {session}")
        begun = found.get("begun")
        if not isinstance(begun, list) or not all(isinstance(use, str) for use in begun):
            raise Lost(f"{path} is damaged: it does not say what was begun")
        try:
            messages = ModelMessagesTypeAdapter.validate_python(found.get("messages"))
        except ValueError as error:  # pydantic's own error is one
            raise Lost(f"{path} is damaged: {str(error).splitlines()[0]}") from error
        return cls(folder, session, messages, begun)

    # -- messages ----------------------------------------------------------------------------------

    def prompt(self, text: str, system: str) -> None:
        """Add the user's next prompt. `system` is the system prompt from here on."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        if self.messages and _asks(self.messages[-1]) == clean(text):
            self.messages.pop()  # an attempt that got no reply asked the same: once is enough
        self.messages.append(ModelRequest(parts=[UserPromptPart(clean(text))], instructions=clean(system) or None))

    def reply(self, response: ModelResponse) -> None:
        """The model's reply. Calls with the same id (some local servers count from 0 each time) are told apart."""
        from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

        seen: set[str] = set()
        parts = []
        for part in response.parts:
            if isinstance(part, TextPart | ThinkingPart):
                part = dataclasses.replace(part, content=clean(part.content))
            elif isinstance(part, ToolCallPart):
                if part.tool_call_id in seen:
                    part = dataclasses.replace(part, tool_call_id=f"{part.tool_call_id}-{len(seen)}")
                if isinstance(part.args, str):
                    part = dataclasses.replace(part, args=clean(part.args))
                seen.add(part.tool_call_id)
            parts.append(part)
        self.messages.append(dataclasses.replace(response, parts=parts))

    def partial(self, text: str) -> None:
        """Words of a reply that broke off. Half a tool call, or half a thought, cannot be sent back to a model."""
        from pydantic_ai.messages import ModelResponse, TextPart

        if text.strip():
            self.messages.append(ModelResponse(parts=[TextPart(text)]))

    def pending(self) -> list[ModelCall]:
        """The tool calls of the last reply that have no result yet, in their order."""
        _, calls, answers = self._open()
        reply = sum(1 for message in self.messages if message.kind == "response")
        return [
            ModelCall(call.tool_call_id, call.tool_name, call.args, f"{self.session}:{reply}:{place}")
            for place, call in enumerate(calls, 1)
            if call.tool_call_id not in answers
        ]

    def answer(self, call: ModelCall, text: str, *, failed: bool) -> None:
        """A tool's result. Results stand in the order of their calls, whichever came first."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        place, calls, answers = self._open()
        outcome: Any = "failed" if failed else "success"
        answers[call.id] = ToolReturnPart(call.name, text, call.id, outcome=outcome)
        parts = [answers[each.tool_call_id] for each in calls if each.tool_call_id in answers]
        self.messages[place + 1 :] = [ModelRequest(parts=parts)]

    def _open(self) -> tuple[int, list[ToolCallPart], dict[str, ToolReturnPart]]:
        """Return the index of the reply whose calls are being answered, its calls, and the answers so far."""
        from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

        answers: dict[str, ToolReturnPart] = {}
        for place in range(len(self.messages) - 1, -1, -1):
            message = self.messages[place]
            if isinstance(message, ModelResponse):
                return place, [part for part in message.parts if isinstance(part, ToolCallPart)], answers
            returns = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            if not isinstance(message, ModelRequest) or len(returns) != len(message.parts):
                break  # the user has spoken since: nothing is open
            answers = {part.tool_call_id: part for part in returns}
        return len(self.messages), [], {}

    # -- uses that must not be repeated ----------------------------------------------------------------

    def begin(self, call: ModelCall) -> None:
        self._begun.append(call.use_id)

    def was_begun(self, call: ModelCall) -> bool:
        return call.use_id in self._begun

    # -- the file --------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Write it, in a thread; the writes of one conversation come one after the other."""
        async with self._turn:
            content = self._content()
            writing = asyncio.ensure_future(asyncio.to_thread(_write, self._folder, content))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # An older file must not come after a newer one: the write ends before the cancellation goes on.
                await asyncio.wait({writing})
                raise

    def keep_now(self) -> None:
        """Write it at once, during a cancellation."""
        _write(self._folder, self._content())

    def _content(self) -> bytes:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        head = {"format": _FORMAT, "version": _VERSION, "session": self.session, "begun": self._begun}
        return (
            json.dumps(head).encode()[:-1]
            + b', "messages": '
            + ModelMessagesTypeAdapter.dump_json(self.messages)
            + b"}"
        )


def _asks(message: ModelMessage) -> str | None:
    """The text of a message in which the user says one thing and nothing else."""
    from pydantic_ai.messages import UserPromptPart

    match message.parts:
        case [UserPromptPart(content=str(text))]:
            return text
    return None


def _write(folder: Path, content: bytes) -> None:
    try:
        _write_file(folder, content)
    except OSError as error:
        raise Unwritable(error) from error


def _write_file(folder: Path, content: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{FILE}.{token_hex(4)}.tmp"
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
