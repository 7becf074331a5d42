"""A JSON POST to a service of the settings, which can tell a repetition and, with a secret, that it is from us."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from windlass.errors import Category, ToolError
from windlass.ports import Meter
from windlass.tools.message.once import OutcomeUnknown
from windlass.tools.message.services import MessageService

__all__ = ["GATEWAYS", "of_status", "post", "signature", "target"]

CONNECT, ANSWER = 10.0, 40.0
KEPT = 2000
"""Characters of the answer that are kept."""
LARGEST_ANSWER = 64 * 1024
LONGEST_WAIT = 3600.0


def target(service: MessageService, url: str) -> str:
    """The address, if it is one that can be posted to."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ToolError(
            f"message service {service.name!r}: the address of a webhook begins with http:// or https://",
            category=Category.CONFIGURATION,
            advice=("use message.send for it", f"check {service.settings.url_env or 'its url in your settings'}"),
        )
    return url


def signature(secret: str, at: int, body: bytes) -> str:
    """`t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.BODY`. The time is signed too, so that an old one can be refused."""
    made = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={made}"


async def post(
    service: MessageService, url: str, body: bytes, headers: dict[str, str], clean: Callable[[str], str], meter: Meter
) -> dict[str, Any]:
    """Hand it over. A ToolError that is not `OutcomeUnknown` means that the service has not taken it."""
    try:
        import httpx2

        from windlass.tools.net.wire import coming_in, going_out
    except ImportError:
        raise ToolError(
            "webhooks need the package httpx2, which is not installed",
            category=Category.CONFIGURATION,
            advice=("pip install 'windlass[messages,web]'",),
        ) from None
    host = urlsplit(url).hostname
    verify = not url.lower().startswith("http://")  # reading the certificates takes 50 ms
    timeout = httpx2.Timeout(ANSWER, connect=CONNECT)
    try:
        # No proxy, netrc or redirect: what is meant for one place goes to no other.
        async with httpx2.AsyncClient(
            timeout=timeout, trust_env=False, follow_redirects=False, verify=verify
        ) as client:
            request = client.build_request("POST", url, content=body, headers=headers)
            going_out(request, meter)
            answer = await client.send(request, stream=True)
            coming_in(answer, meter)
            try:
                said = await _beginning(answer)
            finally:
                await answer.aclose()
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
        raise ToolError(
            f"message service {service.name!r}: no connection to {host}: {clean(str(error))}",
            category=Category.TRANSIENT,
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OutcomeUnknown(
            f"message service {service.name!r}: the connection to {host} ended before an answer "
            f"({type(error).__name__}): the message may or may not have arrived"
        ) from error
    shown = clean(said)[:KEPT]
    if not 200 <= answer.status_code < 300:
        message = f"message service {service.name!r} ({host}) answered {answer.status_code}: {shown[:300]}"
        raise of_status(answer.status_code, message, _seconds(answer.headers.get("Retry-After", "")))
    return {"status": answer.status_code, "response": shown}


async def _beginning(answer: Any) -> str:
    """The first bytes of the answer. The status is there already: that an answer breaks off changes nothing of it."""
    import httpx2

    data = bytearray()
    try:
        async for chunk in answer.aiter_bytes():
            data += chunk
            if len(data) > LARGEST_ANSWER:
                break
    except httpx2.HTTPError:
        data += b" [the answer broke off]"
    return data.decode("utf-8", "replace")


def _seconds(text: str) -> float | None:
    return min(float(text), LONGEST_WAIT) if text.strip().isdecimal() else None


GATEWAYS = {502, 504}
"""Statuses of a gateway, which does not know the outcome behind it."""
_LATER = {408, 421, 425, 429}


def of_status(status: int, message: str, retry_after: float | None = None) -> ToolError:
    if status in GATEWAYS:
        return OutcomeUnknown(f"{message}; it may or may not have arrived")
    if status in (401, 403, 407):
        return ToolError(message, category=Category.PERMISSION, advice=("check the service's address and its secrets",))
    if status in _LATER or status >= 500:
        return ToolError(message, category=Category.TRANSIENT, retry_after=retry_after)
    return ToolError(message, category=Category.LOGIC, advice=("check the service's address, and what is sent",))
