"""What a scripted model says next: one `Reply`, whichever protocol it is asked in.

    Reply.say("done")
    Reply.use("Write", {"file_path": "a.txt", "content": "hi"}).and_use("Read", {"file_path": "a.txt"})
    Reply.error(529, "overloaded", headers={"retry-after": "1"}, times=2)

The named constructors are the only way to make one. Every one of them also takes the words of `How`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from typing import Unpack

    from windlass.testing.scripted.received import Received

__all__ = ["How", "Reply", "ToolUse"]

Kind = Literal["message", "error", "drop", "garbage", "hang"]
Stop = Literal["end", "tool", "length", "refusal"]

TOKENS_IN = 10
TOKENS_OUT = 5


class ToolUse(NamedTuple):
    """One tool that the model wants used."""

    name: str
    input: Mapping[str, Any]


class How(TypedDict, total=False):
    """What every kind of reply can be told besides."""

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
    """Where `hold` holds: before the first byte, or after the text and before what ends the message."""
    tokens_in: int | None
    """All that the model read, what came from a cache or went into one included."""
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
            raise ValueError(f"{status} is no HTTP status of an error: 400 to 599 are")
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
        """What the model read in all; when the reply does not say, ten tokens besides those of the cache."""
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
