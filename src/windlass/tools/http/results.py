"""The result of a request: a bounded body as JSON, text or neither, a few useful headers, and nothing confidential."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field

from windlass.errors import ToolError
from windlass.tools.functional import Arguments
from windlass.tools.net.exchange import HttpAnswer
from windlass.tools.net.failures import TooMuch, category_of_status, wait_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["Downloaded", "Response", "body_of", "failed", "head_of", "read"]

_SHOWN = re.compile(
    r"accept-ranges|allow|cache-control|content-(?:disposition|language|length|type)|date|etag|expires|last-modified|"
    r"link|location|(?:x-)?ratelimit-(?:limit|remaining|reset)|retry-after|x-request-id|x-total-count"
)
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
"""In our own words: those of the other side may hold anything."""


class Response(Arguments):
    status: int
    url: str
    """The address that answered, after all redirects."""
    headers: dict[str, str]
    json_: Any = Field(default=None, alias="json")
    """The body, when it is JSON."""
    text: str | None = None
    """The body, when it is text."""
    base64: str | None = None
    """The body, when it is neither."""
    bytes: int
    """Of the body that was read, decompressed."""
    truncated: bool
    redirects: list[str]
    """The addresses that led to `url`."""


class Downloaded(Arguments):
    status: int
    url: str
    headers: dict[str, str]
    path: str
    """The file: from the working directory, or in full for an artifact."""
    artifact: bool
    bytes: int
    sha256: str
    redirects: list[str]


async def read(response: httpx2.Response, most: int, secrets: list[str]) -> tuple[bytes, bool]:
    """The body up to so many bytes, with what was confidential blotted out; and whether there was more."""
    kept = bytearray()
    truncated = False
    try:
        async for chunk in response.aiter_bytes():
            room = most - len(kept)
            kept += chunk[:room]
            if len(chunk) > room:
                truncated = True
                break
    except TooMuch:
        truncated = True
    data = bytes(kept)
    for secret in secrets:
        data = data.replace(secret.encode(), b"[secret]")
    return data, truncated


def head_of(answered: HttpAnswer, secrets: list[str]) -> dict[str, Any]:
    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[secret]")
        return text

    headers = answered.response.headers
    shown = {name: _line(clean(value)) for name, value in headers.items() if _SHOWN.fullmatch(name)}
    return {
        "status": answered.response.status_code,
        "url": clean(answered.address.url),
        "headers": shown,
        "redirects": [clean(url) for url in answered.redirects],
    }


def failed(what: str, result: Mapping[str, Any], now: Callable[[], float]) -> ToolError:
    """The failure that a status means, with the answer beside it."""
    status = result["status"]
    category = category_of_status(status)
    told = result.get("text")
    if told is None and result.get("json") is not None:
        told = msgspec.json.encode(result["json"]).decode()
    said = f": {' '.join(told[:2000].split())[:300]}" if told else ""
    wait = wait_of(result["headers"].get("retry-after"), now) if category == "transient" else None
    advice = {
        "permission": ("check the credentials: auth_env names the variable that holds a token",),
        "logic": ("correct the request; `ok` names further statuses that mean success",),
    }.get(category, ())
    return ToolError(
        f"{what}: status {status} {_PHRASES.get(status, '')}".rstrip() + said,
        category=category,
        advice=advice,
        retry_after=wait,
        output=dict(result),
    )


def _line(text: str) -> str:
    return "".join(char for char in text[:1000] if char.isprintable())


_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "csv", "x-www-form-urlencoded", "graphql", "x-sh")
_ENCODINGS = re.compile(
    r"ascii|big5\w*|cp\d+|euc_\w+|gb\w+|hz|iso2022_\w+|iso8859_\d+|johab|koi8_\w+|mac_\w+|shift_jis\w*|tis_620|"
    r"utf_(?:8|16|32)\w*"
)
"""Python knows codecs that are no encodings of text, and some that take minutes for a megabyte."""
_NOT_JSON = object()
DEEPEST = 200
"""Levels of JSON that are taken for data: deeper nesting is an attack on somebody's stack."""


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
    """Read JSON; a body that is not JSON, or has numbers that JSON cannot write, is text."""
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
