"""One suite that every tool passes, whoever made it: the engine's own, a user's function, a composed one (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from forks import shared_zygote
from waiting import PATIENCE

import windlass
from windlass import Call, ToolError, tool
from windlass.ports import ComposedTool, Tool
from windlass.testing.tool_conformance import exercise_tool

if TYPE_CHECKING:
    from conftest import Project

    from windlass.engine.engine import Engine

ODD_SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "odd_server.py"
PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+two\n line\n"
TWICE = ComposedTool(
    "twice",
    "return args.n * 2;",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
    description="Twice a number.",
    returns={"type": "integer"},
)


@tool
def word_count(path: str, call: Call) -> int:
    """Count the words of a file."""
    return len(Path(call.workdir, path).read_text().split())


class Good(NamedTuple):
    """Arguments that work offline."""

    arguments: dict[str, Any]
    lasting: dict[str, Any] | None = None


GOOD = {
    "files.apply": Good({"changes": [{"do": "write", "path": "b.txt", "content": "b"}]}),
    "files.copy": Good({"from": "a.txt", "to": "b.txt"}),
    "files.delete": Good({"path": "a.txt"}),
    "files.edit": Good({"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}),
    "files.list": Good({"path": ".", "recursive": True, "glob": "*.txt"}),
    "files.move": Good({"from": "a.txt", "to": "b.txt"}),
    "files.patch": Good({"patch": PATCH}),
    "files.read": Good({"path": "a.txt"}),
    "files.search": Good({"pattern": "on."}),
    "files.write": Good({"path": "b.txt", "content": "b"}),
    "shell": Good({"argv": ["cat", "a.txt"]}, {"line": "sleep 600"}),
    "word_count": Good({"path": "a.txt"}),
}
NEEDS_AN_EXECUTION = {"agent", "code", "code.search", "merge", "twice"}
"""They work only for an execution: what they do is tried in tests/engine."""
NEEDS_A_NETWORK = ("http.", "search", "message.", "mcp.", "browser.")
"""What they do is tried in tests/tools and tests/workflows."""


def furnish(work: Path) -> None:
    (work / "a.txt").write_text("one\nline\n")


@asynccontextmanager
async def an_engine(home: Path) -> AsyncIterator[Engine]:
    """With a user's own tool, a composed one, services for messages, and an MCP server."""
    flags = {
        "messages": {
            "services": {"mail": {"smtp": "127.0.0.1:9", "sender": "w@example.com", "security": "none"}},
            "recipients": ["*@example.com"],
        },
        "mcp": {"odd": {"command": str(shared_zygote().folder / "forked-python"), "args": [str(ODD_SERVER)]}},
    }
    async with windlass.open(home, tools=[word_count], **flags) as engine:
        assert engine.shelf is not None
        engine.shelf.save(TWICE)
        yield engine


def names() -> list[str]:
    """Every tool that is there before anything was started."""

    async def look() -> list[str]:
        async with windlass.open(Path(__file__).parent / "no-home", tools=[word_count], make=False) as engine:
            return [*engine.attempt_runner.tools.names(), TWICE.name, "mcp.odd.add"]

    return asyncio.run(look())


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with an_engine(project.home) as engine:
        yield engine


async def found(engine: Engine, name: str) -> Tool:
    if name.startswith("mcp."):
        await engine.built_in.mcp.discover(PATIENCE)
    tool = engine.attempt_runner.tools.get(name)
    assert tool is not None, f"there is no tool {name}"
    return tool


NAMES = names()


@pytest.mark.parametrize("name", NAMES)
async def test_h1_every_tool_keeps_to_the_port(engine: Engine, name: str) -> None:
    good = GOOD.get(name)
    if good is None:
        await exercise_tool(await found(engine, name))
    else:
        await exercise_tool(await found(engine, name), good.arguments, prepare=furnish, lasting=good.lasting)


@pytest.mark.parametrize("name", NAMES)
async def test_h1_wrong_arguments_are_a_tool_error(engine: Engine, project: Project, name: str) -> None:
    call = Call(
        execution="e",
        step="s",
        attempt=1,
        workdir=project.path,
        folder=project.home / "executions" / "e",
        processes=engine.attempt_runner.processes,
    )
    with pytest.raises(ToolError):
        await (await found(engine, name)).execute({"no_such_argument": 1}, call)


def test_h1_no_tool_is_left_out_of_what_is_tried_offline() -> None:
    rest = [name for name in NAMES if name not in GOOD and name not in NEEDS_AN_EXECUTION]
    assert [name for name in rest if not name.startswith(NEEDS_A_NETWORK)] == []


class Broken:
    """Keeps no promise at all."""

    name = "not a name"
    description = "two\nlines"
    terms = "quick"
    returns: Any = {"type": "integer"}

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def effect(self, arguments: Any) -> Any:
        return "perhaps"

    def validate(self, arguments: Any) -> list[str]:
        return [] if isinstance(arguments["n"], int) else ["n is not a number"]

    async def execute(self, arguments: Any, call: Call) -> Any:
        (call.workdir / "trace").touch()
        call.meter.add(sent=-1)
        try:
            await asyncio.sleep(600 * (arguments["n"] // 600 == 1))
        except asyncio.CancelledError:
            return "swallowed"
        return "text"


async def test_h1_a_tool_that_keeps_no_promise_is_told_each_of_them() -> None:
    with pytest.raises(AssertionError) as caught:
        await exercise_tool(Broken(), {"n": 0}, lasting={"n": 600})
    for wrong in (
        "its name 'not a name'",
        "its description",
        "`terms` is str",
        "`validate` or `effect` raises KeyError for {}",
        "`effect` gives 'perhaps'",
        "`execute` raises TypeError, not ToolError",
        "changes the working directory",
        "does not fit `returns`",
        "took -1 of sent",
        "swallows the cancellation",
    ):
        assert wrong in str(caught.value), wrong
