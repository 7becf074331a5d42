"""A disk whose fsync takes 10 ms, simulated: how long does the event loop stand still?

The journal's connection is wrapped so that every COMMIT takes 10 ms longer. Fifty executions run on it while a
ticker measures how late the loop gets to it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import windlass
from benchmarks.ours import chain, increment

__all__ = ["SLOW", "SlowCommits", "slow_disk"]

SLOW = 0.010


class SlowCommits:
    """A connection on a slow disk."""

    def __init__(self, db: sqlite3.Connection, seconds: float) -> None:
        self._db = db
        self._seconds = seconds

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            time.sleep(self._seconds)
        return self._db.execute(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def slow_disk(folder: Path) -> dict[str, float]:
    """The loop's lateness in ms (median, 99th percentile, worst), and steps per 10 ms commit."""

    async def run() -> dict[str, float]:
        lateness: list[float] = []
        async with windlass.open(folder / "home", tools=[increment]) as engine:
            journal: Any = engine.journal
            journal._writer._connection = SlowCommits(journal._writer.open(), SLOW)
            ticker = asyncio.ensure_future(_tick(lateness))
            began = time.perf_counter()
            runs = [await engine.start(chain(10)) for _ in range(50)]
            for execution in runs:
                await execution.wait()
            seconds = time.perf_counter() - began
            ticker.cancel()
        lateness.sort()
        return {
            "median_ms": 1000 * lateness[len(lateness) // 2],
            "p99_ms": 1000 * lateness[int(len(lateness) * 0.99)],
            "worst_ms": 1000 * lateness[-1],
            "steps_per_commit_time": 500 / (seconds / SLOW),
        }

    return asyncio.run(run())


async def _tick(lateness: list[float]) -> None:
    while True:
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        lateness.append(time.perf_counter() - asked - 0.001)
