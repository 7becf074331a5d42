"""The part of the engine's instructions that writes the history: the same work with it and without it, under valgrind.

    python -m benchmarks.history_share [KIND …]

Each kind runs four times: few and many executions, with the history and without. Records are added to the sums when
there are enough of them, so at the end of a run those that are left are added too: every record is counted whole.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import windlass
from benchmarks.instructions import count_instructions, leave_out_the_clock, valgrind
from benchmarks.ours import chain, increment
from windlass import Engine
from windlass.engine import commit_writer
from windlass.journal.append import sum_up_all
from windlass.journal.history import HISTORY_TRIGGERS
from windlass.journal.schema import open_database

__all__ = ["SHARES", "history_share"]

SHARES = {
    "short": (10, 32, 288, "executions of 10 steps"),
    "long": (200, 4, 36, "executions of 200 steps"),
}
"""Steps of an execution, executions of the two runs, and a description."""
AT_ONCE = 16


def history_share(kind: str) -> float:
    """Instructions for the history over those without it."""
    _steps, few, many, _text = SHARES[kind]
    kept, without = (
        [count_instructions("benchmarks.history_share", kind, "--count", str(count), *more) for count in (few, many)]
        for more in ([], ["--without"])
    )
    return (kept[1] - kept[0]) / (without[1] - without[0]) - 1


def _no_record(_state: Any) -> None: ...


def _keep_no_history(home: Path) -> None:
    commit_writer.record_of = _no_record  # type: ignore[attr-defined]
    db = open_database(home / "windlass.db")
    for trigger in HISTORY_TRIGGERS:
        db.execute(f"DROP TRIGGER {trigger.split()[2]}")
    db.close()


async def _run(engine: Engine, steps: int, count: int) -> None:
    plan = chain(steps)
    for begin in range(0, count, AT_ONCE):
        started = [await engine.start(plan) for _ in range(begin, min(begin + AT_ONCE, count))]
        for execution in started:
            state = await execution.wait()
            assert state.status == "completed", state.status


async def _measured(kind: str, count: int, home: Path, *, kept: bool) -> None:
    leave_out_the_clock()
    async with windlass.open(home):
        pass
    if not kept:
        _keep_no_history(home)
    async with windlass.open(home, tools=[increment]) as engine:
        await _run(engine, SHARES[kind][0], count)
    db = open_database(home / "windlass.db")
    (records,) = db.execute("SELECT count(*) FROM history_records").fetchone()
    assert records == (count if kept else 0), records
    sum_up_all(db)
    db.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history_share")
    parser.add_argument("kinds", nargs="*", choices=[[], *SHARES], metavar="KIND", help=", ".join(SHARES))
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--without", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.count:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measured(given.kinds[0], given.count, Path(folder) / "home", kept=not given.without))
        return 0
    if valgrind() is None:
        print("valgrind is missing: apt-get install valgrind")
        return 1
    for kind in given.kinds or SHARES:
        print(f"writing the history, {SHARES[kind][3]}: {history_share(kind):.1%} of the instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
