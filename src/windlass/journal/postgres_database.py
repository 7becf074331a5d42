"""A PostgreSQL database as the journal, the ledger and the outbox use it: connections, transactions, errors.

A server that is away for a while is waited for, with growing pauses; so is one that keeps a statement without an answer
and takes no new session, because it or the network hangs. A transaction whose connection broke before its
commit was sent is done again. If it broke after that, its number in the table `commits` tells what became of it, so
that nothing is lost and nothing is written twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict

from windlass.errors import Conflict, JournalError
from windlass.faults import fault_point, is_armed
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.database import FAULTS, SqlConnection
from windlass.journal.postgres_schema import LOCKS, SCHEMA_VERSION, has_schema, migrate

__all__ = ["SILENCE", "PostgresConnection", "PostgresDatabase", "is_lost", "prepare_database"]

T = TypeVar("T")
_log = logging.getLogger("windlass.journal")

PATIENCE = 60.0
"""Seconds to wait for a server that does not answer."""
SILENCE = 10.0
"""Seconds without an answer to a statement after which a new session is tried: the server may be slow, or hang."""
LONGEST_PAUSE = 2.0
"""Seconds between two tries, at most."""
TRIES = 5
"""Times that a transaction is done again because of another one that was at it."""
_SESSION = (
    "SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '20s'; "
    # Never less than this: an append that returned is on disk.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
# Each transaction marks itself with its number. Done again with the same number, it finds out whether it was committed:
# also after a crash of the server, which may give the id of a lost transaction to another one.
_MARK = (
    "INSERT INTO commits AS before VALUES ('{}', {}, clock_timestamp()) ON CONFLICT (session) "
    "DO UPDATE SET number = excluded.number, at = excluded.at WHERE before.number < excluded.number RETURNING number;"
)
_AWAY = re.compile(
    r"refused|No such file|timeout|timed out|closed the connection|starting up|shutting down|recovery mode|"
    r"terminat|unreachable|reset by peer|Broken pipe|Temporary failure|not yet accepting|server closed|EOF|lost",
    re.IGNORECASE,
)
_FULL = re.compile("too many clients|connection slots are|too many connections|no more connections")
"""A server, or the pool before it, that takes no further session."""
_CAST = re.compile(r"CAST\((.+?) AS INTEGER\)")
_NAMED = re.compile(r":([a-z_]+)\b")


class _Undone(Exception):
    """The connection broke, and its transaction was undone: it is to be done again."""


class _Number(Loader):
    """Sums of whole numbers are `numeric` to PostgreSQL: they are numbers of Python here."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text or b"N" in text else int(text)


class _Cursor(psycopg.Cursor[Any]):
    @property
    def lastrowid(self) -> int | None:
        """The number that the last INSERT of this session was given."""
        row = self.connection.execute("SELECT lastval()").fetchone()
        return int(row[0]) if row is not None else None


@lru_cache(512)
def _translated(sql: str, named: bool) -> bytes:
    """The same statement in PostgreSQL's words. SQLite's CAST cuts digits off, PostgreSQL's rounds."""
    text = _CAST.sub(r"CAST(trunc(\1) AS BIGINT)", sql.replace("%", "%%"))
    text = _NAMED.sub(r"%(\1)s", text) if named else text.replace("?", "%s")
    return ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if text == "BEGIN" else text).encode()


def _storable(value: Any) -> Any:
    """PostgreSQL has no NUL in a text. Events are bytes, so this is about names and titles alone."""
    return value.replace("\0", "\ufffd") if type(value) is str and "\0" in value else value


def _values(parameters: Any) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _storable(value) for name, value in parameters.items()}
    return [_storable(value) for value in parameters]


class _Session(psycopg.Connection[Any]):
    """Ends itself when a statement has no answer and the server takes no new session."""

    url: PostgresUrl
    options: Mapping[str, Any]

    def wait(self, gen: Generator[Any, Any, T], *words: Any, **named: Any) -> T:
        return super().wait(self._watched(gen), *words, **named)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        asked = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() - asked >= SILENCE:
                    self._try_anew()
                    asked = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _try_anew(self) -> None:
        try:
            psycopg.connect(self.url.secret, **self.options).close()
        except psycopg.OperationalError as error:
            if _is_away(error):
                self.pgconn.finish()
                raise
        _log.warning("waiting for %s: it takes connections, and a statement has no answer yet", self.url)


class PostgresConnection:
    """A session that takes the statements of this package, which are written for SQLite as well."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session
        self.prepared: set[bytes] = set()
        """Names of statements that the server keeps prepared, besides those of the driver."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        named = isinstance(parameters, Mapping)
        return self.session.execute(_translated(sql, named), _values(parameters))

    def executemany(self, sql: str, rows: Any, /) -> Any:
        cursor = self.session.cursor()
        given = [_values(row) for row in rows]
        if given:
            cursor.executemany(_translated(sql, False), given)
        return cursor


class PostgresDatabase:
    """One session, opened on first use and anew when it breaks. `reading` and `writing` use it in a thread of its own.

    With `alone`, one transaction of that number runs at a time, in all processes: as in SQLite.
    """

    def __init__(self, url: PostgresUrl, *, faults: str = "", alone: int = 0, patience: float = PATIENCE) -> None:
        self._url = url
        self._alone = alone
        self._patience = patience
        self.points = tuple(f"{faults}.{when}" for when in FAULTS) if faults and is_armed() else ()
        """Fault points before a write, before its commit and after it."""
        self.connection: PostgresConnection | None = None
        """The session, once it is open."""
        self._in_use = threading.RLock()
        self._worker: ThreadPoolExecutor | None = None
        self.beginning = f"SELECT pg_advisory_xact_lock({LOCKS}, -{alone})" if alone else ""
        """The first statement of each transaction, which takes locks."""
        self._name = uuid.uuid4().hex
        """Names this object in the table of commits."""
        self._number = 0
        """Transactions that were committed."""
        self._unanswered: tuple[Any, ...] = ()
        """The result of a transaction whose commit was sent and not answered."""
        self.committed = False
        """The last transaction was committed, whatever went wrong afterwards."""

    # -- reading and writing -------------------------------------------------------------------

    def read(self, fetch: Callable[[SqlConnection], T]) -> T:
        def use(db: PostgresConnection) -> T:
            try:
                return fetch(db)
            except BaseException:
                _roll_back(db)
                raise

        with self._in_use:
            return self._patiently(use)

    def transact(self, work: Callable[[SqlConnection], T], *, again: bool = True) -> T:
        """Do the work in one transaction; returns when it is committed.

        With `again`, it is done once more where another transaction has inserted the same row first.
        """
        return self._retried(partial(self._transact, work), again=again)

    def state(
        self,
        statement: bytes,
        values: Sequence[Any],
        is_done: Callable[[PostgresConnection], bool],
        *,
        sent: bool = False,
    ) -> int:
        """Execute one statement as a transaction of its own; returns the number of rows when it is committed.

        `is_done` tells if it was committed, after a session that broke before it answered. `sent` says that there was
        one already.
        """
        doubtful = sent

        def execute(db: PostgresConnection) -> int:
            nonlocal doubtful
            if doubtful and is_done(db):
                return rows
            if self.points:
                fault_point(self.points[1])
            try:
                return int(db.session.execute(statement, values, prepare=True).rowcount)
            except errors.UniqueViolation:
                if doubtful and is_done(db):  # the server was still at the one before
                    return rows
                raise
            except psycopg.Error as error:
                if not is_lost(db.session, error):
                    raise
                doubtful = True
                self._drop()
                raise _Undone from error

        rows = statement.count(b"::bytea")
        written = self._retried(execute, again=False)
        self.committed = True
        return written

    def _retried(self, do: Callable[[PostgresConnection], T], *, again: bool) -> T:
        self.committed = False
        if self.points:
            fault_point(self.points[0])
        with self._in_use:
            for left in reversed(range(TRIES)):
                try:
                    result = self._patiently(do)
                    break
                except (errors.DeadlockDetected, errors.SerializationFailure, errors.UniqueViolation) as error:
                    if not left or (isinstance(error, errors.UniqueViolation) and not again):
                        raise
                except JournalError:
                    if self._unanswered:  # nobody will ask again for what became of this number
                        self._number, self._unanswered = self._number + 1, ()
                    raise
        if self.points:
            fault_point(self.points[2])
        return result

    def _transact(self, work: Callable[[SqlConnection], T], db: PostgresConnection) -> T:
        session = db.session
        number = self._number + 1
        sent = False
        result: T
        try:
            begun = session.execute(f"BEGIN; {_MARK.format(self._name, number)} {self.beginning}".encode())
            begun.nextset()
            if begun.fetchone() is None:  # the last time, it was committed, and only the answer was lost
                _roll_back(db)
                (result,) = self._unanswered
            else:
                result = work(db)
                if self.points:
                    fault_point(self.points[1])
                sent = True
                session.execute("COMMIT")
        except psycopg.Error as error:
            if sent and is_lost(session, error):
                self._unanswered = (result,)
                self._drop()
                raise _Undone from error
            _roll_back(db)
            raise
        except BaseException:
            _roll_back(db)
            raise
        self._number, self._unanswered = number, ()
        self.committed = True
        return result

    async def reading(self, fetch: Callable[[SqlConnection], T]) -> T:
        return await self._in_thread(partial(self.read, fetch))

    async def writing(self, work: Callable[[SqlConnection], T]) -> T:
        """Do the work in one transaction. Cancelled while it waits, it may be done all the same."""
        return await self._in_thread(partial(self._writing, work))

    def _writing(self, work: Callable[[SqlConnection], T]) -> T:
        try:
            return self.transact(work)
        except psycopg.Error as error:
            raise self.meaning(error) from error

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="windlass-postgres")
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # -- connections ---------------------------------------------------------------------------

    def open(self) -> PostgresConnection:
        """Open a session, unless one is open; waits for a server that is away."""
        with self._in_use:
            return self._patiently(lambda db: db)

    def close(self) -> None:
        with self._in_use:
            self._drop()

    async def aclose(self) -> None:
        """Close it after everything that its thread has still to do."""
        worker, self._worker = self._worker, None
        if worker is None:
            self.close()
        else:
            await asyncio.get_running_loop().run_in_executor(worker, self.close)
            worker.shutdown()

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.session.close()

    def _patiently(self, use: Callable[[PostgresConnection], T]) -> T:
        """Use the session; with a new one as often as it breaks, until patience ends."""
        began = time.monotonic()
        pauses, warned = _pauses(), False
        while True:
            try:
                if self.connection is not None and self.connection.session.closed:  # the loop has seen it break
                    self._drop()
                if self.connection is None:
                    self.connection = PostgresConnection(connect(self._url))
                return use(self.connection)
            except _Undone:
                continue
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                session = self.connection.session if self.connection is not None else None
                if session is not None and not is_lost(session, error):
                    raise self.meaning(error) from error
                self._drop()
                if not _is_away(error) and not _FULL.search(str(error)):
                    raise self.meaning(error) from error
                waited = time.monotonic() - began
                if waited >= self._patience:
                    raise self._gave_up(error) from error
                pause = next(pauses)
                if waited >= LONGEST_PAUSE and not warned:
                    _log.warning("waiting for %s: %s", self._url, self._url.hide(_first_line(error)))
                    warned = True
                time.sleep(pause)
            except psycopg.Error as error:
                if isinstance(error, errors.UniqueViolation | errors.DeadlockDetected | errors.SerializationFailure):
                    raise
                raise self.meaning(error) from error

    def _gave_up(self, error: psycopg.Error) -> JournalError:
        text = self._url.hide(_first_line(error))
        if _FULL.search(text):
            return _lacks(self._url, "53300", text)
        return JournalError(f"{self._url} did not answer for {self._patience:g} s: {text}", advice=_ADVICE)

    def meaning(self, error: Exception) -> Exception:
        """Say in plain words what an error means, and what to do. The password is in none of them."""
        return error if isinstance(error, JournalError | Conflict) else _meaning(error, self._url)


_ADVICE = (
    "check that the server runs and can be reached, then repeat the command",
    "go on with an execution that was cut off: windlass resume ID",
)


def _pauses() -> Iterator[float]:
    pause = 0.05
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE)


def connect(url: PostgresUrl) -> psycopg.Connection[Any]:
    """Open a session with the tables of this release. Raises the driver's errors, or a `JournalError`."""
    try:
        given = conninfo_to_dict(url.secret)
    except psycopg.ProgrammingError:  # its text may quote a part of the password
        raise JournalError(
            f"{url} cannot be read as the address of a PostgreSQL database",
            advice=("write it like postgresql://USER@HOST:5432/DATABASE?sslmode=verify-full",),
        ) from None
    usual: dict[str, Any] = {
        "connect_timeout": 5,
        "application_name": "windlass",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    missing = {name: value for name, value in usual.items() if name not in given}
    session = _Session.connect(url.secret, autocommit=True, cursor_factory=_Cursor, **missing)
    session.url, session.options = url, missing
    try:
        session.adapters.register_loader("numeric", _Number)
        session.execute(_SESSION)
        version = has_schema(session)
        if version > SCHEMA_VERSION:
            raise JournalError(
                f"{url} was written by a newer Windlass (schema {version}, this one reads {SCHEMA_VERSION})",
                advice=("upgrade: pip install --upgrade windlass",),
            )
        if version < SCHEMA_VERSION and (foreign := migrate(session)):
            raise JournalError(
                f"{url} has tables of another program ({', '.join(foreign)}); nothing was changed",
                advice=(
                    "use a database of its own",
                    "or a schema: CREATE SCHEMA windlass, and in the address …?options=-csearch_path%3Dwindlass",
                ),
            )
    except BaseException:
        session.close()
        raise
    return session


def prepare_database(url: PostgresUrl, patience: float = PATIENCE) -> None:
    """Make the tables, or say what is in the way."""
    database = PostgresDatabase(url, patience=patience)
    database.open()
    database.close()


def _roll_back(db: PostgresConnection) -> None:
    session = db.session
    if not session.closed and session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            session.execute("ROLLBACK")


def is_lost(session: psycopg.Connection[Any], error: psycopg.Error) -> bool:
    """Tell whether the session is of no more use."""
    if session.closed or session.broken:
        return True
    return isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.IdleInTransactionSessionTimeout)


def _is_away(error: psycopg.Error) -> bool:
    """Tell whether the server may answer later. A refusal, such as a wrong password, would be the same."""
    text = str(error)
    refused = ("password authentication", "no pg_hba", "does not exist", "no password supplied", "not permitted")
    return not any(sign in text for sign in refused) and bool(_AWAY.search(text))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _meaning(error: Exception, url: PostgresUrl) -> JournalError:
    text = url.hide(str(error).strip())
    kind = getattr(error, "sqlstate", None) or ""
    shown = _first_line(Exception(text))
    for sign, message, advice in (
        ("password authentication failed", f"{url}: the password is wrong", _PASSWORD),
        ("no password supplied", f"{url}: a password is wanted", _PASSWORD),
        ("no pg_hba", f"{url}: the server does not let this user in from here", "ask for an entry in its pg_hba.conf"),
        ('database "', f"{url}: there is no such database", "create it: createdb NAME"),
        ('role "', f"{url}: there is no such user", "create it: createuser NAME"),
        ("certificate verify failed", f"{url}: the server's certificate is not trusted", _TRUST),
        ("resolve host", f"{url}: the host is not known", "check the name of the host in the address"),
        ("root certificate file", f"{url}: nothing says which certificates to trust", _TRUST),
        ("connection is bad: ", f"{url} cannot be used: {shown.partition('is bad: ')[2]}", "correct the address"),
        ("no schema has been selected", f"{url}: there is no schema to create tables in", _SCHEMA),
        ("read-only transaction", f"{url}: the server only reads (a standby?)", "name the primary server"),
    ):
        if sign in text and (kind != "42501"):
            return JournalError(message, advice=(advice,))
    if kind == "42501":
        return JournalError(f"{url}: the user lacks rights: {shown}", advice=(_RIGHTS,))
    if kind in _LACKS:
        return _lacks(url, kind, shown)
    if kind == "55P03":
        return JournalError(f"{url}: another process holds a lock for over 30 s; nothing was written", advice=_ADVICE)
    return JournalError(f"{url} could not be used: {shown}", advice=("check the server's log",))


def _lacks(url: PostgresUrl, kind: str, shown: str) -> JournalError:
    message, advice = _LACKS[kind]
    return JournalError(f"{url}: {message}: {shown}", advice=(advice, _ADVICE[1]))


_LACKS = {
    "53100": ("the server's disk is full", "free space on the server's disk, then repeat the command"),
    "53200": ("the server is out of memory", "give the server more memory, then repeat the command"),
    "53300": (
        "the server takes no more connections",
        "end other sessions or raise max_connections, then repeat the command",
    ),
}
_SCHEMA = "make it: CREATE SCHEMA NAME; or let the user in: GRANT USAGE, CREATE ON SCHEMA NAME TO USER"
_RIGHTS = "grant them: GRANT USAGE, CREATE ON SCHEMA public TO USER"
_TRUST = "name the file of the authority that signed the server's: …&sslrootcert=FILE; or trust the system's: =system"
_PASSWORD = "give it in ~/.pgpass, in PGPASSWORD or in WINDLASS_JOURNAL; in an argument, others can see it"
