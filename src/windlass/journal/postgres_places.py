"""Places of tools that all machines share: a place is a lock of a session, which ends with its process.

One session holds all places of this process. Should it break, its places are taken again with the next one: until
then another machine may have one of them, too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.database import SqlConnection
from windlass.journal.postgres_database import PostgresConnection, PostgresDatabase

__all__ = ["PostgresPlaces"]

_TAKE = "SELECT key FROM unnest(?::bigint[]) AS key WHERE pg_try_advisory_lock(key) LIMIT 1"


class PostgresPlaces:
    """Implements `ports.SharedPlaces`."""

    def __init__(self, url: PostgresUrl) -> None:
        self._db = PostgresDatabase(url)
        self._held: set[int] = set()
        self._session: Any = None
        """The session that holds them."""
        self._going_back: set[asyncio.Future[None]] = set()

    async def take(self, name: str, count: int) -> int | None:
        keys = [_key(name, index) for index in range(count)]

        def take(db: SqlConnection) -> int | None:
            self._hold_again(db)
            free = [key for key in keys if key not in self._held]  # a session has a lock as often as it likes
            row = db.execute(_TAKE, (free,)).fetchone() if free else None
            if row is None:
                return None
            self._held.add(row[0])
            return int(row[0])

        taking = asyncio.ensure_future(self._db.reading(take))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._not_wanted)
            raise

    def _not_wanted(self, taken: asyncio.Future[int | None]) -> None:
        """Give back a place that was taken for somebody who does not wait for it any more."""
        if not taken.cancelled() and taken.exception() is None and (place := taken.result()) is not None:
            back = asyncio.ensure_future(self.give_back(place))
            self._going_back.add(back)
            back.add_done_callback(self._going_back.discard)

    async def give_back(self, place: int) -> None:
        def give(db: SqlConnection) -> None:
            self._held.discard(place)
            self._hold_again(db)
            db.execute("SELECT pg_advisory_unlock(?)", (place,))

        await self._db.reading(give)

    async def close(self) -> None:
        """All places are free with the end of the session."""
        await self._db.aclose()

    def _hold_again(self, db: SqlConnection) -> None:
        """Take everything that is held with a session that is new."""
        assert isinstance(db, PostgresConnection)
        if db.session is not self._session:
            self._session = db.session
            _take_all(db, sorted(self._held))


def _take_all(db: SqlConnection, keys: Sequence[int]) -> None:
    if keys:
        db.execute("SELECT pg_try_advisory_lock(key) FROM unnest(?::bigint[]) AS key", (list(keys),)).fetchall()


def _key(name: str, index: int) -> int:
    """A number for a place; other programs that use the database have theirs from all over the range, too."""
    digest = hashlib.sha256(f"windlass place {index} of {name}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
