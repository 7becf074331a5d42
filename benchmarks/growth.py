"""The growth of a cluster: measures what a worker and a step cost, then simulates the busiest hour of many.

python -m benchmarks.growth [WORKERS [EXECUTIONS_A_DAY]]

Measured on this machine, with the real servers: transactions, sessions and processor time of PostgreSQL, events and
processor time of Temporal, processor time of a worker. The simulation multiplies them; what it cannot know (networks,
locks that only many sessions wait for, Temporal's own database) it leaves out, so it says where a limit is, not that
there is no other.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import windlass
from benchmarks.temporal import LocalCluster, ready_worker, servers
from windlass import Plan
from windlass.ports import Journal

EXECUTIONS, STEPS = 60, 5
IDLE = 20.0
"""Seconds for which workers without work are watched."""
PEAK = 3.0
"""The busiest hour of a day, over the mean."""
LASTS = 30.0
"""Seconds that a step takes in the simulation: half of them less, some much more."""
SLOTS = 100
BACKEND_MB = 10
"""Memory of a session of PostgreSQL, as its own documentation has it; not measured."""


class Costs(NamedTuple):
    """The cost of a worker that does nothing, each second, and of a step."""

    sessions: float
    idle_transactions: float
    transactions: float
    database_cpu: float
    temporal_cpu: float
    worker_cpu: float
    events: float
    """Events of Temporal's history."""


def measure_costs() -> Costs:
    with servers() as (database, temporal, make):
        cluster = make()
        worker = ready_worker(cluster)
        name = cluster.journal.split("/")[3].split("?")[0]

        def look() -> tuple[int, int]:
            with psycopg.connect(database.address()) as session:
                asked = "SELECT xact_commit + xact_rollback, numbackends FROM pg_stat_database WHERE datname = %s"
                found = session.execute(asked, (name,)).fetchone()
                assert found is not None
                return int(found[0]), int(found[1])

        before, _ = look()
        time.sleep(IDLE)
        after, sessions = look()
        idle = (after - before) / IDLE
        trees = [_pid(database.folder / "postmaster.pid"), temporal.pid, worker.process.pid]
        began, spent, (transactions, _) = time.monotonic(), [_cpu(tree) for tree in trees], look()
        ids = asyncio.run(_run(cluster))
        took, (done, _) = time.monotonic() - began, look()
        database_cpu, temporal_cpu, worker_cpu = (_cpu(tree) - old for tree, old in zip(trees, spent, strict=True))
        steps = EXECUTIONS * STEPS
        events = asyncio.run(_history_events(cluster.temporal, ids))
        return Costs(
            sessions,
            idle,
            (done - transactions - idle * took) / steps,
            database_cpu / steps,
            temporal_cpu / steps,
            worker_cpu / steps,
            events / steps,
        )


async def _run(cluster: LocalCluster) -> list[str]:
    """Run executions of short steps; returns when all have ended."""
    (cluster.project / "small").write_text("x")
    read: dict[str, Any] = {"tool": "files.read", "with": {"path": "small"}}
    steps = [{"id": f"s{n}", **read, **({"needs": [f"s{n - 1}"]} if n else {})} for n in range(STEPS)]
    plan = Plan.model_validate({"name": "growth", "steps": steps})
    settings: dict[str, Any] = {"journal": cluster.journal, "temporal": cluster.temporal}
    async with windlass.open(cluster.folder / "person", **settings) as engine:
        ids = [(await engine.start(plan, workdir=cluster.project, hold=False)).id for _ in range(EXECUTIONS)]
        while await _open(engine.journal):  # noqa: ASYNC110 - other processes do the work
            await asyncio.sleep(0.2)
    return ids


async def _open(journal: Journal) -> int:
    return len(await journal.heads(statuses=["pending", "running"]))


async def _history_events(address: str, ids: list[str]) -> int:
    from temporalio.client import Client

    client = await Client.connect(address)
    found = [await client.get_workflow_handle(f"windlass-{id}").describe() for id in ids]
    return sum(one.history_length for one in found)


def _pid(file: Path) -> int:
    return int(file.read_text().split()[0])


def _cpu(root: int) -> float:
    """Seconds of a processor that a process, its children and those that have ended have taken."""
    parents, spent = dict[int, int](), dict[int, float]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    tree, total = [root], 0.0
    while tree:
        one = tree.pop()
        total += spent.get(one, 0.0)
        tree += [child for child, parent in parents.items() if parent == one]
    return total


def simulate_hour(workers: int, a_day: int, chance: random.Random) -> tuple[float, int]:
    """The busiest hour: seconds that 95 of 100 steps wait for a slot, and the most steps that run at once."""
    arrivals = a_day / 86400 * PEAK
    free, events, waits = workers * SLOTS, list[tuple[float, int, int]](), list[float]()
    waiting: list[tuple[float, int]] = []
    at, number, running, most = 0.0, 0, 0, 0
    while at < 3600:
        at += chance.expovariate(arrivals)
        heapq.heappush(events, (at, number, STEPS))
        number += 1
    while events:
        now, _, left = heapq.heappop(events)
        if left < 0:  # a step has ended: its slot is free, and the next step comes
            free, running = free + 1, running - 1
            left = -left - 1
        if left > 0:
            heapq.heappush(waiting, (now, left))
        while free and waiting:
            since, rest = heapq.heappop(waiting)
            waits.append(now - since)
            free, running = free - 1, running + 1
            most = max(most, running)
            number += 1
            heapq.heappush(events, (now + chance.lognormvariate(0, 1) * LASTS, number, -rest))
    waits.sort()
    return waits[int(len(waits) * 0.95)], most


def report(costs: Costs, workers: int, a_day: int) -> list[str]:
    steps = a_day * STEPS / 86400 * PEAK
    wait, most = simulate_hour(workers, a_day, random.Random(1))
    reading = most * 4  # an attempt that runs looks into the journal four times a second
    idle = workers * costs.idle_transactions
    work = steps * costs.transactions
    per_transaction = costs.database_cpu / costs.transactions
    return [
        f"measured: a worker has {costs.sessions:.0f} sessions and makes {costs.idle_transactions:.1f} transactions/s "
        "while idle",
        f"measured: a step takes {costs.transactions:.1f} transactions and {costs.events:.1f} events in Temporal",
        f"measured: processor time of a step: PostgreSQL {costs.database_cpu * 1000:.1f} ms, "
        f"Temporal {costs.temporal_cpu * 1000:.1f} ms, "
        f"worker {costs.worker_cpu * 1000:.1f} ms",
        f"{workers:,} workers, {a_day:,} executions of {STEPS} steps a day, busiest hour:",
        f"  steps a second: {steps:,.0f}; at once: {most:,}; 95 of 100 wait for a slot: {wait:.1f} s",
        f"  transactions a second: {work + idle + reading:,.0f} "
        f"(steps {work:,.0f}, idle workers {idle:,.0f}, looks of running steps {reading:,})",
        f"  cores of PostgreSQL: {(work + idle + reading) * per_transaction:.1f}",
        f"  cores of Temporal: {steps * costs.temporal_cpu:.1f}; of all workers: {steps * costs.worker_cpu:.1f}",
        f"  sessions with PostgreSQL: {workers * costs.sessions:,.0f}, about "
        f"{workers * costs.sessions * BACKEND_MB / 1024:,.0f} GB",
    ]


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    print("\n".join(report(measure_costs(), *(given + [1000, 1_000_000][len(given) :]))))
