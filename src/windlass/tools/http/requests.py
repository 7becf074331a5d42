"""The arguments of the `http.*` tools, the request made of them, and its result.

A request has an address, headers, a body and credentials. A result is a bounded body as JSON, text or neither, a few
useful headers, and nothing confidential.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
from pydantic import Field, field_validator, model_validator

from windlass.errors import Category, ToolError
from windlass.plan.quantities import GB, MB, Duration, Size, at_most, within
from windlass.ports import Call
from windlass.settings.variables import missing_variable
from windlass.tools.functional import Arguments
from windlass.tools.net.exchange import Ask, HttpAnswer
from windlass.tools.net.failures import TooMuch, category_of_status, wait_of
from windlass.tools.net.names import read_address

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "Download",
    "Downloaded",
    "Fetch",
    "Response",
    "SendRequest",
    "ask_of",
    "body_of",
    "failed",
    "head_of",
    "read",
    "secrets_of",
]

_SECRET = re.compile(r"(?i)auth|cookie|token|key|secret|password|session|credential")
SLACK = 1024 * 1024
"""Bytes that may come from the network beyond those that are kept, before it is cut off."""
_SHORTEST = 6
"""Shorter values are no secrets, and would blot out half of an answer."""


def ask_of(method: str, given: Fetch | Download, call: Call) -> Ask:
    try:
        return _ask_of(method, given, call)
    except UnicodeEncodeError:
        raise ToolError("the request is not valid Unicode text", category=Category.LOGIC) from None


def _ask_of(method: str, given: Fetch | Download, call: Call) -> Ask:
    headers = dict(given.headers)
    if given.auth_env is not None:
        headers["authorization"] = f"Bearer {_token(given.auth_env, call)}"
    if method == "POST":
        headers.setdefault("idempotency-key", call.effect_id)
    if isinstance(given, Download):
        # A packed file is to stay packed, with the hash that others have.
        headers["accept-encoding"] = "identity"
    body: bytes | None = None
    if isinstance(given, SendRequest):
        body, kind = _body(given)
        if kind is not None:
            headers.setdefault("content-type", kind)
    return Ask(method, _with_query(given.url, given.params), headers, body, given.follow, given.max_bytes + SLACK)


def secrets_of(ask: Ask) -> list[str]:
    """Secrets of the request that no result may show, in every spelling that an answer may have, the longest first."""
    found = [value for name, value in ask.headers.items() if _SECRET.search(name) and name != "idempotency-key"]
    found += [part for value in found for part in re.split(r"[\s;,=]+", value)]
    told = {value for value in found if len(value) >= _SHORTEST}
    spelled = {
        form for value in told for form in (value, json.dumps(value)[1:-1], value.replace("/", "\\/"), quote(value))
    }
    return sorted(spelled, key=len, reverse=True)


def _token(name: str, call: Call) -> str:
    token = call.env.get(name, "").strip()
    if not token:
        missing = missing_variable(name, call.env)
        raise ToolError(
            f"auth_env: the variable {name} {missing.reason}",
            category=Category.CONFIGURATION,
            advice=(missing.advice,),
        )
    if not token.isascii() or not token.isprintable():
        raise ToolError(f"auth_env: the value of {name} cannot stand in a header", category=Category.CONFIGURATION)
    return token


def _body(given: SendRequest) -> tuple[bytes | None, str | None]:
    if "json_" in given.model_fields_set:
        return msgspec.json.encode(given.json_), "application/json"
    if given.text is not None:
        return given.text.encode(), "text/plain; charset=utf-8"
    if given.form is not None:
        return _pairs(given.form).encode(), "application/x-www-form-urlencoded"
    if given.base64 is not None:
        try:
            return base64.b64decode(given.base64, validate=True), "application/octet-stream"
        except (binascii.Error, ValueError) as error:
            raise ToolError(f"`base64` is not base64: {error}", category=Category.LOGIC) from None
    return None, None


def _with_query(url: str, params: Mapping[str, Plain | list[Plain]]) -> str:
    if not params:
        return url
    url, _, _ = url.partition("#")
    return f"{url}{'&' if '?' in url else '?'}{_pairs(params)}"


def _pairs(values: Mapping[str, Plain | list[Plain]]) -> str:
    def spelled(value: Any) -> Any:
        if isinstance(value, list):
            return [spelled(one) for one in value]
        return str(value).lower() if isinstance(value, bool) else value

    return urlencode({name: spelled(value) for name, value in values.items()}, doseq=True)


Plain = str | int | float | bool
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")
_OURS = re.compile(
    r"(?i)accept-encoding|connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade"
)
"""Headers about the connection: a caller that set them could smuggle a second request into the first."""


class _Asking(Arguments):
    url: str = Field(description="The address, beginning with http:// or https://")
    params: dict[str, Plain | list[Plain]] = Field(default={}, description="Added to the query of the address")
    headers: dict[str, str] = Field(default={}, max_length=64)
    auth_env: str | None = Field(
        default=None, min_length=1, description="An environment variable that holds a bearer token"
    )
    follow: bool = Field(default=True, description="Follow redirects, at most 10")
    ok: list[Annotated[int, Field(ge=100, le=599)]] | None = Field(
        default=None, min_length=1, description="Statuses that mean success; otherwise 200 to 299"
    )

    @field_validator("url")
    @classmethod
    def _readable(cls, url: str) -> str:
        read_address(url)
        return url

    @field_validator("headers")
    @classmethod
    def _harmless(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not the name of a header")
            if not _VALUE.fullmatch(value):
                raise ValueError(f"the value of {name} is longer than 8192 characters, or has some that no header has")
            if _OURS.fullmatch(name):
                raise ValueError(f"{name} is set by the connection and cannot be given")
        if len({name.lower() for name in headers}) < len(headers):
            raise ValueError("a header is given twice")
        return {name.lower(): value.strip() for name, value in headers.items()}

    def good(self, status: int) -> bool:
        return status in self.ok if self.ok is not None else 200 <= status < 300


class Fetch(_Asking):
    timeout: Annotated[Duration, at_most("10m")] = Field(default=30.0, description="For all of it, redirects included")
    max_bytes: Annotated[Size, within(0, 64 * MB)] = Field(
        default=MB, description="Bytes of the body that are kept, decompressed; `truncated` says if there was more"
    )
    encoding: str | None = Field(
        default=None, max_length=40, description="The encoding of the text, or base64; otherwise as the answer says"
    )

    @field_validator("encoding")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name not in (None, "base64") and _codec(name or "") is None:
            raise ValueError(
                f"{name} is not a text encoding that is known here; use utf-8, latin-1, cp1252 … or base64"
            )
        return name


class SendRequest(Fetch):
    json_: Any = Field(default=None, alias="json", description="Sent as JSON")
    text: str | None = Field(default=None, description="Sent as plain text, or as the header Content-Type says")
    form: dict[str, Plain | list[Plain]] | None = Field(default=None, description="Sent as a form")
    base64: str | None = Field(default=None, description="Bytes to send, in base64")

    @model_validator(mode="after")
    def _one_body(self) -> SendRequest:
        given = [name for name in ("json_", "text", "form", "base64") if name in self.model_fields_set]
        if len(given) > 1:
            raise ValueError(f"give one body: {' or '.join(name.strip('_') for name in given)}")
        return self


class Download(_Asking):
    path: str | None = Field(
        default=None, description="A file in the working directory; otherwise it is kept as an artifact"
    )
    name: str | None = Field(default=None, max_length=200, description="The name of the artifact")
    overwrite: bool = Field(default=True, description="Replace a file that is there")
    sha256: str | None = Field(default=None, pattern=r"^[0-9A-Fa-f]{64}$", description="What it must be")
    timeout: Annotated[Duration, at_most("6h")] = Field(default=600.0)
    max_bytes: Annotated[Size, within(1, 64 * GB)] = Field(
        default=GB, description="A larger file is a failure, and is not kept"
    )

    @model_validator(mode="after")
    def _one_place(self) -> Download:
        if self.path is not None and self.name is not None:
            raise ValueError("give `path` or `name`, not both")
        return self


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
    name = _codec(charset) or "utf_8"
    if charset or kind.startswith("text/") or any(word in kind for word in _TEXTS):
        return data.decode(name, errors="replace")
    try:
        # A text that was cut may end in the middle of a character.
        return codecs.getincrementaldecoder(name)().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None


def _codec(charset: str) -> str | None:
    """Python's name of an encoding of text; None for anything else."""
    try:
        name = codecs.lookup(charset).name.replace("-", "_")
    except (LookupError, ValueError):
        return None
    return name if _ENCODINGS.fullmatch(name) else None
