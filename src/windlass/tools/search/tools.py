"""The `search` tool: one service after the other, until one answers."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import Call, Health, Meter, Rate, Terms, Tool
from windlass.settings import NetworkSettings, SearchSettings
from windlass.settings.tools import SearchProvider
from windlass.tools.functional import FunctionalTool
from windlass.tools.net.exchange import Ask, exchange
from windlass.tools.net.failures import TooMuch, category_of_status, in_time, wait_of
from windlass.tools.net.guard import AddressGuard, Resolver, system_resolver
from windlass.tools.net.transport import SharedConnections, installed
from windlass.tools.search.providers import MAX_ANSWER, Brave, DuckDuckGo, Provider, Searxng, Tavily, key_of
from windlass.tools.search.results import Result, SearchHit, SearchQuery, clean
from windlass.tools.threads import in_thread

__all__ = ["search_tools"]

TIMEOUT = 20.0
LONGEST_ASK = 10.0
"""Seconds that one service gets, when there is nobody else to ask."""
_KINDS: dict[str, Callable[[SearchProvider], Provider]] = {
    "searxng": Searxng,
    "brave": Brave,
    "tavily": Tavily,
    "duckduckgo": DuckDuckGo,
}


def search_tools(
    search: SearchSettings,
    network: NetworkSettings,
    env: Mapping[str, str],
    now: Callable[[], float],
    *,
    resolve: Resolver = system_resolver,
    tls: ssl.SSLContext | None = None,
) -> list[Tool]:
    """The one tool there is. `env` is where keys are looked for; without a provider, there is no tool."""
    if not search.providers:
        return []
    return [SearchTool(search, SharedConnections(AddressGuard(network, resolve), tls=tls), env, now)]


class SearchTool(FunctionalTool):
    def __init__(
        self, search: SearchSettings, line: SharedConnections, env: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        super().__init__(
            "search",
            "Search the web: titles, addresses and snippets of pages",
            SearchQuery,
            self._search,
            effect=Effect.NONE,
            result=Result,
            terms=Terms(timeout=TIMEOUT, rate=Rate(30, 60.0), cache=search.cache),
            health=self._healthy,
        )
        self._providers = [_KINDS[told.kind](told) for told in search.providers]
        self._each = min(LONGEST_ASK, (TIMEOUT - 1) / len(self._providers))
        self._line, self._env, self._now = line, env, now

    async def close(self) -> None:
        """Let go of the connections; a later use opens new ones."""
        await self._line.close()

    async def _healthy(self) -> Health:
        for provider in self._providers:
            try:
                if provider.needs is not None:
                    key_of(provider.needs, provider.name, self._env)
            except ToolError as error:
                return Health(False, str(error), error.failure.advice[0])
        found = await installed()
        if not found.ok:
            return found
        return Health(True, f"asks {', '.join(provider.name for provider in self._providers)}")

    async def _search(self, wanted: SearchQuery, call: Call) -> dict[str, Any]:
        notes: list[str] = []
        waits: list[float] = []
        for provider in self._providers:
            try:
                with _named(provider):
                    async with in_time(self._each, "its answer"):
                        found = await self._ask(provider, wanted, call.meter)
            except ToolError as error:
                if error.failure.category is not Category.TRANSIENT:
                    raise
                notes.append(str(error))
                waits += [error.failure.retry_after] if error.failure.retry_after is not None else []
                call.output("note", f"search: {error}\n")
                continue
            result = Result(query=wanted.query, provider=provider.name, results=found, notes=notes)
            return result.model_dump(mode="json", exclude_none=True)
        raise ToolError(
            f"search: no service answered: {'; '.join(notes)}",
            category=Category.TRANSIENT,
            advice=("name further services in search.providers in your settings",),
            retry_after=min(waits, default=None),
        )

    async def _ask(self, provider: Provider, wanted: SearchQuery, meter: Meter) -> list[SearchHit]:
        """Pages of results until there are enough, or one brings nothing new."""
        found: list[SearchHit] = []
        seen: set[str] = set()
        for ask in provider.asks(wanted, self._env):
            data = await self._fetch(provider, ask, meter)
            try:
                new = await _read(provider, data, seen)
            except ValueError as error:
                raise ToolError(str(error), category=Category.TRANSIENT) from error
            found += new
            if not new or len(found) >= wanted.limit:
                break
        return found[: wanted.limit]

    async def _fetch(self, provider: Provider, ask: Ask, meter: Meter) -> bytes:
        kept = bytearray()
        try:
            async with exchange(self._line, ask, meter) as answered:
                response = answered.response
                status = response.status_code
                wrong = provider.wrong(status)
                if status != 200 or wrong is not None:
                    wait = wait_of(response.headers.get("retry-after"), self._now)
                    raise _refused(provider, status, wrong or category_of_status(status), wait)
                async for chunk in response.aiter_bytes():
                    kept += chunk
                    if len(kept) > MAX_ANSWER:
                        raise TooMuch
        except TooMuch:
            raise ToolError(f"its answer is larger than {MAX_ANSWER >> 20} MiB", category=Category.TRANSIENT) from None
        return bytes(kept)


async def _read(provider: Provider, data: bytes, seen: set[str]) -> list[SearchHit]:
    """In a thread: a page that means no good may take a while."""
    found: list[SearchHit] = await in_thread(lambda: [*clean(provider.read(data), provider.name, seen)])
    return found


@contextmanager
def _named(provider: Provider) -> Iterator[None]:
    """Every failure says whose it is."""
    try:
        yield
    except ToolError as error:
        told = error.failure.message
        message = told if told.startswith("search:") else f"{provider.name}: {told}"
        raise ToolError.of(replace(error.failure, message=message)) from error


def _refused(provider: Provider, status: int, category: Category, wait: float | None) -> ToolError:
    advice = {
        Category.PERMISSION: f"check the key in {provider.needs}" if provider.needs else "it wants a key",
        Category.CONFIGURATION: "check its url; SearXNG needs `json` among search.formats in its settings.yml",
    }.get(category)
    return ToolError(
        f"it answered with status {status}",
        category=category,
        advice=(advice,) if advice else (),
        retry_after=wait if category is Category.TRANSIENT else None,
    )
