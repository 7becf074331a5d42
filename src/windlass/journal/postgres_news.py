"""Live news of a PostgreSQL journal: a process is told when others have written events or messages that it waits for.

Each execution and each driver has a channel (LISTEN, NOTIFY). PostgreSQL lets one commit at a time notify, so commits
of events do not: a session of its own tells of them soon after, of many at once. News can be lost, with a process that
dies or a pooler that does not pass them on; so everybody who waits also looks now and then.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import select
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psycopg

from windlass.errors import JournalError
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres_database import connect

__all__ = ["LOOKS", "PostgresNews", "channel_of"]

_log = logging.getLogger("windlass.journal")

LOOKS = 1.0
"""Seconds between two looks of somebody who is told of news."""
GATHERED = 0.02
"""Seconds for which news are gathered before they are told."""
PAUSE = 2.0
"""Seconds before a lost session is opened again."""


@lru_cache(1024)
def channel_of(name: str) -> str:
    """The channel of an execution or a driver."""
    return "windlass_" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


class PostgresNews:
    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._me = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        """By channel."""
        self._told: set[str] = set()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakes, self._waker = -1, -1
        self.hears = False
        """News arrive: the session is open and listens to all that is waited for."""

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` on the loop when there may be news of an execution or for a driver; returns the end of that."""
        channel, self._loop = channel_of(name), asyncio.get_running_loop()
        with self._lock:
            self._waiting.setdefault(channel, []).append(told)
            self.hears = False
        self._wake()

        def end() -> None:
            with self._lock:
                self._waiting[channel].remove(told)
                if not self._waiting[channel]:
                    del self._waiting[channel]

        return end

    def tell(self, executions: Iterable[str]) -> None:
        """Tell others that events of these were written."""
        with self._lock:
            before = len(self._told)
            self._told.update(map(channel_of, executions))
            if len(self._told) == before:
                return  # the thread was woken for them, and has not looked yet
        self._wake()

    def close(self) -> None:
        """Tell what is to be told, and end."""
        self._closed = True
        if self._thread is None:
            return
        self._wake()
        self._thread.join(LOOKS)
        if not self._thread.is_alive():  # else it waits for a server that is away
            os.close(self._wakes)
            os.close(self._waker)

    def _wake(self) -> None:
        with self._lock:
            if self._thread is None:
                self._wakes, self._waker = os.pipe()
                os.set_blocking(self._wakes, False)
                os.set_blocking(self._waker, False)
                self._thread = threading.Thread(target=self._run, name="windlass-news", daemon=True)
                self._thread.start()
        with suppress(BlockingIOError):  # it is full of reasons to wake up
            os.write(self._waker, b".")

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                with connect(self._url) as session:
                    self._serve(session)
                return
            except (psycopg.Error, JournalError, OSError) as error:
                self.hears = False
                _log.debug("no news from %s: %s", self._url, self._url.hide(str(error)))
                if self._closed:
                    return
                time.sleep(PAUSE)

    def _serve(self, session: psycopg.Connection[Any]) -> None:
        session.execute("SET synchronous_commit = off")  # news are not kept, so nobody has to wait for the disk
        session.add_notify_handler(lambda notice: self._received(notice.channel, notice.payload))
        heard: set[str] = set()
        while True:
            closed = self._closed
            self._drain()
            with self._lock:
                wanted, told, self._told = set(self._waiting), self._told, set()
            try:
                for channel in wanted - heard:
                    session.execute(f"LISTEN {channel}")
                for channel in heard - wanted:
                    session.execute(f"UNLISTEN {channel}")
                if told:
                    session.execute("SELECT pg_notify(name, %s) FROM unnest(%s::text[]) name", (self._me, list(told)))
            except psycopg.Error:
                with self._lock:
                    self._told |= told
                raise
            for channel in wanted - heard:  # something may have been written before it was listened to
                self._received(channel, "")
            heard = wanted
            with self._lock:
                self.hears = heard == set(self._waiting)
            if closed:
                return
            if told:
                time.sleep(GATHERED)
            select.select([session.fileno(), self._wakes], [], [])
            session.pgconn.consume_input()
            while (notice := session.pgconn.notifies()) is not None:
                self._received(notice.relname.decode(), notice.extra.decode())

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wakes, 4096):
                continue

    def _received(self, channel: str, by: str) -> None:
        if by == self._me:
            return
        with self._lock:
            told = list(self._waiting.get(channel, ()))
        loop = self._loop
        for one in told:
            with suppress(RuntimeError):  # the loop is closed
                if loop is not None:
                    loop.call_soon_threadsafe(one)
