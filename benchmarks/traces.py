"""What traces cost a step, and what a scrape of the metrics costs: CPU time.

python -m benchmarks.traces KIND [ENDPOINT]

runs one scenario in a process of its own, and prints what it took as JSON. `make bench` compares both ways.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import windlass
from windlass import Plan
from windlass.core.forecast.scores import BucketScore
from windlass.ports import SpanCounts, Spending
from windlass.server.metrics import MOST_BREAKERS, MOST_NAMES, Metrics

__all__ = ["TraceCost", "scrape_cost", "trace_cost"]

ROUNDS = 3
PARALLEL = 50


class TraceCost(NamedTuple):
    seconds: float
    """CPU time that traces add to a step, to the end of the process's work: two spans, sent."""
    plain: float
    """CPU time of a step without traces."""
    dropped: int


@windlass.tool
async def increment(x: int) -> int:
    return x + 1


def _plan(kind: str) -> tuple[Plan, int]:
    step: dict[str, Any] = {"tool": "increment"}
    if kind == "foreach":
        steps = [{**step, "id": "each", "foreach": list(range(1_000)), "with": {"x": "{{ item }}"}}]
        count = 1_000
    else:
        count = 10_000
        steps = [{**step, "id": f"s{number}", "with": {"x": number}} for number in range(count)]
    return Plan.model_validate({"name": kind, "limits": {"parallel": PARALLEL}, "steps": steps}), count


async def _run(kind: str, endpoint: str) -> dict[str, float]:
    plan, count = _plan(kind)
    settings = {"telemetry": {"endpoint": endpoint}} if endpoint else {}
    with tempfile.TemporaryDirectory() as home:
        async with windlass.open(home, tools=[increment], settings=settings) as engine:
            # Once before: what is imported and connected to is not counted.
            warm = Plan.model_validate({"steps": [{"id": "a", "tool": "increment", "with": {"x": 1}}]})
            await (await engine.start(warm)).wait()
            telemetry = engine.telemetry
            for _ in range(200 if telemetry is not None else 0):
                if telemetry is not None and sum(telemetry.counts()):
                    break
                await asyncio.sleep(0.05)
            began = _cpu()
            state = await (await engine.start(plan)).wait()
            assert state.status == "completed"
        counts = telemetry.counts() if telemetry is not None else SpanCounts(0, 0)
        return {"per_step": (_cpu() - began) / count, "exported": counts.exported, "dropped": counts.dropped}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def trace_cost(kind: str) -> TraceCost:
    """Both ways in turn, each the least of some rounds: other work on the machine only adds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        plain, traced = [], []
        for _ in range(ROUNDS):
            plain.append(_apart(kind))
            traced.append(_apart(kind, endpoint))
    finally:
        server.shutdown()
    least = min(found["per_step"] for found in plain)
    return TraceCost(
        min(found["per_step"] for found in traced) - least, least, int(max(found["dropped"] for found in traced))
    )


def _apart(kind: str, *endpoint: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.traces", kind, *endpoint]
    done = subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


class _Taker(BaseHTTPRequestHandler):
    """An endpoint that takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Say nothing of each request."""


def scrape_cost(scrapes: int = 20) -> tuple[float, int]:
    """CPU time of one page of metrics with every label at its limit, and the page's bytes."""
    metrics = Metrics()
    for number in range(MOST_NAMES):
        for status in ("completed", "failed", "skipped"):
            metrics._step_seconds.labels(f"tool-{number}", status).observe(1.0)
        for phase in ("queued", "waited", "person", "worked"):
            metrics._phases.labels(f"tool-{number}", phase).inc()
    spent = [Spending(f"name-{number}", 1.0, 0, 1, 1, 1) for number in range(MOST_NAMES)]
    page = b""
    began = time.process_time()
    for _ in range(scrapes):
        page = metrics.page(
            counts={"completed": 1},
            spent=spent,
            models=spent,
            questions=1,
            spans=SpanCounts(1, 0),
            scores={
                what: [BucketScore(quarter, 1, 0.8, 0.2, 0.1) for quarter in range(4)] for what in ("time", "cost")
            },
            circuits={f"host-{number}": "open" for number in range(MOST_BREAKERS)},
            waiting=0,
            driven=0,
            clients=0,
            dropped=0,
        )
    return (time.process_time() - began) / scrapes, len(page)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))))
