"""Finding tools by words (G2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from code_worlds import plain_call
from gate_worlds import Scripted

from windlass.core.decide import Policy
from windlass.engine.code.search import CodeSearch, search
from windlass.engine.code.tool import TYPED_AT_MOST, WHAT_CODE_IS, CodeTool
from windlass.engine.code.typings import declarations
from windlass.errors import ToolError
from windlass.tools.built_in import Registry
from windlass.tools.files.tools import file_tools
from windlass.tools.shell import Shell


@dataclass
class Made:
    """A tool as far as it is looked for."""

    name: str
    description: str
    schema: Any


def made(name: str, description: str = "", *arguments: str) -> Any:
    return Made(name, description, {"type": "object", "properties": {argument: {} for argument in arguments}})


TOOLS = [
    made("github.listRepos", "All repositories of an owner", "ownerName"),
    made("weather_forecast", "Tomorrow's sun and rain", "city"),
    made("city.map", "Draw streets", "zoom"),
    made("notes", "Keep the forecast of a city", "text"),
    made("HTTPFetch", "Get a page", "url"),
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("github.listRepos", ["github.listRepos"]),
        ("GITHUB.LISTREPOS", ["github.listRepos"]),
        ("repo", ["github.listRepos"]),
        ("list_repos", ["github.listRepos"]),
        ("owner names", ["github.listRepos"]),
        ("fetch http", ["HTTPFetch"]),
        ("city", ["city.map", "notes", "weather_forecast"]),
        ("cities forecast", ["weather_forecast", "notes"]),
        ("forecasts", ["weather_forecast", "notes"]),
        ("notes", ["notes"]),
        ("the of a", []),
        ("nowhere", []),
        ("", []),
        ("!?*", []),
        ("weath", ["weather_forecast"]),
        ("wea", ["weather_forecast"]),
        ("we", []),
        ("urls", ["HTTPFetch"]),
        ("weath zoom", ["weather_forecast", "city.map"]),
    ],
)
def test_g2_words_are_found_in_names_then_descriptions_then_arguments(query: str, names: list[str]) -> None:
    assert [found.name for found in search(TOOLS, query)] == names
    assert [found.name for found in search(TOOLS[::-1], query)] == names, "whatever their order was"


def test_g2_an_exact_name_comes_first_however_well_others_fit() -> None:
    tools = [made("read", "x"), made("read.read_file", "read to read what one reads", "read"), made("a.read", "read")]
    assert search(tools, "read")[0].name == "read"


def test_g2_a_short_word_is_no_plural_and_no_beginning() -> None:
    tools = [made("bus.route"), made("buses.list"), made("class.list")]
    assert [found.name for found in search(tools, "bus")] == ["bus.route", "buses.list"]
    assert search(tools, "bu") == []
    assert [found.name for found in search(tools, "clas")] == ["class.list"], "it begins so, and is not its plural"


def test_g2_no_more_than_asked_for_are_given() -> None:
    tools = [made(f"tool{n:02}", "same words") for n in range(30)]
    assert [found.name for found in search(tools, "same")] == [f"tool{n:02}" for n in range(10)]
    assert len(search(tools, "words", limit=3)) == 3
    assert search(tools, "words", limit=0) == []
    assert search(tools, "words", limit=-1) == []
    twins = [made("same", "of a server"), made("same", "of another")]
    assert [found.description for found in search(twins, "same")] == ["of a server", "of another"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("read a file", "files.read"),
        ("run a command", "shell"),
        ("rename", "files.move"),
        ("delete files", "files.delete"),
    ],
)
def test_g2_the_built_in_tools_are_found_by_what_one_would_ask_for(query: str, first: str) -> None:
    assert search([Shell(), *file_tools()], query)[0].name == first


def test_g2_a_tool_with_an_odd_schema_is_found_all_the_same() -> None:
    odd: Any = made("odd")
    for schema in ({}, {"properties": []}, {"properties": None}):
        odd.schema = schema
        assert search([odd], "odd") == [odd]


async def test_g2_the_tool_finds_those_of_its_caller_and_runs_only_inside_an_execution(tmp_path: Path) -> None:
    inside = plain_call(tmp_path, SimpleNamespace(tools=Registry(file_tools())))
    found = await CodeSearch().execute({"query": "rename a file", "limit": 1}, inside)
    assert "move" in found
    assert await CodeSearch().execute({"query": "nowhere"}, inside) == ""
    many = plain_call(tmp_path, SimpleNamespace(tools=Registry(Scripted(f"rename{number}") for number in range(12))))
    assert (await CodeSearch().execute({"query": "rename"}, many)).count("Promise<") == 10
    with pytest.raises(ToolError, match="a search runs only inside an execution"):
        await CodeSearch().execute({"query": "rename"}, plain_call(tmp_path))
    assert CodeSearch().validate({"query": "x", "limit": 1}) == []
    for wrong in ({"query": "x", "limit": 0}, {"query": "x", "more": 1}, {}):
        assert CodeSearch().validate(wrong)


def test_g2_an_agent_with_few_tools_is_told_their_types_and_one_with_more_is_advised_to_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool, box = CodeTool(SimpleNamespace(), Policy()), Registry(file_tools())  # type: ignore[arg-type]
    names = box.names()
    types = declarations(file_tools())
    advised = f"{WHAT_CODE_IS}\nThere are many tools: find the ones you need, with their types, by code.search first."
    at_most = [*names, *("gone" for _ in range(TYPED_AT_MOST - len(names)))]
    assert tool.briefed(at_most, box) == f"{WHAT_CODE_IS}\n{types}"
    assert tool.briefed([*at_most, "gone"], box) == advised
    for most, told in ((len(types), f"{WHAT_CODE_IS}\n{types}"), (len(types) - 1, advised)):
        monkeypatch.setattr("windlass.engine.code.tool.TYPES_AT_MOST", most)
        assert tool.briefed(names, box) == told
