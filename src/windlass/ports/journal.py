"""The seams towards storage: the journal, and portable copies of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from windlass.core.events import ApprovalAsked, Event
from windlass.core.history import ExecutionRecord
from windlass.core.questions import OpenQuestion, QuestionChanges
from windlass.ports.history import ForecastStore, History

__all__ = [
    "ASKED_FOR",
    "OVER_BUDGET",
    "Archive",
    "AskedQuestion",
    "Entry",
    "Head",
    "Journal",
    "Message",
    "Note",
    "PolledJournal",
]


OVER_BUDGET = "over budget"
ASKED_FOR = {"budget": "budget", "decision": "outcome"}
"""The reasons to wait, by the detail of a head: a person's word on the budget, or on an unknown outcome."""


class Head(NamedTuple):
    """Summary of an execution, for lists and look-ups that do not read its events."""

    id: str
    name: str
    status: str
    created_at: float
    updated_at: float
    driver: str
    """The driver that has it, or had it last."""
    detail: str = ""
    """The reason for its pause; of a running one, what it asks a person for beside approval: `budget`, `decision`;
    `OVER_BUDGET` of one that ended so."""
    expires_at: float | None = None


class Entry(NamedTuple):
    """An event as the journal holds it."""

    position: int
    """Its place among all executions' events: never reused, always growing."""
    execution: str
    seq: int
    """Its place among its execution's events, from 1, without gaps."""
    event: Event


class AskedQuestion(NamedTuple):
    """An open question as lists show it."""

    position: int
    """Its place among all questions, always growing: where a page ends."""
    execution: str
    plan: str
    """The plan's name."""
    question: OpenQuestion
    asked: ApprovalAsked | None
    """The event that asks; None when it is damaged."""


class Message(NamedTuple):
    """Something another process asks of an execution's driver."""

    id: int
    execution: str
    at: float
    body: dict[str, Any]


class Note(NamedTuple):
    """A notification that is to be sent, once (I8)."""

    key: str
    """Names the occasion and the place: of two with one key, the second is dropped."""
    execution: str
    kind: str
    """`approval`, `failed`, `done`, `budget`, `quota`."""
    to: str
    """`desktop`, `bell`, or a message service."""
    recipient: str
    """The address of a mail."""
    at: float
    due: float
    """The time from which on it is sent."""
    until: float
    """The time after which it is no news any more."""
    title: str
    text: str
    data: dict[str, Any]
    """The same for programs."""
    owner: str
    """The process that records it, which is the first to send it."""
    while_open: str = ""
    """It is sent only while this holds: `approval DIGEST`, `waits STEP`, `quota`, `paused quota`; empty is always."""


class Journal(Protocol):
    """Append-only truth. When an append returns, it is on disk."""

    def enlist(self, label: str = "") -> str:
        """A name for a driver of this process, known to be alive until `close` or death. It holds the label."""
        ...

    def alive(self, driver: str) -> bool:
        """True if that driver's process still runs, anywhere on this machine."""
        ...

    async def append(
        self,
        execution: str,
        after: int,
        events: Sequence[Event],
        *,
        head: Head | None = None,
        consumed: Sequence[int] = (),
        questions: QuestionChanges | None = None,
        record: ExecutionRecord | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        """Add events that follow sequence `after`, or raise `Conflict` and add nothing.

        `head` replaces the execution's line, the messages in `consumed` are gone, the index of open questions is
        changed, `record` is the execution's in the history, and `notes` are in the outbox, in the same commit. A
        stopped execution has a record.
        """
        ...

    @property
    def history(self) -> History:
        """The records of stopped executions."""
        ...

    @property
    def forecasts(self) -> ForecastStore:
        """The forecasts that were shown."""
        ...

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        """Open questions of all executions, newest first: those of an id or digest, and older than `before`."""
        ...

    async def asking(self, executions: Sequence[str]) -> set[str]:
        """Find the executions among these that have an open question."""
        ...

    async def count_questions(self) -> int:
        """Count the open questions of all executions."""
        ...

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        """One execution's entries after a sequence, or with None everyone's after a position."""
        ...

    async def heads(
        self,
        *,
        prefix: str = "",
        statuses: Sequence[str] = (),
        name: str = "",
        text: str = "",
        since: float = 0.0,
        before: str = "",
        asking: bool = False,
        limit: int = 0,
    ) -> list[Head]:
        """Executions, the last created first: of a plan's name, with a text in name or id (ASCII letters of either
        case), created at a moment or later, and before the one with the id `before`, where these are given; with
        `asking`, only those that have an open question or wait for a person's word on budget or an outcome
        (`ASKED_FOR`).
        """
        ...

    async def counts(self) -> dict[str, int]:
        """Count the executions of each status."""
        ...

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        """Put a message into the execution's inbox."""
        ...

    async def receive(self, after: int = 0) -> list[Message]:
        """Messages with a higher id that no driver has consumed yet."""
        ...

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` when others may have written events of that execution, or messages for that driver.

        Returns the end of that. News may be lost, and many journals tell none: look again every `poll` seconds.
        """
        ...

    @property
    def poll(self) -> float:
        """Seconds between two looks of somebody who waits."""
        ...

    async def remove(self, *executions: str) -> None:
        """Forget executions, their events and messages, in one commit."""
        ...

    async def reclaim(self, most: int | None = None) -> int:
        """Give space that is no longer used back to the file system, and say how many bytes that were.

        Others cannot write meanwhile. So with more than `most` bytes in use, it is left for a quieter time.
        """
        ...

    async def close(self) -> None: ...


class PolledJournal:
    """The part of a journal that tells no news: everybody who waits looks often."""

    @property
    def poll(self) -> float:
        return 0.1

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        return _nothing


def _nothing() -> None:
    """Nothing was begun, and nothing ends."""


class Archive(Protocol):
    """Portable copies of executions' journals."""

    def write(self, execution: str, events: Sequence[Event], now: float) -> Path:
        """Keep a copy that a person asked for, and say where."""
        ...

    def saved(self, execution: str) -> int:
        """The sequence up to which the automatic copy is written; 0 when it has to be written anew."""
        ...

    def extend(self, execution: str, after: int, events: Sequence[Event], now: float) -> None:
        """Add the events that follow sequence `after` to the automatic copy; with 0 it is written anew."""
        ...

    def release(self, execution: str) -> None:
        """Keep nothing in memory about the automatic copy: the execution has stopped."""
        ...

    def read(self, path: Path) -> list[Event]:
        """The events of a copy, if it can be believed."""
        ...

    def remove(self, execution: str) -> None:
        """Forget all copies of an execution."""
        ...
