"""How an answer is cut into the pieces of a stream: always the same, so that tests can rely on it."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Stream", "halves", "pieces"]

MOST_PIECES = 200
"""A long text comes in larger pieces, not in more of them."""


class Stream(NamedTuple):
    """A streamed message as frames."""

    text: list[bytes]
    """The beginning and every piece of the text."""
    rest: list[bytes]
    """Uses of tools, and what ends the message."""


def pieces(text: str) -> list[str]:
    """A word each, with the space before it."""
    words = re.findall(r"\s*\S+|\s+$", text)
    size = -(-len(words) // MOST_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def halves(text: str) -> list[str]:
    """Two pieces: a client that takes the first for the whole is found out."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
