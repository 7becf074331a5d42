"""The marked blocks of a prompt, which their contents cannot leave.

Every block is `<word attribute="…">`, the content, `</word>`. Inside the content, the `<` of any such tag, opening or
closing, is written `&lt;`; nothing undoes it. The same content always gives the same bytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["WORDS", "Shortened", "block", "clean", "neutral", "shorten"]

WORDS = ("answer", "data", "file", "handoff", "note", "role", "rules", "skill", "skills", "task")
"""What blocks are called."""

_GAP = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*+"
"""White space, and what cannot be seen: a model reads past both."""


def _tags(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(?={_GAP}/?{_GAP}(?:{'|'.join(words)})(?![\w-]))", re.IGNORECASE)


_ANY = _tags(WORDS)
_ANY_BUT_DATA = _tags(tuple(word for word in WORDS if word != "data"))
_UNSAFE = re.compile("[\0\ud800-\udfff]")
"""What neither a command line nor JSON can carry."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


class Shortened(NamedTuple):
    text: str
    left_out: int
    """Characters."""


def neutral(text: str, *, keep_data: bool = False) -> str:
    """Text that opens and closes none of our blocks. `keep_data`: it has `<data>` blocks of the plan's own making."""
    return (_ANY_BUT_DATA if keep_data else _ANY).sub("&lt;", clean(text))


def clean(text: str) -> str:
    """Text that a command line and JSON can carry."""
    return _UNSAFE.sub("\ufffd", text)


def block(word: str, content: str, /, **attributes: str) -> str:
    """One block. The content is taken as it is: make it `neutral` first."""
    given = "".join(f' {name.rstrip("_")}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{word}{given}>\n{content}\n</{word}>"


def _attribute(value: str) -> str:
    for sign, name in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        value = value.replace(sign, name)
    return _CONTROL.sub(lambda found: f"&#{ord(found[0])};", clean(value))


def shorten(text: str, limit: int) -> Shortened:
    """Text of at most `limit` characters: three quarters from its beginning, the rest from its end."""
    if len(text) <= limit:
        return Shortened(text, 0)
    head = limit * 3 // 4
    tail = limit - head
    left_out = len(text) - limit
    ending = text[len(text) - tail :] if tail else ""
    return Shortened(f"{text[:head]}\n[… {left_out:,} characters are left out here …]\n{ending}", left_out)
