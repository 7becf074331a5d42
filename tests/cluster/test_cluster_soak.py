"""The long form: many executions while workers are killed and frozen all the time (D2, D6, J2)."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest
from cluster_world import LocalCluster, WorkerProcess
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from waiting import wait_until

from windlass.core import events as ev

EXECUTIONS = int(os.environ.get("WINDLASS_SOAK_EXECUTIONS", "60"))
PLACED_BETWEEN = 8
"""Attempts that are placed between one kill and the next."""
PLAN: dict[str, Any] = {
    "name": "soaked",
    "steps": [
        {"id": "a", "run": 'sleep 1; echo "$WINDLASS_EXECUTION a" >> ran'},
        {"id": "b", "needs": ["a"], "run": 'sleep 1; echo "$WINDLASS_EXECUTION b" >> ran'},
        {"id": "pay", "needs": ["a"], "run": 'echo "$WINDLASS_EXECUTION" >> paid; sleep 1', "effect": "once"},
        {"id": "c", "needs": ["b", "pay"], "run": "echo c"},
    ],
}


def moved(cluster: LocalCluster, open_: list[str], seen: int) -> int:
    """The position of the last event, once there are some after `seen`, or fewer open executions."""
    entries = cluster.read(lambda journal: journal.read(None, seen))
    placed = sum(isinstance(entry.event, ev.AttemptPlaced) for entry in entries)
    ended = sum(isinstance(entry.event, ev.ExecutionFinished | ev.ExecutionPaused) for entry in entries)
    return entries[-1].position if placed >= PLACED_BETWEEN or ended >= len(open_) else 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_d2_killed_and_frozen_workers_lose_nothing_and_repeat_nothing(cluster: LocalCluster) -> None:
    workers = [cluster.worker("--slots", "20") for _ in range(3)]
    for worker in workers:
        assert worker.name
    ids = [cluster.detach(PLAN) for _ in range(EXECUTIONS)]
    seen = 0
    chance, frozen = random.Random(1), list[tuple[float, WorkerProcess]]()
    while open_ := [one for one in ids if not cluster.events(one, ev.ExecutionPaused, ev.ExecutionFinished)]:
        killed = chance.choice(workers)
        killed.kill()
        workers.remove(killed)
        if not frozen and len(workers) > 1:
            workers[0].signal(signal.SIGSTOP)
            frozen.append((time.monotonic() + 20, workers.pop(0)))
        while len(workers) < 2:
            workers.append(cluster.worker("--slots", "20"))
            assert workers[-1].name
        if frozen and frozen[0][0] < time.monotonic():
            thawed = frozen.pop(0)[1]
            thawed.signal(signal.SIGCONT)
            workers.append(thawed)
        seen = wait_until(lambda seen=seen: moved(cluster, open_, seen), "something happens")
    paid = Counter((cluster.project / "paid").read_text().split())
    for id in ids:
        finished = Counter(event.step for event in cluster.events(id, ev.AttemptFinished))
        assert max(finished.values()) == 1, finished
        starts = Counter(event.step for event in cluster.events(id, ev.AttemptStarted))
        assert starts["pay"] <= 1
        assert paid[id] <= 1
        ended = cluster.events(id, ev.ExecutionFinished)
        if not ended:  # it stands before a person, because the payment was cut off
            assert [event.reason for event in cluster.events(id, ev.StepWaiting)] == ["outcome"]


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
