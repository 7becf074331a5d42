"""A PostgreSQL server that says nothing for a while: it or the network hangs, or it is slow (J2, D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer
from test_journal import begin, head, note, notes
from waiting import wait_until, wait_until_async

from windlass.errors import JournalError
from windlass.homes.journal_url import PostgresUrl
from windlass.journal import postgres_database, postgres_quick
from windlass.journal.postgres import PostgresJournal
from windlass.journal.postgres_database import PostgresDatabase


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that may hang: the others' tests do not notice."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def address(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database whose statements are not waited for long before somebody asks."""
    for module in (postgres_database, postgres_quick):
        monkeypatch.setattr(module, "SILENCE", 0.2)
    monkeypatch.setattr(postgres_database, "LONGEST_PAUSE", 0.1)
    with own_server.database() as made:
        yield f"{made}&connect_timeout=2"


@pytest.mark.parametrize("alone", [True, False], ids=["from the loop", "a transaction"])
async def test_d2_what_is_written_while_the_server_hangs_is_there_once(
    own_server: PostgresServer, address: str, tmp_path: Path, alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    journal = PostgresJournal(PostgresUrl(address), tmp_path)
    await begin(journal, "x")
    await journal.append("x", 1, [note("first")])
    with own_server.frozen():
        writing = asyncio.ensure_future(journal.append("x", 2, [note("once")], head=None if alone else head("x")))
        await wait_until_async(lambda: "waiting for" in caplog.text, "somebody is told of the wait")
    await writing
    await journal.append("x", 3, [note("next")])
    assert await notes(journal, "x") == ["first", "once", "next"]
    await journal.close()


def test_a_server_that_hangs_for_too_long_is_an_error_with_advice(own_server: PostgresServer, address: str) -> None:
    database = PostgresDatabase(PostgresUrl(address), patience=0.5)
    database.open()
    with ThreadPoolExecutor() as pool, own_server.frozen():
        asking = pool.submit(database.read, lambda db: db.execute("SELECT 1").fetchone())
        wait_until(asking.done, "the wait for an answer ends")
    with pytest.raises(JournalError, match=r"did not answer for 0\.5 s"):
        asking.result()
    assert database.read(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
    database.close()


def test_a_slow_statement_of_a_server_that_answers_others_is_waited_for(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = PostgresDatabase(PostgresUrl(address), patience=0.5)
    with ThreadPoolExecutor() as pool, psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1)")
        asking = pool.submit(database.read, lambda db: db.execute("SELECT 7, pg_advisory_lock(1)").fetchone())
        wait_until(lambda: caplog.text.count("has no answer yet") > 1, "somebody is told of the wait")
        other.execute("SELECT pg_advisory_unlock(1)")
        assert asking.result()[0] == 7
    database.close()


async def test_d2_an_append_that_was_sent_again_while_the_server_was_at_the_first_is_there_once(
    address: str, tmp_path: Path
) -> None:
    journal = PostgresJournal(PostgresUrl(address), tmp_path)
    await begin(journal, "x")
    await journal.append("x", 1, [note("first")])
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass"
    with psycopg.connect(address) as other, psycopg.connect(address, autocommit=True) as look:
        other.execute("LOCK TABLE events IN SHARE MODE")
        writing = asyncio.ensure_future(journal.append("x", 2, [note("once")]))
        await wait_until_async(lambda: len(look.execute(waiting).fetchall()) == 2, "it is sent again")
        other.commit()
        await writing
    assert await notes(journal, "x") == ["first", "once"]
    await journal.close()
