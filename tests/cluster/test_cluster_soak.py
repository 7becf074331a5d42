"""The long form: many executions while workers are killed and frozen all the time (D2, D6, J2)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cluster_world import LocalCluster, WorkerProcess
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from waiting import wait_until

import windlass
from windlass import Plan
from windlass.core import events as ev
from windlass.ports import Journal

EXECUTIONS = int(os.environ.get("WINDLASS_SOAK_EXECUTIONS", "1000"))
BETWEEN = 3.0
"""Seconds between one kill and the next."""
FROZEN = 60.0
"""Seconds for which a worker stands still."""
PLAN: dict[str, Any] = {
    "name": "soaked",
    "steps": [
        {"id": "a", "run": 'sleep 1; echo "$WINDLASS_EXECUTION a" >> ran'},
        {"id": "b", "needs": ["a"], "run": 'sleep 1; echo "$WINDLASS_EXECUTION b" >> ran'},
        {"id": "pay", "needs": ["a"], "run": 'echo "$WINDLASS_EXECUTION" >> paid; sleep 1', "effect": "once"},
        {"id": "c", "needs": ["b", "pay"], "run": "echo c"},
    ],
}


async def begin_all(cluster: LocalCluster) -> list[str]:
    settings: dict[str, Any] = {"journal": cluster.journal, "temporal": cluster.temporal}
    plan = Plan.model_validate(PLAN)
    async with windlass.open(cluster.folder / "person", **settings) as engine:
        return [(await engine.start(plan, workdir=cluster.project, hold=False)).id for _ in range(EXECUTIONS)]


async def open_executions(journal: Journal) -> int:
    return len(await journal.heads(statuses=["pending", "running"]))


async def events_of_all(journal: Journal, ids: list[str]) -> dict[str, list[ev.Event]]:
    return {id: [entry.event for entry in await journal.read(id)] for id in ids}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_d2_killed_and_frozen_workers_lose_nothing_and_repeat_nothing(cluster: LocalCluster) -> None:
    """A worker is killed every few seconds, and another one stands still for a minute, again and again."""
    workers = [cluster.worker("--slots", "20") for _ in range(3)]
    assert all([worker.name for worker in workers])
    starter = ThreadPoolExecutor(1)
    begun = starter.submit(asyncio.run, begin_all(cluster))
    chance, kills, thaws = random.Random(1), 0, 0
    frozen: WorkerProcess | None = None
    thaw_at = 0.0
    while not begun.done() or cluster.read(open_executions):
        due = time.monotonic() + BETWEEN
        killed = workers.pop(chance.randrange(len(workers)))
        killed.kill()
        kills += 1
        if frozen is None:
            frozen, thaw_at = workers.pop(0), time.monotonic() + FROZEN
            frozen.signal(signal.SIGSTOP)
        elif time.monotonic() > thaw_at:
            frozen.signal(signal.SIGCONT)
            workers.append(frozen)
            frozen, thaws = None, thaws + 1
        while len(workers) < 3:
            workers.append(cluster.worker("--slots", "20"))
        assert all([worker.name for worker in workers])
        wait_until(lambda due=due: time.monotonic() >= due, "the next kill")
    if frozen is not None:  # what it still wants to write comes late, and is refused
        frozen.signal(signal.SIGCONT)
        workers.append(frozen)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.process.wait() for worker in workers] == [0] * len(workers)
    ids = begun.result()
    paid = Counter((cluster.project / "paid").read_text().split())
    asked = 0
    for id, events in cluster.read(lambda journal: events_of_all(journal, ids)).items():
        finished = Counter(event.step for event in events if isinstance(event, ev.AttemptFinished))
        assert max(finished.values()) == 1, finished
        assert sum(isinstance(event, ev.AttemptStarted) and event.step == "pay" for event in events) <= 1
        assert paid[id] <= 1
        if not any(isinstance(event, ev.ExecutionFinished) for event in events):
            # It stands before a person, because the payment was cut off.
            assert [event.reason for event in events if isinstance(event, ev.StepWaiting)] == ["outcome"]
            asked += 1
    print(
        f"{len(ids)} executions, {kills} workers killed, {thaws + (frozen is not None)} frozen, {asked} put to a person"
    )


@pytest.mark.soak
@pytest.mark.parametrize("forgets", [False, True], ids=["restarted", "without its data"])
def test_d6_servers_that_restart_lose_nothing(
    cluster: LocalCluster, temporal_server: TemporalServer, postgres_server: PostgresServer, forgets: bool
) -> None:
    assert cluster.worker().name
    steps = [{"id": f"s{n}", "needs": [f"s{n - 1}"] if n else [], "run": "sleep 1"} for n in range(8)]
    run = cluster.run({"name": "restarts", "steps": steps})
    id = cluster.newest
    for count in (1, 3):
        cluster.until(id, lambda events, count=count: len(events) >= count, ev.AttemptPlaced)
        temporal_server.stop()
        if forgets:
            temporal_server.forget()
        temporal_server.start()
    postgres_server.restart()
    said, _ = run.communicate()
    assert run.returncode == 0, said
    finished = [event.step for event in cluster.events(id, ev.AttemptFinished)]
    assert finished == [step["id"] for step in steps]
