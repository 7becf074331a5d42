"""The stream in a real browser: logged in with a link, through a restart of the server, and not from foreign pages."""

from __future__ import annotations

import asyncio
import http.server
import json
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import Page, browser, find_chromium

if TYPE_CHECKING:
    from conftest import Background, Project, Windlass

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="there is no Chromium here: apt-get install chromium (make dev does it as root)"
)

PLAN = "steps: [{id: a, run: echo one}, {id: b, run: echo two, needs: [a]}, {id: c, run: echo three, needs: [b]}]"
LISTEN = """
    window.got = [], window.beats = [], window.codes = [];
    window.listen = () => {
        const last = got.length ? got[got.length - 1].position : 0;
        const socket = new WebSocket(`ws://${location.host}/api/stream?after=${last}`);
        socket.onmessage = message => {
            const event = JSON.parse(message.data);
            (event.type === "heartbeat" ? beats : got).push(event);
        };
        socket.onclose = close => { codes.push(close.code); setTimeout(listen, 100); };
    };
    listen();
"""


BEATS = """new Promise(done => {
    const look = () => beats.length ? done() : setTimeout(look, 20);
    look();
})"""
"""Waits in the page until a heartbeat has come: all that was before is there."""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    program = find_chromium()
    assert program is not None
    async with browser(program) as page:
        yield page


@pytest.fixture
def serve(windlass: Windlass, until: Callable[..., Any], port: int) -> Callable[[], tuple[Background, str]]:
    """Starts the server; gives it, and the link to log in with."""

    def start() -> tuple[Background, str]:
        server: Background = windlass.background("serve", "--port", str(port), "--json")
        told = until(lambda: server.out.endswith("}\n") and json.loads(server.out), "the server says where it is")
        return server, Path(told["login_file"]).read_text().strip()

    return start


async def log_in(page: Page, login: str) -> None:
    """As a person does; then to a page of the server that stays as it is."""
    await page.open(login)
    await page.open(login.partition("/login")[0] + "/health")


def finished(count: int) -> str:
    """Waits in the page until so many executions are finished, and gives all positions that came."""
    return f"""new Promise(done => {{
        const look = () => got.filter(e => e.type === "execution.finished").length >= {count}
            ? done(got.map(e => e.position)) : setTimeout(look, 20);
        look();
    }})"""


def positions(project: Project) -> list[int]:
    return [row[0] for row in project._rows("SELECT position FROM events ORDER BY position")]


async def test_i3_a_browser_sees_every_event_once_also_through_a_restart(
    page: Page, serve: Callable[[], tuple[Background, str]], windlass: Windlass, project: Project
) -> None:
    project.plan(PLAN)
    server, login = await asyncio.to_thread(serve)
    await log_in(page, login)
    await page.run(LISTEN)
    await page.run(BEATS)
    await asyncio.to_thread(windlass, "run", "plan.yaml")
    assert await page.run(finished(1)) == positions(project)
    assert await page.run("got[got.length - 1].status") == "completed"
    assert await page.run("got[got.length - 1].progress") == 100

    server.signal(signal.SIGINT)
    await asyncio.to_thread(server.ended)
    await asyncio.to_thread(windlass, "run", "plan.yaml")  # while there is no server
    await asyncio.to_thread(serve)
    await asyncio.to_thread(windlass, "run", "plan.yaml")
    assert await page.run(finished(3)) == positions(project)
    assert await page.run("codes[0]") == 1001


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[str]:
    """A page of somebody else on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            """Not of interest."""

    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *request: Quiet(*request, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


TRY = """new Promise(done => {
    const socket = new WebSocket("ws://127.0.0.1:PORT/api/stream?after=0");
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
})"""


async def test_i3_a_page_from_elsewhere_gets_no_stream_though_the_browser_is_logged_in(
    page: Page, serve: Callable[[], tuple[Background, str]], foreign: str, port: int
) -> None:
    _server, login = await asyncio.to_thread(serve)
    await log_in(page, login)
    attempt = TRY.replace("PORT", str(port))
    assert await page.run(attempt) == "open", "from its own pages it is"
    await page.open(foreign)
    assert await page.run(attempt) == "refused"
    await page.open("data:text/html,<title>nowhere</title>")
    assert await page.run(attempt) == "refused"
