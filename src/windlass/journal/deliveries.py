"""Deliveries of webhooks in the journal's database, beside the firings that they become (L1).

A delivery is on disk before its sender gets an answer, and a turn of its trigger makes a firing of it. Its body is
dropped when its execution has it, or when it is decided that there is none; its id and digest stay as long as the
firing, so that the same delivery starts nothing twice. One that started nothing is forgotten when it comes again,
with the same body and event; only the body is signed, so another event or id makes nothing new of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.triggers import DELIVERY
from windlass.faults import fault_point
from windlass.journal.database import SqlConnection, SqlStore
from windlass.ports.deliveries import HookDelivery, HookRefusal

__all__ = ["DELIVERY_TABLES", "SqliteDeliveries", "drop_bodies", "drop_deliveries"]

DELIVERY_TABLES = (
    "CREATE TABLE IF NOT EXISTS schedule_deliveries (plan TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, "
    "at REAL NOT NULL, digest TEXT NOT NULL, event TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (plan, name, id))",
    "CREATE TABLE IF NOT EXISTS schedule_refusals (plan TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, "
    "at REAL NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (plan, name))",
)
_FIRING = (
    "SELECT 1 FROM schedule_firings f WHERE f.plan = schedule_deliveries.plan AND f.name = schedule_deliveries.name "
    f"AND f.key = '{DELIVERY} ' || schedule_deliveries.id"
)
_OF_TRIGGER = "plan = ? AND name = ?"


class SqliteDeliveries:
    def __init__(self, db: SqlStore) -> None:
        """`db` is that of the triggers, which make and remove the tables."""
        self._db = db

    async def receive(self, plan: str, trigger: str, delivery: HookDelivery) -> HookDelivery:
        def work(db: SqlConnection) -> HookDelivery:
            rows = _matching(db, plan, trigger, delivery)
            for row in rows:
                is_same = (row[2], row[3]) == (delivery.digest, delivery.event)
                if not (is_same and row[5]):
                    return _delivery(row, bytes(row[4]))
            for row in rows:
                _forget(db, plan, trigger, row[0])
            sql = (
                "INSERT INTO schedule_deliveries (plan, name, id, at, digest, event, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
            )
            db.execute(sql, (plan, trigger, *delivery))
            return delivery

        kept = await self._db.writing(work)
        fault_point("trigger.delivered")
        return kept

    async def undecided(self, plan: str, trigger: str, limit: int) -> list[HookDelivery]:
        sql = (
            f"SELECT id, at, digest, event FROM schedule_deliveries WHERE {_OF_TRIGGER} AND NOT EXISTS ({_FIRING}) "
            "ORDER BY at, id LIMIT ?"
        )
        rows = await self._db.reading(lambda db: db.execute(sql, (plan, trigger, limit)).fetchall())
        return [_delivery(row, b"") for row in rows]

    async def body(self, plan: str, trigger: str, delivery: str) -> bytes | None:
        sql = f"SELECT body FROM schedule_deliveries WHERE {_OF_TRIGGER} AND id = ?"
        row = await self._db.reading(lambda db: db.execute(sql, (plan, trigger, delivery)).fetchone())
        return bytes(row[0]) if row is not None and row[0] else None

    async def refuse(self, plan: str, trigger: str, refusal: HookRefusal) -> None:
        sql = (
            "INSERT INTO schedule_refusals (plan, name, number, at, reason) VALUES (?, ?, ?, ?, ?) ON CONFLICT "
            "(plan, name) DO UPDATE SET number = schedule_refusals.number + excluded.number, at = excluded.at, "
            "reason = excluded.reason"
        )
        await self._db.writing(lambda db: db.execute(sql, (plan, trigger, *refusal)))

    async def refusals(self, plan: str) -> dict[str, HookRefusal]:
        sql = "SELECT name, number, at, reason FROM schedule_refusals WHERE plan = ?"
        rows = await self._db.reading(lambda db: db.execute(sql, (plan,)).fetchall())
        return {name: HookRefusal(*rest) for name, *rest in rows}


def _matching(db: SqlConnection, plan: str, trigger: str, delivery: HookDelivery) -> list[Sequence[Any]]:
    """Deliveries with the same id or body, those with the same body first; the last column: it started nothing."""
    unstarted = f"EXISTS ({_FIRING} AND f.status IN ('refused', 'skipped'))"
    sql = (
        f"SELECT id, at, digest, event, body, {unstarted} FROM schedule_deliveries "
        f"WHERE {_OF_TRIGGER} AND (id = ? OR digest = ?)"
    )
    rows = db.execute(sql, (plan, trigger, delivery.id, delivery.digest)).fetchall()
    return sorted(rows, key=lambda row: row[2] != delivery.digest)


def _forget(db: SqlConnection, plan: str, trigger: str, delivery: str) -> None:
    """Forget a delivery that started nothing. A refused start stays under another key: `pause_after` counts it."""
    of_firing = (plan, trigger, f"{DELIVERY} {delivery}")
    sql = f"WHERE {_OF_TRIGGER} AND key = ?"
    db.execute(f"UPDATE schedule_firings SET key = key || ' ' || execution {sql} AND status = 'refused'", of_firing)
    db.execute(f"DELETE FROM schedule_firings {sql}", of_firing)
    db.execute(f"DELETE FROM schedule_deliveries WHERE {_OF_TRIGGER} AND id = ?", (plan, trigger, delivery))


def _delivery(row: Sequence[Any], body: bytes) -> HookDelivery:
    name, at, digest, event = row[:4]
    return HookDelivery(str(name), float(at), str(digest), str(event), body)


def drop_bodies(db: SqlConnection, plan: str, trigger: str) -> None:
    """Drop the bodies of deliveries that nothing waits to start."""
    settled = f"EXISTS ({_FIRING} AND f.status NOT IN ('due', 'waiting'))"
    sql = f"UPDATE schedule_deliveries SET body = ? WHERE {_OF_TRIGGER} AND body <> ? AND {settled}"
    db.execute(sql, (b"", plan, trigger, b""))


def drop_deliveries(db: SqlConnection, plan: str, trigger: str, before: float) -> None:
    """Forget deliveries whose firings are forgotten."""
    sql = f"DELETE FROM schedule_deliveries WHERE {_OF_TRIGGER} AND at < ? AND body = ? AND NOT EXISTS ({_FIRING})"
    db.execute(sql, (plan, trigger, before, b""))
