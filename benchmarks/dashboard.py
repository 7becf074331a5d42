"""The page of an execution in a real Chromium: how soon it shows something, how smoothly it moves, what it keeps.

python -m benchmarks.dashboard [STEPS …]

The server runs in a process of its own, with executions of 1,000 and 10,000 steps that it has run. A page watches one
that grows by 200 events a second; and a second engine in the server's process runs as fast as it can, beside that
stream and beside 20 pages that show it. Pages take the machine's time too, so its steps are counted per CPU second.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import windlass
from benchmarks.server import EVENTS_PER_S, _at_once, _chain, _paced
from windlass import Plan, Step
from windlass.tools.browser.chromium import NAMES

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["PAGES", "PageFigures", "WatchFigures", "page_figures"]

LAYER = 50
PAGES = 20
WATCHED_S = 20
ENGINE_S = 6
MOVES = 60
KEYS = 40
FLAGS = ["--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc"]
STEP = "[role='row'], .graph-all"
"""Rows of the list and of the timeline; the graph."""
NOTE_SHOWN = f"""
new MutationObserver((_, observer) => {{
  if (!document.querySelector({json.dumps(STEP)})) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => {{ window.shownAt = performance.now(); }}));
}}).observe(document, {{ subtree: true, childList: true }});
window.slowest = 0;
new PerformanceObserver((list) => {{
  for (const entry of list.getEntries()) window.slowest = Math.max(window.slowest, entry.duration);
}}).observe({{ type: "event", durationThreshold: 16, buffered: true }});
"""
WAIT_SHOWN = """
() => new Promise((done) => {
  const look = () => (window.shownAt ? done(window.shownAt) : requestAnimationFrame(look));
  look();
})
"""


class PageFigures(NamedTuple):
    steps: int
    shown_ms: float
    """From the request for the page to the frame after its first step is there; the median of three."""
    list_fps: float
    timeline_fps: float
    graph_fps: float
    memory_mb: float
    """Memory of the tab's process after all of this: its proportional set size."""


class WatchFigures(NamedTuple):
    events: int
    slowest_key_ms: float
    """From a key to the frame that shows what it did, at 200 events a second: the slowest."""
    steps_beside: float
    """Steps for each CPU second of the engine's process beside 20 pages, over those without a page."""


class Served(NamedTuple):
    process: asyncio.subprocess.Process
    address: str
    login: str

    async def ask(self, words: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{words}\n".encode())
        return json.loads(await self.process.stdout.readline())


async def page_figures(sizes: list[int]) -> tuple[list[PageFigures], WatchFigures]:
    async with _served() as server, _browser() as browser:
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        await context.add_init_script(NOTE_SHOWN)
        first = await context.new_page()
        await first.goto(server.login)
        await first.wait_for_url(f"{server.address}/")
        await first.close()
        return [await _page(context, server, steps) for steps in sizes], await _watch(context, server)


async def _page(context: Any, server: Served, steps: int) -> PageFigures:
    execution = await server.ask(f"run {steps}")
    shown = []
    for _ in range(3):
        page = await context.new_page()
        await page.goto(f"{server.address}/executions/{execution}")
        shown.append(float(await page.evaluate(WAIT_SHOWN)))  # the page's policy forbids `wait_for_function`
        await page.close()
    page = await context.new_page()
    fps = []
    for view in ("list", "timeline", "graph"):
        await page.goto(f"{server.address}/executions/{execution}?view={view}")
        await page.wait_for_selector(STEP, state="attached")
        fps.append(await _frames(page, zoom=view == "graph"))
    memory = await _memory(context.browser, page)
    await page.close()
    return PageFigures(steps, statistics.median(shown), fps[0], fps[1], fps[2], memory)


async def _frames(page: Page, *, zoom: bool) -> float:
    """Frames a second while the wheel is turned: scrolling, or zooming and panning."""
    box = await page.locator(".graph-box" if zoom else ".steps-box").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.evaluate(
        "window.drawn = []; (function frame(now) { window.drawn.push(now); requestAnimationFrame(frame); })(0)"
    )
    began = time.perf_counter()
    for number in range(MOVES):
        if zoom and number % 2:
            await page.keyboard.down("Control")
        await page.mouse.wheel(0, 400 if number < MOVES / 2 else -400)
        if zoom and number % 2:
            await page.keyboard.up("Control")
    frames = int(await page.evaluate("new Promise(done => requestAnimationFrame(() => done(window.drawn.length)))"))
    return frames / (time.perf_counter() - began)


async def _memory(browser: Browser | None, page: Page) -> float:
    """The largest renderer of this browser, which is the tab that was used the most."""
    assert browser is not None
    await page.evaluate("window.gc && window.gc()")
    session = await browser.new_browser_cdp_session()
    found = await session.send("SystemInfo.getProcessInfo")
    sizes = [_pss(process["id"]) for process in found["processInfo"] if process["type"] == "renderer"]
    return max(sizes)


def _pss(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


async def _watch(context: Any, server: Served) -> WatchFigures:
    execution = await server.ask(f"watch {WATCHED_S}")
    page = await context.new_page()
    await page.goto(f"{server.address}/executions/{execution}?view=list")
    await page.wait_for_selector(STEP, state="attached")
    for number in range(KEYS):
        await page.keyboard.press("k" if number % 5 == 4 else "j")
    slowest = float(await page.evaluate("window.slowest"))
    await page.get_by_text("completed").first.wait_for(timeout=120_000)
    await page.close()
    await server.ask(f"watch {ENGINE_S * 2}")
    alone = await server.ask(f"steps {ENGINE_S}")
    pages = [await context.new_page() for _ in range(PAGES)]
    execution = await server.ask(f"watch {ENGINE_S * 6}")
    for one in pages:
        await one.goto(f"{server.address}/executions/{execution}")
        await one.wait_for_selector(STEP, state="attached")
    beside = await server.ask(f"steps {ENGINE_S}")
    for one in pages:
        await one.close()
    return WatchFigures(WATCHED_S * EVENTS_PER_S, slowest, beside / alone)


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=flags)
        yield browser
        await browser.close()


@asynccontextmanager
async def _served() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="windlass-dashboard-") as folder:
        env = {**os.environ, "XDG_CONFIG_HOME": folder}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.dashboard", "serve", folder, stdin=PIPE, stdout=PIPE, env=env
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Served(process, *json.loads(await process.stdout.readline()))
        finally:
            process.stdin.close()
            await process.wait()


# -- the server ---------------------------------------------------------------------------------


async def serve(folder: Path) -> None:
    import uvicorn

    from windlass.server.app import create_app
    from windlass.server.connections import StreamProtocol
    from windlass.server.service import Service

    async with AsyncExitStack() as stack:
        tools = [_paced(), _at_once()]
        engine = windlass.open(folder / "shown", tools=tools)
        other = await stack.enter_async_context(windlass.open(folder / "other", tools=tools))
        service = Service(engine)
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(service), ws=StreamProtocol, log_level="error", lifespan="on")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        print(json.dumps([address, f"{address}/login?code={service.access.login_code()}"]), flush=True)
        while asked := (await asyncio.to_thread(sys.stdin.readline)).split():
            match asked:
                case ["run", steps]:
                    execution = await engine.start(_graph(int(steps)))
                    await execution.wait()
                    answer: Any = execution.id
                case ["watch", seconds]:
                    answer = (await engine.start(_chain("paced", int(seconds) * EVENTS_PER_S // 2))).id
                case ["steps", seconds]:
                    answer = await _steps(other, float(seconds))
                case _:
                    raise ValueError(asked)
            print(json.dumps(answer), flush=True)
        server.should_exit = True
        await serving


def _graph(steps: int) -> Plan:
    """Layers; each step waits for two of the layer before."""
    needs = [[f"s{n - LAYER}", f"s{n - LAYER + (1 if n % LAYER < LAYER - 1 else -1)}"] for n in range(steps)]
    return Plan(
        name=f"{steps:,} steps",
        steps=[Step(id=f"s{n}", tool="at_once", needs=needs[n] if n >= LAYER else []) for n in range(steps)],
    )


async def _steps(engine: windlass.Engine, seconds: float) -> float:
    """Steps for each CPU second of this process."""
    plan, done = _chain("at_once", 500), 0
    began, worked = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        await (await engine.start(plan)).wait()
        done += 500
    return done / (time.process_time() - worked)


def main() -> None:
    pages, watched = asyncio.run(page_figures([int(word) for word in sys.argv[1:]] or [1_000, 10_000]))
    for figures in (*pages, watched):
        print(figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
