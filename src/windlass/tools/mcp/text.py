"""Texts of strangers, for people and models to read: no control characters, no invisible ones, no end without end."""

from __future__ import annotations

import unicodedata

__all__ = ["clean", "shortened"]


def clean(text: str, most: int, *, lines: bool = True) -> str:
    """Of at most so many characters. Without `lines`, it is one."""
    # Twice as much is looked at: what is taken out must not cost what is read.
    kept = "".join(_shown(character, lines) for character in text[: 2 * most])
    return shortened(kept if lines else " ".join(kept.split()), most).strip()


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(character: str, lines: bool) -> str:
    if character in "\n\t":
        return character if lines else " "
    # Cc: terminal sequences; Cf: text in another direction, or that nobody sees; Co, Cs, Cn: no characters at all.
    return "" if unicodedata.category(character).startswith("C") else character
