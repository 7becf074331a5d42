"""The arguments of the `http.*` tools, and the request made of them: address, headers, body, credentials."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
from pydantic import Field, field_validator, model_validator

from windlass.errors import Category, ToolError
from windlass.plan.quantities import GB, MB, Duration, Size, at_most, within
from windlass.ports import Call
from windlass.tools.functional import Arguments
from windlass.tools.net.exchange import Ask
from windlass.tools.net.names import read_address

__all__ = ["Download", "Fetch", "SendRequest", "ask_of", "secrets_of"]

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
        raise ToolError(
            f"auth_env: the variable {name} is not set, or not passed to steps",
            category=Category.CONFIGURATION,
            advice=(f"set {name}, and add it to env_allow in your settings",),
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
