"""The arguments and results of `search`: text without tags and tricks, addresses of pages, no page twice.

Search results are written by strangers. Nothing here makes them true; they only cannot be more than text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import Field, field_validator

from windlass.tools.functional import Arguments
from windlass.tools.net.names import host_of, read_address

__all__ = ["Hit", "Result", "SearchHit", "SearchQuery", "clean", "text_of"]

Recency = Literal["day", "week", "month", "year"]


class SearchQuery(Arguments):
    query: str = Field(min_length=1, max_length=400)
    limit: int = Field(default=10, ge=1, le=50, description="Results at most")
    site: str | None = Field(default=None, description="Only pages of this host")
    recency: Recency | None = Field(default=None, description="Only what is no older")

    @field_validator("query")
    @classmethod
    def _says_something(cls, query: str) -> str:
        plain = " ".join("".join(char if char.isprintable() else " " for char in query).split())
        if not plain:
            raise ValueError("the query is empty")
        return plain

    @field_validator("site")
    @classmethod
    def _is_a_host(cls, site: str | None) -> str | None:
        return host_of(site) if site is not None else None

    @property
    def words(self) -> str:
        """The query as services take it that know `site:`."""
        return f"{self.query} site:{self.site}" if self.site is not None else self.query


@dataclass(frozen=True, slots=True)
class Hit:
    """One result as a service gives it: nothing of it is trusted."""

    title: object
    url: object
    snippet: object
    published: object = None


class SearchHit(Arguments):
    title: str
    url: str
    snippet: str
    provider: str
    published: str | None = None
    """Date, in the words of the service."""


class Result(Arguments):
    query: str
    provider: str
    """The service that answered."""
    results: list[SearchHit]
    notes: list[str]
    """The services that did not answer, and why."""


MAX_TITLE, MAX_SNIPPET, MAX_URL, MAX_DATE = 200, 500, 2000, 40
_READ = 4000
"""Characters that are looked at."""
_MOST_TAGS = 100
"""The text is cut where more begin: Python's HTML parser takes quadratic time for what is malformed."""
_ROUNDS = 3
_TRACKING = re.compile(
    r"(?i)utm_.*|(?:ga|g|fb|ms|y|d|tw|wick)cl(?:k)?id|gbraid|wbraid|gad_source|mc_[ce]id|igshid|igsh|_hs(?:enc|mi)|"
    r"vero_(?:id|conv)|oly_(?:anon|enc)_id|ref_src|ref_url|srsltid|mkt_tok|spm|_ga|_gl"
)


def clean(hits: Iterable[Hit], provider: str, seen: set[str]) -> Iterator[SearchHit]:
    """The results that can be shown. `seen` are pages that are there already; it grows."""
    for hit in hits:
        page = _page(hit.url)
        if page is None or page[1] in seen:
            continue
        url, identity = page
        seen.add(identity)
        title = text_of(hit.title, MAX_TITLE) or url[:MAX_TITLE]
        published = text_of(hit.published, MAX_DATE) or None
        yield SearchHit(
            title=title, url=url, snippet=text_of(hit.snippet, MAX_SNIPPET), provider=provider, published=published
        )


def text_of(value: object, most: int) -> str:
    """Plain text on one line: no tags, also none that only appear when entities are read, and nothing invisible."""
    text = value[:_READ] if isinstance(value, str) else ""
    for _ in range(_ROUNDS):
        text = "<".join(text.split("<", _MOST_TAGS)[:_MOST_TAGS])
        parser = _Text()
        parser.feed(text)
        parser.close()
        stripped = "".join(parser.parts)
        if stripped == text:
            break
        text = stripped
    visible = (" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in text)
    line = " ".join("".join(char for char in visible if unicodedata.category(char)[0] != "C").split())
    return line if len(line) <= most else line[: most - 1] + "…"


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def _page(url: object) -> tuple[str, str] | None:
    """Give an address without tracking parameters, and a key that is the same for the same page."""
    if not isinstance(url, str) or len(url) > MAX_URL:
        return None
    try:
        address = read_address(url.strip())
    except ValueError:
        return None
    path, _, query = quote(address.rest, safe="/?%:@!$&'()*+,;=~[]|").partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [pair for pair in pairs if not _TRACKING.fullmatch(pair[0])]
    if len(kept) < len(pairs):
        query = urlencode(kept)
    port = "" if address.port in (80, 443) else address.port
    identity = f"{address.host.removeprefix('www.')}:{port} {path.rstrip('/')} {sorted(kept)}"
    return address.place + path + (f"?{query}" if query else ""), identity
