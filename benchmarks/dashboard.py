"""The page of an execution in a real Chromium: how soon it shows something, how smoothly it moves, what it keeps.

python -m benchmarks.dashboard [STEPS …]

The server runs in a process of its own, with executions of 1,000 and 10,000 steps that it has run. A page watches one
that grows by 200 events a second.

Then a second engine in the server's process runs as fast as it can, beside that stream, without and with 20 pages that
show it. Twenty tabs of Chromium need more processors than most machines have, and a server that waits for one of them
says nothing about the server. So these are `page_clients`: the stream and the requests of a page at its rate, without
drawing. The server has one processor for itself, they have another. That their requests are those of a page is seen
beside one real page on their processor: it must not ask for anything else, nor more often.
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
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import windlass
from benchmarks.server import EVENTS_PER_S, _at_once, _chain, _paced
from windlass import Call, Plan, Step, ToolError, tool
from windlass.tools.browser.chromium import NAMES

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["PAGES", "DashboardFigures", "EngineFigures", "GrowthFigures", "PageFigures", "WatchFigures", "page_figures"]

LAYER = 50
PAGES = 20
WATCHED_S = 20
ENGINE_S = 6
ROUNDS = 3
TALKED = 50_000
"""Events of a page that is left open."""
SAME_S = 20
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
SERVER_CORE, OTHERS_CORE = (CORES[0], CORES[-1]) if CORES else (0, 0)
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


class EngineFigures(NamedTuple):
    steps_beside: float
    """Steps a second beside 20 pages, over those without a page; the median of pairs, one after the other."""
    work_beside: float
    """The same for each CPU second of the server's process: what others do on the machine is left out."""
    asked_by_page: dict[str, float]
    asked_by_client: dict[str, float]
    """Requests of one real page and of one of the twenty in the same time."""


class GrowthFigures(NamedTuple):
    events: int
    heap_mb: float
    """JavaScript's heap after a collection, when a tenth of the events had come."""
    heap_after_mb: float
    """The same after all of them."""


class DashboardFigures(NamedTuple):
    pages: list[PageFigures]
    watched: WatchFigures
    grown: GrowthFigures
    engine: EngineFigures


class Served(NamedTuple):
    process: asyncio.subprocess.Process
    address: str
    login: str

    async def ask(self, words: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{words}\n".encode())
        return json.loads(await self.process.stdout.readline())


async def page_figures(sizes: list[int]) -> DashboardFigures:
    async with _browser() as browser, _served() as server:
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        await context.add_init_script(NOTE_SHOWN)
        first = await context.new_page()
        await first.goto(server.login)
        await first.wait_for_url(f"{server.address}/")
        await first.close()
        pages = [await _page(context, server, steps) for steps in sizes]
        watched, grown = await _watch(context, server), await _growth(context, server)
        if CORES:
            for pid in (server.process.pid, *await _browser_processes(browser)):
                _pin(pid, SERVER_CORE if pid == server.process.pid else OTHERS_CORE)
        return DashboardFigures(pages, watched, grown, await _beside(context, server))


def _pin(pid: int, core: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


async def _browser_processes(browser: Browser) -> list[int]:
    session = await browser.new_browser_cdp_session()
    return [process["id"] for process in (await session.send("SystemInfo.getProcessInfo"))["processInfo"]]


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
    return WatchFigures(WATCHED_S * EVENTS_PER_S, slowest)


async def _beside(context: Any, server: Served) -> EngineFigures:
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in await context.cookies(server.address))
    rounds = []
    for _ in range(ROUNDS):
        execution = await server.ask(f"watch {ENGINE_S * 10}")
        alone = await server.ask(f"steps {ENGINE_S}")
        async with _clients(server, cookie, execution):
            beside = await server.ask(f"steps {ENGINE_S}")
        await _end(server, execution)
        rounds.append((beside[0] / alone[0], beside[1] / alone[1]))
    execution = await server.ask(f"watch {SAME_S * 4}")
    page = await context.new_page()
    asked: Counter[str] = Counter()
    await page.goto(f"{server.address}/executions/{execution}")
    await page.wait_for_selector(STEP, state="attached")
    async with _clients(server, cookie, execution) as clients:
        page.on("request", lambda request: asked.update([_kind(request.url)]))
        await asyncio.sleep(SAME_S)
        real = Counter(asked)
    await _end(server, execution)
    await page.close()
    simulated = Counter({kind: count / PAGES for kind, count in clients.items()})
    by_second = statistics.median(one[0] for one in rounds)
    return EngineFigures(by_second, statistics.median(one[1] for one in rounds), dict(real), dict(simulated))


async def _end(server: Served, execution: str) -> None:
    """End what was watched. If it has ended before, pages had nothing to show, and the figures would say nothing."""
    if (status := await server.ask(f"end {execution}")) != "running":
        raise ToolError(f"the machine is too busy: what the pages watch was {status} before the measurement was over")


def _kind(address: str) -> str:
    return address.partition("?")[0].rpartition("/")[2]


async def _growth(context: Any, server: Served) -> GrowthFigures:
    """A page over many events of one execution, as one that is left open for a day sees them."""
    execution = await server.ask(f"talk {TALKED}")
    page = await context.new_page()
    await page.goto(f"{server.address}/executions/{execution}?view=list")
    await page.wait_for_selector(STEP, state="attached")
    session = await context.new_cdp_session(page)
    sizes = []
    for part in (0.1, 1.0):
        await page.get_by_text(f"line {int(TALKED * part) - 1:,}", exact=False).first.wait_for(timeout=300_000)
        await session.send("HeapProfiler.collectGarbage")
        sizes.append((await session.send("Runtime.getHeapUsage"))["usedSize"] / 2**20)
        await server.ask("go on")
    await page.close()
    return GrowthFigures(TALKED, *sizes)


@asynccontextmanager
async def _clients(server: Served, cookie: str, execution: str) -> AsyncIterator[Counter[str]]:
    """Twenty pages without a browser; after it, how often they asked for what, all together."""
    asked: Counter[str] = Counter()
    arguments = [server.address, cookie, execution, str(PAGES), *([str(OTHERS_CORE)] if CORES else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.page_clients", *arguments, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    yield asked
    process.stdin.close()
    for path, count in json.loads(await process.stdout.readline()).items():
        asked[_kind(path)] += count
    await process.wait()


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise ToolError("no playwright here (make dev)") from None
    if (found := next((path for name in NAMES if (path := shutil.which(name))), None)) is None:
        raise ToolError(f"no Chromium here: one of {', '.join(NAMES)}")
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
        goes_on = asyncio.Event()
        tools = [_paced(), _at_once(), _talks(goes_on)]
        engine = windlass.open(folder / "shown", tools=tools)
        other = await stack.enter_async_context(windlass.open(folder / "other", tools=tools))
        service = Service(engine)
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            create_app(service), ws=StreamProtocol, ws_per_message_deflate=False, log_level="error", lifespan="on"
        )
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
                case ["talk", events]:
                    goes_on.clear()
                    answer = (
                        await engine.start(Plan(steps=[Step(id="s", tool="talks", with_={"events": int(events)})]))
                    ).id
                case ["end", execution_id]:
                    answer = str((await engine.state(execution_id)).status)
                    if answer == "running":
                        await engine.cancel(execution_id)
                case ["go", "on"]:
                    goes_on.set()
                    answer = True
                case ["steps", seconds]:
                    answer = await _steps(other, float(seconds))
                case _:
                    raise ValueError(asked)
            print(json.dumps(answer), flush=True)
        server.should_exit = True
        await serving


def _talks(goes_on: asyncio.Event) -> Any:
    @tool
    async def talks(call: Call, events: int) -> None:
        """Write so many lines, each as an event of its own; wait to be asked on after a tenth of them."""
        for number in range(events):
            call.output("stdout", f"line {number:,}\n")
            await asyncio.sleep(0.001)
            if number == events // 10 - 1:
                await goes_on.wait()

    return talks


def _graph(steps: int) -> Plan:
    """Layers; each step waits for two of the layer before."""
    needs = [[f"s{n - LAYER}", f"s{n - LAYER + (1 if n % LAYER < LAYER - 1 else -1)}"] for n in range(steps)]
    return Plan(
        name=f"{steps:,} steps",
        steps=[Step(id=f"s{n}", tool="at_once", needs=needs[n] if n >= LAYER else []) for n in range(steps)],
    )


async def _steps(engine: windlass.Engine, seconds: float) -> tuple[float, float]:
    """Steps a second, and for each CPU second of this process."""
    plan, done = _chain("at_once", 500), 0
    began, worked = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        await (await engine.start(plan)).wait()
        done += 500
    return done / (time.perf_counter() - began), done / (time.process_time() - worked)


def main() -> None:
    pages, *others = asyncio.run(page_figures([int(word) for word in sys.argv[1:]] or [1_000, 10_000]))
    for figures in (*pages, *others):
        print(figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
