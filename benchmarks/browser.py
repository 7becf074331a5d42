"""A browser step on the warm pool, against the same lines of playwright alone.

python -m benchmarks.browser [ROUNDS]

Both open a small page of a server on loopback, fill a field, click, wait for a text and read the page, in a context
that stays open. Theirs is playwright on the same Chromium with the same flags, without our door, guard, limits and
results.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.ports import Call
from windlass.process import Supervisor
from windlass.settings import BrowserSettings, NetworkSettings
from windlass.tools.browser import BrowserTools
from windlass.tools.browser.chromium import Chromium, find

__all__ = ["compare"]

ROUNDS = 100
WARM = 10
PAGE = (
    b"<!doctype html><title>Bench</title><input id=who>"
    b"<button onclick=\"document.body.append('Hello ' + who.value)\">Go</button>"
)
Step = Callable[[], Awaitable[None]]


async def compare(rounds: int = ROUNDS) -> dict[str, float]:
    """The median milliseconds of each, and their ratio. They take turns, so that the machine's mood is the same."""
    async with _server() as url, _ours(url) as ours, _theirs(url) as theirs:
        times: dict[str, list[float]] = {"ours": [], "playwright": []}
        for number in range(rounds + WARM):
            for name, step in (("ours", ours), ("playwright", theirs)):
                began = time.perf_counter()
                await step()
                if number >= WARM:
                    times[name].append((time.perf_counter() - began) * 1000)
    median = {name: statistics.median(each) for name, each in times.items()}
    return {**median, "ratio": median["ours"] / median["playwright"]}


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(PAGE)}\r\n\r\n"
            writer.write(head.encode() + PAGE)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[Step]:
    async with Supervisor() as supervisor:
        made = BrowserTools(BrowserSettings(), NetworkSettings(private=("127.0.0.1",)), supervisor, _env())
        tools = {tool.name.partition(".")[2]: tool for tool in made.tools()}
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            call = Call(execution="e-1", step="a", attempt=1, workdir=place, folder=place, processes=supervisor)

            async def step() -> None:
                await tools["open"].execute({"url": url}, call)
                await tools["fill"].execute({"selector": "#who", "value": "Ana"}, call)
                await tools["click"].execute({"text": "Go"}, call)
                await tools["wait"].execute({"text": "Hello Ana"}, call)
                assert "Hello Ana" in (await tools["text"].execute({}, call))["text"]

            try:
                yield step
            finally:
                await made.close()


@asynccontextmanager
async def _theirs(url: str) -> AsyncIterator[Step]:
    from playwright.async_api import async_playwright

    async with Supervisor() as supervisor, async_playwright() as playwright:
        chromium = await Chromium.start(find(BrowserSettings(), _env()), supervisor, _env())
        try:
            browser = await playwright.chromium.connect_over_cdp(chromium.endpoint)
            # A proxy that is bypassed for loopback: the flags' own leads nowhere.
            context = await browser.new_context(proxy={"server": "socks5://127.0.0.1:9", "bypass": "127.0.0.1"})
            page = await context.new_page()

            async def step() -> None:
                await page.goto(url)
                await page.locator("#who").fill("Ana")
                await page.get_by_text("Go").first.click()
                await page.get_by_text("Hello Ana").first.wait_for()
                assert "Hello Ana" in await page.locator("html").inner_text()

            yield step
        finally:
            await chromium.stop()


def _env() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]}


if __name__ == "__main__":
    found = asyncio.run(compare(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
    print(f"ours {found['ours']:.1f} ms, playwright {found['playwright']:.1f} ms: {found['ratio']:.2f}×")
