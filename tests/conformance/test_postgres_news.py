"""News of a PostgreSQL journal: others are told of events and messages, and look now and then (J2, I5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer
from test_journal import begin, created, head, note
from waiting import wait_until

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres import PostgresJournal
from windlass.journal.postgres_news import LOOKS
from windlass.journal.postgres_schema import LOCKS

Pair = tuple[PostgresJournal, PostgresJournal]


@pytest.fixture
async def pair(postgres: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two processes' journals in one database."""
    both = [PostgresJournal(PostgresUrl(postgres), tmp_path / name) for name in ("here", "there")]
    yield both[0], both[1]
    for journal in both:
        await journal.close()


async def hearing(journal: PostgresJournal, name: str) -> tuple[asyncio.Event, Callable[[], None]]:
    """An event that is set by news, and the end of that; returns when they arrive."""
    news = asyncio.Event()
    end = journal.listen(name, news.set)
    await news.wait()  # once, for what was written before
    await asyncio.to_thread(wait_until, lambda: journal.poll == LOOKS, "looks are few once news arrive")
    news.clear()
    return news, end


async def test_j2_events_of_another_process_are_told(pair: Pair) -> None:
    here, there = pair
    await begin(there, "x")
    news, end = await hearing(here, "x")
    await there.append("x", 1, [note(1)])
    await news.wait()
    assert len(await here.read("x", 1)) == 1
    end()
    assert here.poll == LOOKS


async def test_j2_a_driver_is_told_of_a_message(pair: Pair) -> None:
    here, there = pair
    driver = here.enlist()
    await here.append("x", 0, [created("x")], head=head("x", driver=driver))
    news, _ = await hearing(here, driver)
    await there.send("x", 1.0, {"kind": "interrupt"})
    await news.wait()
    assert [message.body["kind"] for message in await here.receive()] == ["interrupt"]


async def test_j2_news_come_again_after_a_restart_of_the_server(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        with server.database() as address:
            here, there = (PostgresJournal(PostgresUrl(address), tmp_path / name) for name in ("here", "there"))
            await begin(there, "x")
            news, _ = await hearing(here, "x")
            await asyncio.to_thread(server.restart, "fast")
            await news.wait()  # when it listens again
            news.clear()
            await there.append("x", 1, [note(1)])
            await news.wait()
            await here.close()
            await there.close()
    finally:
        server.close()


async def test_d3_messages_are_committed_in_the_order_of_their_numbers(pair: Pair, postgres: str) -> None:
    """A driver asks for messages after the last one that it has seen: one with a lower number would be lost."""
    here, there = pair
    await begin(here, "x")
    with psycopg.connect(postgres) as slow:
        slow.execute("SELECT pg_advisory_xact_lock(%s, -20)", (LOCKS,))
        slow.execute("INSERT INTO inbox (execution, at, body) VALUES ('x', 1, '{\"n\": 1}'::bytea)")
        sending = asyncio.create_task(there.send("x", 2.0, {"n": 2}))
        with psycopg.connect(postgres, autocommit=True) as look:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
            await asyncio.to_thread(wait_until, lambda: look.execute(waiting).fetchone(), "the second waits")
        assert await here.receive() == []
        slow.commit()
    await sending
    assert [message.body["n"] for message in await here.receive()] == [1, 2]
