"""DuckDuckGo's page for browsers without scripts: it needs no key, and is read as a page.

The page is cut into its results first, and each is parsed by itself: Python's HTML parser takes quadratic time for what
is malformed, and a whole page could keep it busy for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from windlass.errors import Category
from windlass.settings.tools import SearchProvider
from windlass.tools.net.exchange import Ask
from windlass.tools.search.providers import MAX_ANSWER
from windlass.tools.search.results import Hit, Search
from windlass.version import __version__

__all__ = ["DuckDuckGo"]

MOST_RESULTS, MAX_RESULT, MOST_TAGS = 60, 16_000, 300
_RESULT = re.compile(r"<div[^<>]{0,100}? class=\"(result(?: [^\"<>]{0,200})?)\"", re.ASCII)
_NO_PAGE = frozenset({"result--ad", "result--no-result"})
_HERE = "https://duckduckgo.com/"


class DuckDuckGo:
    name = "duckduckgo"
    needs: str | None = None

    def __init__(self, told: SearchProvider) -> None:
        self._base = (told.url or "https://html.duckduckgo.com").rstrip("/")

    def asks(self, wanted: Search, env: Mapping[str, str]) -> Iterator[Ask]:
        query = {"q": wanted.words}
        if wanted.recency is not None:
            query["df"] = wanted.recency[0]
        headers = {
            "accept": "text/html",
            "accept-language": "en",
            "user-agent": f"Mozilla/5.0 (compatible; windlass/{__version__})",
        }
        yield Ask("GET", f"{self._base}/html/?{urlencode(query)}", headers, most=MAX_ANSWER)

    def wrong(self, status: int) -> Category | None:
        # It turns away whom it takes for a robot, for a while.
        return Category.TRANSIENT if status in (202, 403, 418) else None

    def read(self, data: bytes) -> list[Hit]:
        page = data.decode("utf-8", errors="replace")
        places = [*_RESULT.finditer(page)][:MOST_RESULTS]
        if not places and "anomaly-modal" in page:
            raise ValueError("it asks for proof of a human")
        if not places and 'class="no-results' not in page:
            raise ValueError("its page is not the one that it should be")
        ends = [place.start() for place in places[1:]] + [len(page)]
        hits = []
        for place, end in zip(places, ends, strict=True):
            piece = page[place.end() : min(end, place.end() + MAX_RESULT)]
            if not _NO_PAGE.intersection(place[1].split()) and piece.count("<") <= MOST_TAGS:
                hits.append(_hit(piece))
        return hits


def _hit(piece: str) -> Hit:
    reader = _Reader()
    reader.feed(f"<div{piece}")
    reader.close()
    return Hit("".join(reader.title), _target(reader.url), "".join(reader.snippet))


def _target(link: str) -> str | None:
    """The page itself: links lead through DuckDuckGo, which tells in `uddg` where to."""
    try:
        parts = urlsplit(urljoin(_HERE, link))
        if parts.hostname is None or not f".{parts.hostname}".endswith(".duckduckgo.com"):
            return link
        return parse_qs(parts.query).get("uddg", [None])[0] if parts.path == "/l/" else None
    except ValueError:
        return None


class _Reader(HTMLParser):
    """One result: its first link, and its snippet."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.title: list[str] = []
        self.snippet: list[str] = []
        self._into: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        classes = (told.get("class") or "").split()
        if "result__a" in classes and not self.title:
            self.url = told.get("href") or ""
            self._into = self.title
        elif "result__snippet" in classes:
            self._into = self.snippet
        elif tag in ("a", "div", "h2", "script", "style"):
            self._into = None

    def handle_endtag(self, tag: str) -> None:
        if tag in ("a", "div", "h2"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into.append(data)
