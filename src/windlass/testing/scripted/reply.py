"""A client's request as `Received`, and the next words of a scripted model: one `Reply`, whichever protocol is spoken.

    Reply.say("done")
    Reply.use("Write", {"file_path": "a.txt", "content": "hi"}).and_use("Read", {"file_path": "a.txt"})
    Reply.error(529, "overloaded", headers={"retry-after": "1"}, times=2)

The named constructors are the only way to make one. Every one of them also takes the words of `How`.

`Chooser` says which entry of a script a request gets, for models and runners alike. Entries with a `when` come first:
the first one that fits and is not used up. Then those without, in their order. An entry serves `times` requests, or for
ever with `repeat`. A function in place of the list decides everything itself.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypedDict, TypeVar

from windlass.testing.scripted.chat_shape import Wire, as_chat

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["Chooser", "How", "Received", "Reply", "Stream", "ToolUse", "Wire", "halves", "pieces"]


@dataclass(frozen=True, slots=True)
class Received:
    """One request for a reply."""

    protocol: Wire
    path: str
    """With its query: `/v1/messages?beta=true`."""
    headers: Mapping[str, str] = field(repr=False)
    """By lower-case name."""
    body: Mapping[str, Any] = field(repr=False)
    number: int = 0
    """Its place among all requests, from 1, asides included."""

    @property
    def model(self) -> str:
        return str(self._chat.get("model", ""))

    @property
    def streams(self) -> bool:
        return self._chat.get("stream") is True

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
        offered = [tool for tool in self._chat.get("tools") or () if isinstance(tool, Mapping)]
        return tuple(str(tool.get("name") or (tool.get("function") or {}).get("name")) for tool in offered)

    @property
    def text(self) -> str:
        """All text for the model: system prompt, conversation, uses and results of tools; not their schemas."""
        told = [self.system, *(text for message in self.messages for text in _texts(message))]
        return "\n".join(text for text in told if text)

    @property
    def _chat(self) -> Mapping[str, Any]:
        return as_chat(self.protocol, self.path, self.body)

    @property
    def _all_messages(self) -> list[Mapping[str, Any]]:
        return [m for m in self._chat.get("messages") or () if isinstance(m, Mapping)]


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


Kind = Literal["message", "error", "drop", "garbage", "hang"]
Stop = Literal["end", "tool", "length", "refusal"]

TOKENS_IN = 10
TOKENS_OUT = 5


class ToolUse(NamedTuple):
    """One tool that the model wants used."""

    name: str
    input: Mapping[str, Any]


class How(TypedDict, total=False):
    """Options of every kind of reply."""

    when: str | Callable[[Received], bool] | None
    """Only for a request that has this text in it, or for which the function says yes."""
    times: int
    """For how many requests it serves."""
    repeat: bool
    """It serves for ever."""
    headers: Mapping[str, str]
    """Headers of the answer: `retry-after`, `anthropic-ratelimit-unified-status`, `x-ratelimit-reset-requests`."""
    delay: float
    """Seconds before the first byte."""
    pace: float
    """Seconds between the pieces of a stream."""
    hold: threading.Event | None
    """Do not go on until this is set."""
    hold_at: Literal["start", "middle"]
    """Place of the `hold`: before the first byte, or after the text and before the end of the message."""
    tokens_in: int | None
    """Tokens of the whole input, those read from a cache or written to one included."""
    tokens_out: int
    cache_read: int
    cache_write: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. Make it with `say`, `use`, `error`, `drop`, `garbage`, `hang`, `refuse` or `cut_short`."""

    kind: Kind = "message"
    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    invented: bool = False
    stop: Stop = "end"
    status: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    when: str | Callable[[Received], bool] | None = None
    times: int = 1
    repeat: bool = False
    delay: float = 0.0
    pace: float = 0.0
    hold: threading.Event | None = None
    hold_at: Literal["start", "middle"] = "start"
    tokens_in: int | None = None
    tokens_out: int = TOKENS_OUT
    cache_read: int = 0
    cache_write: int = 0

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times={self.times}: a reply serves at least once")
        if self.tokens_in is not None and self.tokens_in < self.cache_read + self.cache_write:
            raise ValueError(
                f"tokens_in={self.tokens_in} is less than cache_read={self.cache_read} and "
                f"cache_write={self.cache_write} together: tokens_in counts everything that was read"
            )

    # -- the kinds -------------------------------------------------------------------------------

    @classmethod
    def say(cls, text: str, **how: Unpack[How]) -> Reply:
        """Text, and the end of the turn."""
        return cls(text=text, **how)

    @classmethod
    def use(
        cls,
        tool: str,
        input: Mapping[str, Any] | None = None,
        *,
        text: str = "",
        invented: bool = False,
        **how: Unpack[How],
    ) -> Reply:
        """Use a tool, by the name under which the request offers it; `text` is said before.

        A name that the request does not offer is noted as an error of the script, unless it is `invented` on purpose.
        """
        return cls(text=text, uses=(ToolUse(tool, dict(input or {})),), invented=invented, stop="tool", **how)

    def and_use(self, tool: str, input: Mapping[str, Any] | None = None) -> Reply:
        """Use another tool in the same turn."""
        if self.kind != "message" or self.stop != "tool":
            raise ValueError("and_use goes on from Reply.use: no other reply uses tools")
        return replace(self, uses=(*self.uses, ToolUse(tool, dict(input or {}))))

    @classmethod
    def error(
        cls,
        status: int,
        message: str = "",
        *,
        after: str = "",
        **how: Unpack[How],
    ) -> Reply:
        """An error of the API with this HTTP status. `after`: it comes in a stream that began well with this text."""
        if not 400 <= status <= 599:
            raise ValueError(f"{status} is not an HTTP status of an error: 400 to 599 are")
        return cls("error", after, status=status, message=message or f"scripted {status}", **how)

    @classmethod
    def drop(cls, after: str = "", **how: Unpack[How]) -> Reply:
        """The connection breaks: at once, or in a stream after this text."""
        return cls("drop", after, **how)

    @classmethod
    def garbage(cls, **how: Unpack[How]) -> Reply:
        """Status 200, and bytes that mean nothing."""
        return cls("garbage", **how)

    @classmethod
    def hang(cls, after: str = "", **how: Unpack[How]) -> Reply:
        """Never answers, or never goes on after this text, until the client or the server is closed."""
        return cls("hang", after, **how)

    @classmethod
    def refuse(cls, text: str = "", **how: Unpack[How]) -> Reply:
        """The model declines (`stop_reason: refusal`, `finish_reason: content_filter`)."""
        return cls(text=text, stop="refusal", **how)

    @classmethod
    def cut_short(cls, text: str, **how: Unpack[How]) -> Reply:
        """The answer ends at its limit of tokens (`stop_reason: max_tokens`, `finish_reason: length`)."""
        return cls(text=text, stop="length", **how)

    # -- what it comes to ------------------------------------------------------------------------

    @property
    def all_tokens_in(self) -> int:
        """Tokens of the whole input; when the reply does not say, ten besides those of the cache."""
        return TOKENS_IN + self.cache_read + self.cache_write if self.tokens_in is None else self.tokens_in

    def __str__(self) -> str:
        """One line for people: which reply of a script this is."""
        what = {
            "message": repr(self.text[:40]),
            "error": f"{self.status} {self.message}",
            "drop": f"drop after {self.text[:40]!r}",
            "garbage": "garbage",
            "hang": "hang",
        }[self.kind]
        tools = "".join(f" + {use.name}" for use in self.uses)
        condition = f" when {self.when!r}" if self.when else ""
        return f"{what}{tools}{condition}"


MOST_PIECES = 200
"""A long text comes in larger pieces, not in more of them."""


class Stream(NamedTuple):
    """A streamed message as frames."""

    text: list[bytes]
    """The beginning and every piece of the text."""
    rest: list[bytes]
    """Uses of tools, and the end of the message."""


def pieces(text: str) -> list[str]:
    """A word each, with the space before it."""
    words = re.findall(r"\s*\S+|\s+$", text)
    size = -(-len(words) // MOST_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def halves(text: str) -> list[str]:
    """Two pieces: a client that takes the first for the whole is found out."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


class ScriptEntry(Protocol):
    """An entry of a script: a `Reply` or a `Turn`."""

    @property
    def when(self) -> str | Callable[[Any], bool] | None: ...

    @property
    def times(self) -> int: ...

    @property
    def repeat(self) -> bool: ...


Asked = TypeVar("Asked")
Said = TypeVar("Said", bound=ScriptEntry)


class Chooser(Generic[Asked, Said]):
    """A script, and how far it has come. One thread at a time."""

    def __init__(self, script: Sequence[Said] | Callable[[Asked], Said], text_of: Callable[[Asked], str]) -> None:
        self._function = script if callable(script) else None
        self._entries: list[Said] = [] if callable(script) else list(script)
        self._used = [0] * len(self._entries)
        self._text_of = text_of

    def choose(self, asked: Asked) -> Said | None:
        """The entry for this request, which is then used once more; None when there is none left."""
        if self._function is not None:
            return self._function(asked)
        for index in self._order():
            entry = self._entries[index]
            if (entry.repeat or self._used[index] < entry.times) and self._fits(entry, asked):
                self._used[index] += 1
                return entry
        return None

    def unused(self) -> list[str]:
        """A line for every entry that some request should have had. One with `repeat` may serve nobody."""
        pairs = zip(self._entries, self._used, strict=True)
        return [
            f"entry {place} of the script ({entry}) served {used} of {entry.times} requests"
            for place, (entry, used) in enumerate(pairs, start=1)
            if not entry.repeat and used < entry.times
        ]

    def _order(self) -> list[int]:
        """Conditions first; the sort keeps the script's order among equals."""
        return sorted(range(len(self._entries)), key=lambda index: self._entries[index].when is None)

    def _fits(self, entry: Said, asked: Asked) -> bool:
        if entry.when is None:
            return True
        return entry.when in self._text_of(asked) if isinstance(entry.when, str) else entry.when(asked)
