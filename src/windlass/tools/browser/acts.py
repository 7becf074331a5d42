"""What is done to a page: opened, clicked, filled, waited for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windlass.errors import Category, ToolError
from windlass.ports import Call
from windlass.tools.browser.arguments import Click, Fill, Open, Press, Select, Wait
from windlass.tools.browser.failures import glance, in_words, place_of
from windlass.tools.browser.session import Tab
from windlass.tools.net.failures import category_of_status, wait_of
from windlass.tools.net.guard import Target

if TYPE_CHECKING:
    from playwright.async_api import Locator, Response

__all__ = ["click", "fill", "go", "press", "select", "target_of", "title_of", "wait", "without"]

LONGEST = 2048
"""Characters of a title."""
_STATES: dict[str, Any] = {"load": "load", "dom": "domcontentloaded", "idle": "networkidle"}
_WANTED = {"load": "did not load", "dom": "brought no document", "idle": "did not come to rest"}


async def go(tab: Tab, given: Open, target: Target, seconds: float) -> dict[str, Any]:
    """To an address that was checked; what that address leads to is checked at the door."""
    async with in_words(tab, _WANTED[given.until], seconds, target.url):
        response = await _goto(tab, target.url, _STATES[given.until], seconds)
    if response is not None and not given.good(response.status):
        raise await _refusal(tab, response, target.url)
    if given.text is not None or given.selector is not None:
        await _shown(tab, given.text, given.selector, seconds, gone=False)
    return {"status": response.status if response is not None else None, "title": await title_of(tab, seconds)}


async def title_of(tab: Tab, seconds: float) -> str:
    async with in_words(tab, "did not tell its title", seconds):
        title = await tab.page.title()
    return title[:LONGEST]


async def _goto(tab: Tab, url: str, until: Any, seconds: float) -> Response | None:
    from playwright.async_api import Error
    from playwright.async_api import TimeoutError as Late

    try:
        return await tab.page.goto(url, wait_until=until, timeout=seconds * 1000)
    except Error as error:
        # Instead of the page comes one of the browser's own, at some time, and in the way of whoever goes on here.
        tab.broken = not isinstance(error, Late)
        raise


async def click(tab: Tab, given: Click, call: Call, seconds: float) -> dict[str, Any]:
    async with in_words(tab, f"had nothing to click at {_named(given.selector, given.text)}", seconds):
        target = target_of(tab, given)
        await (target.dblclick if given.double else target.click)(timeout=seconds * 1000)
    return {}


async def fill(tab: Tab, given: Fill, call: Call, seconds: float) -> dict[str, Any]:
    value = given.value if given.value is not None else _secret(tab, given.value_env or "", call)
    async with in_words(tab, f"had no field to fill at {given.selector!r}", seconds):
        await tab.page.locator(given.selector).fill(value, timeout=seconds * 1000)
    return {}


async def select(tab: Tab, given: Select, call: Call, seconds: float) -> dict[str, Any]:
    wanted = ", ".join(map(repr, given.options))[:200]
    async with in_words(tab, f"had no {wanted} to select at {given.selector!r}", seconds):
        await tab.page.locator(given.selector).select_option(given.options, timeout=seconds * 1000)
    return {}


async def press(tab: Tab, given: Press, call: Call, seconds: float) -> dict[str, Any]:
    async with in_words(tab, f"did not take the key {given.key}", seconds):
        if given.selector is not None:
            await tab.page.locator(given.selector).press(given.key, timeout=seconds * 1000)
        else:
            await tab.page.keyboard.press(given.key)
    return {}


async def wait(tab: Tab, given: Wait, call: Call, seconds: float) -> dict[str, Any]:
    if given.url is not None:
        async with in_words(tab, f"did not become {given.url!r}", seconds):
            await tab.page.wait_for_url(given.url, timeout=seconds * 1000, wait_until="commit")
    elif given.idle:
        async with in_words(tab, "did not come to rest", seconds):
            await tab.page.wait_for_load_state("networkidle", timeout=seconds * 1000)
    else:
        await _shown(tab, given.text, given.selector, seconds, gone=given.gone)
    return {}


def target_of(tab: Tab, given: Click) -> Locator:
    if given.selector is not None:
        return tab.page.locator(given.selector)
    return tab.page.get_by_text(given.text or "").first


async def _shown(tab: Tab, text: str | None, selector: str | None, seconds: float, *, gone: bool) -> None:
    found = [(tab.page.get_by_text(text).first, f"the text {text!r}")] if text is not None else []
    found += [(tab.page.locator(selector).first, repr(selector))] if selector is not None else []
    for locator, name in found:
        async with in_words(tab, f"still shows {name}" if gone else f"did not show {name}", seconds):
            await locator.wait_for(state="hidden" if gone else "visible", timeout=seconds * 1000)


async def _refusal(tab: Tab, response: Response, url: str) -> ToolError:
    category = category_of_status(response.status)
    shows = await glance(tab)
    # A date instead of seconds is of no use without a clock, and then nothing is told.
    after = response.headers.get("retry-after", "")
    return ToolError(
        f"{place_of(url)}: status {response.status}" + (f"; it shows: {shows}" if shows else ""),
        category=category,
        advice=("`ok` names further statuses that mean success",) if category is Category.LOGIC else (),
        retry_after=wait_of(after, lambda: 0.0)
        if category is Category.TRANSIENT and re.fullmatch(r"\d+", after)
        else None,
    )


def _secret(tab: Tab, name: str, call: Call) -> str:
    value = call.env.get(name, "")
    if not value:
        raise ToolError(
            f"value_env: the variable {name} is not set, or steps do not get to see it",
            category=Category.CONFIGURATION,
            advice=(f"set {name}, and add it to env_allow in your settings",),
        )
    tab.session.secrets.add(value)
    return value


def _named(selector: str | None, text: str | None) -> str:
    return repr(selector) if selector is not None else f"the text {text!r}"


def without(value: Any, secrets: Sequence[str]) -> Any:
    """The same without what was filled in from the environment: an address or a text may show it again."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, dict):
        return {name: without(part, secrets) for name, part in value.items()}
    return [without(part, secrets) for part in value] if isinstance(value, list) else value
