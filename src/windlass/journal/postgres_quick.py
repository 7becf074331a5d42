"""Appends of events alone, sent to PostgreSQL by the event loop itself: no thread is woken on the way and back.

An execution that nobody else keeps company waits for one statement in each step; two threads that wake each other
take nearly as long as the server does. What is not answered as it should be is left to the writer's thread, which
knows what became of a statement whose session broke, waits for a server that is away and finds the right error. So is
one that has no answer for a while: the server or the network may hang.

The session is the writer's: `send` is called only while the thread has nothing to do, and `let_go` before it has.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import psycopg
from psycopg import errors, pq

from windlass.faults import fault_point
from windlass.journal.append import Known, PendingAppend
from windlass.journal.postgres_append import MOST, rows_alone, statement
from windlass.journal.postgres_database import SILENCE, PostgresConnection, PostgresDatabase, is_lost
from windlass.journal.rows import EventRow

__all__ = ["QuickAppends"]

LARGEST = 65_536
"""Bytes of events that are sent so: a thread copies more, while the loop has other things to do."""
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class QuickAppends:
    """Writes one append at a time."""

    def __init__(self, database: PostgresDatabase, known: Known, ended: Callable[[PendingAppend, bool], None]) -> None:
        """`ended` is called on the loop, and told whether the append is written."""
        self._database, self._known, self._ended = database, known, ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = -1
        """The socket that the loop watches."""
        self._sent_at = 0.0
        self._silence: asyncio.TimerHandle | None = None
        """Ends a wait without an answer."""
        self._request: PendingAppend | None = None
        self._rows: list[EventRow] = []
        self._connection: PostgresConnection | None = None
        self._answer: pq.abc.PGresult | None = None

    @property
    def busy(self) -> bool:
        return self._request is not None

    def send(self, request: PendingAppend) -> bool:
        """Send an append; False if it is not of this kind, and then nothing was done."""
        connection = self._database.connection
        rows = rows_alone((request,), self._known)
        if connection is None or not 0 < len(rows) <= MOST or sum(map(len, request.bodies)) > LARGEST:
            return False
        self._request, self._rows, self._connection = request, rows, connection
        try:
            self._watch(connection.session.pgconn.socket)
            for point in self._database.points[:2]:
                fault_point(point)
            self._send()
        except _LOST:  # the session had ended before; nothing was sent that could take effect
            self._end(False)
        return True

    def let_go(self) -> None:
        """Do not watch the session any more."""
        if self._watched >= 0 and self._loop is not None:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
            self._watched = -1
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _watch(self, socket: int) -> None:
        if self._watched != socket:
            self.let_go()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(socket, self._readable)
            self._watched = socket
        assert self._loop is not None
        self._sent_at = self._loop.time()
        if self._silence is None:
            self._silence = self._loop.call_later(SILENCE, self._look_for_silence)

    def _look_for_silence(self) -> None:
        """Leave an append that was sent long ago to the thread, with a new session."""
        assert self._loop is not None
        self._silence = None
        if self._connection is None:
            return
        if self._loop.time() < self._sent_at + SILENCE:
            self._silence = self._loop.call_at(self._sent_at + SILENCE, self._look_for_silence)
            return
        self.let_go()
        self._connection.session.close()
        self._end(False, doubtful=True)

    def _send(self) -> None:
        """Send the statement, or first its preparation."""
        assert self._connection is not None
        connection, server, rows = self._connection, self._connection.session.pgconn, self._rows
        count, self._answer = len(rows), None
        name = b"windlass_%d" % count
        if name in connection.prepared:
            key, first, _, _ = rows[0]
            values: list[bytes | bytearray] = [_number(key)]
            for _, seq, body, checksum in rows:
                values += (_number(seq), body, _number(checksum))
            values.append(_number(first - 1))
            server.send_query_prepared(name, values, [pq.Format.BINARY] * len(values))
        else:
            server.send_prepare(name, _numbered(statement(count)))
        if server.flush() and self._loop is not None:
            self._loop.add_writer(self._watched, self._writable)

    def _writable(self) -> None:
        """Send what the socket had no room for."""
        assert self._connection is not None
        assert self._loop is not None
        try:
            if self._connection.session.pgconn.flush() == 0:
                self._loop.remove_writer(self._watched)
        except _LOST:
            self._end(False, doubtful=True)

    def _readable(self) -> None:
        if self._request is None or self._connection is None:  # the server ends the session: the next one notices
            self.let_go()
            return
        server = self._connection.session.pgconn
        try:
            server.consume_input()
            while not server.is_busy():
                result = server.get_result()
                if result is None:
                    self._answered()
                    return
                self._answer = result
        except _LOST:
            self._end(False, doubtful=True)

    def _answered(self) -> None:
        answer, connection = self._answer, self._connection
        assert answer is not None
        assert connection is not None
        name = b"windlass_%d" % len(self._rows)
        if answer.status != pq.ExecStatus.COMMAND_OK:
            error = errors.error_from_result(answer)
            if isinstance(error, errors.InvalidSqlStatementName):  # the driver has the server forget all of them
                connection.prepared.clear()
                self._send()
                return
            self._end(False, doubtful=name in connection.prepared and is_lost(connection.session, error))
        elif name not in connection.prepared:
            connection.prepared.add(name)
            self._send()
        else:
            for point in self._database.points[2:]:
                fault_point(point)
            self._end(answer.command_tuples == len(self._rows))

    def _end(self, written: bool, *, doubtful: bool = False) -> None:
        request, rows = self._request, self._rows
        assert request is not None
        self._request, self._rows, self._connection, self._answer = None, [], None, None
        request.doubtful = doubtful
        if not written:
            self.let_go()
        if written:
            key, last, _, _ = rows[-1]
            self._known[request.execution] = (key, last, self._known[request.execution][2])
        self._ended(request, written)


_number = struct.Struct(">q").pack


def _numbered(text: bytes) -> bytes:
    """The statement with the server's own marks for values: `$1`, `$2`, …"""
    first, *others = text.split(b"%b")
    return first + b"".join(b"$%d%b" % (number, part) for number, part in enumerate(others, 1))
