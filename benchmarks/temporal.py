"""Workers on Temporal and PostgreSQL, on this machine: lost workers, interrupts, throughput, the cost of a step.

The servers and the workers are the real ones, with the settings that a user has.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import itertools

from cluster_world import LocalCluster, WorkerProcess
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from windlass.core import events as ev
from windlass.temporal.workflow import HEARTBEAT_TIMEOUT

__all__ = ["ClusterFigure", "LocalCluster", "cluster_figures", "ready_worker", "servers"]

KILLS, INTERRUPTS = 20, 10
SLOTS, WAITS, WAIT = 4, 48, 1.0
CHAIN = 40


class ClusterFigure(NamedTuple):
    what: str
    measured: str
    wanted: str
    met: bool


def cluster_figures() -> Iterator[ClusterFigure]:
    with servers() as (_database, _temporal, make):
        yield from _lost(make())
        yield from _interrupted(make())
        yield _throughput(make)
        yield _step(make())


@contextmanager
def servers() -> Iterator[tuple[PostgresServer, TemporalServer, Callable[[], LocalCluster]]]:
    """Servers, and a function that makes a database and a project on them."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-cluster-"))
    database, made = PostgresServer(), list[LocalCluster]()
    for statement in ("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()"):
        database.run(statement)  # every commit is on disk, as for users
    temporal = TemporalServer(folder)

    def make() -> LocalCluster:
        name = f"bench_{len(made)}"
        database.run(f"CREATE DATABASE {name}")
        place = folder / name
        place.mkdir()
        made.append(LocalCluster(place, database.address(name), temporal.address))
        return made[-1]

    try:
        yield database, temporal, make
    finally:
        for cluster in made:
            cluster.close()
        temporal.close()
        database.close()
        shutil.rmtree(folder, ignore_errors=True)


def ready_worker(cluster: LocalCluster, *words: str) -> WorkerProcess:
    worker = cluster.worker(*words)
    assert worker.name
    return worker


def _finished(cluster: LocalCluster, plan: dict[str, Any]) -> str:
    run = cluster.run(plan)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    return cluster.newest


def _of_95(times: list[float]) -> float:
    return sorted(times)[max(0, -(-len(times) * 95 // 100) - 1)]


def _lost(cluster: LocalCluster) -> Iterator[ClusterFigure]:
    """Seconds from a worker's SIGKILL to its step on another one."""
    workers = {(made := ready_worker(cluster)).name: made for _ in range(2)}
    id = cluster.detach({"name": "lost", "steps": [{"id": "a", "run": "sleep 3600"}]})
    times: list[float] = []
    for count in range(1, KILLS + 1):
        placed = cluster.until(id, lambda events, count=count: len(events) == count, ev.AttemptPlaced)[-1]
        workers.pop(placed.worker).kill()
        killed = time.time()
        again = cluster.until(id, lambda events, count=count: len(events) > count, ev.AttemptPlaced)[-1]
        times.append(again.at - killed)
        new = ready_worker(cluster)
        workers[new.name] = new
    cluster.windlass("cancel", id)
    most = HEARTBEAT_TIMEOUT.total_seconds() + 3
    p95 = _of_95(times)
    text = f"{p95:.1f} s, p50 {statistics.median(times):.1f} s ({len(times)} kills)"
    yield ClusterFigure("SIGKILL of a worker to its step elsewhere, p95", text, f"≤ {most:g} s", p95 <= most)


def _interrupted(cluster: LocalCluster) -> Iterator[ClusterFigure]:
    """Seconds from an interrupt on one machine to the pause of an execution on others."""
    for _ in range(2):
        ready_worker(cluster)
    steps = [{"id": name, "run": "sleep 3600"} for name in ("a", "b")]
    times: list[float] = []
    for _ in range(INTERRUPTS):
        id = cluster.detach({"name": "interrupted", "steps": steps})
        cluster.until(id, lambda events: len(events) == 2, ev.AttemptPlaced)
        asked = time.time()
        asyncio.run(_interrupt(cluster, id))
        times.append(cluster.events(id, ev.ExecutionPaused)[-1].at - asked)
    p95 = _of_95(times)
    text = f"{p95:.2f} s, p50 {statistics.median(times):.2f} s ({len(times)} interrupts)"
    yield ClusterFigure("interrupt of steps on two workers, p95", text, "≤ 2 s", p95 <= 2.0)


async def _interrupt(cluster: LocalCluster, id: str) -> None:
    import windlass

    async with windlass.open(cluster.folder / "person", journal=cluster.journal) as engine:
        await engine.interrupt(id, by="bench")


def _throughput(make: Callable[[], LocalCluster]) -> ClusterFigure:
    """Steps that wait, per second, with one worker and with two."""
    plan = {
        "name": "waits",
        "limits": {"parallel": WAITS},
        "steps": [{"id": f"s{n}", "run": f"sleep {WAIT}"} for n in range(WAITS)],
    }
    rates: list[float] = []
    for count in (1, 2):
        cluster = make()
        workers = [ready_worker(cluster, "--slots", str(SLOTS)) for _ in range(count)]
        _finished(cluster, {"name": "warm", "steps": [{"id": "a", "run": "true"}]})
        id = _finished(cluster, plan)
        began = cluster.events(id, ev.AttemptPlaced)[0].at
        ended = cluster.events(id, ev.AttemptFinished)[-1].at
        rates.append(WAITS / (ended - began))
        for worker in workers:
            worker.kill()
    ratio = rates[1] / rates[0]
    text = f"{ratio:.2f}× ({rates[0]:.1f} → {rates[1]:.1f} steps/s, {SLOTS} slots each)"
    return ClusterFigure("steps that wait, one worker → two", text, "≥ 1.8×", ratio >= 1.8)


@activity.defn
async def plain_step(number: int) -> int:
    return number


@workflow.defn(sandboxed=False)
class PlainChain:
    @workflow.run
    async def run(self, steps: int) -> list[float]:
        times = [workflow.now().timestamp()]
        for number in range(steps):
            await workflow.execute_activity(plain_step, number, start_to_close_timeout=timedelta(seconds=30))
            times.append(workflow.now().timestamp())
        return times


async def _plain(address: str) -> list[float]:
    """Seconds of each of many activities in sequence, on Temporal alone."""
    client = await Client.connect(address)
    options: dict[str, Any] = {"workflow_runner": UnsandboxedWorkflowRunner()}
    async with Worker(client, task_queue="plain", workflows=[PlainChain], activities=[plain_step], **options):
        await client.execute_workflow(PlainChain.run, 3, id="plain-warm", task_queue="plain")
        times = await client.execute_workflow(PlainChain.run, CHAIN, id="plain", task_queue="plain")
    return [after - before for before, after in itertools.pairwise(times)]


def _step(cluster: LocalCluster) -> ClusterFigure:
    """Seconds of a step that does nearly nothing, beside plain activities."""
    ready_worker(cluster)
    (cluster.project / "small").write_text("x")
    read = {"tool": "files.read", "with": {"path": "small"}}
    chain = [{"id": f"s{n}", **read, **({"needs": [f"s{n - 1}"]} if n else {})} for n in range(CHAIN + 1)]
    _finished(cluster, {"name": "warm", "steps": chain[:3]})
    id = _finished(cluster, {"name": "chain", "steps": chain})
    ends = [event.at for event in cluster.events(id, ev.AttemptFinished)]
    ours = statistics.median(after - before for before, after in itertools.pairwise(ends))
    plain = statistics.median(asyncio.run(_plain(cluster.temporal)))
    text = f"{ours / plain:.2f}× ({ours * 1000:.0f} ms, plain activity {plain * 1000:.0f} ms)"
    return ClusterFigure("a step on Temporal, p50, over a plain activity", text, "≤ 2×", ours / plain <= 2.0)
