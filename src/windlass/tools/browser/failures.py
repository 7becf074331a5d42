"""Failures in a page, in words: the page, the awaited element, and the present content."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from msgspec.structs import replace

from windlass.errors import CUT_OFF, Category, ToolError
from windlass.tools.browser.session import Tab
from windlass.tools.net.names import read_address

__all__ = ["in_words", "outcome_unknown", "place_of", "waited"]

SHOWN = 200
"""Characters of a page that an error shows."""
GLANCE = 2.0
OVERTIME = 3.0
"""Seconds after its own limit for playwright to say so; a page whose script is busy makes it silent."""
_AGAIN = ("open the page again: put a browser.open before this step",)
_NET = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_A_FILE = "it is not a page but a file: use browser.download, or http.download"
_KINDS = {
    "ERR_TOO_MANY_REDIRECTS": ("it redirects endlessly", Category.LOGIC),
    "ERR_ABORTED": ("the navigation was interrupted", Category.TRANSIENT),
    "ERR_INVALID_RESPONSE": ("the answer is not proper HTTP", Category.TRANSIENT),
    "ERR_EMPTY_RESPONSE": ("the answer is empty", Category.TRANSIENT),
    "ERR_BLOCKED_BY_CLIENT": ("the browser refuses this address", Category.PERMISSION),
    "ERR_UNSAFE_PORT": ("the browser blocks this port", Category.LOGIC),
    "ERR_RESPONSE_HEADERS_TOO_BIG": ("its headers are too large", Category.LOGIC),
}


def place_of(url: str) -> str:
    """An address for messages: without the query, which may hold keys."""
    try:
        return read_address(url).shown
    except ValueError:
        return url[:100].partition("?")[0] or "the page"


def waited(tab: Tab, what: str, seconds: float, shows: str, url: str | None = None) -> ToolError:
    shown = f"; it shows: {shows}" if shows else "; it shows nothing"
    return ToolError(
        f"{place_of(url or tab.page.url)} {what} within {seconds:g} s{shown}",
        category=Category.TRANSIENT,
        advice=("look at it with browser.screenshot, or wait for something else",),
    )


@asynccontextmanager
async def in_words(tab: Tab, what: str, seconds: float, url: str | None = None) -> AsyncIterator[None]:
    """An error of playwright as a `ToolError`. `what` completes a sentence: `did not show the text 'Ready'`."""
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as Late

    limit = asyncio.timeout(seconds + OVERTIME)
    try:
        async with limit:
            yield
    except Late as error:
        shows = await glance(tab)
        if shows is None and url is None:
            raise await _busy(tab, what) from error
        if shows is None:
            await tab.crash()  # between two pages it answers nobody, and what comes later would come in the way
        raise waited(tab, what, seconds, shows or "", url) from error
    except Error as error:
        raise await _explained(tab, what, error, url) from error
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise await _busy(tab, what, url) from error


@contextmanager
def outcome_unknown() -> Iterator[None]:
    """Mark a failure as one that may have taken effect: a click or a key may have been an order."""
    try:
        yield
    except ToolError as error:
        raise ToolError.of(replace(error.failure, kind=CUT_OFF)) from error


async def _busy(tab: Tab, what: str, url: str | None = None) -> ToolError:
    """A page that answers nobody is ended; it would keep a processor busy for nothing."""
    where = place_of(url or tab.page.url)
    await tab.crash()
    return ToolError(
        f"{where} {what}, and does not answer at all: its scripts keep it busy, so the page was closed",
        category=Category.TRANSIENT,
        advice=_AGAIN,
    )


async def glance(tab: Tab) -> str | None:
    """The beginning of what a page shows; None when it does not even answer."""
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(GLANCE):
            text = await tab.page.evaluate(
                f"() => (document.body ? document.body.innerText : '').slice(0, {SHOWN * 4})"
            )
    except Error:
        return ""
    except TimeoutError:
        return None
    return " ".join(str(text).split())[:SHOWN]


async def _explained(tab: Tab, what: str, error: Exception, url: str | None) -> ToolError:
    where, said = place_of(url or tab.page.url), str(error)
    if tab.crashed or "crashed" in said:
        await tab.close()
        return ToolError(
            f"{where} {what}: the page crashed, possibly out of memory",
            category=Category.RESOURCE,
            advice=_AGAIN,
        )
    closed = "has been closed" in said
    if "Connection closed" in said or not tab.session.running.alive or (closed and not tab.page.is_closed()):
        # The page does not know that it is closed: nobody was there any more to tell.
        tab.session.running.lost()
        return ToolError(f"{where} {what}: the browser ended in the middle of it", category=Category.TRANSIENT)
    if closed or tab.page.is_closed():
        return ToolError(
            f"{where} {what}: the page was closed in the middle of it",
            category=Category.LOGIC,
            advice=_AGAIN,
        )
    if (found := _NET.search(said)) is not None:
        return _net(tab, where, found[1], said, url)
    if "Download is starting" in said:
        return ToolError(f"{where} cannot be opened: {_A_FILE}", category=Category.LOGIC)
    if "strict mode violation" in said:
        count = re.search(r"resolved to (\d+) elements", said)
        return ToolError(
            f"{where}: the selector matches {count[1] if count else 'several'} elements, but must match one",
            category=Category.LOGIC,
            advice=("make the selector narrower, or add >> nth=0 for the first",),
        )
    return ToolError(f"{where} {what}: {_first_line(said)}", category=Category.LOGIC)


def _net(tab: Tab, where: str, code: str, said: str, url: str | None) -> ToolError:
    if "SOCKS" in code or "PROXY" in code:
        return _not_reached(tab, where, said, url)
    if code.startswith(("ERR_CERT", "ERR_SSL")):
        words = code.removeprefix("ERR_").replace("_", " ").lower()
        return ToolError(
            f"{where} cannot be opened: no secure connection ({words})",
            category=Category.CONFIGURATION,
            advice=("check the address and its certificate",),
        )
    words, category = _KINDS.get(code, (code.removeprefix("ERR_").replace("_", " ").lower(), Category.TRANSIENT))
    return ToolError(f"{where} cannot be opened: {words}", category=category)


def _not_reached(tab: Tab, where: str, said: str, url: str | None) -> ToolError:
    """The proxy knows why; a redirect may have led elsewhere than was asked for."""
    told = re.search(r" at (https?://\S+)", said)
    for text in (told[1] if told else None, url):
        try:
            address = read_address(text or "")
        except ValueError:
            continue
        reason = tab.session.proxy.reason(address.host, address.port)
        if reason is not None:
            return reason
    refused = tab.session.proxy.last
    if refused is not None:
        return refused
    return ToolError(f"{where} cannot be opened: no connection", category=Category.TRANSIENT)


def _first_line(said: str) -> str:
    text = said.partition("\n")[0]
    return re.sub(r"^[A-Za-z]+\.[a-z_A-Z]+: (Error: )?", "", text)[:300]
