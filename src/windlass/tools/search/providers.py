"""The services that `search` asks. Each makes requests and reads answers, no more.

SearXNG, Brave and Tavily answer with JSON. DuckDuckGo needs no key, and is read from its page for browsers without
scripts. That page is cut into its results first, and each is parsed by itself: Python's HTML parser takes quadratic
time for malformed input, and a whole page could keep it busy for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import msgspec

from windlass.errors import Category, ToolError
from windlass.settings.tools import SearchProvider
from windlass.tools.net.exchange import Ask
from windlass.tools.search.results import Hit, SearchQuery
from windlass.version import __version__

__all__ = ["Brave", "DuckDuckGo", "Provider", "Searxng", "Tavily", "key_of"]

MAX_ANSWER = 2 * 1024 * 1024
_JSON = {"accept": "application/json"}


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def asks(self, wanted: SearchQuery, env: Mapping[str, str]) -> Iterator[Ask]:
        """The requests for one page after the other; as many are sent as it takes."""
        ...

    def read(self, data: bytes) -> list[Hit]:
        """The results in an answer; `ValueError` when it is not one."""
        ...

    def wrong(self, status: int) -> Category | None:
        """The category of a status for this service, where it is not the usual one."""
        ...

    @property
    def needs(self) -> str | None:
        """The environment variable without which it cannot be asked."""
        ...


class _Provider:
    name = ""
    home = ""
    key: str | None = None

    def __init__(self, told: SearchProvider) -> None:
        self._base = (told.url or self.home).rstrip("/")
        self._key_env = told.key_env or self.key

    @property
    def needs(self) -> str | None:
        return self._key_env

    def wrong(self, status: int) -> Category | None:
        return None


def key_of(name: str, provider: str, env: Mapping[str, str]) -> str:
    key = env.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ToolError(
            f"search: {provider} needs a key, and the variable {name} is not set",
            category=Category.CONFIGURATION,
            advice=(f"export {name}=…, or take {provider} out of search.providers in your settings",),
        )
    return key


class Searxng(_Provider):
    name = "searxng"

    def asks(self, wanted: SearchQuery, env: Mapping[str, str]) -> Iterator[Ask]:
        if not self._base:
            raise ToolError(
                "search: searxng has no url",
                category=Category.CONFIGURATION,
                advice=('search.providers = [{kind = "searxng", url = "https://…"}]',),
            )
        headers = dict(_JSON)
        if self._key_env is not None:
            headers["authorization"] = f"Bearer {key_of(self._key_env, self.name, env)}"
        for page in range(1, 6):
            query = {"q": wanted.words, "format": "json", "pageno": page}
            if wanted.recency is not None:
                query["time_range"] = wanted.recency
            yield Ask("GET", f"{self._base}/search?{urlencode(query)}", headers, most=MAX_ANSWER)

    def wrong(self, status: int) -> Category | None:
        # Without `json` among its search.formats, it refuses the format.
        return Category.CONFIGURATION if status in (403, 404) else None

    def read(self, data: bytes) -> list[Hit]:
        told = _object(data)
        hits = [
            Hit(one.get("title"), one.get("url"), one.get("content"), one.get("publishedDate")) for one in _list(told)
        ]
        if not hits and told.get("unresponsive_engines"):
            raise ValueError("none of its engines answered")
        return hits


class Brave(_Provider):
    name = "brave"
    home = "https://api.search.brave.com"
    key = "BRAVE_API_KEY"

    def asks(self, wanted: SearchQuery, env: Mapping[str, str]) -> Iterator[Ask]:
        headers = {**_JSON, "x-subscription-token": key_of(str(self._key_env), self.name, env)}
        for page in range(3):
            query: dict[str, Any] = {"q": wanted.words, "count": min(20, wanted.limit), "offset": page}
            if wanted.recency is not None:
                query["freshness"] = f"p{wanted.recency[0]}"
            yield Ask("GET", f"{self._base}/res/v1/web/search?{urlencode(query)}", headers, most=MAX_ANSWER)

    def read(self, data: bytes) -> list[Hit]:
        web = _object(data).get("web")
        return [
            Hit(one.get("title"), one.get("url"), one.get("description"), one.get("page_age") or one.get("age"))
            for one in _list(web if isinstance(web, dict) else {"results": []})
        ]


class Tavily(_Provider):
    name = "tavily"
    home = "https://api.tavily.com"
    key = "TAVILY_API_KEY"

    def asks(self, wanted: SearchQuery, env: Mapping[str, str]) -> Iterator[Ask]:
        key = key_of(str(self._key_env), self.name, env)
        body: dict[str, Any] = {"query": wanted.query, "max_results": min(20, wanted.limit), "search_depth": "basic"}
        if wanted.site is not None:
            body["include_domains"] = [wanted.site]
        if wanted.recency is not None:
            body["time_range"] = wanted.recency
        headers = {**_JSON, "content-type": "application/json", "authorization": f"Bearer {key}"}
        yield Ask("POST", f"{self._base}/search", headers, msgspec.json.encode(body), most=MAX_ANSWER)

    def wrong(self, status: int) -> Category | None:
        # The plan's or the key's allowance is used up.
        return Category.TRANSIENT if status in (432, 433) else None

    def read(self, data: bytes) -> list[Hit]:
        told = _list(_object(data))
        return [Hit(one.get("title"), one.get("url"), one.get("content"), one.get("published_date")) for one in told]


def _object(data: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        told = None
    if not isinstance(told, dict):
        raise ValueError("its answer is not the expected JSON")
    return told


def _list(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = told.get("results")
    if not isinstance(found, list):
        raise ValueError("its answer has no results in it")
    return [one for one in found[:200] if isinstance(one, dict)]


MOST_RESULTS, MAX_RESULT, MOST_TAGS = 60, 16_000, 300
_RESULT = re.compile(r"<div[^<>]{0,100}? class=\"(result(?: [^\"<>]{0,200})?)\"", re.ASCII)
_NO_PAGE = frozenset({"result--ad", "result--no-result"})
_HERE = "https://duckduckgo.com/"


class DuckDuckGo:
    name = "duckduckgo"
    needs: str | None = None

    def __init__(self, told: SearchProvider) -> None:
        self._base = (told.url or "https://html.duckduckgo.com").rstrip("/")

    def asks(self, wanted: SearchQuery, env: Mapping[str, str]) -> Iterator[Ask]:
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
            raise ValueError("it asks for a captcha")
        if not places and 'class="no-results' not in page:
            raise ValueError("its page has an unexpected form")
        ends = [place.start() for place in places[1:]] + [len(page)]
        hits = []
        for place, end in zip(places, ends, strict=True):
            piece = page[place.end() : min(end, place.end() + MAX_RESULT)]
            if not _NO_PAGE.intersection(place[1].split()) and piece.count("<") <= MOST_TAGS:
                hits.append(_hit(piece))
        return hits


def _hit(piece: str) -> Hit:
    reader = _ResultReader()
    reader.feed(f"<div{piece}")
    reader.close()
    return Hit("".join(reader.title), _target(reader.url), "".join(reader.snippet))


def _target(link: str) -> str | None:
    """The page itself: links lead through DuckDuckGo, with the target in `uddg`."""
    try:
        parts = urlsplit(urljoin(_HERE, link))
        if parts.hostname is None or not f".{parts.hostname}".endswith(".duckduckgo.com"):
            return link
        return parse_qs(parts.query).get("uddg", [None])[0] if parts.path == "/l/" else None
    except ValueError:
        return None


class _ResultReader(HTMLParser):
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
