"""What is read from a page: its text, its tables, its links. All of it is cut to a size inside the page already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windlass.errors import Category, ToolError
from windlass.plan.quantities import MB
from windlass.ports import Call
from windlass.tools.browser.arguments import Links, Read
from windlass.tools.browser.failures import in_words, place_of
from windlass.tools.browser.session import Tab

__all__ = ["links", "tables", "text"]

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


async def text(tab: Tab, given: Read, call: Call, seconds: float) -> dict[str, Any]:
    found, cut = await _asked(tab, given.selector, _TEXT, given.max_bytes, seconds)
    with _honest(tab):
        shown, title = found
    if not isinstance(shown, str):
        raise _lie(tab)
    data = _clean(shown[:MB]).encode("utf-8", "replace")
    kept = data[: given.max_bytes].decode("utf-8", "ignore")
    return {"text": kept, "truncated": bool(cut) or len(data) > given.max_bytes, "title": str(title)[:2048]}


async def tables(tab: Tab, given: Read, call: Call, seconds: float) -> dict[str, Any]:
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
    """What comes from a page may have any shape."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise _lie(tab) from error


def _lie(tab: Tab) -> ToolError:
    return ToolError(f"{place_of(tab.page.url)} cannot be read: its scripts interfere", category=Category.LOGIC)


async def _asked(tab: Tab, selector: str | None, script: str, limits: Any, seconds: float) -> tuple[Any, Any]:
    """What a script of ours finds in the page. A page can lie to it, but only about itself."""
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
