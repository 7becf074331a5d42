"""A cluster on this machine, for tests, the demo and the benchmarks: worker processes on a database and Temporal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from waiting import wait_until

from windlass.core import events as ev
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres import PostgresJournal
from windlass.ports import Journal

__all__ = ["LocalCluster", "WorkerProcess"]

T = TypeVar("T")
WARM = """
import sys, temporalio.worker, psycopg, windlass.assembly, windlass.temporal.worker, windlass.cli.worker
from windlass.cli.entry import main
sys.stdin.readline()
main()
"""


class WorkerProcess:
    """`windlass worker` with a home of its own, as another machine has it."""

    def __init__(self, folder: Path, env: dict[str, str], *words: str, warm: bool = False) -> None:
        """A `warm` one loads everything, and waits for `go`."""
        folder.mkdir()
        self._log = folder / "log"
        with self._log.open("wb") as log:
            begun = ["-c", WARM] if warm else ["-m", "windlass"]
            argv = [sys.executable, *begun, "worker", "--home", str(folder / "home"), *words]
            how: dict[str, Any] = {
                "stdin": subprocess.PIPE if warm else subprocess.DEVNULL,
                "stdout": log,
                "stderr": log,
            }
            self.process = subprocess.Popen(argv, env=env, cwd=folder, **how)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.close()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def is_ready(self) -> bool:
        return "is ready" in self.log

    @property
    def name(self) -> str:
        """Its name, once it is ready."""
        wait_until(lambda: self.is_ready or self.process.poll() is not None, "the worker is ready")
        assert self.process.poll() is None, self.log
        return next(line.split()[1] for line in self.log.splitlines() if line.startswith("worker "))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class LocalCluster:
    def __init__(self, folder: Path, journal: str, temporal: str) -> None:
        self.folder, self.journal, self.temporal = folder, journal, temporal
        self.project = folder / "project"
        for made in (self.project, folder / "user"):
            made.mkdir()
        self.workers: list[WorkerProcess] = []
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder / "user"),
            "XDG_CONFIG_HOME": str(folder / "user" / ".config"),
            "LANG": "C.UTF-8",
            "WINDLASS_JOURNAL": journal,
            "WINDLASS_TEMPORAL": temporal,
        }

    def worker(self, *words: str, warm: bool = False) -> WorkerProcess:
        """Start a worker. Ask for its `name` to wait until it is ready."""
        made = WorkerProcess(self.folder / f"worker{len(self.workers)}", self.env, *words, warm=warm)
        self.workers.append(made)
        return made

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a `windlass` command."""
        argv = [sys.executable, "-m", "windlass", *words]
        return subprocess.Popen(
            argv,
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def windlass(self, *words: str, code: int = 0) -> str:
        """Its output, once it has ended with this code."""
        process = self.begin(*words)
        said, _ = process.communicate()
        assert process.returncode == code, said
        return said

    def detach(self, plan: dict[str, Any]) -> str:
        """The id of an execution that was started and goes on."""
        (self.project / "plan.json").write_text(json.dumps(plan))
        argv = [sys.executable, "-m", "windlass", "run", "plan.json", "--detach"]
        done = subprocess.run(argv, env=self.env, cwd=self.project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run(self, plan: dict[str, Any]) -> subprocess.Popen[str]:
        """`windlass run` of a plan."""
        (self.project / "plan.json").write_text(json.dumps(plan))
        return self.begin("run", "plan.json")

    def read(self, work: Callable[[Journal], Awaitable[T]]) -> T:
        """Look into the journal."""

        async def look() -> T:
            journal = PostgresJournal(PostgresUrl(self.journal), self.folder / "reader")
            try:
                return await work(journal)
            finally:
                await journal.close()

        return asyncio.run(look())

    @property
    def newest(self) -> str:
        """The id of the newest execution, once there is one."""

        async def heads(journal: Journal) -> list[str]:
            return [head.id for head in await journal.heads(limit=1)]

        return wait_until(lambda: self.read(heads), "an execution")[0]

    def events(self, execution: str, *kinds: type) -> list[Any]:
        async def entries(journal: Journal) -> list[ev.Event]:
            return [entry.event for entry in await journal.read(execution)]

        return [event for event in self.read(entries) if isinstance(event, kinds)]

    def until(self, execution: str, holds: Callable[[list[Any]], Any], *kinds: type) -> list[Any]:
        """Wait until the events of these kinds are as they should be."""
        return wait_until(lambda: found if holds(found := self.events(execution, *kinds)) else [], "these events")

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
