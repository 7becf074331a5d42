"""The services that are asked with JSON: SearXNG, Brave, Tavily. Each makes requests and reads answers, no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec

from windlass.errors import Category, ToolError
from windlass.settings.tools import SearchProvider
from windlass.tools.net.exchange import Ask
from windlass.tools.search.results import Hit, Search

__all__ = ["Brave", "Provider", "Searxng", "Tavily", "key_of"]

MAX_ANSWER = 2 * 1024 * 1024
_JSON = {"accept": "application/json"}


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def asks(self, wanted: Search, env: Mapping[str, str]) -> Iterator[Ask]:
        """The requests for one page after the other; as many are sent as it takes."""
        ...

    def read(self, data: bytes) -> list[Hit]:
        """What an answer holds; `ValueError` when it is not one."""
        ...

    def wrong(self, status: int) -> Category | None:
        """What a status means for this service, where that is not the usual."""
        ...

    @property
    def needs(self) -> str | None:
        """The environment variable without which it cannot be asked."""
        ...


class _Service:
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


class Searxng(_Service):
    name = "searxng"

    def asks(self, wanted: Search, env: Mapping[str, str]) -> Iterator[Ask]:
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


class Brave(_Service):
    name = "brave"
    home = "https://api.search.brave.com"
    key = "BRAVE_API_KEY"

    def asks(self, wanted: Search, env: Mapping[str, str]) -> Iterator[Ask]:
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


class Tavily(_Service):
    name = "tavily"
    home = "https://api.tavily.com"
    key = "TAVILY_API_KEY"

    def asks(self, wanted: Search, env: Mapping[str, str]) -> Iterator[Ask]:
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
        raise ValueError("its answer is not the JSON that it should be")
    return told


def _list(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = told.get("results")
    if not isinstance(found, list):
        raise ValueError("its answer has no results in it")
    return [one for one in found[:200] if isinstance(one, dict)]
