"""Drivers that are alive, wherever they run: each renews its line in the database every few seconds.

A process that died on this machine is known at once by its lock on a file (`journal.presence`); one on another machine
when its line was not renewed for `LEASE` seconds, by the server's clock alone. After a restart of the server all have
that long to come back. A driver that was frozen and lost its place finds that it cannot append any more.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from windlass.errors import JournalError
from windlass.homes import prepare_home
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.database import SqlConnection, translate
from windlass.journal.postgres_database import PostgresDatabase
from windlass.journal.presence import Presence

__all__ = ["LEASE", "LeasedPresence"]

LEASE = 15.0
"""Seconds after which a driver that does not renew its line is taken for dead."""
RENEWED = LEASE / 5
PATIENCE = 2.0
"""Seconds to wait for the server: a line is renewed again soon, and so is the list of drivers read."""
MOMENT = 0.25
"""Seconds that `alive` waits for a newer list: it is asked on the event loop. It waits longer for the first one."""
FRESH = 0.5
"""Seconds for which the list of drivers is believed."""

_SEEN = (
    f"SELECT name, host, home, seen_at > clock_timestamp() - interval '{LEASE} s' OR "
    f"(clock_timestamp() - pg_postmaster_start_time() < interval '{LEASE} s' AND "
    "seen_at > pg_postmaster_start_time() - interval '1 day') FROM drivers"
)
_RENEW = (
    "INSERT INTO drivers (name, host, home, seen_at) VALUES (?, ?, ?, clock_timestamp()) "
    "ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at"
)
_FORGET_OLD = (
    "DELETE FROM drivers WHERE seen_at < clock_timestamp() - interval '7 days'",
    "DELETE FROM commits WHERE at < clock_timestamp() - interval '1 day'",
)


class _SeenDriver(NamedTuple):
    host: str
    home: str
    fresh: bool


class LeasedPresence:
    def __init__(self, url: PostgresUrl, home: Path) -> None:
        self._url = url
        self._db = PostgresDatabase(url, patience=PATIENCE)
        self._home = home
        self._host = machine_id()
        self._local = Presence(home / "drivers")
        self._mine: list[str] = []
        self._seen: dict[str, _SeenDriver] = {}
        self._seen_at = float("-inf")
        self._looking: Future[None] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def enlist(self, label: str = "") -> str:
        """A new driver of this process; alive until `leave`, death, or a silence of `LEASE` seconds."""
        with translate(self._home):
            prepare_home(self._home)
        driver = self._local.enlist(label)
        self._mine.append(driver)
        database = PostgresDatabase(self._url)  # it is waited for: nobody may drive who is not known to be alive
        database.transact(self._renew)
        database.close()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_renewing, name="windlass-lease", daemon=True)
            self._thread.start()
        return driver

    def alive(self, driver: str) -> bool:
        if driver in self._mine:
            return True
        if self.stale and not self._looked():  # nobody is taken for dead because the server does not answer
            return driver in self._seen or not self._seen
        found = self._seen.get(driver)
        if found is None:
            return False
        if found.host == self._host and not Presence(Path(found.home) / "drivers").alive(driver):
            return False
        return found.fresh

    def _looked(self) -> bool:
        """Have a thread read the list of drivers, and wait a moment for it; false if it is not there by then.

        The server may hang, and so may the renewal of a line, which has the same session.
        """
        if self._looking is not None and not self._looking.done():
            return False  # it was waited for
        looking: Future[None] = Future()
        self._looking = looking

        def look() -> None:
            try:
                self._db.read(self.look)
                looking.set_result(None)
            except BaseException as error:
                looking.set_exception(error)

        threading.Thread(target=look, name="windlass-presence", daemon=True).start()
        try:
            looking.result(PATIENCE if self._seen_at == float("-inf") else MOMENT)
        except (JournalError, TimeoutError):
            return False
        return True

    def look(self, db: SqlConnection) -> None:
        """Read the list of drivers."""
        self._seen = {name: _SeenDriver(*row) for name, *row in db.execute(_SEEN)}
        self._seen_at = time.monotonic()

    @property
    def stale(self) -> bool:
        """True if the list of drivers is old."""
        return time.monotonic() - self._seen_at > FRESH

    def leave(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._mine:
            mine, self._mine = self._mine, []
            with suppress(JournalError):  # else their lines grow old; the locks on their files are gone at once
                self._db.transact(lambda db: db.executemany("DELETE FROM drivers WHERE name = ?", [(n,) for n in mine]))
        self._local.leave()
        self._db.close()

    def _renew(self, db: SqlConnection) -> None:
        db.executemany(_RENEW, [(name, self._host, str(self._home)) for name in self._mine])

    def _keep_renewing(self) -> None:
        beat = 0
        while not self._ended.wait(RENEWED):
            beat += 1
            try:
                self._db.transact(self._renew)
                if beat % 1000 == 1:
                    self._db.transact(lambda db: [db.execute(sql) for sql in _FORGET_OLD])
            except JournalError:
                continue  # those who write find out, and say so


def machine_id() -> str:
    """Name this machine since its last start: a process of another one, or of an earlier start, is not here."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"
