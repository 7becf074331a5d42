"""Failures of the network, in words and by category."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from windlass.errors import CUT_OFF, Category, Failure, ToolError

__all__ = ["TooMuch", "category_of_status", "in_time", "in_words", "wait_of"]

LONGEST_WAIT = 86400.0


class TooMuch(Exception):
    """The network brought more than was asked for. The part read until then is good."""


@asynccontextmanager
async def in_time(seconds: float, what: str) -> AsyncIterator[None]:
    """Everything within so many seconds, however slowly the other side goes on giving signs of life."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        late = f"{what}: not finished within {seconds:g} s"
        raise _cut_off(late, "give it more time with `timeout`, or ask for less") from error


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """An error of the client library as a `ToolError` about `what`. None of it names a header or a body."""
    import httpcore2
    import httpx2

    def failed(text: str, category: Category = Category.TRANSIENT, *advice: str) -> ToolError:
        return ToolError(f"{what}: {text}", category=category, advice=advice)

    try:
        yield
    except (httpcore2.ConnectTimeout, httpcore2.PoolTimeout) as error:
        raise failed("no answer in time") from error
    except (httpcore2.ReadTimeout, httpcore2.WriteTimeout) as error:
        raise _cut_off(f"{what}: no answer in time") from error
    except httpcore2.NetworkError as error:
        if (broken := _tls(error)) is not None:
            advice = "check the address and the certificate; SSL_CERT_FILE names certificates of your own"
            raise failed(f"no secure connection: {_reason(broken)}", Category.CONFIGURATION, advice) from error
        why = str(error)[:200] or "it was closed"
        if isinstance(error, httpcore2.ConnectError):
            raise failed(f"no connection: {why}") from error
        raise _cut_off(f"{what}: the connection broke: {why}") from error
    except httpcore2.LocalProtocolError as error:
        # The library's own words would repeat the header that it does not like.
        raise failed("the request cannot be sent as it is", Category.LOGIC, "correct its headers") from error
    except (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError) as error:
        raise _cut_off(f"{what}: the answer is not proper HTTP: {str(error)[:200]}") from error
    except httpx2.DecodingError as error:
        raise _cut_off(f"{what}: the answer cannot be decompressed: {str(error)[:200]}") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, httpcore2.UnsupportedProtocol) as error:
        raise failed(f"it cannot be asked for: {str(error)[:200]}", Category.LOGIC) from error


def _cut_off(message: str, *advice: str) -> ToolError:
    """The request was sent, and its outcome is unknown: a person is asked before one that must not be repeated."""
    return ToolError.of(Failure(Category.TRANSIENT, message, advice=advice, kind=CUT_OFF))


def _tls(error: BaseException) -> ssl.SSLError | None:
    """The fault of the secure connection, if it had one; one that merely broke off has none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is invalid: {error.verify_message}"
    return str(error.reason or error)[:200].lower().replace("_", " ")


def category_of_status(status: int) -> Category:
    if status in (408, 425, 429) or status >= 500:
        return Category.TRANSIENT
    return Category.PERMISSION if status in (401, 403, 407) else Category.LOGIC


def wait_of(retry_after: str | None, now: Callable[[], float]) -> float | None:
    """Seconds to wait, from a Retry-After header: a number or a date."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST_WAIT)
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, until - now()), LONGEST_WAIT)
