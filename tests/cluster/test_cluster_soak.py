"""The long form: many executions while workers are killed, servers restart and the network is cut (D2, D6, J2).

`WINDLASS_SOAK_EXECUTIONS` and `WINDLASS_SOAK_SECONDS` set how many are begun, and for how long.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_world import LocalCluster, WorkerProcess
from cut_proxy import CutProxy
from postgres_server import PostgresServer
from temporal_server import TemporalServer
from waiting import wait_until, wait_until_async

import windlass
from windlass import Plan
from windlass.core import events as ev
from windlass.errors import JournalError, WindlassError
from windlass.ids import new_id
from windlass.ports import Journal

SECONDS = float(os.environ.get("WINDLASS_SOAK_SECONDS", "3600"))
"""After this time nothing new is begun; the report says how many there were."""
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
SHORT: dict[str, Any] = {
    "name": "short",
    "steps": [
        {"id": "a", "run": "true"},
        {"id": "pay", "needs": ["a"], "run": 'echo "$WINDLASS_EXECUTION" >> paid', "effect": "once"},
    ],
}


def many(most: int) -> int:
    """Executions to begin."""
    return int(os.environ.get("WINDLASS_SOAK_EXECUTIONS", most))


async def begin_all(cluster: LocalCluster, plan: dict[str, Any], count: int, most_open: int) -> list[str]:
    """Begin so many, as others end: all of the time some of them are at each of their steps."""
    settings: dict[str, Any] = {"journal": cluster.journal, "temporal": cluster.temporal}
    made, ids, end = Plan.model_validate(plan), list[str](), time.monotonic() + SECONDS
    (cluster.folder / "person").mkdir(exist_ok=True)
    async with windlass.open(cluster.folder / "person", **settings) as engine:

        async def room() -> bool:
            try:
                return await open_executions(engine.journal) < most_open
            except JournalError:
                return False

        while len(ids) < count and time.monotonic() < end:
            if len(ids) % 10 == 0:
                await wait_until_async(room, "room for more", SECONDS + 3600)
            ids.append(new_id())
            while True:
                try:
                    await engine.start(made, workdir=cluster.project, hold=False, id=ids[-1])
                    break
                except (
                    WindlassError
                ) as error:  # a server is away, or no worker is there: begun or not, it is the same id
                    print(f"begun again: {error.message}")
                    await wait_until_async(room, "the journal", 3600)
    return ids


async def open_executions(journal: Journal) -> int:
    return len(await journal.heads(statuses=["pending", "running"]))


async def events_of_all(journal: Journal, ids: list[str]) -> dict[str, list[ev.Event]]:
    return {id: [entry.event for entry in await journal.read(id)] for id in ids}


def check_all(cluster: LocalCluster, ids: list[str], steps: int) -> int:
    """See that nothing is lost, repeated or wrong; gives the number of those that were put to a person."""
    paid = Counter((cluster.project / "paid").read_text().split())
    asked = 0
    for id, events in cluster.read(lambda journal: events_of_all(journal, ids)).items():
        finished = Counter(event.step for event in events if isinstance(event, ev.AttemptFinished))
        assert not finished or max(finished.values()) == 1, (id, finished)
        assert sum(isinstance(event, ev.AttemptStarted) and event.step == "pay" for event in events) <= 1, id
        assert paid[id] <= 1, id
        ends = [event for event in events if isinstance(event, ev.ExecutionFinished)]
        if ends:
            assert (len(ends), ends[0].status, len(finished), paid[id]) == (1, "completed", steps, 1), id
        else:  # it stands before a person, because the payment was cut off
            assert [event.reason for event in events if isinstance(event, ev.StepWaiting)] == ["outcome"], id
            asked += 1
    assert set(paid) <= set(ids)
    return asked


class WarmWorkers:
    """Workers that have loaded everything, and begin when they are needed: so one can be killed every few seconds."""

    def __init__(self, cluster: LocalCluster, count: int) -> None:
        self._cluster = cluster
        self._spare = [self._load() for _ in range(count)]

    def _load(self) -> WorkerProcess:
        return self._cluster.worker("--slots", "20", warm=True)

    def next(self) -> WorkerProcess:
        self._spare.append(self._load())
        begun = self._spare.pop(0)
        begun.go()
        return begun

    def close(self) -> None:
        for one in self._spare:
            one.kill()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_d2_killed_and_frozen_workers_lose_nothing_and_repeat_nothing(cluster: LocalCluster) -> None:
    """A worker is killed every few seconds, and another one stands still for a minute, again and again."""
    warm = WarmWorkers(cluster, 5)
    workers = [warm.next() for _ in range(3)]
    assert all([worker.name for worker in workers])
    starter = ThreadPoolExecutor(1)
    begun = starter.submit(asyncio.run, begin_all(cluster, PLAN, many(1000), most_open=60))
    chance, kills, thaws, began = random.Random(1), 0, 0, time.monotonic()
    frozen: WorkerProcess | None = None
    due, thaw_at = began, 0.0
    while not begun.done() or cluster.read(open_executions):
        due = max(due, time.monotonic() - BETWEEN) + BETWEEN
        # One that is not ready yet is none; and one has to go on, so that there is work to be cut off.
        wait_until(lambda: sum(worker.is_ready for worker in workers) > 1, "two workers", 3600)
        killed = chance.choice([worker for worker in workers if worker.is_ready])
        workers.remove(killed)
        killed.kill()
        kills += 1
        ready = [worker for worker in workers if worker.is_ready]
        if frozen is None and len(ready) > 1:
            frozen, thaw_at = ready[0], time.monotonic() + FROZEN
            workers.remove(frozen)
            frozen.signal(signal.SIGSTOP)
        elif frozen is not None and time.monotonic() > thaw_at:
            frozen.signal(signal.SIGCONT)
            workers.append(frozen)
            frozen, thaws = None, thaws + 1
        while len(workers) < 3:
            workers.append(warm.next())
        wait_until(lambda due=due: time.monotonic() >= due, "the next kill")
    took = time.monotonic() - began
    warm.close()
    if frozen is not None:  # what it still wants to write comes late, and is refused
        frozen.signal(signal.SIGCONT)
        workers.append(frozen)
    assert all([worker.name for worker in workers])
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.process.wait() for worker in workers] == [0] * len(workers)
    ids = begun.result()
    asked = check_all(cluster, ids, 4)
    frozen_times = thaws + (frozen is not None)
    print(f"{len(ids)} executions in {took:.0f} s, {kills} workers killed, {frozen_times} frozen, {asked} to a person")


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_d6_short_executions_survive_restarts_and_a_cut_network(
    tmp_path: Path, postgres: str, postgres_server: PostgresServer, temporal_server: TemporalServer
) -> None:
    """PostgreSQL restarts every few seconds, now and then as after a crash; Temporal, too; and the network is cut."""
    sockets = Path(tempfile.mkdtemp(prefix="windlass-cut-"))
    real, port = str(postgres_server.folder / ".s.PGSQL.5432"), int(temporal_server.address.partition(":")[2])
    databases = CutProxy(lambda: asyncio.open_unix_connection(real), sockets / ".s.PGSQL.5432")
    temporals = CutProxy(lambda: asyncio.open_connection("127.0.0.1", port))
    cut = postgres.replace(str(postgres_server.folder), str(sockets))
    cluster = LocalCluster(tmp_path, cut, f"127.0.0.1:{temporals.port}")
    workers = [cluster.worker("--slots", "20") for _ in range(3)]
    assert all([worker.name for worker in workers])
    starter = ThreadPoolExecutor(1)
    begun = starter.submit(asyncio.run, begin_all(cluster, SHORT, many(5000), most_open=100))
    cluster.journal = postgres  # the test itself looks at it past the cut
    chance, counts, began = random.Random(2), Counter[str](), time.monotonic()
    while not begun.done() or cluster.read(open_executions):
        due = time.monotonic() + chance.uniform(3, 6)
        wait_until(lambda due=due: time.monotonic() >= due, "the next trouble")
        trouble = chance.choices(["postgresql", "postgresql crash", "temporal", "network"], [5, 2, 1, 3])[0]
        counts[trouble] += 1
        match trouble:
            case "postgresql":
                postgres_server.restart()
            case "postgresql crash":
                postgres_server.restart("immediate")
            case "temporal":
                temporal_server.stop()
                temporal_server.start()
            case _:
                lines = chance.sample([databases, temporals], chance.choice((1, 2)))
                for line in lines:
                    line.cut()
                back = time.monotonic() + chance.uniform(1, 8)
                wait_until(lambda back=back: time.monotonic() >= back, "the network")
                for line in lines:
                    line.mend(drop=chance.random() < 0.5)
    took = time.monotonic() - began
    for worker in workers:
        worker.signal(signal.SIGTERM)
    codes = [worker.process.wait() for worker in workers]
    for proxy in (databases, temporals):
        proxy.close()
    shutil.rmtree(sockets)
    ids = begun.result()
    asked = check_all(cluster, ids, 2)
    print(f"{len(ids)} executions in {took:.0f} s, {dict(counts)}, {asked} to a person")
    assert codes == [0, 0, 0]


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
