"""The conversation, in a file that survives the process (`conversation.jsonl` in the step's scratch folder).

    {"format": "windlass.conversation", "version": 2, "session": "…"}
    {"kind": "prompt", "messages": […]}

The first line is its head; each further line is a record that is appended and fsynced, and nothing is ever changed.
`Conversation.load` replays the records with the same method that applied them the first time:

| kind | |
|---|---|
| `prompt`, `reply`, `partial` | a message of the user, of the model, and the words of a reply that broke off |
| `answer` | the result of one tool call of the last reply |
| `begun` | a use of a tool that must not be repeated begins. Without an answer, its outcome is unknown |
| `summary` | `messages` take the place of the first `count` messages (`replace_older`); `about` says more |
| `carried` | `messages` and `begun` uses of an earlier file or of the journal |

A last line without its end was cut off by a crash before anything was built on it: it is dropped. Replies that the
journal has and the file lost are added from there (`rebuild`). Version 1 was `conversation.json`, rewritten whole each
time; it is read, and goes on as version 2.
`messages` are pydantic_ai's own, which are the same for every provider.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from windlass.runners.model_api.attachments import attached, excess_bytes
from windlass.runners.toolbox import ModelCall, clean

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart

    from windlass.ports import PromptAttachment

__all__ = ["FILE", "Conversation", "Lost", "Unwritable"]

FILE = "conversation.jsonl"
FIRST_FILE = "conversation.json"
"""The file of version 1."""
_FORMAT, _VERSION = "windlass.conversation", 2


class Lost(Exception):
    """The conversation to go on with cannot be had; the text says why."""


class Unwritable(Exception):
    """The conversation cannot be written down: going on would not be durable."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Conversation:
    def __init__(self, folder: Path, session: str) -> None:
        self._folder = folder
        self.session = session
        self.messages: list[ModelMessage] = []
        """The messages for the next request."""
        self._sizes: list[int] = []
        self.size = 0
        """Bytes of `messages` as JSON."""
        self.replies = 0
        """Replies ever, also those that a summary stands for: uses of tools are named after them."""
        self.summaries: list[dict[str, Any]] = []
        """Facts that `replace_older` was given about each summary, the oldest first."""
        self.heard: set[str] = set()
        """Ids of people's messages that are in it."""
        self._begun: set[str] = set()
        self._unwritten: list[bytes] = []
        self._length: int | None = None
        """Bytes of the file that are whole; None before it is begun."""
        self._turn = asyncio.Lock()

    @classmethod
    def new(cls, folder: Path) -> Conversation:
        return cls(folder, str(uuid.uuid4()))

    @classmethod
    def load(cls, folder: Path, session: str) -> Conversation:
        """The conversation of that name, or `Lost`."""
        path = folder / FILE
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if (folder / FIRST_FILE).exists():
                return cls._load_first(folder, session)
            raise Lost(f"{path} does not exist") from None
        except OSError as error:
            raise Lost(f"{path} cannot be read: {error.strerror}") from error
        *lines, _cut_off = content.split(b"\n")
        head = _parsed(lines[0] if lines else b"", path)
        _check_head(head, path, _VERSION, session)
        found = cls(folder, session)
        for number, line in enumerate(lines[1:], 2):
            try:
                found._apply(_parsed(line, path), size=len(line))
            except (ValueError, LookupError, TypeError) as error:  # pydantic's own error is a ValueError
                raise Lost(f"{path} is damaged in line {number}: {_first_line(error)}") from error
        found._length = len(content) - len(_cut_off)
        return found

    @classmethod
    def _load_first(cls, folder: Path, session: str) -> Conversation:
        """A conversation of version 1. The next write makes a file of version 2 of it."""
        path = folder / FIRST_FILE
        try:
            head = _parsed(path.read_bytes(), path)
        except OSError as error:
            raise Lost(f"{path} cannot be read: {error.strerror}") from error
        _check_head(head, path, 1, session)
        begun = head.get("begun")
        if not isinstance(begun, list) or not all(isinstance(use, str) for use in begun):
            raise Lost(f"{path} is damaged: its first call is missing")
        try:
            uses = [use.removeprefix(f"{session}:") for use in begun]
            found = cls(folder, session)
            found.carry(_messages(head), begun=uses)
            return found
        except ValueError as error:
            raise Lost(f"{path} is damaged: {_first_line(error)}") from error

    def carry(self, messages: Sequence[ModelMessage], replies: int = 0, begun: Sequence[str] = ()) -> None:
        """Add messages of an earlier file or of the journal; the last reply in them has the number `replies`."""
        counted = self.replies + sum(1 for message in messages if message.kind == "response")
        self._record("carried", messages, begun=list(begun), replies=max(replies, counted))

    def copy(self, folder: Path) -> Conversation:
        """The same conversation under another name, in a file of its own: it goes on without changing this one."""
        copied = Conversation(folder, str(uuid.uuid4()))
        copied.carry(self.messages, self.replies, sorted(self._begun))
        return copied

    # -- messages ----------------------------------------------------------------------------------

    def prompt(self, text: str, system: str, attachments: Sequence[PromptAttachment] = ()) -> None:
        """Add the user's next prompt. `system` is the system prompt from here on."""
        from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart

        files = [BinaryContent(data, media_type=type, identifier=clean(path)) for path, type, data in attachments]
        said = UserPromptPart([clean(text), *files] if files else clean(text))
        self._record("prompt", [ModelRequest(parts=[said], instructions=clean(system) or None)])

    def say(self, text: str, system: str, id: str) -> None:
        """Add a person's message."""
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        said = ModelRequest(parts=[UserPromptPart(clean(text))], instructions=clean(system) or None)
        self._record("prompt", [said], told=id)

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
        self._record("reply", [dataclasses.replace(response, parts=parts)])

    def partial(self, text: str) -> None:
        """Words of a reply that broke off. Half a tool call, or half a thought, cannot be sent back to a model."""
        from pydantic_ai.messages import ModelResponse, TextPart

        if text.strip():
            self._record("partial", [ModelResponse(parts=[TextPart(text)])])

    @property
    def awaits_reply(self) -> bool:
        """True if the last message is for the model, and it has not answered yet."""
        return bool(self.messages) and self.messages[-1].kind == "request" and not self.pending()

    def pending(self) -> list[ModelCall]:
        """The tool calls of the last reply that have no result yet, in their order."""
        _, calls, answers = self._open()
        return [
            ModelCall(call.tool_call_id, call.tool_name, call.args, f"{self.session}:{self.replies}:{place}")
            for place, call in enumerate(calls, 1)
            if call.tool_call_id not in answers
        ]

    def answer(self, call: ModelCall, text: str, *, failed: bool) -> None:
        """A tool's result. Results stand in the order of their calls, whichever came first."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        outcome: Any = "failed" if failed else "success"
        self._record("answer", [ModelRequest(parts=[ToolReturnPart(call.name, text, call.id, outcome=outcome)])])

    def replace_older(self, count: int, messages: Sequence[ModelMessage], about: Mapping[str, Any]) -> None:
        """Let these messages take the place of the first `count`, in one record; the older records stay in the file.

        `about` is kept with it, and given back in `summaries`. Calls and their results stay together: `count` may not
        fall between them.
        """
        if not 0 < count <= len(self.messages):
            raise ValueError(f"{count} of {len(self.messages)} messages cannot be replaced")
        if count < len(self.messages) and _returns(self.messages[count]):
            raise ValueError(f"message {count} holds results of calls that would be replaced without them")
        if count == len(self.messages) and self.pending():
            raise ValueError("the last reply has calls without a result")
        self._record("summary", messages, count=count, about=dict(about))

    def _open(self) -> tuple[int, list[ToolCallPart], dict[str, ToolReturnPart]]:
        """Return the index of the reply whose calls are being answered, its calls, and the answers so far."""
        from pydantic_ai.messages import ModelResponse, ToolCallPart

        answers: dict[str, ToolReturnPart] = {}
        for place in range(len(self.messages) - 1, -1, -1):
            message = self.messages[place]
            if isinstance(message, ModelResponse):
                return place, [part for part in message.parts if isinstance(part, ToolCallPart)], answers
            returns = _returns(message)
            if not returns or len(returns) != len(message.parts):
                break  # the user has spoken since: nothing is open
            answers = {part.tool_call_id: part for part in returns}
        return len(self.messages), [], {}

    # -- uses that must not be repeated ----------------------------------------------------------------

    def begin(self, call: ModelCall) -> None:
        self._record("begun", use=self._short(call))

    def was_begun(self, call: ModelCall) -> bool:
        return self._short(call) in self._begun

    def _short(self, call: ModelCall) -> str:
        """The use's name within the conversation, so that a copy of the file under another name still knows it."""
        return call.use_id.removeprefix(f"{self.session}:")

    # -- records ---------------------------------------------------------------------------------------

    def _record(self, kind: str, messages: Sequence[ModelMessage] = (), **more: Any) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        line = json.dumps({"kind": kind, **more}).encode()
        if messages:
            line = line[:-1] + b', "messages": ' + ModelMessagesTypeAdapter.dump_json(list(messages)) + b"}"
        self._apply({"kind": kind, **more}, messages, len(line))
        self._unwritten.append(line + b"\n")

    def _apply(self, record: Mapping[str, Any], messages: Sequence[ModelMessage] | None = None, size: int = 0) -> None:
        """Take one record into account, a new one or one that is read."""
        if messages is None:
            messages = _messages(record) if "messages" in record else ()
        size -= sum(excess_bytes(file) for message in messages for file in attached(message))
        match record["kind"]:
            case "prompt":
                if told := record.get("told"):
                    self.heard.add(told)
                elif self.messages and (said := _asks(messages[0])) is not None and said == _asks(self.messages[-1]):
                    self._cut(len(self.messages) - 1)  # an attempt that got no reply asked the same: once is enough
                self._add(messages[0], size)
            case "reply" | "partial":
                self.replies += 1
                self._add(messages[0], size)
            case "answer":
                self._answered(_returns(messages[0])[0], size)
            case "begun":
                self._begun.add(record["use"])
            case "summary":
                self.summaries.append(record["about"])
                kept, sizes = self.messages[record["count"] :], self._sizes[record["count"] :]
                self._cut(0)
                for message in messages:
                    self._add(message, size // len(messages))
                self.messages += kept
                self._sizes += sizes
                self.size += sum(sizes)
            case "carried":
                replies = sum(1 for message in messages if message.kind == "response")
                self.replies = record.get("replies", replies)
                self._begun.update(record["begun"])
                for message in messages:
                    self._add(message, size // len(messages))
            case other:
                raise ValueError(f"record of unknown kind {other!r}")

    def _answered(self, part: ToolReturnPart, size: int) -> None:
        from pydantic_ai.messages import ModelRequest

        place, calls, answers = self._open()
        before = sum(self._sizes[place + 1 :])
        answers[part.tool_call_id] = part
        parts = [answers[each.tool_call_id] for each in calls if each.tool_call_id in answers]
        self._cut(place + 1)
        self._add(ModelRequest(parts=parts), before + size)

    def _add(self, message: ModelMessage, size: int) -> None:
        self.messages.append(message)
        self._sizes.append(size)
        self.size += size

    def _cut(self, count: int) -> None:
        """Keep the first `count` messages."""
        self.size -= sum(self._sizes[count:])
        del self.messages[count:], self._sizes[count:]

    # -- the file --------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Append the new records, in a thread; the writes of one conversation come one after the other."""
        async with self._turn:
            writing = asyncio.ensure_future(asyncio.to_thread(self.keep_now))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # Nothing may be written after the cancellation: the write ends before it goes on.
                await asyncio.wait({writing})
                raise

    def keep_now(self) -> None:
        """Append the new records at once, also during a cancellation."""
        lines = list(self._unwritten)
        try:
            if self._length is None:
                head = json.dumps({"format": _FORMAT, "version": _VERSION, "session": self.session}).encode() + b"\n"
                self._length = _create(self._folder, head + b"".join(lines))
            elif lines:
                self._length = _append(self._folder / FILE, self._length, b"".join(lines))
        except OSError as error:
            raise Unwritable(error) from error
        del self._unwritten[: len(lines)]


def _parsed(line: bytes, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Lost(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise Lost(f"{path} is not a conversation of this runtime")
    return found


def _check_head(head: Mapping[str, Any], path: Path, version: int, session: str) -> None:
    if head.get("format") != _FORMAT:
        raise Lost(f"{path} is not a conversation of this runtime")
    if head.get("version") != version:
        raise Lost(f"{path} has version {head.get('version')!r}, this Windlass reads {_VERSION}")
    if head.get("session") != session:
        raise Lost(f"{path} holds another conversation than {session}")


def _messages(record: Mapping[str, Any]) -> list[ModelMessage]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_python(record.get("messages"))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _asks(message: ModelMessage) -> tuple[str, list[bytes]] | None:
    """The text and the attachments of a message in which the user says one thing and nothing else."""
    from pydantic_ai.messages import UserPromptPart

    match message.parts:
        case [UserPromptPart(content=str(text))]:
            return text, []
        case [UserPromptPart(content=[str(text), *_])]:
            return text, [file.data for file in attached(message)]
    return None


def _returns(message: ModelMessage) -> list[ToolReturnPart]:
    from pydantic_ai.messages import ToolReturnPart

    return [part for part in message.parts if isinstance(part, ToolReturnPart)]


def _append(path: Path, length: int, content: bytes) -> int:
    """Append to the whole part of the file, without what a crash or a full disk left behind it; its new length."""
    with path.open("r+b") as file:
        found = os.fstat(file.fileno()).st_size
        if found < length:
            raise OSError(errno.ESTALE, "another program shortened it", str(path))
        if found > length:
            file.truncate(length)
        file.seek(length)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return length + len(content)


def _create(folder: Path, content: bytes) -> int:
    """Begin the file, under another name until it is whole; its length."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{FILE}.{token_hex(4)}.tmp"
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(folder / FILE)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    (folder / FIRST_FILE).unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return len(content)
