"""Actions on a page (open, click, fill, wait) and reading it (text, tables, links).

Everything that is read is cut to a size inside the page already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windlass.errors import Category, ToolError
from windlass.plan.quantities import MB
from windlass.ports import Call
from windlass.settings.variables import missing_variable
from windlass.tools.browser.arguments import Click, Fill, Links, Open, Press, ReadPage, Select, Wait
from windlass.tools.browser.failures import glance, in_words, outcome_unknown, place_of
from windlass.tools.browser.session import Tab
from windlass.tools.net.failures import category_of_status, wait_of
from windlass.tools.net.guard import NetworkTarget

if TYPE_CHECKING:
    from playwright.async_api import Locator, Response

__all__ = ["click", "fill", "go", "links", "press", "select", "tables", "target_of", "text", "wait", "without"]

LONGEST = 2048
"""Characters of a title."""
_STATES: dict[str, Any] = {"load": "load", "dom": "domcontentloaded", "idle": "networkidle"}
_WANTED = {"load": "did not load", "dom": "returned no document", "idle": "did not become idle"}


async def go(tab: Tab, given: Open, target: NetworkTarget, seconds: float) -> dict[str, Any]:
    """Go to an address that was checked; the proxy checks redirects and everything that the page loads."""
    async with in_words(tab, _WANTED[given.until], seconds, target.url):
        response = await _goto(tab, target.url, _STATES[given.until], seconds)
    if response is not None and not given.good(response.status):
        raise await _refusal(tab, response, target.url)
    if given.text is not None or given.selector is not None:
        await _shown(tab, given.text, given.selector, seconds, gone=False)
    return {"status": response.status if response is not None else None, "title": await title_of(tab, seconds)}


async def title_of(tab: Tab, seconds: float) -> str:
    async with in_words(tab, "did not return its title", seconds):
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
    target, name = target_of(tab, given), _named(given.selector, given.text)
    act = target.dblclick if given.double else target.click
    async with in_words(tab, f"had nothing to click at {name}", seconds):
        await act(timeout=seconds * 1000, trial=True)
    with outcome_unknown():
        async with in_words(tab, f"did not answer the click at {name}", seconds):
            await act(timeout=seconds * 1000)
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
    if given.selector is not None:
        async with in_words(tab, f"had nothing to press a key in at {given.selector!r}", seconds):
            await tab.page.locator(given.selector).focus(timeout=seconds * 1000)
    with outcome_unknown():
        async with in_words(tab, f"did not answer the key {given.key}", seconds):
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
        async with in_words(tab, "did not become idle", seconds):
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
        missing = missing_variable(name, call.env)
        raise ToolError(
            f"value_env: the variable {name} {missing.reason}",
            category=Category.CONFIGURATION,
            advice=(missing.advice,),
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


MOST_TABLES, MOST_ROWS, MOST_CELLS = 50, 5000, 50_000
CELL = 2000
"""Characters of a cell or a link's text."""

_TEXT = """(root, most) => {
  const text = root.innerText ?? root.textContent ?? '';
  return [[text.slice(0, most), document.title.slice(0, 2048)], text.length > most];
}"""
_TABLES = """(root, [tables, rows, cells, size, total]) => {
  const found = root.matches('table') ? [root] : [...root.querySelectorAll('table')];
  let left = cells, room = total, cut = found.length > tables;
  const all = [];
  for (const table of found.slice(0, tables)) {
    const lines = [];
    for (const row of table.rows) {
      if (lines.length >= rows || left <= 0 || room <= 0) { cut = true; break; }
      const line = [];
      for (const cell of row.cells) {
        const text = (cell.innerText ?? '').trim().slice(0, size);
        left -= 1; room -= text.length;
        if (left < 0 || room < 0) { cut = true; break; }
        line.push(text);
      }
      lines.push(line);
    }
    all.push(lines);
  }
  return [all, cut];
}"""
_LINKS = """(root, [most, size]) => {
  const found = [...root.querySelectorAll('a[href]')];
  const cut = text => String(text ?? '').trim().slice(0, size);
  const shown = found.slice(0, most).map(a => [cut(a.innerText), cut(a.href)]);
  return [shown, found.length > most];
}"""


async def text(tab: Tab, given: ReadPage, call: Call, seconds: float) -> dict[str, Any]:
    found, cut = await _asked(tab, given.selector, _TEXT, given.max_bytes, seconds)
    with _honest(tab):
        shown, title = found
    if not isinstance(shown, str):
        raise _lie(tab)
    data = _clean(shown[:MB]).encode("utf-8", "replace")
    kept = data[: given.max_bytes].decode("utf-8", "ignore")
    return {"text": kept, "truncated": bool(cut) or len(data) > given.max_bytes, "title": str(title)[:2048]}


async def tables(tab: Tab, given: ReadPage, call: Call, seconds: float) -> dict[str, Any]:
    limits = [MOST_TABLES, MOST_ROWS, MOST_CELLS, CELL, given.max_bytes]
    found, cut = await _asked(tab, given.selector, _TABLES, limits, seconds)
    with _honest(tab):
        rows = [[[_line(cell) for cell in row] for row in table] for table in found]
    return {"tables": rows, "truncated": bool(cut)}


async def links(tab: Tab, given: Links, call: Call, seconds: float) -> dict[str, Any]:
    found, cut = await _asked(tab, given.selector, _LINKS, [given.most, CELL], seconds)
    with _honest(tab):
        shown = [{"text": _line(name), "url": str(url)[:CELL]} for name, url in found[: given.most]]
    return {"links": shown, "truncated": bool(cut)}


@contextmanager
def _honest(tab: Tab) -> Iterator[None]:
    """Turn data of an unexpected shape into a failure: a page may send anything."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise _lie(tab) from error


def _lie(tab: Tab) -> ToolError:
    return ToolError(f"{place_of(tab.page.url)} cannot be read: its scripts interfere", category=Category.LOGIC)


async def _asked(tab: Tab, selector: str | None, script: str, limits: Any, seconds: float) -> tuple[Any, Any]:
    """Run a script of ours in the page. A page can lie to it, but only about itself."""
    what = f"has no {selector!r}" if selector is not None else "gave no answer"
    async with in_words(tab, what, seconds):
        if selector is None:
            # The whole document needs no search in it, whose machinery would be put into each new page first.
            answer = await tab.page.evaluate(f"limits => ({script})(document.documentElement, limits)", limits)
        else:
            found = tab.page.locator(selector).first
            answer = await found.evaluate(script, limits, timeout=seconds * 1000)
    if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], list):
        raise _lie(tab)
    return answer[0], answer[1]


def _clean(found: str) -> str:
    """Without the space that only serves the looks: at line ends, and more than one empty line."""
    lines = "\n".join(re.sub(r"[ \t\xa0]+", " ", line).strip() for line in found.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def _line(found: Any) -> str:
    return " ".join(str(found)[:CELL].split())
