"""A slow disk holds up only those who wait for it (D2): commits move from the loop to a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

from waiting import PATIENCE

import windlass
from windlass import Plan, tool
from windlass.journal.database import DISTRUST_FOR, LONG, SHORT, TRUST_AFTER, Pace


class StuckCommits:
    """A cursor on a disk that does not answer until it is let go."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        self.stuck = threading.Event()
        self.free = threading.Event()

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.stuck.set()
            assert self.free.wait(PATIENCE)
        return self._cursor.execute(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


async def test_a_commit_that_hangs_does_not_stop_another_executions_step(tmp_path: Path) -> None:
    turns = 0
    goes_on = asyncio.Event()

    @tool
    async def counting() -> int:
        nonlocal turns
        while not goes_on.is_set():
            await asyncio.sleep(0)
            turns += 1
        return turns

    @tool
    async def nothing() -> None:
        """A step of the execution whose commit hangs."""

    async with windlass.open(tmp_path / "home", tools=[counting, nothing]) as engine:
        first = await engine.start(Plan.model_validate({"name": "a", "steps": [{"id": "s", "tool": "counting"}]}))
        journal: Any = engine.journal
        disk = journal._writer.cursor = StuckCommits(journal._writer.cursor)
        plan = Plan.model_validate({"name": "b", "steps": [{"id": "s", "tool": "nothing"}]})
        second = asyncio.ensure_future(engine.start(plan))
        assert await asyncio.to_thread(disk.stuck.wait, PATIENCE)
        before = turns
        for _ in range(1000):
            await asyncio.sleep(0)
        assert turns >= before + 999
        assert not second.done(), "nothing is acknowledged before it is on disk"
        disk.free.set()
        goes_on.set()
        assert (await (await second).wait()).status == "completed"
        assert (await first.wait()).status == "completed"


def test_the_loop_is_trusted_with_commits_only_after_short_ones_in_a_row() -> None:
    pace = Pace()
    for _ in range(TRUST_AFTER):
        assert not pace.fast
        pace.took(SHORT / 2)
    assert pace.fast


def test_one_long_commit_sends_the_next_ones_to_the_thread() -> None:
    pace = Pace()
    for _ in range(TRUST_AFTER):
        pace.took(SHORT / 2)
    pace.took(LONG)
    for _ in range(DISTRUST_FOR):
        assert not pace.fast
        pace.took(SHORT / 2)
    assert pace.fast
