"""`make cluster-demo`: PostgreSQL, Temporal and three workers on this machine; one is killed, and the plan ends.

Everything is real and of this machine alone; it leaves nothing behind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from cluster_world import LocalCluster
from postgres_server import PostgresServer
from temporal_server import TemporalServer

from windlass.core import events as ev

STEPS = 12
PLAN = {
    "name": "cluster-demo",
    "limits": {"parallel": 6},
    "steps": [
        {"id": "fetch", "foreach": list(range(1, STEPS + 1)), "run": "sleep 2; echo part {{ item | quote }}"},
        {"id": "report", "needs": ["fetch"], "run": "echo {{ steps.fetch.output | length }} parts"},
    ],
}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def show(cluster: LocalCluster) -> subprocess.Popen[str]:
    """Run the plan, and kill a worker that runs a step of it."""
    run = cluster.run(PLAN)
    id = cluster.newest
    placed = cluster.until(id, lambda events: len(events) > 2, ev.AttemptPlaced)
    name = placed[-1].worker
    running = [event.step for event in placed if event.worker == name]
    next(worker for worker in cluster.workers if worker.name == name).kill()
    say(f"killed {name} (SIGKILL) while it ran {', '.join(running)}")
    return run


def demo(folder: Path, postgres: str, temporal: str) -> int:
    cluster = LocalCluster(folder, postgres, temporal)
    try:
        names = [worker.name for worker in [cluster.worker() for _ in range(3)]]
        say(f"workers: {', '.join(names)}")
        run = show(cluster)
        printed, _ = run.communicate()
        id = cluster.newest
        print(printed)
        finished = Counter(event.step for event in cluster.events(id, ev.AttemptFinished))
        lost = [e for e in cluster.events(id, ev.AttemptStopped) if e.reason == "lost"]
        by = Counter(event.worker for event in cluster.events(id, ev.AttemptPlaced))
        say(f"attempts by worker: {', '.join(f'{name} {by[name]}' for name in names)}")
        say(f"lost with the killed worker and run elsewhere: {', '.join(event.step for event in lost) or 'none'}")
        say(f"steps that finished twice: {sum(count > 1 for count in finished.values())}")
        print(cluster.windlass("workers"))
        return run.returncode
    finally:
        cluster.close()


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="windlass-cluster-"))
    say("starting PostgreSQL and Temporal")
    database = PostgresServer()
    temporal = TemporalServer(folder)
    try:
        with database.database(empty=True) as address:
            return demo(folder, address, temporal.address)
    finally:
        temporal.close()
        database.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
