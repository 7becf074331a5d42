"""JSON as other programs' settings files have it: comments and trailing commas are no mistake there.

They may come with a cloned project, so that no text takes long, and every line stays where it was: an error names the
line that the author sees.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["parse", "without_comments"]

_PIECE = re.compile(  # possessive throughout: a hostile file must not make it go back and forth
    r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*+|/\*(?>.*?\*/|.*)|,(?=(?>\s++|//[^\n]*+|/\*(?>.*?\*/))*+[}\]])', re.DOTALL
)


def parse(text: str) -> Any:
    """The value that the text holds; one of nothing but comments holds an empty object. Raises as `json.loads` does."""
    try:
        return json.loads(text)  # most files have no comments, and need no looking for them
    except ValueError:
        plain = without_comments(text)
        return json.loads(plain) if plain.strip() else {}


def without_comments(text: str) -> str:
    """Plain JSON, with blanks for what JSON does not know. A comment that does not end stays, to be an error."""
    return _PIECE.sub(_blank, text)


def _blank(piece: re.Match[str]) -> str:
    unclosed = piece[0].startswith("/*") and (len(piece[0]) < 4 or not piece[0].endswith("*/"))
    return piece[0] if piece[0][0] == '"' or unclosed else re.sub(r"[^\n]", " ", piece[0])
