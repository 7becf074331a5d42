"""How long questions to the history take in a home with many executions, and what building it anew takes.

    python -m benchmarks.history [EXECUTIONS] [--home DIR]

The home is filled past the engine: real events of 20 plans with 8 steps over half a year, 21 an execution, with the
records that the engine writes with them. Each question is then asked by a process of its own, which has to open
everything first, and once more by the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.core import events as ev
from windlass.core.history import record_of
from windlass.core.rollup import FIELDS
from windlass.core.state import fold
from windlass.errors import Category, Failure
from windlass.ids import new_id
from windlass.journal.history import is_recorded, write_record
from windlass.journal.history_sums import sum_up
from windlass.journal.rows import checksum
from windlass.journal.schema import open_database
from windlass.plan.model import Plan

__all__ = ["EXECUTIONS", "QUESTIONS", "AnswerTime", "answer_times", "fill_history"]

EXECUTIONS = 100_000
PLANS, STEPS, DAYS = 20, 8, 180
QUESTIONS: dict[str, dict[str, Any]] = {
    **{f"--by {field}": {"by": field} for field in FIELDS},
    "--by step --since 30d": {"by": "step", "since": "30d"},
    "--by model --since 100d": {"by": "model", "since": "100d"},
    "--failed": {"by": "category", "failed": True},
    "--slow": {"slow": True},
}


class AnswerTime(NamedTuple):
    """Seconds for one question: in a new process without its start, and again in the same one."""

    question: str
    first: float
    again: float


def plans() -> list[Plan]:
    made = []
    for number in range(PLANS):
        steps: list[dict[str, Any]] = []
        for step in range(STEPS):
            kind = {"prompt": "go"} if step % 4 == 3 else {"tool": ("shell", "http", "files")[step % 3], "with": {}}
            steps.append({"id": f"step{step}", **kind, "needs": [f"step{step - 1}"] if step else []})
        made.append(Plan.model_validate({"name": f"plan-{number}", "steps": steps}))
    return made


def _events(plan: Plan, name: str, at: float, chance: random.Random) -> Iterator[ev.Event]:
    yield ev.ExecutionCreated(at, id=name, plan=msgspec.Raw(plan.encoded), inputs={}, workdir="/")
    yield ev.ExecutionStarted(at, "bench")
    broken = chance.random() < 0.05
    for step in plan.steps:
        yield ev.AttemptStarted(at, step.id, 1, step.tool_name, {"x": 1}, "repeatable")
        at += chance.lognormvariate(1.0, 1.0)
        if step.is_agent:
            usage = ev.Usage(chance.randrange(50_000), 900, usd=chance.random(), source="prices", model="model-a")
            yield ev.AgentBegan(at, step.id, 1, "cli", "coder", "system", "prompt", "model-a")
            yield ev.UsageReported(at, step.id, 1, usage, "cli", "coder")
        if broken and step is plan.steps[-1]:
            failure = Failure(Category.LOGIC, "it failed", step.id)
            yield ev.AttemptFailed(at, step.id, 1, failure)
            yield ev.StepFailed(at, step.id, failure)
            yield ev.ExecutionFinished(at, "failed", failure)
            return
        yield ev.AttemptFinished(at, step.id, 1, "ok")
    yield ev.ExecutionFinished(at, "completed")


def fill_history(file: Path, count: int) -> int:
    """Write executions with their events and records; returns the number of events."""
    chance, made, now = random.Random(14), plans(), time.time()
    db = open_database(file)
    total = 0
    for first in range(0, count, 1000):
        db.execute("BEGIN")
        rows: list[tuple[int, int, bytes, int]] = []
        for number in range(first, min(count, first + 1000)):
            plan, name = made[chance.randrange(PLANS)], new_id()
            at = now - DAYS * 86400 * (1 - number / count)
            events = list(_events(plan, name, at, chance))
            state = fold(events, plan)
            head = (name, plan.name, state.status.value, at, state.updated_at)
            sql = "INSERT INTO executions (id, name, status, created_at, updated_at, driver, detail) VALUES "
            key = db.execute(f"{sql} (?, ?, ?, ?, ?, '', '')", head).lastrowid or 0
            for seq, event in enumerate(events, 1):
                body = ev.encode(event)
                rows.append((key, seq, body, checksum(name, seq, body)))
            write_record(db, key, record_of(state))
            is_recorded(db, key)
        db.executemany("INSERT INTO events (execution, seq, body, checksum) VALUES (?, ?, ?, ?)", rows)
        total += len(rows)
        sum_up(db, 1000)
        db.execute("COMMIT")
    db.close()
    return total


_ASK = """
import asyncio, json, sys, time
from pathlib import Path
began = time.perf_counter()
from windlass.clock import SystemClock
from windlass.engine.history_page import PastRuns
from windlass.journal.sqlite import SqliteJournal

async def main():
    global began
    journal = SqliteJournal(Path(sys.argv[1]))
    began = time.perf_counter()
    times = []
    for _ in range(2):
        question = json.loads(sys.argv[2])
        slow = question.pop("slow", False)
        past = PastRuns(journal, SystemClock())
        page = await (past.slow_steps(**question) if slow else past.history(**question))
        json.dumps(page.as_dict())
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    await journal.close()
    print(json.dumps(times))

asyncio.run(main())
"""


def answer_times(file: Path) -> Iterator[AnswerTime]:
    for words, question in QUESTIONS.items():
        command = [sys.executable, "-c", _ASK, str(file), json.dumps(question)]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
        yield AnswerTime(words, *json.loads(asked.stdout.splitlines()[-1]))


async def _rebuild_rate(file: Path, count: int) -> float:
    """Executions a second that are built from their events."""
    from windlass.journal.sqlite import SqliteJournal

    with sqlite3.connect(file) as db:
        sql = "INSERT OR REPLACE INTO history_due SELECT key, NULL FROM executions ORDER BY key DESC LIMIT ?"
        db.execute(sql, (count,))
    journal = SqliteJournal(file)
    began = time.perf_counter()
    await journal.history.catch_up()
    took = time.perf_counter() - began
    await journal.close()
    return count / took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history")
    parser.add_argument("executions", nargs="?", type=int, default=EXECUTIONS)
    parser.add_argument("--home", type=Path, help="keep the home here, and use it again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        file = (given.home or Path(aside)) / "windlass.db"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            began = time.perf_counter()
            events = fill_history(file, given.executions)
            took = time.perf_counter() - began
            print(f"{given.executions:,} executions, {events:,} events, {file.stat().st_size:,} bytes: {took:.0f} s")
        for row in answer_times(file):
            print(f"{row.question:30} first {row.first * 1000:7.1f} ms   again {row.again * 1000:7.1f} ms")
        print(f"built from events: {asyncio.run(_rebuild_rate(file, 1000)):,.0f} executions a second")


if __name__ == "__main__":
    main()
