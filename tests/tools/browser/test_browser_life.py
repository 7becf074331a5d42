"""Whose pages are whose, how long they live, and what is left of the browser: nothing (A8, H2)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from browser_world import SHARED, Web, browsers, drivers, page
from loopback import Asked, reply, serve

import windlass
from windlass import Plan, Step
from windlass.errors import Category
from windlass.process import containment
from windlass.tools.browser.chromium import FRESH, ProfileFolder

Eventually = Callable[[Callable[[], Any]], Awaitable[Any]]


def count(asked: Asked) -> bytes:
    seen = asked.headers.get("cookie", "nothing")
    return page(f"cookie: {seen}", set_cookie="who=me; path=/")


@SHARED
async def test_h2_executions_share_a_browser_and_no_cookies(shared: Web) -> None:
    async with serve({"/": count}) as server:
        await asyncio.gather(*(shared.use("open", name, url=server.url("/")) for name in ("e-1", "e-2")))
        await shared.use("open", "e-1", url=server.url("/"))
        assert await shared.text("e-1") == "cookie: who=me"
        assert await shared.text("e-2") == "cookie: nothing"
        await shared.use("open", "e-1", url=server.url("/"), page="other")
        assert await shared.text("e-1", page="other") == "cookie: who=me", "one execution's pages share them"
        assert len(list(shared.temporary.iterdir())) == 1, "one browser"


@SHARED
async def test_h1_what_a_page_takes_of_the_network_counts_for_the_use_that_brought_it(shared: Web) -> None:
    async with serve({"/": page("x" * 100_000)}) as server:
        opening, reading = shared.call(), shared.call()
        await shared.tools["browser.open"].execute({"url": server.url("/")}, opening)
        await shared.tools["browser.text"].execute({}, reading)
    assert opening.meter.used is not None
    assert 100_000 < (opening.meter.used.received or 0) < 110_000
    assert 100 < (opening.meter.used.sent or 0) < 5_000
    assert reading.meter.used is not None
    assert (reading.meter.used.received or 0) < 10_000


async def test_h2_there_are_so_many_pages_and_who_wants_more_waits(make_web: Callable[..., Web]) -> None:
    web = make_web(pages=1)
    async with serve({"/": page("Hello")}) as server:
        await web.use("open", "e-1", url=server.url("/"))
        failure = await web.failure("open", "e-2", url=server.url("/"), timeout=0.2)
        assert failure.category is Category.TRANSIENT
        assert "all 1 pages of the browser are in use" in failure.message
        failure = await web.failure("open", "e-1", url=server.url("/"), page="second")
        assert failure.category is Category.LOGIC
        waiting = asyncio.ensure_future(web.use("open", "e-2", url=server.url("/")))
        await web.use("close", "e-1")
        await waiting
        assert await web.text("e-2") == "Hello"


async def test_h2_a_page_that_nobody_opened_is_told_with_what_to_do(web: Web) -> None:
    failure = await web.failure("text")
    assert failure.category is Category.LOGIC
    assert failure.message == "this execution has no page open: none was opened since"
    assert failure.advice == ("open the page again: put a browser.open before this step",)


async def test_h2_idle_pages_are_closed_and_then_the_browser(
    make_web: Callable[..., Web], eventually: Eventually
) -> None:
    web = make_web(idle=0.5, linger=0.1)
    async with serve({"/": page("Hello")}) as server:
        await web.use("open", url=server.url("/"))
        await eventually(lambda: not browsers(web.temporary) and not list(web.temporary.iterdir()))
        assert "it was closed after 0.5 s without use" in (await web.failure("text")).message
        await web.use("open", url=server.url("/"))


async def test_h2_a_browser_that_is_killed_is_told_and_the_next_use_has_a_new_one(web: Web) -> None:
    async with serve({"/": page("Hello"), "/slow": page("<p>waiting</p>")}) as server:
        await web.use("open", url=server.url("/slow"))
        waiting = asyncio.ensure_future(web.failure("wait", text="never"))
        for pid in browsers(web.temporary):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        failure = await waiting
        assert failure.category in (Category.TRANSIENT, Category.LOGIC, Category.RESOURCE)
        await web.use("open", url=server.url("/"))
        assert await web.text() == "Hello"
        failure = await web.failure("text", "e-2")
        assert "open the page again" in failure.advice[0]


async def test_h2_a_driver_that_is_killed_is_replaced(web: Web) -> None:
    others = drivers(os.getpid())
    async with serve({"/": page("Hello")}) as server:
        await web.use("open", url=server.url("/"))
        (driver,) = set(drivers(os.getpid())) - set(others)
        os.kill(driver, signal.SIGKILL)
        await web.failure("text")
        await web.use("open", url=server.url("/"))
        assert await web.text() == "Hello"


@SHARED
async def test_h2_a_click_that_is_cancelled_is_never_made(shared: Web) -> None:
    body = "<script>fetch('/go').then(() => document.body.innerHTML = '<a href=/clicked>Go</a>')</script>"
    cancelled = asyncio.Event()

    async def go(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await cancelled.wait()
        writer.write(reply())

    async with serve({"/": page(body), "/go": go, "/clicked": page("clicked")}) as server:
        await shared.use("open", url=server.url("/"))
        click = asyncio.ensure_future(shared.use("click", text="Go"))
        await asyncio.wait({click}, timeout=0.1)
        click.cancel()
        with pytest.raises(asyncio.CancelledError):
            await click
        cancelled.set()
        assert "is not open" in (await shared.failure("text")).message
        assert "/clicked" not in {asked.path for asked in server.asked}


async def test_a8_nothing_is_left_after_close(web: Web) -> None:
    others = drivers(os.getpid())
    async with serve({"/": page("Hello")}) as server:
        await web.use("open", url=server.url("/"))
        assert browsers(web.temporary)
        assert len(drivers(os.getpid())) == len(others) + 1
        await web.made.close()
        assert browsers(web.temporary) == []
        assert drivers(os.getpid()) == others
        assert list(web.temporary.iterdir()) == []
        await web.use("open", url=server.url("/"))


async def test_a8_nothing_of_the_browser_survives_kill_9_of_the_engine(eventually: Eventually) -> None:
    if containment().mechanism != "subreaper":
        pytest.skip("this system has no subreapers")
    folder = Path(tempfile.mkdtemp(prefix="wb-"))
    async with serve({"/": page("Hello")}) as server:
        engine = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("browser_engine.py")),
            server.url("/"),
            f"127.0.0.1:{server.port}",
            str(folder),
            stdout=asyncio.subprocess.PIPE,
        )
        assert engine.stdout is not None
        assert await engine.stdout.readline() == b"ready\n"
        (driver,) = drivers(engine.pid)
        assert len(browsers(folder)) > 1
        engine.kill()
        await engine.wait()
        await eventually(lambda: not browsers(folder))
        await eventually(lambda: not Path(f"/proc/{driver}/cmdline").exists())
    (left,) = folder.glob("windlass-browser-*")
    _sweep_as_later(folder, left)
    assert not left.exists(), "the next browser removes what a killed engine could not"
    folder.rmdir()


def _sweep_as_later(folder: Path, left: Path) -> None:
    long_ago = left.stat().st_mtime - 2 * FRESH
    os.utime(left, (long_ago, long_ago))
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        held, another = ProfileFolder(), ProfileFolder()
        os.utime(held.path, (long_ago, long_ago))
        ProfileFolder().remove()
        assert held.path.exists(), "one that somebody holds stays"
        held.remove()
        another.remove()
    finally:
        tempfile.tempdir = before


@pytest.mark.parametrize("program", [None, "chromium"], ids=["the first found", "with windows"])
async def test_h2_a_plan_opens_reads_and_keeps(project: Any, make_web: Callable[..., Web], program: str | None) -> None:
    if program is not None and shutil.which(program) is None:
        pytest.skip("that one is not installed")
    web = make_web(path=program)
    async with serve({"/": page("<h1>Prices</h1><table><tr><td>Tea<td>3</tr></table>")}) as server:
        plan = Plan(
            steps=[
                Step(id="open", tool="browser.open", with_={"url": server.url("/")}),
                Step(id="read", tool="browser.tables", needs=["open"]),
                Step(id="keep", tool="browser.screenshot", needs=["read"]),
                Step(id="close", tool="browser.close", needs=["keep"]),
            ]
        )
        async with windlass.open(tools=list(web.tools.values())) as engine:
            result = await (await engine.start(plan)).result()
    steps = {step["id"]: step for step in result["steps"]}
    assert steps["read"]["output"]["tables"] == [[["Tea", "3"]]]
    assert (project.home / steps["keep"]["output"]["path"]).read_bytes().startswith(b"\x89PNG")
    assert steps["close"]["output"] == {"closed": 1}
