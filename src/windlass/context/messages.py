"""A conversation as the rules of this package see it, and the choice of the part to summarise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["CONTINUES", "ContextMessage", "ContextUse", "cut_point", "shorten_middle"]


CONTINUES = "You were interrupted"
"""First words of a prompt with which the engine goes on after a stop: nobody said them."""


class ContextUse(NamedTuple):
    """A call of a tool, or its result."""

    tool: str
    text: str
    """Its arguments, or its result."""
    failed: bool = False


class ContextMessage(NamedTuple):
    """One message. The runner makes it of its own form of messages."""

    kind: Literal["user", "reply", "results", "summary"]
    """`results` belong to the reply before them; `summary` stands for older messages."""
    text: str
    """The words of the user or the model."""
    tokens: int
    """Estimate of the whole message."""
    uses: tuple[ContextUse, ...] = ()
    """Calls of a reply, or their results."""


def cut_point(messages: Sequence[ContextMessage], room: int) -> int:
    """Return how many of the oldest messages to summarise, so that the rest has at most `room` tokens.

    Results stay with the reply that asked for them, and the newest exchange always stays: it is what the model is to
    answer. 0: there is nothing that could be summarised.
    """
    place, kept = len(messages), 0
    best = None
    for place in range(len(messages) - 1, -1, -1):
        kept += messages[place].tokens
        if best is not None and kept > room:
            break
        if messages[place].kind != "results":
            best = place
    if best is None or all(message.kind == "summary" for message in messages[:best]):
        return 0
    return best


def shorten_middle(text: str, most: int, note: str) -> str:
    """Keep the beginning and the end of a text, `most` characters of it; a log has its outcome at the end."""
    if len(text) <= most:
        return text
    tail = most // 4
    head = most - tail
    mark = f"\n[… {len(text) - most:,} characters are left out here{f': {note}' if note else ''} …]\n"
    return f"{text[:head]}{mark}{text[len(text) - tail :]}"
