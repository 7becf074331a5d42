"""The index of open questions in the journal's file: written with the events, and made from them where it is missing.

A row names the event that asks; the question itself is in that event. So a page of questions costs its own rows,
however many executions there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from windlass.core.events import ApprovalAsked, Event, decode
from windlass.core.questions import OpenQuestion, QuestionChanges, open_questions
from windlass.errors import Damaged, WindlassError
from windlass.journal.database import SqlConnection, has_table, transaction
from windlass.journal.rows import decode_row
from windlass.ports import AskedQuestion

__all__ = ["ensure_index", "find_questions", "forget_questions", "update_index"]

_TABLES = (
    "CREATE TABLE questions (position INTEGER PRIMARY KEY AUTOINCREMENT, execution INTEGER NOT NULL, "
    "step TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL, workdir TEXT NOT NULL)",
    "CREATE UNIQUE INDEX questions_by_step ON questions (execution, step)",
    "CREATE INDEX questions_by_id ON questions (id)",
    "CREATE INDEX questions_by_digest ON questions (digest)",
)
_ROWS = (
    "SELECT q.position, x.id, x.name, q.step, q.seq, q.id, q.digest, q.workdir, e.body, e.checksum "
    "FROM questions q "
    "JOIN executions x ON x.key = q.execution JOIN events e ON e.execution = q.execution AND e.seq = q.seq "
)
_INSERT = "INSERT INTO questions (execution, step, seq, id, digest, workdir) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM questions WHERE execution = ? AND step = ?"


def ensure_index(db: sqlite3.Connection) -> None:
    """Make the index in a file that has none, and fill it from the events of unfinished executions."""
    if has_table(db, "questions"):
        return
    with transaction(db):
        if not has_table(db, "questions"):  # another process may have been faster
            for statement in _TABLES:
                db.execute(statement)
            _fill(db)


def update_index(db: SqlConnection, key: int, changes: QuestionChanges) -> None:
    """In the transaction of the events that changed it. A step has one open question at a time."""
    gone = [*changes.closed, *(question.step for question in changes.opened)]
    db.executemany(_DELETE, [(key, step) for step in gone])
    db.executemany(_INSERT, [(key, *question) for question in changes.opened])


def forget_questions(db: SqlConnection, key: int) -> None:
    db.execute("DELETE FROM questions WHERE execution = ?", (key,))


def find_questions(db: SqlConnection, named: str, before: int, limit: int) -> list[AskedQuestion]:
    """The newest first; with `named`, those of that id or digest alone."""
    conditions, parameters = list[str](), list[str | int]()
    if named:
        conditions.append(
            "q.position IN (SELECT position FROM questions WHERE id = ? UNION ALL "
            "SELECT position FROM questions WHERE digest = ?)"
        )
        parameters += [named, named]
    if before:
        conditions.append("q.position < ?")
        parameters.append(before)
    sql = _ROWS + (f"WHERE {' AND '.join(conditions)} " if conditions else "") + "ORDER BY q.position DESC"
    if limit:
        sql += " LIMIT ?"
        parameters.append(limit)
    return [_asked(*row) for row in db.execute(sql, parameters)]


def _asked(
    position: int,
    execution: str,
    plan: str,
    step: str,
    seq: int,
    id: str,
    digest: str,
    workdir: str,
    body: Any,
    checksum: Any,
) -> AskedQuestion:
    asked: Event | None = None
    with suppress(Damaged):  # it is for whoever shows it to say so; it harms no other question
        asked = decode_row(execution, seq, body, checksum)
    question = OpenQuestion(step, seq, id, digest, workdir)
    return AskedQuestion(position, execution, plan, question, asked if isinstance(asked, ApprovalAsked) else None)


def _fill(db: SqlConnection) -> None:
    unfinished = db.execute("SELECT key FROM executions WHERE status IN ('pending', 'running', 'paused') ORDER BY id")
    for (key,) in unfinished.fetchall():
        bodies = db.execute("SELECT body FROM events WHERE execution = ? ORDER BY seq", (key,)).fetchall()
        questions = _questions_in([body for (body,) in bodies])
        db.executemany(_INSERT, [(key, *question) for question in questions])


def _questions_in(bodies: Sequence[bytes]) -> list[OpenQuestion]:
    from windlass.core.state import fold  # only homes of an older version get here

    try:
        return list(open_questions(fold(map(decode, bodies))).values())
    except (msgspec.DecodeError, WindlassError, ValueError, KeyError, StopIteration):
        return []  # a damaged execution is named by whoever reads it, and harms no other
