"""The workers that share the executions of a database: each renews its line every few seconds.

They drive under one name, `TEMPORAL`, which is alive while one of them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.database import SqlConnection
from windlass.journal.postgres_database import PostgresDatabase
from windlass.journal.postgres_presence import LEASE

__all__ = ["TEMPORAL", "WorkerLine", "WorkerTable"]

TEMPORAL = "temporal"
"""The driver of executions that workers share."""
_RENEW = (
    "INSERT INTO workers (name, host, tags, version, since, seen_at, doing) "
    "VALUES (?, ?, ?, ?, clock_timestamp(), clock_timestamp(), ?) "
    "ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, doing = excluded.doing"
)
_RENEW_DRIVER = (
    "INSERT INTO drivers (name, host, home, seen_at) VALUES (?, '', '', clock_timestamp()) "
    "ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at"
)
_FORGET = f"DELETE FROM workers WHERE seen_at < clock_timestamp() - interval '{LEASE:g} seconds'"
_LIST = (
    "SELECT name, host, tags, version, extract(epoch FROM clock_timestamp() - since)::float8, doing FROM workers "
    f"WHERE seen_at > clock_timestamp() - interval '{LEASE:g} seconds' ORDER BY name"
)


class WorkerLine(NamedTuple):
    """One worker."""

    name: str
    host: str
    tags: list[str]
    version: str
    age: float
    """Seconds since it began."""
    doing: list[dict[str, Any]]
    """Attempts that it performs: `execution`, `step`, `attempt`."""


class WorkerTable:
    def __init__(self, url: PostgresUrl) -> None:
        self._db = PostgresDatabase(url)

    async def cluster(self) -> str:
        """The name of the cluster: all workers of this database, and no other, have it."""
        return str((await self._db.reading(lambda db: db.execute("SELECT name FROM cluster").fetchone()))[0])

    async def renew(
        self, name: str, host: str, tags: Sequence[str], version: str, doing: Sequence[dict[str, Any]]
    ) -> None:
        """Say that this worker lives."""
        line = (name, host, msgspec.json.encode(list(tags)).decode(), version, msgspec.json.encode(list(doing)))

        def write(db: SqlConnection) -> None:
            db.execute(_RENEW, line)
            db.execute(_RENEW_DRIVER, (TEMPORAL,))
            db.execute(_FORGET)

        await self._db.writing(write)

    async def leave(self, name: str) -> None:
        """Say that this worker ends."""

        def write(db: SqlConnection) -> None:
            db.execute("DELETE FROM workers WHERE name = ?", (name,))

        await self._db.writing(write)

    async def lines(self) -> list[WorkerLine]:
        """Workers that live."""
        rows = await self._db.reading(lambda db: db.execute(_LIST).fetchall())
        decode = msgspec.json.decode
        return [WorkerLine(n, h, decode(tags), v, age, decode(bytes(doing))) for n, h, tags, v, age, doing in rows]

    async def last_position(self) -> int:
        """The position of the newest event of all executions."""
        sql = "SELECT coalesce(max(position), 0) FROM events"
        return int((await self._db.reading(lambda db: db.execute(sql).fetchone()))[0])

    async def close(self) -> None:
        await self._db.aclose()
