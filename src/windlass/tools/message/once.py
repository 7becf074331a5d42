"""A message leaves once: notes before and after the hand-over decide what a second attempt does.

The argument, attempt by attempt. `begun` is on disk before the first byte that the other side could act on. So a second
attempt finds one of:

- nothing: no attempt came that far, or the other side has refused it for good. It is handed over.
- `sent`: the recorded result is returned, nothing is sent.
- `begun` by this very attempt, or by a later one: another process has it in hand, or died with it. Nothing is sent, and
  the error says that nobody knows.
- `begun` by an earlier attempt: that one was cut off, and as the effect is `once`, the engine has asked a person, who
  said that it shall be done again (or the plan's own `effect:` says so). It is handed over again.

The last case needs that no failure of which the end is unknown is retried unasked: it is always `OutcomeUnknown`, which
is final.

The book is an SQLite file of the home. A message is a row, named by the step's effect id and the digest of its content.
No content is kept, only its outcome.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from windlass.clock import iso
from windlass.errors import CUT_OFF, Category, Failure, ToolError
from windlass.faults import fault_point
from windlass.ports import Call

__all__ = ["MessageLog", "OutcomeUnknown", "OutgoingMessage"]


class OutcomeUnknown(ToolError):
    """It was handed over, and nobody knows what came of it."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        told = advice or ("check with the recipient or in the service whether it has arrived",)
        # Trying again unasked could send it twice.
        self.failure = Failure(Category.TRANSIENT, message, advice=told, kind=CUT_OFF, final=True)


class OutgoingMessage:
    """One message of one step, on its way."""

    def __init__(self, book: MessageLog, now: Callable[[], float], call: Call, service: str, content: Any) -> None:
        """`content` is plain data: all that makes this message differ from another one."""
        self._book, self._now, self._call, self._service = book, now, call, service
        told = json.dumps([service, content], sort_keys=True)
        self._digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def id(self) -> str:
        """The same for every attempt at this message: lets the other side recognise a repetition."""
        return hashlib.sha256(f"{self._call.effect_id}\n{self._digest}".encode()).hexdigest()[:40]

    def known(self) -> dict[str, Any] | None:
        """The result of a message that has been sent already."""
        entry = self._book.look(self._call.effect_id, self._digest)
        if entry is None or (entry.result is None and entry.attempt < self._call.attempt):
            return None
        return self._recorded(entry)

    async def hand_over(self, act: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Do it, unless it has been done. A ToolError of `act` means that the other side has not taken it; any
        other end leaves the outcome open."""
        call = self._call
        before = self._book.begin(call.effect_id, self._digest, call.attempt, self._service, self._now())
        if before is not None:
            return self._recorded(before)
        fault_point("message.begun")
        try:
            told = await act()
        except OutcomeUnknown:
            raise
        except ToolError:
            self._book.withdraw(call.effect_id, self._digest)
            raise
        except Exception as error:
            raise OutcomeUnknown(
                f"handing the message over to {self._service!r} ended with {type(error).__name__}: it "
                "may or may not have arrived"
            ) from error
        fault_point("message.handed")
        result = {"service": self._service, "sent_at": iso(self._now()), "repeated": False, **told}
        try:
            self._book.sent(call.effect_id, self._digest, result, self._now())
        except ToolError as error:
            call.output("note", f"the message was sent, but: {error}\n")
        fault_point("message.sent")
        return result

    def _recorded(self, entry: MessageEntry) -> dict[str, Any]:
        if entry.result is not None:
            self._call.output("note", "this message has been sent already: nothing was sent now\n")
            return {**entry.result, "repeated": True}
        raise OutcomeUnknown(
            f"this message was handed over to {self._service!r} at {iso(entry.begun)}, by a process that did not "
            "report its end: it may or may not have arrived, so it is not sent again"
        )


KEPT = 366 * 86400.0
"""Seconds for which a sent message is remembered."""
BUSY = 10.0
"""Seconds that one waits for another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
  effect TEXT NOT NULL,
  digest TEXT NOT NULL,
  service TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  begun REAL NOT NULL,
  sent REAL,
  result TEXT,
  PRIMARY KEY (effect, digest)
) WITHOUT ROWID
"""


class MessageEntry(NamedTuple):
    attempt: int
    """The attempt that handed it over."""
    begun: float
    result: dict[str, Any] | None
    """The result; None while it is not known."""


class MessageLog:
    def __init__(self, file: Path) -> None:
        self._file = file

    def look(self, effect: str, digest: str) -> MessageEntry | None:
        if not self._file.exists():
            return None
        with self._open() as db:
            return _entry(db, effect, digest)

    def begin(self, effect: str, digest: str, attempt: int, service: str, now: float) -> MessageEntry | None:
        """Write down that it is handed over now. If another attempt or process was first, that one's entry: then
        nothing is to be sent. An entry of an earlier attempt that nobody knows the end of is taken over."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # who looks and who writes are one, across processes
            before = _entry(db, effect, digest)
            if before is not None and (before.result is not None or before.attempt >= attempt):
                return before
            db.execute("DELETE FROM message WHERE sent < ?", (now - KEPT,))
            db.execute(
                "INSERT OR REPLACE INTO message (effect, digest, service, attempt, begun) VALUES (?, ?, ?, ?, ?)",
                (effect, digest, service, attempt, now),
            )
        return None

    def sent(self, effect: str, digest: str, result: dict[str, Any], now: float) -> None:
        with self._open() as db:
            db.execute(
                "UPDATE message SET sent = ?, result = ? WHERE effect = ? AND digest = ?",
                (now, json.dumps(result), effect, digest),
            )

    def withdraw(self, effect: str, digest: str) -> None:
        """The other side has not taken it: another attempt may hand it over."""
        with self._open() as db:
            db.execute("DELETE FROM message WHERE effect = ? AND digest = ? AND sent IS NULL", (effect, digest))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Opened for each use: messages are rare, and a file that is closed can be moved, copied and deleted."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(self._file, timeout=BUSY)) as db:
                db.execute("PRAGMA synchronous = EXTRA")  # a commit is on disk, its directory entry too
                with db:
                    db.execute(_SCHEMA)
                    yield db
        except (sqlite3.Error, OSError) as error:
            raise ToolError(
                f"the record of sent messages cannot be used ({error}); without it a message could be sent twice",
                category=Category.RESOURCE,
                advice=(f"look at {self._file}: is the disk full, or the file not yours or damaged?",),
            ) from error


def _entry(db: sqlite3.Connection, effect: str, digest: str) -> MessageEntry | None:
    row = db.execute(
        "SELECT attempt, begun, result FROM message WHERE effect = ? AND digest = ?", (effect, digest)
    ).fetchone()
    return MessageEntry(row[0], row[1], json.loads(row[2]) if row[2] is not None else None) if row else None
