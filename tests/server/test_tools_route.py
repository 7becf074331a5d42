"""The tools over HTTP: what kind they are, what they take and return, and the source of composed ones (G3, I3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import windlass as library
from windlass.assembly.tool_catalog import every_tool, tool_data
from windlass.core.breaker import LONGEST_REST, Breaker
from windlass.journal.gatebook import SqliteGateStore
from windlass.plan.model import Effect
from windlass.ports import Call

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Server

SECRET = "ghp_" + "a1b2c3d4e5f6" * 3


def test_g3_tools_are_listed_with_kind_effect_and_what_they_return(server: Server) -> None:
    tools = {tool["name"]: tool for tool in server.api.get("/api/tools").json}
    assert {tool["kind"] for tool in tools.values()} == {"built-in"}
    assert {"agent", "code", "code.search", "files.read", "shell"} <= set(tools)
    assert (tools["files.read"]["effect"], tools["files.write"]["effect"]) == ("none", "repeatable")
    assert tools["files.read"]["schema"]["required"] == ["path"]
    assert tools["files.read"]["returns"]["type"] == "object"
    assert tools["agent"]["returns"] is None
    assert not {"source", "grants", "uses"} & set(tools["shell"])


def test_c4_terms_and_breakers_of_tools_are_told_the_same_everywhere(
    project: Project, windlass: Windlass, serve: Callable[..., Server]
) -> None:
    project.user_file("config.toml", '[tools.search]\nrate = "30/m"\ntimeout = "5s"\nfallback = "http.get"\n')
    server = serve()
    book = SqliteGateStore(project.home / "gates.db")
    book.keep_breaker("search", Breaker(5, 1, time.time() + LONGEST_REST, because=f"no answer to {SECRET}"))
    book.close()
    tools = {tool["name"]: tool for tool in server.api.get("/api/tools").json}
    search = tools["search"]
    assert search["terms"]["rate"] == "30/60s"
    assert (search["terms"]["timeout"], search["terms"]["fallback"]) == (5.0, "http.get")
    assert (search["breaker"]["circuit"], search["breaker"]["failures"]) == ("open", 5)
    assert search["breaker"]["because"] == "no answer to [github token]"
    assert tools["shell"]["breaker"] is None, "it has none"
    assert tools["http.get"]["breaker"] is None, "it has one for each host"
    assert tools["files.read"]["breaker"]["circuit"] == "closed"
    assert server.api.get("/api/tools/search").json["breaker"] == search["breaker"]
    health = server.api.get("/api/health").json
    assert health["breakers"] == {"search": search["breaker"]}
    assert {"under_way", "waiting", "limit", "held_back"} == set(health["intake"])
    page = server.api.get("/metrics").body.decode()
    assert 'windlass_breaker_open{name="search"} 1.0' in page
    assert "windlass_attempts_waiting 0.0" in page
    listed = {tool["name"]: tool for tool in windlass("tools", "--json").json}
    assert listed["search"]["terms"] == search["terms"]
    assert listed["search"]["breaker"]["until"] == search["breaker"]["until"]
    shown = windlass("tools", "show", "search").out
    assert "its terms: timeout 5.0, rate 30/60s" in shown
    assert "its breaker is open; the last failure: no answer" in shown


def test_g3_a_composed_tool_is_there_as_soon_as_it_is_saved_with_its_source_and_uses(
    project: Project, windlass: Windlass, server: Server
) -> None:
    project.file("hi.js", f"// {SECRET}\nreturn `hi ${{args.name}}`")
    windlass("tools", "save", "hi", "hi.js", "--description", f"Greets with {SECRET}", "--grants", "files.*")
    plan = {"name": "greet", "steps": [{"id": "a", "tool": "hi", "with": {"name": "you"}}]}
    assert server.api.start(plan, wait=60)["steps"][0]["output"] == "hi you"
    (tool,) = [tool for tool in server.api.get("/api/tools").json if tool["kind"] == "composed"]
    assert (tool["name"], tool["grants"], tool["scope"]) == ("hi", ["files.*"], "project")
    assert (tool["uses"]["times"], tool["uses"]["failed"]) == (1, 0)
    assert tool["uses"]["last_at"].endswith("Z")
    assert tool["description"] == "Greets with [github token]", "secrets are blotted out here, too"
    assert "source" not in tool
    whole = server.api.get("/api/tools/hi").json
    assert whole["source"] == "// [github token]\nreturn `hi ${args.name}`"
    assert "hi: (args?: " in whole["declaration"]
    assert {key: whole[key] for key in tool} == tool


def test_g3_one_tool_is_told_of_and_one_that_is_not_there_is_a_404_with_the_nearest(server: Server) -> None:
    read = server.api.get("/api/tools/files.read").json
    assert "read: (args: { " in read["declaration"]
    assert "source" not in read
    assert server.api.get("/api/tools/agent").json["declaration"] is None, "a program cannot call it"
    missing = server.api.get("/api/tools/files.raed")
    assert (missing.status, missing.json["advice"]) == (404, ["did you mean 'files.read'?"])
    assert server.api.get("/api/tools/%00%1b").status == 404


class Fetch:
    """A tool of one's own whose effect depends on what it is asked to do."""

    name, description = "fetch", "Get or post something"
    schema: dict[str, Any] = {"type": "object"}

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.ONCE if arguments.get("method") == "POST" else Effect.NONE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return []

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        return None


async def test_g3_ones_own_tools_are_told_apart_and_an_effect_by_arguments_is_none_that_could_be_named(
    project: Project,
) -> None:
    async with library.open(tools=[Fetch()]) as engine:
        told = {tool.name: tool_data(engine, tool) for tool in every_tool(engine)}
    assert (told["fetch"]["kind"], told["fetch"]["effect"], told["fetch"]["returns"]) == ("own", None, None)
    assert list(told) == sorted(told)
