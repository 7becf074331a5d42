"""Answers shaped like those of the services, and a search tool that asks servers on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loopback import Server, call_in, reply

from windlass.settings import NetworkSettings, SearchSettings
from windlass.settings.tools import SearchProvider
from windlass.tools.search import search_tools
from windlass.tools.search.tools import SearchTool

__all__ = ["KEYS", "NOW", "SHAPES", "Hits", "asks", "brave", "duckduckgo", "searxng", "tavily", "tool_for"]

Hits = list[tuple[str, str, str]]
"""Title, address, snippet."""
NOW = 1_800_000_000.0
KEYS = {"BRAVE_API_KEY": "brave-secret-key", "TAVILY_API_KEY": "tvly-secret-key"}


def searxng(hits: Hits, **more: Any) -> bytes:
    results = [
        {
            "url": url,
            "title": title,
            "content": snippet,
            "publishedDate": "2026-01-02T00:00:00",
            "engine": "bing",
            "parsed_url": ["https", "x", "/", "", "", ""],
            "engines": ["bing", "qwant"],
            "positions": [1],
            "score": 1.0,
            "category": "general",
        }
        for title, url, snippet in hits
    ]
    told = {"query": "q", "number_of_results": 0, "results": results, "answers": [], "corrections": [], "infoboxes": []}
    return reply(
        json.dumps({**told, "suggestions": [], "unresponsive_engines": [], **more}), content_type="application/json"
    )


def brave(hits: Hits) -> bytes:
    results = [
        {
            "title": title,
            "url": url,
            "is_source_local": False,
            "description": snippet,
            "page_age": "2026-01-02T00:00:00",
            "profile": {"name": "X", "url": url, "long_name": "x.test", "img": "https://imgs.search.brave.com/x"},
            "language": "en",
            "family_friendly": True,
            "type": "search_result",
            "meta_url": {"scheme": "https", "netloc": "x.test", "hostname": "x.test", "path": ""},
            "age": "January 2, 2026",
        }
        for title, url, snippet in hits
    ]
    told = {
        "query": {"original": "q", "more_results_available": True},
        "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
        "type": "search",
        "web": {"type": "search", "results": results, "family_friendly": True},
    }
    return reply(
        json.dumps(told if hits else {"query": {"original": "q"}, "type": "search"}), content_type="application/json"
    )


def tavily(hits: Hits) -> bytes:
    results = [{"url": u, "title": t, "content": s, "score": 0.9, "raw_content": None} for t, u, s in hits]
    told = {"query": "q", "follow_up_questions": None, "answer": None, "images": [], "results": results}
    return reply(json.dumps({**told, "response_time": 1.2, "request_id": "r"}), content_type="application/json")


AD = """<div class="result results_links results_links_deep result--ad ">
  <h2 class="result__title"><a rel="nofollow" class="result__a"
    href="https://duckduckgo.com/y.js?ad_domain=shop.test&amp;u3=x">Buy it now</a></h2>
  <a class="result__snippet" href="https://duckduckgo.com/y.js?ad_domain=shop.test">An advertisement</a>
</div>"""
RESULT = """
                        <div class="result results_links results_links_deep web-result ">
                      <div class="links_main links_deep result__body"> <!-- This is the visible part -->
                      <h2 class="result__title">
                        <a rel="nofollow" class="result__a" href="{link}">{title}</a>
                      </h2>
                        <div class="result__extras">
                            <div class="result__extras__url">
                              <span class="result__icon">
                                  <a rel="nofollow" href="{link}">
                                    <img class="result__icon__img" width="16" height="16" alt=""
                                      src="//external-content.duckduckgo.com/ip3/x.test.ico" name="i15" />
                                  </a>
                              </span>
                              <a class="result__url" href="{link}">
                              x.test/page
                              </a>
                            </div>
                        </div>
                              <a class="result__snippet" href="{link}">{snippet}</a>
                        <div class="clear"></div>
                      </div>
                    </div>
"""


def duckduckgo(hits: Hits) -> bytes:
    def one(title: str, url: str, snippet: str) -> str:
        link = f"//duckduckgo.com/l/?uddg={quote(url, safe='')}&amp;rut=b6b8b1ab"
        return RESULT.format(link=link, title=title, snippet=escape(snippet))

    found = "".join(one(*hit) for hit in hits)
    nothing = '<div class="no-results">No results.</div>'
    page = (
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"><html><head><title>q</title></head>'
        '<body class="body--html"><form id="search_form_homepage"><input name="q" value="q"></form>'
        f'<div class="serp__results"><div id="links" class="results">{AD}{found or nothing}</div></div></body></html>'
    )
    return reply(page, content_type="text/html; charset=UTF-8")


SHAPES = {"searxng": searxng, "brave": brave, "tavily": tavily, "duckduckgo": duckduckgo}


def tool_for(*servers: tuple[str, Server], env: Mapping[str, str] = KEYS, **network: Any) -> SearchTool:
    """A search tool whose services are servers on loopback, in this order."""
    providers = tuple(SearchProvider(kind=kind, url=server.url("")) for kind, server in servers)  # type: ignore[arg-type]
    lists = {"private": ("127.0.0.1",), **network}
    (tool,) = search_tools(SearchSettings(providers=providers), NetworkSettings(**lists), env, lambda: NOW)
    assert isinstance(tool, SearchTool)
    return tool


async def asks(tool: SearchTool, folder: Path, said: list[str] | None = None, **arguments: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await tool.execute({"query": "q", **arguments}, call_in(folder, said=said))
        return found
    finally:
        await tool.close()
