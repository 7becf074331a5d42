"""The ways in which one secret may be written: as it is, inside JSON, HTML and addresses, in hex and in base64."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

__all__ = ["spellings"]


def spellings(value: str) -> Iterator[str]:
    """Every spelling, the plain one first; some may come twice."""
    in_json = _in_json(value)
    # An output that is JSON itself stands in JSON once more when it leaves.
    for text in dict.fromkeys((value, *in_json, *(twice for once in in_json for twice in _in_json(once)))):
        yield text
        yield html.escape(text)
        yield html.escape(text, quote=False)
    raw = value.encode("utf-8", "surrogateescape")
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted
        yield _lower_escapes(quoted)
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64(raw)


def _in_json(text: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]


def _lower_escapes(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return first + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that the secret alone decides, with 0, 1 or 2 bytes of other text in its first group.

    `user:password` in a Basic header is a case of it: where the password begins depends on the user's name.
    """
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        mixed_end = -1 if (before + len(raw)) % 3 else None
        core = encoded[(0, 2, 3)[before] : mixed_end].decode()
        yield core
        yield core.translate({ord("+"): "-", ord("/"): "_"})
