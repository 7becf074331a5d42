"""Messages of the runtime, passed on to the host as text, tools, usage and notes, and kept to judge the end.

`MessageListener.hear` takes one message as the runtime wrote it. Its shape is not trusted: fields that are missing or
of another type are skipped, because a newer runtime may send messages that are unknown here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from windlass.ports import Host
from windlass.runners.claude.spending import TurnSpending, count
from windlass.runners.result_form import RESULT_TOOL

__all__ = ["MessageListener", "summarise"]

MOST_TEXT = 1 << 20
"""Characters of the text before a failure that are kept, from its end."""
_LINE = 200
_TELLING = (
    "file_path",
    "notebook_path",
    "path",
    "command",
    "pattern",
    "url",
    "query",
    "skill",
    "description",
    "prompt",
)
"""Fields of a tool's input to show to a person, most useful first."""


def summarise(input: Any) -> str:
    """Return one line about the input of a tool."""
    given = _table(input)
    chosen = next((given[name] for name in _TELLING if isinstance(given.get(name), str) and given[name]), "")
    line = " ".join(chosen.split())
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


class MessageListener:
    def __init__(
        self, host: Host, spending: TurnSpending, session: str, named: Callable[[str], str] = lambda tool: tool
    ) -> None:
        """`session` is the id that the host knows already; `named` gives the engine's names of its own tools."""
        self._host, self._spending, self._told, self._named = host, spending, session, named
        self.over = asyncio.Event()
        """The runtime has given its result, and no further turn is to come."""
        self.result: dict[str, Any] | None = None
        self.data: Any = None
        """The data that the agent gave last as its result, whether it was taken or not."""
        self.session = ""
        """As the runtime itself says it; empty until then."""
        self.version = ""
        self.model = ""
        self.error_kind = ""
        """The runtime's own word for the last error of the API: `rate_limit`, `max_output_tokens`, …"""
        self.resets_at: float | None = None
        """Time at which the used-up quota comes back."""
        self.adjustments: list[str] = []
        self.denied: set[str] = set()
        """Uses of tools whose denial was told already, by their ids."""
        self.background: list[str] = []
        """Commands that still run in the background."""
        self.last = "before its first output"
        """Its last activity ("while it was …"), for the message about an end from outside."""
        self._state: str | None = None
        self._said: list[str] = []
        self._length = 0
        self._saying: list[str] = []
        self._speaking = False
        self._cut_off = ""
        self._streamed: set[str] = set()
        self._call = ("", "")
        self._tools: dict[str, str] = {}
        """Tools of the uses that have no result yet, by their ids."""
        self.tracks = asyncio.Event()
        """Set if the runtime tells what becomes of each message to it. Earlier versions did not."""
        self.sent: dict[str, Literal["sent", "taken", "answered"]] = {}
        """Messages to the agent that the runtime is not done with, by their uuids."""
        self.answered: asyncio.Queue[tuple[str, Literal["steer", "follow-up", ""]]] = asyncio.Queue()
        """Messages that the model has seen, by their uuids, and how they came to it; the prompt has an empty `how`."""
        self._opening = ""
        self._how: Literal["steer", "follow-up"] = "steer"

    @property
    def said(self) -> str:
        """The agent's text so far. A message that was cut off and repeated counts once."""
        return "\n".join(filter(None, (*self._said, self._unfinished)))

    @property
    def has_answered(self) -> bool:
        """True once the model has begun an answer: it has the prompt."""
        return bool(self._streamed or self._said)

    @property
    def _unfinished(self) -> str:
        return max("".join(self._saying), self._cut_off, key=len)

    def hear(self, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "stream_event":
                if message.get("abandoned_blocks"):
                    self._abandon()
                elif message.get("parent_tool_use_id") is None:
                    self._stream(_table(message.get("event")))
            case "assistant":
                self._take_answers()
                self._assistant(message)
            case "user":
                self._results(_table(message.get("message")))
            case "command_lifecycle":
                self._lifecycle(_text(message.get("command_uuid")), _text(message.get("state")))
            case "system":
                self._system(message)
            case "rate_limit_event":
                self._rate_limit(_table(message.get("rate_limit_info")))
            case "result":
                self._spending.bill(message)
                self.result = dict(message)
                for denial in map(_table, _list(message.get("permission_denials"))):
                    self.deny(
                        _text(denial.get("tool_use_id")), _text(denial.get("tool_name")), denial.get("tool_input")
                    )
                self._consider()
            case _:
                pass  # the messages of later versions

    def begin_turn(self) -> None:
        """Another turn of the same run follows the result."""
        self.result = None
        self.over.clear()

    def opens_with(self, uuid: str) -> None:
        """The prompt that is sent next has messages of people in it."""
        self._opening = uuid

    def _lifecycle(self, uuid: str, state: str) -> None:
        self.tracks.set()
        if uuid not in self.sent:
            return
        if state == "started":
            self.sent[uuid] = "taken"
            self._how = "follow-up" if self.result is not None else "steer"
        elif state != "queued":
            if state == "completed":
                self._take_answers()
            del self.sent[uuid]
            self._consider()

    def _take_answers(self) -> None:
        """The model has answered, and so it has seen the messages that were taken before."""
        if self._opening:
            self.answered.put_nowait((self._opening, ""))
            self._opening = ""
        for uuid, state in self.sent.items():
            if state == "taken":
                self.sent[uuid] = "answered"
                self.answered.put_nowait((uuid, self._how))

    def deny(self, use: str, tool: str, input: Any, reason: str = "") -> None:
        """Report a denied use of a tool."""
        if use not in self.denied:
            self.denied.add(use)
            why = f": {reason}" if reason else ""
            self._adjust(f"{tool or 'a tool'} {summarise(input)}".rstrip() + f" was denied{why}")

    # -- the parts of a message, as they come ----------------------------------------------------------

    def _stream(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                begun = _table(event.get("message"))
                self._call = (_text(begun.get("id")), _text(begun.get("model")))
                self._streamed.add(self._call[0])
                self._abandon()
                self._used(*self._call, _table(begun.get("usage")))
            case "content_block_start":
                if _table(event.get("content_block")).get("type") == "text" and self._saying:
                    self._saying.append("\n")
            case "content_block_delta":
                delta = _table(event.get("delta"))
                if text := _text(delta.get("text")):
                    self.last = "while it was writing an answer"
                    self._speaking = not text.endswith("\n")
                    self._saying.append(text)
                    self._host.text(text)
            case "content_block_stop":
                if self._speaking:  # what comes next, an act or another text, stands on a line of its own
                    self._host.text("\n")
                self._speaking = False
            case "message_delta":
                self._used(*self._call, _table(event.get("usage")))
            case "message_stop":
                self._keep("".join(self._saying))
                self._saying.clear()
                self._cut_off = ""
                if (used := self._spending.of_call(self._call[0])) is not None:
                    self._host.spoke("", usage=used)
            case _:
                pass

    def _abandon(self) -> None:
        """A message was cut off. The next one says it again, unless it is cut off too: the longest is kept."""
        self._cut_off = self._unfinished
        self._saying.clear()

    def _assistant(self, message: Mapping[str, Any]) -> None:
        if message.get("is_api_error_message") or message.get("error"):
            self.error_kind = _text(message.get("error"))
            return  # the runtime's own words about an error, which the result repeats
        said = _table(message.get("message"))
        call, model = _text(said.get("id")), _text(said.get("model"))
        main = message.get("parent_tool_use_id") is None
        self._used(call, model, _table(said.get("usage")))
        for block in map(_table, _list(said.get("content"))):
            if block.get("type") == "tool_use":
                name, input = self._named(_text(block.get("name"))), block.get("input")
                line = summarise(input)
                self.last = f"while it was using {name} {line}".rstrip()
                self._tools[_text(block.get("id"))] = name
                self._host.acted(name, line, input, _text(block.get("id")))
                if main and name == RESULT_TOOL:
                    self.data = input
            elif block.get("type") == "thinking" and main:
                if thinking := _text(block.get("thinking")):
                    self._host.spoke("", thinking)
            elif block.get("type") == "text" and main:
                text = _text(block.get("text"))
                if call not in self._streamed:
                    self._host.text(text if text.endswith("\n") else f"{text}\n")
                    self._keep(text)
                self._host.spoke(text)

    def _results(self, message: Mapping[str, Any]) -> None:
        """Pass on the results of tools, which come as a message of the user."""
        for block in map(_table, _list(message.get("content"))):
            if block.get("type") == "tool_result":
                use = _text(block.get("tool_use_id"))
                failed = block.get("is_error") is True
                self._host.returned(use, self._tools.pop(use, ""), _content(block.get("content")), failed=failed)

    def _used(self, call: str, model: str, figures: Mapping[str, Any]) -> None:
        self._spending.asked = True
        if self._spending.saw(call, model, count(figures)):
            self._host.usage(self._spending.live())

    def _keep(self, text: str) -> None:
        if text:
            self._said.append(text[-MOST_TEXT:])
            self._length += len(self._said[-1])
            while self._length > MOST_TEXT and len(self._said) > 1:
                self._length -= len(self._said.pop(0))

    # -- the runtime's own state -----------------------------------------------------------------------

    def _system(self, message: Mapping[str, Any]) -> None:
        match message.get("subtype"):
            case "init":
                self._begin(message)
            case "status":
                self._spending.asked |= message.get("status") == "requesting"
                if message.get("status") == "compacting":
                    self.last = "while it was summarising its conversation"
                    self._host.note("Claude Code summarises its conversation")
            case "compact_boundary":
                facts = _table(message.get("compact_metadata"))
                before, after = facts.get("pre_tokens"), facts.get("post_tokens")
                self._host.summarised(
                    by="runtime",
                    tokens_before=before if isinstance(before, int) else None,
                    tokens_after=after if isinstance(after, int) else None,
                )
            case "session_state_changed":
                self._state = _text(message.get("state"))
                self._consider()
            case "api_retry":
                self._retry(message)
            case "model_fallback":
                old, new = _text(message.get("original_model")), _text(message.get("fallback_model"))
                self._adjust(f"model {new} instead of {old}: {_text(message.get('trigger')) or 'unavailable'}")
                self._host.note(f"Claude Code continues with {new} instead of {old}")
            case "permission_denied":
                reason = _text(message.get("decision_reason"))
                self.deny(_text(message.get("tool_use_id")), _text(message.get("tool_name")), None, reason)
            case "background_tasks_changed":
                tasks = map(_table, _list(message.get("tasks")))
                self.background = [_text(task.get("description")) or "a command" for task in tasks]
            case "informational" | "model_refusal_fallback":
                if text := _text(message.get("content")):
                    self._host.note(text)
            case _:
                pass

    def _begin(self, message: Mapping[str, Any]) -> None:
        self.version = _text(message.get("claude_code_version"))
        self.model = _text(message.get("model"))
        self.session = _text(message.get("session_id")) or self._told
        if self.session != self._told:
            self._told = self.session
            self._host.session(self.session)
        self._spending.asked = True

    def _retry(self, message: Mapping[str, Any]) -> None:
        status = message.get("error_status") or _text(message.get("error")) or "no answer"
        delay = message.get("retry_delay_ms")
        wait = f" in {delay / 1000:.1f} s" if isinstance(delay, int | float) else ""
        attempt, most = message.get("attempt"), message.get("max_retries")
        self.last = f"while it was retrying after {status}"
        self._host.note(f"Claude Code asks the model again{wait} after {status} ({attempt} of {most})", waits=True)

    def _rate_limit(self, info: Mapping[str, Any]) -> None:
        resets, kind = info.get("resetsAt"), _text(info.get("rateLimitType")).replace("_", "-") or "usage"
        match info.get("status"):
            case "rejected":
                self.resets_at = float(resets) if isinstance(resets, int | float) else None
            case "allowed_warning":
                used = info.get("utilization")
                share = f"{used:.0%} of " if isinstance(used, int | float) else "most of "
                self._host.note(f"{share}the {kind} limit of this account is used")
            case _:
                self.resets_at = None

    def _adjust(self, text: str) -> None:
        if text not in self.adjustments:
            self.adjustments.append(text)

    def _consider(self) -> None:
        """A result ends a turn; where the runtime tells its state, only `idle` says that none follows."""
        if self.result is not None and self._state in (None, "idle") and not self.sent:
            self.over.set()


def _content(content: Any) -> str:
    """Return the text of a tool's result; other content is named by its type."""
    if isinstance(content, str):
        return content
    blocks = map(_table, _list(content))
    return "\n".join(_text(block.get("text")) or f"[{_text(block.get('type'))}]" for block in blocks)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
