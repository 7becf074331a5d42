"""The stream under load: 1,000 clients, 20 of which never read, 200 events a second; in processes of their own.

python -m benchmarks.server [FOLDER]

The server is the real one without its other routes: engine, feed, uvicorn with our protocol. What it costs the engine
is measured with a second engine in the same process and loop, which runs as fast as it can and is not streamed: first
while nobody listens, then while everybody does, the same 200 events a second going on all the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import windlass
from benchmarks.listeners import BIN
from windlass import Call, Engine, Plan, Step, tool

__all__ = ["Stream", "stream_figures"]

CLIENTS = 1000
SILENT = 20
PROCESSES = 2
EVENTS_PER_S = 200
QUIET_S = 30.0
"""Seconds of listening while the engine does nothing else."""
BUSY_S = 4.0
"""Seconds of each measurement of the engine's throughput."""
ROUNDS = 5
"""Pairs of such measurements; that with the median ratio counts."""
FIRSTS = 20
"""Events that are sent alone, one after the other."""


class Stream(NamedTuple):
    """What was found."""

    clients: int
    events_per_s: float
    p50: float
    p99: float
    worst: float
    """Seconds from an event to a client."""
    frames_per_s: float
    gaps: int
    cut_off: int
    """Reading clients that were cut off."""
    silent_cut_off: int
    grown_mb: float
    """Memory of the server, at its highest, over that before anybody came."""
    alone: float
    """Seconds from an event to the only client, the worst of some."""
    steps_alone: float
    steps_beside: float
    """The engine's steps a second, without and with everybody listening."""
    work_ratio: float
    """The same ratio in steps for each second of the processor's time: what others do on the machine is left out."""
    cpus_alone: float
    cpus_beside: float
    """The processors that the server had meanwhile. Below 1, something else on the machine was in its way."""
    load: float
    """The machine's load while it was measured."""


def stream_figures(folder: Path) -> Stream:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = _Child("benchmarks.server", "serve", str(folder.resolve()))
    try:
        port = int(server.line())
        alone = float(server.ask("alone"))
        before = float(server.ask("memory"))
        with _Crowd(port) as crowd:
            sent = json.loads(server.ask("quiet"))
        pairs = [_with_and_without(server, port) for _ in range(ROUNDS)]
        peak = float(server.ask("memory"))
    finally:
        server.end()
    late: Counter[int] = Counter()
    for found in crowd.saw:
        late.update({int(bins): count for bins, count in found["late"].items()})
    pairs.sort(key=lambda pair: pair[1]["per_s"] / pair[0]["per_s"])
    by_itself, beside = pairs[len(pairs) // 2]
    return Stream(
        clients=CLIENTS,
        events_per_s=sent["events"] / sent["seconds"],
        p50=_quantile(late, 0.5),
        p99=_quantile(late, 0.99),
        worst=_quantile(late, 1.0),
        frames_per_s=sum(found["frames"] for found in crowd.saw) / sent["seconds"],
        gaps=sum(found["gaps"] for found in crowd.saw),
        cut_off=sum(found["cut_off"] for found in crowd.saw),
        silent_cut_off=sum(found["silent_cut_off"] for found in crowd.saw),
        grown_mb=(peak - before) / 2**20,
        alone=alone,
        steps_alone=by_itself["per_s"],
        steps_beside=beside["per_s"],
        work_ratio=beside["per_cpu_s"] / by_itself["per_cpu_s"],
        cpus_alone=by_itself["cpus"],
        cpus_beside=beside["cpus"],
        load=os.getloadavg()[0],
    )


def _with_and_without(server: _Child, port: int) -> tuple[dict[str, float], dict[str, float]]:
    """The engine's throughput without and with everybody, one after the other, so that both meet the same machine."""
    without = json.loads(server.ask("busy"))
    with _Crowd(port):
        return without, json.loads(server.ask("busy"))


class _Crowd:
    """All clients, in their processes, from the moment that they are connected; then what they saw."""

    def __init__(self, port: int) -> None:
        reading, silent = (CLIENTS - SILENT) // PROCESSES, SILENT // PROCESSES
        self._processes = [
            _Child("benchmarks.listeners", str(port), str(reading), str(silent)) for _ in range(PROCESSES)
        ]
        self.saw: list[dict[str, Any]] = []

    def __enter__(self) -> _Crowd:
        for process in self._processes:
            assert process.line() == "ready"
        return self

    def __exit__(self, *_how: object) -> None:
        self.saw = [json.loads(process.end()) for process in self._processes]


def _quantile(late: Counter[int], part: float) -> float:
    """The latency that this part of all frames did not exceed."""
    left = part * late.total()
    for bins in sorted(late):
        left -= late[bins]
        if left <= 0:
            return (bins + 1) * BIN
    return 0.0


class _Child:
    """A process that is asked a line and answers a line."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said, f"{self._process.args} ended"
        return said

    def ask(self, what: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self.line()

    def end(self) -> str:
        """Close its stdin, and hear its last words."""
        said, _ = self._process.communicate(timeout=60)
        return said.strip()


# -- the server's process ------------------------------------------------------------------------------


async def serve(folder: Path) -> None:
    import uvicorn
    from fastapi import FastAPI

    from windlass.server.connections import StreamProtocol
    from windlass.server.feed import Feed
    from windlass.server.stream import stream_routes

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    async with AsyncExitStack() as stack:
        tools = [_paced(), _at_once()]
        engine = await stack.enter_async_context(windlass.open(folder / "streamed", tools=tools))
        other = await stack.enter_async_context(windlass.open(folder / "other", tools=tools))
        feed = Feed(engine)
        await feed.start()
        app = FastAPI()
        app.include_router(stream_routes(feed))
        listening = socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)
        config = uvicorn.Config(app, ws=StreamProtocol, ws_per_message_deflate=False, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        port = listening.getsockname()[1]
        print(port, flush=True)
        while asked := (await asyncio.to_thread(sys.stdin.readline)).strip():
            match asked:
                case "memory":
                    answer: Any = _peak_memory()
                case "alone":
                    answer = await _alone(engine, port)
                case "quiet":
                    answer = json.dumps(await _stream(engine, QUIET_S))
                case _:
                    answer = json.dumps(await _busy(engine, other))
            print(answer, flush=True)
        server.should_exit = True
        await serving
        await feed.close()


def _paced() -> Any:
    due = {"next": 0.0}

    @tool
    async def paced(call: Call) -> str:
        """Done when its time has come: a step is two events, so half as many steps as events."""
        loop = asyncio.get_running_loop()
        due["next"] = max(due["next"] + 2 / EVENTS_PER_S, loop.time() - 0.5)
        await asyncio.sleep(due["next"] - loop.time())
        return "a line of output, about as long as they are"

    return paced


def _at_once() -> Any:
    @tool
    async def at_once(call: Call) -> int:
        return call.attempt

    return at_once


def _chain(uses: str, length: int) -> Plan:
    return Plan(steps=[Step(id=f"s{n}", tool=uses, needs=[f"s{n - 1}"] if n else []) for n in range(length)])


async def _stream(engine: Engine, seconds: float) -> dict[str, float]:
    """That many events a second for so long."""
    steps = int(seconds * EVENTS_PER_S / 2)
    began = time.perf_counter()
    execution = await engine.start(_chain("paced", steps))
    await execution.wait()
    took = time.perf_counter() - began
    await asyncio.sleep(0.5)  # the last ones are still on their way
    return {"events": 2.0 * steps, "seconds": took}


async def _busy(engine: Engine, other: Engine) -> dict[str, float]:
    """Steps a second of an engine that does what it can, while the stream goes on."""
    streaming = asyncio.create_task(_stream(engine, BUSY_S))
    plan, done = _chain("at_once", 500), 0
    began, worked = time.perf_counter(), time.process_time()
    while not streaming.done():
        await (await other.start(plan)).wait()
        done += 500
    took, worked = time.perf_counter() - began, time.process_time() - worked
    await streaming
    return {"per_s": done / took, "per_cpu_s": done / worked, "cpus": worked / took}


async def _alone(engine: Engine, port: int) -> float:
    """The worst way of an event that nothing else happens beside, to the only client."""
    from websockets.asyncio.client import connect

    worst = 0.0
    async with connect(f"ws://127.0.0.1:{port}/api/stream", compression=None, proxy=None) as client:
        await client.recv()
        for _ in range(FIRSTS):
            committed: list[float] = []
            unhook = engine.commits.subscribe(
                lambda *_commit, committed=committed: committed.append(time.perf_counter())
            )
            execution = await engine.start(_chain("at_once", 1))
            await client.recv()
            worst = max(worst, time.perf_counter() - committed[0])
            unhook()
            while json.loads(await client.recv())["type"] != "execution.finished":
                """The rest is not first."""
            await execution.wait()
            await asyncio.sleep(0.1)  # until the feed has come to rest
    return worst


def _peak_memory() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return float(line.split()[1]) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        for name, value in stream_figures(Path((sys.argv[1:] or [".bench/stream"])[0]))._asdict().items():
            print(f"{name:<16} {value:,.4f}" if isinstance(value, float) else f"{name:<16} {value}")
