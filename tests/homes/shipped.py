"""A home as somebody else would ship it: its journal has an execution that goes on by itself where it is believed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.ids import new_id
from windlass.journal.sqlite import SqliteJournal
from windlass.plan.model import Plan

TRACE = "RAN"
"""The file that its step makes."""


def ship_home(home: Path, workdir: Path, *, reason: str = "restart", expired: bool = False) -> str:
    """Write the journal. With `expired`, the pause is over and the execution is to be resumed. Gives its id."""
    home.mkdir(parents=True, exist_ok=True)
    plan = Plan.model_validate({"name": "shipped", "steps": [{"id": "a", "run": f"touch {TRACE}"}]})
    created = ev.ExecutionCreated(1.0, id=new_id(), plan=msgspec.Raw(plan.encoded), inputs={}, workdir=str(workdir))
    paused = ev.ExecutionPaused(3.0, reason, 4.0 if expired else None, "resume" if expired else "cancel")
    history: list[ev.Event] = [created, ev.ExecutionStarted(2.0, "1-dead"), paused]

    async def write() -> None:
        journal = SqliteJournal(home / "windlass.db")
        await journal.append(created.id, 0, history, head=head_of(fold(history)))
        await journal.close()

    asyncio.run(write())
    return created.id
