"""The body of an answer as JSON, as text, or as neither."""

from __future__ import annotations

import base64
import codecs
import re
from typing import Any

import msgspec

__all__ = ["body_of"]

_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "csv", "x-www-form-urlencoded", "graphql", "x-sh")
_ENCODINGS = re.compile(
    r"ascii|big5\w*|cp\d+|euc_\w+|gb\w+|hz|iso2022_\w+|iso8859_\d+|johab|koi8_\w+|mac_\w+|shift_jis\w*|tis_620|"
    r"utf_(?:8|16|32)\w*"
)
"""Python knows codecs that are no encodings of text, and some that take minutes for a megabyte."""
_NOT_JSON = object()
DEEPEST = 200
"""Levels of JSON that are taken for data: who made more wants to see somebody's stack full."""


def body_of(data: bytes, truncated: bool, kind: str, encoding: str | None) -> dict[str, Any]:
    """The body in the form that fits its Content-Type, or the `encoding` that was asked for."""
    found: dict[str, Any] = {"bytes": len(data), "truncated": truncated}
    if encoding == "base64":
        return found | {"base64": base64.b64encode(data).decode()}
    kind, _, parameters = kind.lower().partition(";")
    kind = kind.strip()
    if not truncated and (kind == "application/json" or kind.endswith("+json")):
        value = _json(data)
        if value is not _NOT_JSON:
            return found | {"json": value}
    charset = encoding or parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
    text = _text(data, charset, kind, truncated)
    return found | ({"base64": base64.b64encode(data).decode()} if text is None else {"text": text})


def _json(data: bytes) -> Any:
    """What says it is JSON and is not is text; so are numbers that nobody can write down again."""
    try:
        value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
        msgspec.json.encode(value)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return _NOT_JSON
    return value if _depth(value) <= DEEPEST else _NOT_JSON


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [inner for one in level if isinstance(one, dict | list) for inner in _inside(one)]:
        depth += 1
        if depth > DEEPEST:
            break
    return depth


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _text(data: bytes, charset: str, kind: str, truncated: bool) -> str | None:
    name = _codec(charset)
    if charset or kind.startswith("text/") or any(word in kind for word in _TEXTS):
        return data.decode(name, errors="replace")
    try:
        # A text that was cut may end in the middle of a character.
        return codecs.getincrementaldecoder(name)().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None


def _codec(charset: str) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name.replace("-", "_")
    except (LookupError, ValueError):
        return "utf_8"
    return name if _ENCODINGS.fullmatch(name) else "utf_8"
