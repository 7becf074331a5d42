"""The journal in memory, with the same promises but the disk: for tests and simulations."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from windlass.core.events import ApprovalAsked, Event, decode, encode
from windlass.core.questions import OpenQuestion, QuestionChanges
from windlass.errors import Conflict, JournalError
from windlass.ports import AskedQuestion, Entry, Head, Message

__all__ = ["MemoryJournal"]


class MemoryJournal:
    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._position = 0
        self._last: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._inbox: list[Message] = []
        self._sent = 0
        self._questions: dict[tuple[str, str], tuple[int, OpenQuestion]] = {}
        """Open questions by execution and step, with their positions."""
        self._asked = 0
        self._drivers: set[str] = set()

    def enlist(self, label: str = "") -> str:
        driver = "-".join(filter(None, (label, uuid.uuid4().hex[:12])))
        self._drivers.add(driver)
        return driver

    def alive(self, driver: str) -> bool:
        return driver in self._drivers

    def retire(self, driver: str) -> None:
        """What death is to a process: tests end a driver with it."""
        self._drivers.discard(driver)

    async def append(
        self,
        execution: str,
        after: int,
        events: Sequence[Event],
        *,
        head: Head | None = None,
        consumed: Sequence[int] = (),
        questions: QuestionChanges | None = None,
    ) -> None:
        if self._last.get(execution, 0) != after:
            raise Conflict(f"another process took over execution {execution}; nothing was written")
        if after == 0 and head is None:
            raise JournalError("the first append of an execution brings its head")
        # Through JSON and back, so that nothing survives here that would not survive on disk.
        copies = [decode(encode(event)) for event in events]
        for offset, copy in enumerate(copies, 1):
            self._position += 1
            self._entries.append(Entry(self._position, execution, after + offset, copy))
        self._last[execution] = after + len(events)
        if head is not None:
            self._heads[execution] = head
        self._inbox = [message for message in self._inbox if message.id not in consumed]
        if questions is not None:
            for step in (*questions.closed, *(question.step for question in questions.opened)):
                self._questions.pop((execution, step), None)
            for question in questions.opened:
                self._asked += 1
                self._questions[execution, question.step] = (self._asked, question)

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        found = []
        for (execution, _), (position, question) in sorted(self._questions.items(), key=lambda row: -row[1][0]):
            if (not named or named in (question.id, question.digest)) and (not before or position < before):
                (entry,) = await self.read(execution, question.seq - 1, 1)
                assert isinstance(entry.event, ApprovalAsked)
                found.append(AskedQuestion(position, execution, self._heads[execution].name, question, entry.event))
        return found[:limit] if limit else found

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        if execution is None:
            found = [e for e in self._entries if e.position > after]
        else:
            found = [e for e in self._entries if e.execution == execution and e.seq > after]
        return found[:limit] if limit else found

    async def heads(
        self, *, prefix: str = "", statuses: Sequence[str] = (), name: str = "", before: str = "", limit: int = 0
    ) -> list[Head]:
        found = [
            head
            for head in sorted(self._heads.values(), key=lambda head: head.id, reverse=True)
            if head.id.startswith(prefix) and (not statuses or head.status in statuses)
            if (not name or head.name == name) and (not before or head.id < before)
        ]
        return found[:limit] if limit else found

    async def counts(self) -> dict[str, int]:
        return dict(Counter(head.status for head in self._heads.values()))

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        self._sent += 1
        self._inbox.append(Message(self._sent, execution, at, body))

    async def receive(self, after: int = 0) -> list[Message]:
        return [message for message in self._inbox if message.id > after]

    async def remove(self, *executions: str) -> None:
        self._entries = [entry for entry in self._entries if entry.execution not in executions]
        self._inbox = [message for message in self._inbox if message.execution not in executions]
        for execution in executions:
            self._heads.pop(execution, None)
            self._last.pop(execution, None)
        self._questions = {where: asked for where, asked in self._questions.items() if where[0] not in executions}

    async def reclaim(self, most: int | None = None) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to let go of."""
