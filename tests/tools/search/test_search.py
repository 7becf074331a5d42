"""`search`: four services, one after the other, whose answers are taken for data and nothing more (H2)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from loopback import Asked, reply, serve
from search_world import KEYS, SHAPES, Hits, asks, duckduckgo, searxng, tool_for
from waiting import skip_time

import windlass
from windlass import Effect, Plan, Step
from windlass.errors import Category, ToolError
from windlass.ports import Rate, health_of
from windlass.settings import NetworkSettings, SearchSettings
from windlass.settings.tools import SearchProvider
from windlass.tools.search import search_tools
from windlass.tools.search.tools import LONGEST_ASK

if TYPE_CHECKING:
    from conftest import Project

PAGES: Hits = [
    ("The <b>first</b> page", "https://one.test/a?x=1&utm_source=mail&fbclid=y", "About <strong>q</strong> &amp; more"),
    ("Second", "http://two.test/", "It's here"),
]


def query(asked: Asked) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(asked.target.partition("?")[2]).items()}


@pytest.fixture(params=SHAPES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def failure_of(*given: Any, **arguments: Any) -> Any:
    with pytest.raises(ToolError) as caught:
        await asks(*given, **arguments)
    return caught.value.failure


# ── the services ─────────────────────────────────────────────────────────────────────────────────────


async def test_h2_every_service_is_read_as_it_answers(kind: str, tmp_path: Path) -> None:
    async with serve({"*": SHAPES[kind](PAGES)}) as server:
        found = await asks(tool_for((kind, server)), tmp_path, limit=2)
    assert (found["query"], found["provider"], found["notes"]) == ("q", kind, [])
    first, second = found["results"]
    assert (first["title"], first["url"]) == ("The first page", "https://one.test/a?x=1")
    assert first["snippet"] == "About q & more"
    assert (second["title"], second["url"], second["snippet"]) == ("Second", "http://two.test/", "It's here")
    assert {one["provider"] for one in found["results"]} == {kind}


async def test_h2_nothing_found_is_an_answer(kind: str, tmp_path: Path) -> None:
    async with serve({"*": SHAPES[kind]([])}) as server:
        assert (await asks(tool_for((kind, server)), tmp_path))["results"] == []
        assert len(server.asked) == 1


async def test_h2_services_are_asked_in_their_own_words(tmp_path: Path) -> None:
    wanted = {"query": "grüße\n an  alle", "site": "Example.com", "recency": "week", "limit": 5}
    asked: dict[str, Asked] = {}
    for kind, shape in SHAPES.items():
        async with serve({"*": shape(PAGES * 3)}) as server:
            await asks(tool_for((kind, server)), tmp_path, **wanted)
            asked[kind] = server.asked[0]
    words = "grüße an alle site:example.com"
    assert asked["searxng"].path == "/search"
    assert query(asked["searxng"]) == {"q": words, "format": "json", "pageno": "1", "time_range": "week"}
    assert asked["brave"].path == "/res/v1/web/search"
    assert query(asked["brave"]) == {"q": words, "count": "5", "offset": "0", "freshness": "pw"}
    assert asked["brave"].headers["x-subscription-token"] == KEYS["BRAVE_API_KEY"]
    assert (asked["tavily"].method, asked["tavily"].path) == ("POST", "/search")
    assert asked["tavily"].headers["authorization"] == f"Bearer {KEYS['TAVILY_API_KEY']}"
    assert json.loads(asked["tavily"].body) == {
        "query": "grüße an alle",
        "max_results": 5,
        "search_depth": "basic",
        "include_domains": ["example.com"],
        "time_range": "week",
    }
    assert asked["duckduckgo"].path == "/html/"
    assert query(asked["duckduckgo"]) == {"q": words, "df": "w"}
    assert "windlass" in asked["duckduckgo"].headers["user-agent"]


@pytest.mark.parametrize(("kind", "size", "pages"), [("searxng", 10, 5), ("brave", 20, 3)])
async def test_h2_further_pages_are_asked_for_until_there_is_enough(
    tmp_path: Path, kind: str, size: int, pages: int
) -> None:
    def page(asked: Asked) -> bytes:
        start = len(server.asked) * size
        return SHAPES[kind]([(f"Page {n}", f"https://x.test/{n}", "") for n in range(start, start + size)])

    async with serve({"*": page}) as server:
        assert len((await asks(tool_for((kind, server)), tmp_path, limit=50))["results"]) == 50
        assert len(server.asked) == pages
    async with serve({"*": SHAPES[kind](PAGES)}) as server:
        assert len((await asks(tool_for((kind, server)), tmp_path, limit=50))["results"]) == 2
        assert len(server.asked) == 2, "a page that brings nothing new is the last one"


async def test_h2_pages_are_told_apart_by_where_they_lead(tmp_path: Path) -> None:
    same = [
        "https://x.test/a",
        "http://www.x.test/a/",
        "https://X.test./a?utm_medium=z#part",
        "https://x.test/a?gclid=1",
    ]
    other = ["https://x.test/b", "https://x.test/a?id=1", "https://x.test:8443/a", "https://y.test/a"]
    async with serve({"*": searxng([("T", url, "") for url in same + other])}) as server:
        found = await asks(tool_for(("searxng", server)), tmp_path, limit=8)
    assert [one["url"] for one in found["results"]] == [same[0], *other]


# ── along the list ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "broken",
    [
        reply("busy", 503),
        reply("slow down", 429, retry_after="60"),
        reply("<html>not the JSON</html>", content_type="text/html"),
        reply("[" * 100_000, content_type="application/json"),
        reply('{"results": "none"}', content_type="application/json"),
        reply("x" * (10 * 1024 * 1024)),
        reply(b"\x00\xff" * 100),
        b"not HTTP\r\n\r\n",
        searxng([], unresponsive_engines=[["bing", "timeout"], ["google", "CAPTCHA"]]),
    ],
    ids=["503", "429", "html", "deep", "no list", "10 MiB", "bytes", "garbage", "no engines"],
)
async def test_h2_a_service_that_fails_is_followed_by_the_next_with_a_note(tmp_path: Path, broken: bytes) -> None:
    said: list[str] = []
    async with serve({"*": broken}) as first, serve({"*": duckduckgo(PAGES)}) as second:
        found = await asks(tool_for(("searxng", first), ("duckduckgo", second)), tmp_path, said)
    assert (found["provider"], len(found["results"])) == ("duckduckgo", 2)
    (note,) = found["notes"]
    assert note.startswith("searxng: ")
    assert said == [f"search: {note}\n"]
    assert len(note) < 400


async def test_h2_when_nobody_answers_everybodys_reason_is_told(tmp_path: Path, port: int) -> None:
    challenge = reply('<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>', 202)
    async with serve({"*": reply("", 429, retry_after="40")}) as one, serve({"*": challenge}) as two:
        async with serve({}) as gone:
            gone.port = port
            tool = tool_for(("brave", one), ("duckduckgo", two), ("searxng", gone))
        failure = await failure_of(tool, tmp_path)
    assert (failure.category, failure.retry_after) == (Category.TRANSIENT, 40.0)
    for reason in ("brave: it answered with status 429", "duckduckgo: it answered with status 202", "searxng: "):
        assert reason in failure.message
    assert "no connection" in failure.message


async def test_h2_one_service_that_hangs_leaves_time_for_the_next(tmp_path: Path) -> None:
    async def hang(asked: Asked, writer: Any) -> None:
        skip_time(LONGEST_ASK)
        await asyncio.Event().wait()

    async with serve({"*": hang}) as first, serve({"*": duckduckgo(PAGES)}) as second:
        found = await asks(tool_for(("brave", first), ("duckduckgo", second)), tmp_path)
    assert found["provider"] == "duckduckgo"
    assert "not finished within 9.5 s" in found["notes"][0]


@pytest.mark.parametrize(("kind", "variable"), [("brave", "BRAVE_API_KEY"), ("tavily", "TAVILY_API_KEY")])
async def test_h2_a_missing_key_is_a_matter_of_configuration(tmp_path: Path, kind: str, variable: str) -> None:
    async with serve({"*": SHAPES[kind](PAGES)}) as server:
        tool = tool_for((kind, server), env={})
        failure = await failure_of(tool, tmp_path)
        health = await health_of(tool)
        assert not server.asked
    assert failure.category is Category.CONFIGURATION
    assert variable in failure.message
    assert (health.ok, variable in health.detail, variable in health.advice) == (False, True, True)
    assert (await health_of(tool_for((kind, server)))).ok


@pytest.mark.parametrize(
    ("kind", "status", "category", "hint"),
    [
        ("brave", 401, Category.PERMISSION, "BRAVE_API_KEY"),
        ("tavily", 403, Category.PERMISSION, "TAVILY_API_KEY"),
        ("tavily", 432, Category.TRANSIENT, ""),
        ("tavily", 400, Category.LOGIC, ""),
        ("searxng", 403, Category.CONFIGURATION, "json"),
        ("searxng", 404, Category.CONFIGURATION, "url"),
        ("duckduckgo", 403, Category.TRANSIENT, ""),
        ("brave", 302, Category.LOGIC, ""),
    ],
)
async def test_c3_a_refusal_says_what_to_do(
    tmp_path: Path, kind: str, status: int, category: Category, hint: str
) -> None:
    async with serve({"*": reply("refused", status)}) as server:
        failure = await failure_of(tool_for((kind, server)), tmp_path)
    assert failure.category is category
    assert hint in " ".join(failure.advice)
    for secret in KEYS.values():
        assert secret not in str(failure)


async def test_h2_services_are_reached_only_where_the_network_settings_allow(tmp_path: Path) -> None:
    async with serve({"*": searxng(PAGES)}) as server:
        closed = await failure_of(tool_for(("searxng", server), private=()), tmp_path)
        denied = await failure_of(tool_for(("searxng", server), deny=("127.0.0.1",)), tmp_path)
        assert not server.connections
    assert closed.category is denied.category is Category.PERMISSION
    assert "network.private" in closed.advice[0]


async def test_h2_a_key_does_not_follow_a_redirect_to_another_host(tmp_path: Path) -> None:
    async with (
        serve({"*": SHAPES["brave"](PAGES)}) as other,
        serve({"*": reply("", 307, location=other.url())}) as first,
    ):
        await asks(tool_for(("brave", first)), tmp_path)
    assert "x-subscription-token" not in other.asked[0].headers


async def test_h2_searxng_without_an_address_is_told(tmp_path: Path) -> None:
    settings = SearchSettings(providers=(SearchProvider(kind="searxng"),))
    (tool,) = search_tools(settings, NetworkSettings(), {}, lambda: 0.0)
    failure = await failure_of(tool, tmp_path)
    assert (failure.category, "has no url" in failure.message) == (Category.CONFIGURATION, True)
    assert search_tools(SearchSettings(providers=()), NetworkSettings(), {}, lambda: 0.0) == []


@pytest.mark.parametrize(
    "given",
    [
        {"query": ""},
        {"query": " \n\x00"},
        {"query": "x" * 401},
        {"limit": 0},
        {"limit": 51},
        {"site": "a b"},
        {"site": "https://x.test"},
        {"recency": "hour"},
        {"page": 2},
    ],
)
def test_h2_questions_that_make_no_sense_are_told(given: dict[str, Any]) -> None:
    (tool,) = search_tools(SearchSettings(), NetworkSettings(), {}, lambda: 0.0)
    assert tool.validate({"query": "q", **given})


# ── in an engine ─────────────────────────────────────────────────────────────────────────────────────

SETTINGS = """
[search]
providers = [{{kind = "searxng", url = "{url}"}}]
[network]
private = ["127.0.0.1"]
"""


async def test_h1_an_answer_is_good_for_a_while_and_everybody_shares_the_rate(project: Project) -> None:
    async with serve({"*": searxng(PAGES)}) as server:
        project.user_file("config.toml", SETTINGS.format(url=server.url("")))
        tool = tool_for(("searxng", server))
        terms = tool.terms
        assert (terms.timeout, terms.rate, terms.cache) == (20.0, Rate(30, 60.0), 3600.0)
        assert tool.effect({"query": "q"}) is Effect.NONE
        steps = [
            Step(id="a", tool="search", with_={"query": "cats", "limit": 2}),
            Step(id="b", tool="search", with_={"query": "cats", "limit": 2}, needs=["a"]),
            Step(id="c", tool="search", with_={"query": "dogs", "limit": 2}, needs=["b"]),
        ]
        async with windlass.open(grace=0.2) as engine:
            ended = (await (await engine.start(Plan(steps=steps))).result())["steps"]
    assert [step["status"] for step in ended] == ["completed"] * 3
    assert ended[0]["output"] == ended[1]["output"]
    assert [query(asked)["q"] for asked in server.asked] == ["cats", "dogs"], "the second of the same was not asked"


async def test_h1_more_questions_than_the_rate_allows_wait(project: Project) -> None:
    async with serve({"*": searxng(PAGES)}) as server:
        project.user_file("config.toml", SETTINGS.format(url=server.url("")) + '[tools.search]\nrate = "1/1h"\n')
        steps = [
            Step(id="a", tool="search", with_={"query": "one"}),
            Step(id="b", tool="search", with_={"query": "two"}, needs=["a"], retry={"max": 0}),
        ]
        async with windlass.open(grace=0.2) as engine:
            first, second = (await (await engine.start(Plan(steps=steps))).result())["steps"]
        assert len({query(asked)["q"] for asked in server.asked}) == 1
    assert (first["status"], second["status"]) == ("completed", "failed")
    assert (second["error"]["category"], "retry in" in second["error"]["message"]) == ("transient", True)
