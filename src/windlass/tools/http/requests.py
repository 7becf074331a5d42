"""From a tool's arguments to a request: address, headers, body, credentials."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from windlass.errors import Category, ToolError
from windlass.ports import Call
from windlass.tools.http.arguments import Download, Fetch, Plain, Send
from windlass.tools.net.exchange import Ask

__all__ = ["ask_of", "secrets_of"]

_SECRET = re.compile(r"(?i)auth|cookie|token|key|secret|password|session|credential")
SLACK = 1024 * 1024
"""Bytes that may come from the network beyond those that are kept, before it is cut off."""
_SHORTEST = 6
"""Shorter values are no secrets, and would blot out half of an answer."""


def ask_of(method: str, given: Fetch | Download, call: Call) -> Ask:
    try:
        return _ask_of(method, given, call)
    except UnicodeEncodeError:
        raise ToolError("what is to be sent is not valid Unicode text", category=Category.LOGIC) from None


def _ask_of(method: str, given: Fetch | Download, call: Call) -> Ask:
    headers = dict(given.headers)
    if given.auth_env is not None:
        headers["authorization"] = f"Bearer {_token(given.auth_env, call)}"
    if method == "POST":
        headers.setdefault("idempotency-key", call.effect_id)
    if isinstance(given, Download):
        # What is packed is to stay packed, and its hash is that of what others have.
        headers["accept-encoding"] = "identity"
    body: bytes | None = None
    if isinstance(given, Send):
        body, kind = _body(given)
        if kind is not None:
            headers.setdefault("content-type", kind)
    return Ask(method, _with_query(given.url, given.params), headers, body, given.follow, given.max_bytes + SLACK)


def secrets_of(ask: Ask) -> list[str]:
    """What was sent that no answer may show, in the spellings that answers may have, the longest first."""
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
            f"auth_env: the variable {name} is not set, or steps do not get to see it",
            category=Category.CONFIGURATION,
            advice=(f"set {name}, and add it to env_allow in your settings",),
        )
    if not token.isascii() or not token.isprintable():
        raise ToolError(f"auth_env: the value of {name} cannot stand in a header", category=Category.CONFIGURATION)
    return token


def _body(given: Send) -> tuple[bytes | None, str | None]:
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
