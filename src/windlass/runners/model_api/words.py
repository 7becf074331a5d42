"""Text that can be written down: JSON and UTF-8 know no half characters.

Half characters (lone surrogates) come from file names and output that are no UTF-8, and from servers that split an
emoji between two pieces of a stream.
"""

from __future__ import annotations

__all__ = ["Joiner", "clean"]


def clean(text: str) -> str:
    """Pairs of halves become their character, a lone half becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Joiner:
    """Cleans a text that comes in pieces: a half at the end of one waits for the next."""

    def __init__(self) -> None:
        self._held = ""

    def __call__(self, piece: str) -> str:
        text, self._held = self._held + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return clean(text)
