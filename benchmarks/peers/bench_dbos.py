"""DBOS with SQLite as its system database: `python bench_dbos.py --scenario sequential --dir DIR`.

With `--database ADDRESS`, on that PostgreSQL database, which must be empty.

Threads that call the workflow, for both scenarios: coroutines were tried and took 1.1 to 1.6 times as long,
`DBOS.start_workflow` with `get_result`, which polls, 1.1 to 1.8 times. The pool of connections stays as DBOS
sets it: sizes 1, 2, 5 and 50 made no difference beyond the noise.
"""

import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script: our package is not found

import psycopg
from dbos import DBOS, DBOSConfig  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers.measure import Measurement, Scenario, expect, main, timed


class FullySynced(sqlite3.Connection):
    """DBOS sets neither pragma, but hands `connect_args` through to sqlite3; WAL is the faster for it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=FULL")
        expect("SQLite's synchronous", self.execute("PRAGMA synchronous").fetchone()[0], 2)


def add(total: int) -> int:
    return total + 1


def sum_up(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = step(total)
    return total


# Called, not written as decorators: without DBOS installed, type checkers refuse an untyped decorator.
step = DBOS.step()(add)
workflow = DBOS.workflow()(sum_up)


def run(scenario: Scenario, address: str, engine: dict[str, Any]) -> float:
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": address,
        "db_engine_kwargs": engine,
        "enable_otlp": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    try:
        return timed(lambda _, steps: workflow(steps), scenario)
    finally:
        DBOS.destroy()


def measure(scenario: Scenario, folder: Path) -> Measurement:
    database = folder / "dbos.db"
    seconds = run(scenario, f"sqlite:///{database}", {"connect_args": {"factory": FullySynced}})
    with closing(sqlite3.connect(database)) as connection:
        expect("SQLite's journal_mode", connection.execute("PRAGMA journal_mode").fetchone()[0], "wal")
        recorded = connection.execute("SELECT count(*) FROM operation_outputs").fetchone()[0]
    expect("steps recorded in all rounds", recorded, scenario.steps_of_all_rounds)
    return Measurement(seconds, "system database SQLite, journal_mode=WAL synchronous=FULL")


def measure_on(scenario: Scenario, address: str) -> Measurement:
    seconds = run(scenario, address.replace("postgresql:", "postgresql+psycopg:", 1), {})
    with psycopg.connect(address) as session:
        for setting in ("fsync", "synchronous_commit"):
            row = session.execute(f"SHOW {setting}".encode()).fetchone()
            expect(f"PostgreSQL's {setting}", row and row[0], "on")
        counted = session.execute("SELECT count(*) FROM dbos.operation_outputs").fetchone()
    expect("steps recorded in all rounds", counted and counted[0], scenario.steps_of_all_rounds)
    return Measurement(seconds, "system database PostgreSQL, fsync=on synchronous_commit=on")


if __name__ == "__main__":
    main("dbos", version("dbos"), measure, measure_on)
