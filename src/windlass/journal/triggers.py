"""Triggers in the journal's database: scheduled plans, the turns of their triggers, and what became of each time (L1).

A turn is written only if it follows the last one: of two processes that decide at once, one writes and the other
drops its decision. A firing that is due is claimed by one process before it is started; the claim of a process that
died is taken over, and the execution's id, which is the same in every process, lets nothing start twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windlass.core.triggers import Firing, FiringStatus, TriggerState
from windlass.faults import fault_point
from windlass.journal.database import Database, SqlConnection, SqlStore, make_missing, snapshot
from windlass.journal.deliveries import DELIVERY_TABLES, SqliteDeliveries, drop_bodies, drop_deliveries
from windlass.journal.schema import open_database
from windlass.ports.triggers import ScheduledPlan, TriggerFiring, WatchedFile

__all__ = ["SqliteTriggers"]

KEPT = 90 * 86400.0
"""Seconds that the end of a firing is remembered."""
SHOWN = 50
"""Firings of a trigger that are read, besides those that are not settled."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS schedule_plans (path TEXT PRIMARY KEY, workdir TEXT NOT NULL, added_at REAL NOT NULL, "
    "trouble TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS schedule_triggers (plan TEXT NOT NULL, name TEXT NOT NULL, "
    "version INTEGER NOT NULL, until REAL NOT NULL, schedule TEXT NOT NULL, paused TEXT NOT NULL, "
    "resumed_at REAL NOT NULL, PRIMARY KEY (plan, name))",
    "CREATE TABLE IF NOT EXISTS schedule_firings (plan TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, "
    "at REAL NOT NULL, execution TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, decided_at REAL NOT NULL, "
    "tries INTEGER NOT NULL, claimed_by TEXT NOT NULL DEFAULT '', PRIMARY KEY (plan, name, key))",
    "CREATE INDEX IF NOT EXISTS schedule_firings_due ON schedule_firings (status) WHERE status = 'due'",
    "CREATE TABLE IF NOT EXISTS schedule_files (plan TEXT NOT NULL, name TEXT NOT NULL, file TEXT NOT NULL, "
    "size INTEGER NOT NULL, changed INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (plan, name, file))",
    "CREATE TABLE IF NOT EXISTS schedule_ticks (name TEXT PRIMARY KEY, at REAL NOT NULL)",
)
_OF_PLAN = (
    "schedule_triggers",
    "schedule_firings",
    "schedule_files",
    "schedule_deliveries",
    "schedule_refusals",
)
_FIRING = "key, at, execution, status, reason, decided_at, tries"
_UNSETTLED = "status IN ('due', 'waiting', 'started')"
_ENDED = "status IN ('completed', 'partial', 'failed', 'refused')"


def make_tables(db: SqlConnection) -> None:
    make_missing(db, _TABLES + DELIVERY_TABLES)


class SqliteTriggers:
    def __init__(self, where: Path | SqlStore) -> None:
        """`where` is the journal's file, or another database in which one writes at a time."""
        self._db: SqlStore = Database(where, open_database, prepare=make_tables) if isinstance(where, Path) else where
        self.deliveries = SqliteDeliveries(self._db)

    async def plans(self) -> list[ScheduledPlan]:
        sql = "SELECT path, workdir, added_at, trouble FROM schedule_plans ORDER BY path"
        return await self._db.reading(lambda db: [ScheduledPlan(*row) for row in db.execute(sql)])

    async def add_plan(self, plan: ScheduledPlan) -> None:
        sql = (
            "INSERT INTO schedule_plans (path, workdir, added_at, trouble) VALUES (?, ?, ?, ?) ON CONFLICT (path) "
            "DO UPDATE SET workdir = excluded.workdir, added_at = excluded.added_at, trouble = excluded.trouble"
        )
        await self._db.writing(lambda db: db.execute(sql, tuple(plan)))

    async def note_trouble(self, path: str, trouble: str) -> None:
        sql = "UPDATE schedule_plans SET trouble = ? WHERE path = ?"
        await self._db.writing(lambda db: db.execute(sql, (trouble, path)))

    async def remove_plan(self, path: str) -> bool:
        def work(db: SqlConnection) -> bool:
            for table in _OF_PLAN:
                db.execute(f"DELETE FROM {table} WHERE plan = ?", (path,))
            return db.execute("DELETE FROM schedule_plans WHERE path = ?", (path,)).rowcount > 0

        return await self._db.writing(work)

    async def state(self, plan: str, trigger: str) -> TriggerState | None:
        def fetch(db: SqlConnection) -> TriggerState | None:
            with snapshot(db):  # the firings are those of the turn that the version names
                return _state(db, plan, trigger)

        return await self._db.reading(fetch)

    async def files(self, plan: str, trigger: str) -> dict[str, WatchedFile]:
        sql = "SELECT file, size, changed, digest FROM schedule_files WHERE plan = ? AND name = ?"
        rows = await self._db.reading(lambda db: db.execute(sql, (plan, trigger)).fetchall())
        return {file: WatchedFile(*rest) for file, *rest in rows}

    async def write(
        self,
        plan: str,
        trigger: str,
        state: TriggerState,
        firings: Sequence[Firing],
        files: Mapping[str, WatchedFile] | None = None,
    ) -> bool:
        def work(db: SqlConnection) -> bool:
            values = (state.version, state.until, state.schedule, state.paused, state.resumed_at, plan, trigger)
            if state.version == 0:
                columns = "version, until, schedule, paused, resumed_at, plan, name"
                sql = f"INSERT INTO schedule_triggers ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?) "
                written = db.execute(sql + "ON CONFLICT (plan, name) DO NOTHING", values)
            else:
                changes = "version = ?, until = ?, schedule = ?, paused = ?, resumed_at = ?"
                sql = f"UPDATE schedule_triggers SET {changes} WHERE plan = ? AND name = ? AND version = ?"
                written = db.execute(sql, (*values, state.version - 1))
            if written.rowcount < 1:
                return False
            sql = (
                f"INSERT INTO schedule_firings (plan, name, {_FIRING}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (plan, name, key) DO UPDATE SET at = excluded.at, execution = excluded.execution, "
                "status = excluded.status, reason = excluded.reason, decided_at = excluded.decided_at, "
                "tries = excluded.tries, claimed_by = '' WHERE schedule_firings.execution = excluded.execution "
                # Else it has come before, and comes once, unless it was skipped.
                "OR schedule_firings.status = 'skipped'"
            )
            db.executemany(sql, [(plan, trigger, *_row(firing)) for firing in firings])
            if files is not None:
                db.execute("DELETE FROM schedule_files WHERE plan = ? AND name = ?", (plan, trigger))
                sql = "INSERT INTO schedule_files (plan, name, file, size, changed, digest) VALUES (?, ?, ?, ?, ?, ?)"
                db.executemany(sql, [(plan, trigger, file, *known) for file, known in files.items()])
            if firings:
                old = f"DELETE FROM schedule_firings WHERE plan = ? AND name = ? AND at < ? AND NOT {_UNSETTLED}"
                db.execute(old, (plan, trigger, state.until - KEPT))
                drop_bodies(db, plan, trigger)
                drop_deliveries(db, plan, trigger, state.until - KEPT)
            return True

        written = await self._db.writing(work)
        fault_point("trigger.decided")
        return written

    async def claim(self, me: str, alive: Callable[[str], bool], only: str = "") -> list[TriggerFiring]:
        def work(db: SqlConnection) -> list[TriggerFiring]:
            sql = f"SELECT plan, name, claimed_by, {_FIRING} FROM schedule_firings WHERE status = 'due' ORDER BY at"
            found = []
            for plan, trigger, claimed_by, *row in db.execute(sql).fetchall():
                claimed = TriggerFiring(plan, trigger, _firing(row))
                if only not in ("", claimed.firing.key) or (claimed_by not in ("", me) and alive(claimed_by)):
                    continue
                update = "UPDATE schedule_firings SET claimed_by = ? WHERE plan = ? AND name = ? AND key = ?"
                db.execute(update, (me, plan, trigger, claimed.firing.key))
                found.append(claimed)
            return found

        claimed = await self._db.writing(work)
        fault_point("trigger.claimed")
        return claimed

    async def settle(self, claimed: TriggerFiring, status: FiringStatus, reason: str = "") -> None:
        sql = (
            "UPDATE schedule_firings SET status = ?, reason = ?, claimed_by = '' "
            "WHERE plan = ? AND name = ? AND key = ? AND status = 'due'"
        )
        values = (status.value, reason, claimed.plan, claimed.trigger, claimed.firing.key)

        def work(db: SqlConnection) -> None:
            db.execute(sql, values)
            drop_bodies(db, claimed.plan, claimed.trigger)

        await self._db.writing(work)

    async def executions(self, plan: str, trigger: str, since: float) -> set[str]:
        sql = "SELECT execution FROM schedule_firings WHERE plan = ? AND name = ? AND at >= ?"
        return await self._db.reading(lambda db: {row[0] for row in db.execute(sql, (plan, trigger, since)).fetchall()})

    async def ticked(self, by: str, at: float) -> None:
        sql = "INSERT INTO schedule_ticks (name, at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET at = excluded.at"
        await self._db.writing(lambda db: db.execute(sql, (by, at)))

    async def ticks(self) -> dict[str, float]:
        return await self._db.reading(lambda db: dict(db.execute("SELECT name, at FROM schedule_ticks").fetchall()))

    async def close(self) -> None:
        await self._db.aclose()


def _state(db: SqlConnection, plan: str, trigger: str) -> TriggerState | None:
    sql = "SELECT until, schedule, version, paused, resumed_at FROM schedule_triggers WHERE plan = ? AND name = ?"
    row = db.execute(sql, (plan, trigger)).fetchone()
    if row is None:
        return None
    until, schedule, *rest = row
    found: dict[str, Firing] = {}
    for which, most in ((_UNSETTLED, 10_000), (_ENDED, SHOWN), ("1 = 1", SHOWN)):
        sql = f"SELECT {_FIRING} FROM schedule_firings WHERE plan = ? AND name = ? AND {which} ORDER BY at DESC LIMIT ?"
        found |= {row[0]: _firing(row) for row in db.execute(sql, (plan, trigger, most)).fetchall()}
    firings = sorted(found.values(), key=lambda firing: firing.at, reverse=True)
    return TriggerState(until, schedule, tuple(firings), *rest)


def _row(firing: Firing) -> tuple[str | float | int, ...]:
    status = firing.status.value
    return firing.key, firing.at, firing.execution, status, firing.reason, firing.decided_at, firing.tries


def _firing(row: Sequence[str | float | int]) -> Firing:
    key, at, execution, status, reason, decided_at, tries = row
    return Firing(
        str(key), float(at), str(execution), FiringStatus(str(status)), str(reason), float(decided_at), int(tries)
    )
