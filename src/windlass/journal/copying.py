"""Copy a journal into another one, whatever databases they are in: executions, what they spent, their forecasts.

An execution's events go in with one append, after everything else of it: a copy that was cut off is made whole by the
next one. An execution that is in the target already is compared, and the target is never changed by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from windlass.core.events import Event, encode
from windlass.core.questions import QuestionChanges, open_questions
from windlass.errors import Conflict, UsageError, WindlassError
from windlass.journal.database import SqlConnection, SqlStore, has_table
from windlass.ports import Head, Journal

__all__ = ["JournalCopy", "copy_journal"]

_BESIDE = {
    "charges": "execution, step, attempt, began, ended, runtime, model, role, reserved_usd, reserved_tokens, settled, "
    "usd, tokens_in, tokens_out, cache_read, cache_write, source, counts_usd, counts_tokens, used_usd, used_tokens",
    "forecasts": "execution, plan, mark, forecast, outcome, took, usd",
}
"""Tables with rows of executions that are no events, and the columns that are copied."""


class JournalCopy(NamedTuple):
    """The outcome of a copy."""

    copied: int
    """Executions that were not in the target."""
    present: int
    """Executions that were there already, event by event the same."""
    events: int
    """Events of all of them."""
    digest: str
    """SHA-256 of their events, the same in both journals."""


async def copy_journal(
    source: Journal,
    source_store: SqlStore,
    target: Journal,
    target_store: SqlStore,
    progress: Callable[[str], None] = lambda _id: None,
) -> JournalCopy:
    """Copy all executions. Raises, and stops, at one that differs in the target; those before it are copied."""
    heads = (await source.heads())[::-1]  # in the order in which they were created, so that lists stay as they are
    running = [head.id for head in heads if head.status == "running" and source.alive(head.driver)]
    if running:
        raise UsageError(
            f"{len(running)} executions are running, {running[0]} for one",
            advice=(f"pause them first: windlass pause {running[0]}",),
        )
    here, there = hashlib.sha256(), hashlib.sha256()
    copied = count = 0
    for head in heads:
        events = [entry.event for entry in await source.read(head.id)]
        found = [entry.event for entry in await target.read(head.id)]
        if not found:
            for table, columns in _BESIDE.items():
                await _copy_rows(table, columns, head.id, source_store, target_store)
            opened = tuple(_questions(head, events))
            await target.append(head.id, 0, events, head=head, questions=QuestionChanges(opened) if opened else None)
            found = [entry.event for entry in await target.read(head.id)]
            copied += 1
            progress(head.id)
        if list(map(encode, events)) != list(map(encode, found)):
            raise Conflict(f"execution {head.id} is another one in the target; nothing of it was changed")
        _add(here, head.id, events)
        _add(there, head.id, found)
        count += len(events)
    if here.hexdigest() != there.hexdigest():
        raise Conflict("the copy differs from its source; the source is unchanged")
    return JournalCopy(copied, len(heads) - copied, count, here.hexdigest())


def _questions(head: Head, events: Sequence[Event]) -> list[Any]:
    """The open questions of an unfinished execution."""
    from windlass.core.state import fold

    if head.status not in ("pending", "running", "paused"):
        return []
    try:
        return list(open_questions(fold(events)).values())
    except (WindlassError, ValueError, KeyError, StopIteration):
        return []  # it cannot be read, and says so where it is used


def _add(digest: Any, execution: str, events: Sequence[Event]) -> None:
    for seq, event in enumerate(events, 1):
        digest.update(f"{execution} {seq} ".encode() + encode(event) + b"\n")


async def _copy_rows(table: str, columns: str, execution: str, source: SqlStore, target: SqlStore) -> None:
    """Copy rows of an execution, unless the target has some."""

    def fetch(db: SqlConnection) -> list[Any]:
        if not has_table(db, table):
            return []
        return db.execute(f"SELECT {columns} FROM {table} WHERE execution = ?", (execution,)).fetchall()

    rows = await source.reading(fetch)
    if not rows:
        return
    marks = ", ".join("?" * len(columns.split(",")))

    def write(db: SqlConnection) -> None:
        if db.execute(f"SELECT 1 FROM {table} WHERE execution = ? LIMIT 1", (execution,)).fetchone() is None:
            db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)

    await target.writing(write)
