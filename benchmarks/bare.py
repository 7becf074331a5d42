"""The unit of every ratio: bare SQLite, WAL, `synchronous=FULL`, one commit per row, on the same disk."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

__all__ = ["bare_rate"]


def bare_rate(folder: Path, commits: int = 500) -> float:
    """Commits per second, right now."""
    folder.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(folder / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, body TEXT)")
    body = "x" * 200
    began = time.perf_counter()
    for _ in range(commits):
        db.execute("BEGIN")
        db.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        db.execute("COMMIT")
    seconds = time.perf_counter() - began
    db.close()
    return commits / seconds
