"""Ways to damage one execution of a home, past the engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from windlass.journal.rows import checksum

__all__ = ["DAMAGES", "damage"]

Change = Callable[[sqlite3.Connection, str, int], None]


def _body(db: sqlite3.Connection, key: int, seq: int) -> bytes:
    found: bytes = db.execute("SELECT body FROM events WHERE execution = ? AND seq = ?", (key, seq)).fetchone()[0]
    return found


def _write(db: sqlite3.Connection, name: str, key: int, seq: int, body: bytes, *, summed: bool) -> None:
    total = checksum(name, seq, body) if summed else None
    db.execute("UPDATE events SET body = ?, checksum = ? WHERE execution = ? AND seq = ?", (body, total, key, seq))


def plan_is_no_plan(db: sqlite3.Connection, name: str, key: int) -> None:
    _write(db, name, key, 1, _body(db, key, 1).replace(b'"steps"', b'"stepz"'), summed=True)


def created_is_cut(db: sqlite3.Connection, name: str, key: int) -> None:
    body = _body(db, key, 1)
    _write(db, name, key, 1, body[: len(body) // 2], summed=False)


def byte_changed(db: sqlite3.Connection, name: str, key: int) -> None:
    """Still JSON, still a known event: only the checksum can tell."""
    body = _body(db, key, 2)
    changed = body.replace(b'"at":1', b'"at":2', 1)
    assert changed != body
    db.execute("UPDATE events SET body = ? WHERE execution = ? AND seq = 2", (changed, key))


def event_of_another_version(db: sqlite3.Connection, name: str, key: int) -> None:
    _write(db, name, key, 2, b'{"type":"step.exploded","at":1}', summed=True)


def event_is_missing(db: sqlite3.Connection, name: str, key: int) -> None:
    db.execute("DELETE FROM events WHERE execution = ? AND seq = 2", (key,))


def event_is_no_bytes(db: sqlite3.Connection, name: str, key: int) -> None:
    db.execute("UPDATE events SET body = 7 WHERE execution = ? AND seq = 2", (key,))


def events_are_gone(db: sqlite3.Connection, name: str, key: int) -> None:
    db.execute("DELETE FROM events WHERE execution = ?", (key,))


def event_breaks_the_rules(db: sqlite3.Connection, name: str, key: int) -> None:
    _write(db, name, key, 3, b'{"type":"step.completed","at":1,"step":"no-such-step"}', summed=True)


DAMAGES: dict[str, tuple[Change, int]] = {
    # with the event that is named
    "a plan that is none": (plan_is_no_plan, 1),
    "the first event cut": (created_is_cut, 1),
    "a byte changed": (byte_changed, 2),
    "an event of another version": (event_of_another_version, 2),
    "an event missing": (event_is_missing, 2),
    "an event that is no bytes": (event_is_no_bytes, 2),
    "no events": (events_are_gone, 1),
    "an event that breaks the rules": (event_breaks_the_rules, 3),
}


def damage(home: Path, execution: str, kind: str) -> int:
    """Damage an execution; gives the event that is to be named."""
    change, seq = DAMAGES[kind]
    db = sqlite3.connect(home / "windlass.db", timeout=30)
    (key,) = db.execute("SELECT key FROM executions WHERE id = ?", (execution,)).fetchone()
    change(db, execution, key)
    db.commit()
    db.close()
    return seq
