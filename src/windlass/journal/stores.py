"""The stores of a home: in its own SQLite files, or all of them in one PostgreSQL database.

Nothing here imports the driver of PostgreSQL before a store in it is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windlass.errors import UsageError
from windlass.homes.journal_url import PostgresUrl

if TYPE_CHECKING:
    import sqlite3

    from windlass.journal.database import SqlStore
    from windlass.journal.outbox import SqliteOutbox
    from windlass.journal.postgres_workers import WorkerTable
    from windlass.journal.triggers import SqliteTriggers
    from windlass.ports import GateStore, Journal, Ledger
    from windlass.ports.places import SharedPlaces

__all__ = ["HomeStores"]

_LEDGER, _GATES, _OUTBOX, _REQUESTS, _COPY, _TRIGGERS = 3, 4, 5, 6, 7, 8
"""Numbers of the stores in which one transaction runs at a time."""


class HomeStores:
    def __init__(self, home: Path, journal: PostgresUrl | str | None = None) -> None:
        """`journal` is the address of a PostgreSQL database; None is the home's own file."""
        self._home = home
        self._file = home / "windlass.db"
        self._url = PostgresUrl(journal) if isinstance(journal, str) else journal

    @property
    def shown(self) -> str:
        """The place of the journal, for people."""
        return str(self._url or self._file)

    @property
    def exist(self) -> bool:
        """True if there may be something in them."""
        return self._url is not None or self._file.exists()

    @property
    def has_gates(self) -> bool:
        """True if there may be a breaker or a rate in them."""
        return self._url is not None or (self._home / "gates.db").exists()

    def journal(self) -> Journal:
        if self._url is None:
            from windlass.journal.sqlite import SqliteJournal

            return SqliteJournal(self._file)
        _need_driver()
        from windlass.journal.postgres import PostgresJournal

        return PostgresJournal(self._url, self._home)

    def ledger(self) -> Ledger:
        from windlass.journal.ledger import SqliteLedger

        return SqliteLedger(self._file if self._url is None else _postgres(self._url, _LEDGER, "ledger"))

    def gates(self) -> GateStore:
        from windlass.journal.gatebook import PostgresGateStore, SqliteGateStore

        if self._url is None:
            return SqliteGateStore(self._home / "gates.db")
        return PostgresGateStore(_postgres(self._url, _GATES, patience=0.2))

    def places(self) -> SharedPlaces | None:
        """The places of tools that several machines share; None: they are files of the home."""
        if self._url is None:
            return None
        _need_driver()
        from windlass.journal.postgres_places import PostgresPlaces

        return PostgresPlaces(self._url)

    def outbox(self) -> SqliteOutbox:
        from windlass.journal.outbox import SqliteOutbox

        return SqliteOutbox(self._file if self._url is None else _postgres(self._url, _OUTBOX))

    def triggers(self) -> SqliteTriggers:
        from windlass.journal.triggers import SqliteTriggers

        return SqliteTriggers(self._file if self._url is None else _postgres(self._url, _TRIGGERS))

    def tables(self) -> SqlStore:
        """The tables themselves, all of them there: for a copy."""
        if self._url is not None:
            return _postgres(self._url, _COPY)
        from windlass.journal.database import Database
        from windlass.journal.forecasts import make_forecasts
        from windlass.journal.ledger import make_charges
        from windlass.journal.schema import open_database

        def prepare(db: sqlite3.Connection) -> None:
            make_charges(db)
            make_forecasts(db)

        return Database(self._file, open_database, prepare=prepare)

    def workers(self) -> WorkerTable:
        """The workers that share the executions of the database."""
        if self._url is None:
            raise UsageError(
                "workers share a journal in PostgreSQL, and this one is a file",
                advice=(
                    "name the database: --journal postgresql://USER@HOST/DATABASE",
                    "read about it: windlass docs cluster",
                ),
            )
        _need_driver()
        from windlass.journal.postgres_workers import WorkerTable

        return WorkerTable(self._url)

    def requests(self) -> Path | SqlStore:
        """The place for the keys of requests that may be repeated."""
        return self._file if self._url is None else _postgres(self._url, _REQUESTS)


def _postgres(url: PostgresUrl, alone: int, faults: str = "", patience: float = 60.0) -> SqlStore:
    _need_driver()
    from windlass.journal.postgres_database import PostgresDatabase

    return PostgresDatabase(url, alone=alone, faults=faults, patience=patience)


def _need_driver() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a PostgreSQL journal needs more packages: {error}", advice=("pip install 'windlass[postgres]'",)
        ) from error
