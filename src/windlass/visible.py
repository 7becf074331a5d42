"""Text of others, for people to read: nothing in it commands a terminal, turns the text around it, or stays unseen.

Such characters are written out as `\\u001b`, which is also how JSON writes them: JSON stays the same JSON.
"""

from __future__ import annotations

import json
import re

__all__ = ["UNSAFE", "last_lines", "one_line", "visible", "written_out"]

UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they change the direction of the text around them
    "\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # they are not seen
)
"""The inside of a character class."""
_UNSAFE = re.compile(f"[{UNSAFE}]")


def visible(text: str) -> str:
    """The text with everything that a terminal would obey, or not show, written out."""
    return _UNSAFE.sub(lambda found: written_out(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same for a name in the middle of a question: line breaks are written out, too."""
    return visible(text).replace("\n", "\\n")


def last_lines(output: str) -> str:
    """The end of a program's output, to stand behind words of ours: `: LINE`, several lines below them, or nothing.
    Empty lines and rules (`-----`) are left out."""
    lines = [line.rstrip() for line in output.splitlines()]
    lines = [line for line in lines if len(set(line.strip())) > 1 or line.strip().isalnum()][-5:]
    if not lines:
        return ""
    return (": " if len(lines) == 1 else ":\n") + "\n".join(lines)[-500:]


def written_out(character: str) -> str:
    """The character as JSON escapes it."""
    return json.dumps(character)[1:-1]
