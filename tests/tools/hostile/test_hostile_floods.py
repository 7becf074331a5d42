"""Tools that flood (C8, I1): they are cut off and said to be, the journal stays small, and others are answered."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hostile_world import notes
from loopback import Asked, serve

import windlass as library
from windlass import Call, Plan, Step, tool
from windlass.core import events as ev
from windlass.core.breaker import FAILURES, Breaker
from windlass.engine.gates.outflow import EACH, MOST_SHOWN
from windlass.tools.shell import MOST_LOGGED

if TYPE_CHECKING:
    from conftest import Project, Windlass

MB = 1024 * 1024
ONCE = {"max": 0}
CUT = "more than 4 MiB of output: the rest is not stored"
RAW_SERVER = Path(__file__).parents[1] / "mcp" / "raw_server.py"


def shown(project: Project, execution: str) -> int:
    """Characters of its steps' output that are kept."""
    return sum(len(e.text) for e in project.events(execution) if isinstance(e, ev.OutputWritten))


def size(project: Project) -> int:
    return len(project.everything())


async def test_c8_a_command_that_floods_is_kept_up_to_its_limit_and_ends_by_itself(project: Project) -> None:
    async with library.open() as engine:
        floods = Step(id="a", run="head -c 200000000 /dev/zero | tr '\\0' x", with_={"max_output": 100_000})
        running = await engine.start(Plan(steps=[floods]))
        (step,) = (await running.result())["steps"]
    assert (step["status"], step["output"]["truncated"]) == ("completed", True)
    assert step["output"]["stdout"].count("x") < 100_100, "the words between beginning and end have an x or two"
    log = project.home / "executions" / running.id / "logs" / "a.1.stdout.log"
    assert log.stat().st_size == MOST_LOGGED
    assert shown(project, running.id) <= 150_500
    assert size(project) < 2 * MB + MOST_LOGGED


@pytest.mark.parametrize("piece", ["x" * 65_536, "x"], ids=["large pieces", "many pieces"])
async def test_c8_a_tool_that_floods_its_log_from_a_thread_is_cut_off_while_status_is_answered(
    project: Project, windlass: Windlass, eventually: Any, piece: str
) -> None:
    enough, floods_on = threading.Event(), threading.Event()

    @tool(name="floods", effect="none")
    def floods(call: Call) -> str:
        sent = 0
        while not enough.is_set():
            call.output(f"stream {sent % 2}", piece)  # neighbours of two streams cannot be put together
            sent += 1
            if sent > MOST_SHOWN // (len(piece) + EACH) + 1:
                floods_on.set()
        return "done"

    async with library.open(tools=[floods]) as engine:
        running = await engine.start(Plan(steps=[Step(id="a", tool="floods")]))
        try:
            await eventually(floods_on.is_set)
            told = await asyncio.to_thread(windlass, "status", running.id)  # it goes on meanwhile
            assert "running" in told.out
            assert (await engine.state(running.id)).status == "running"
        finally:
            enough.set()
        assert (await running.result())["steps"][0]["output"] == "done"
    assert notes(project, running.id).count(CUT) == 1
    assert shown(project, running.id) <= MOST_SHOWN + len(CUT) + 1
    assert size(project) < 40 * MB


async def test_c8_after_a_flood_the_engines_own_words_are_still_heard(project: Project) -> None:
    @tool(name="floods", effect="none")
    async def floods(call: Call) -> None:
        call.output("stdout", "x" * (MOST_SHOWN + 1))
        raise library.ToolError("no answer", category="transient")

    @tool(name="quiet", effect="none")
    async def quiet() -> str:
        return "instead"

    project.user_file("config.toml", '[tools.floods]\nfallback = "quiet"\n')
    async with library.open(tools=[floods, quiet]) as engine:
        running = await engine.start(Plan(steps=[Step(id="a", tool="floods")]))
        assert (await running.result())["steps"][0]["output"] == "instead"
    assert CUT in notes(project, running.id)
    assert "using quiet instead" in notes(project, running.id)


async def test_c8_a_web_server_that_never_stops_sending_is_cut_and_the_result_says_so(project: Project) -> None:
    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    project.user_file("config.toml", '[network]\nprivate = ["127.0.0.1"]\n')
    async with serve({"/": endless}) as web, library.open() as engine:
        asks = Step(id="a", tool="http.get", with_={"url": web.url("/"), "max_bytes": 100_000}, retry=ONCE)
        running = await engine.start(Plan(steps=[asks]))
        (step,) = (await running.result())["steps"]
    assert (step["status"], step["output"]["truncated"]) == ("completed", True)
    assert size(project) < 2 * MB


async def test_c8_an_mcp_server_that_floods_is_ended_its_breaker_opens_and_status_shows_it(
    project: Project, windlass: Windlass, long_rest: None
) -> None:
    server = f'command = "{sys.executable}"\nargs = ["{RAW_SERVER}", "endless"]\n'
    project.user_file("config.toml", f"[mcp.endless]\n{server}")
    more: Any = {"retry": ONCE, "importance": "optional", "approve": "never", "effect": "none"}
    first, second = (Step(id=name, tool="mcp.endless.go", **more) for name in ("first", "second"))
    async with library.open(grace=0.2) as engine:
        engine.attempt_runner.gates.book.keep_breaker("mcp.endless", Breaker(FAILURES - 1))
        running = await engine.start(Plan(steps=[first, second], limits={"parallel": 1}))
        floods, refused = (
            (step["error"]["category"], step["error"]["message"]) for step in (await running.result())["steps"]
        )
    assert floods[0] == "resource"
    assert "message of more than 16 MiB" in floods[1]
    assert "circuit open" in refused[1]
    assert "! mcp.endless: open" in windlass("status").out
    assert size(project) < 4 * MB
