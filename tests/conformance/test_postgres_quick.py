"""Appends that a PostgreSQL journal sends from the event loop itself, and what goes wrong with them (J2, D2)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from test_journal import begin, head, note, notes

from windlass.homes.journal_url import PostgresUrl
from windlass.journal.append import PendingAppend
from windlass.journal.postgres import PostgresJournal


@pytest.fixture
async def quick(postgres: str, tmp_path: Path) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(PostgresUrl(postgres), tmp_path)
    await begin(journal, "x")
    yield journal
    await journal.close()


class LossyLine:
    """Stands between a client and the server, and breaks the line at the first append from the loop."""

    def __init__(self, server: PostgresServer) -> None:
        self.folder = tempfile.mkdtemp(prefix="line-")  # a short path: that of a socket has few characters
        self._target = str(server.folder / ".s.PGSQL.5432")
        self.armed = False
        self.lose_answer = False
        """Let the statement through, and lose its answer; else it never arrives."""
        self.broken = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await asyncio.start_unix_server(self._serve, f"{self.folder}/.s.PGSQL.5432")

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)
        shutil.rmtree(self.folder)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        answers = asyncio.create_task(_carry(far_reader, writer))
        while data := await reader.read(65536):
            if self.armed and b"windlass_1\0" in data:
                self.armed, self.broken = False, self.broken + 1
                answers.cancel()
                await asyncio.wait({answers})
                if self.lose_answer:
                    far_writer.write(data)
                    while b"INSERT 0 1" not in await far_reader.read(65536):
                        continue
                break
            far_writer.write(data)
        far_writer.close()
        writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_d2_an_append_from_the_loop_whose_answer_was_lost_is_written_once(
    postgres_server: PostgresServer, postgres: str, tmp_path: Path, committed: bool
) -> None:
    line = LossyLine(postgres_server)
    await line.open()
    address = postgres.replace(str(postgres_server.folder), line.folder)
    assert address != postgres
    journal = await asyncio.to_thread(PostgresJournal, PostgresUrl(address), tmp_path)
    await begin(journal, "x")
    await journal.append("x", 1, [note("first")])  # the statement is prepared by now
    line.armed, line.lose_answer = True, committed
    await journal.append("x", 2, [note("once")])
    assert line.broken == 1
    await journal.append("x", 3, [note("next")])
    assert await notes(journal, "x") == ["first", "once", "next"]
    await journal.close()
    await line.close()


async def test_d2_an_append_that_is_alone_wakes_no_thread(
    quick: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[object] = []
    monkeypatch.setattr(quick, "_queue_up", woken.append)
    for n in range(1, 4):
        await quick.append("x", n, [note(n)])
    assert not woken
    assert await notes(quick, "x") == [1, 2, 3]


async def test_d2_appends_that_come_meanwhile_are_written_after_it(quick: PostgresJournal) -> None:
    others = [f"y{n}" for n in range(5)]
    for name in others:
        await begin(quick, name)
    appends = [quick.append(name, 1, [note(name)]) for name in ("x", *others)]
    message = quick.send("x", 1.0, {"kind": "pause"})
    await asyncio.gather(*appends, message)
    for name in ("x", *others):
        assert await notes(quick, name) == [name]


async def test_d2_what_the_socket_has_no_room_for_is_sent_as_there_is_room(quick: PostgresJournal) -> None:
    await quick.append("x", 1, [note("prepared")])
    descriptor = quick._writer.open().session.pgconn.socket
    with socket.socket(fileno=os.dup(descriptor)) as its_socket:
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    large = "a" * 60_000
    await quick.append("x", 2, [note(large)])
    assert await notes(quick, "x") == ["prepared", large]


async def test_d2_statements_that_the_server_has_forgotten_are_prepared_again(quick: PostgresJournal) -> None:
    await quick.append("x", 1, [note(1)])
    await asyncio.to_thread(quick._writer.open().session.execute, "DEALLOCATE ALL")
    await quick.append("x", 2, [note(2)])
    await quick.append("x", 3, [note(3)])
    assert await notes(quick, "x") == [1, 2, 3]


async def test_d2_an_append_whose_waiter_is_gone_is_written_before_the_journal_closes(
    quick: PostgresJournal, postgres: str, tmp_path: Path
) -> None:
    journal = PostgresJournal(PostgresUrl(postgres), tmp_path)
    await begin(journal, "y")
    appending = journal.append("y", 1, [note("sent")])
    appending.send(None)
    assert journal._quick.busy
    appending.close()
    await journal.close()
    assert await notes(quick, "y") == ["sent"]


async def test_d2_a_request_that_is_more_than_events_goes_to_the_thread(quick: PostgresJournal) -> None:
    assert not quick._quick.send(PendingAppend("x", 1, [b"{}"], head("x"), (), None, None))
    assert not quick._quick.send(PendingAppend("unknown", 1, [b"{}"], None, (), None, None))
