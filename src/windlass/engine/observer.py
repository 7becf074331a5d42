"""Looking at executions, whoever drives them: the reading half of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress

from windlass.core import events as ev
from windlass.core.record import folded
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.lookup import find_head
from windlass.errors import Damaged, NotFound
from windlass.ports import AskedQuestion, Entry, Head, Journal

__all__ = ["POLL", "Observer"]

POLL = 0.1
"""Seconds between looks at what other processes did."""
STARTING = 20.0
"""Seconds that a driver may take to begin with what was written down for it; after that, nobody will."""


class Observer:
    """Finds executions, reads where they stand, follows them. Changes nothing."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.damaged: dict[str, Damaged] = {}
        """Executions that were found damaged, by id."""
        self._listeners: dict[str, list[asyncio.Future[None]]] = {}
        self._watchers: list[Callable[[str], None]] = []
        self._tellers: list[Callable[[str, Sequence[ev.Event]], None]] = []

    async def find(self, name: str) -> Head:
        """The execution that an id, or the unique beginning of one, means."""
        return await find_head(self.journal, name)

    async def executions(
        self, statuses: Sequence[str] = (), limit: int = 0, *, name: str = "", before: str = ""
    ) -> list[Head]:
        """Executions, newest first. `before` is the last id of the page before."""
        return await self.journal.heads(statuses=statuses, name=name, before=before, limit=limit)

    async def counts(self) -> dict[str, int]:
        """How many executions there are of each status."""
        return {str(status): 0 for status in ExecutionStatus} | await self.journal.counts()

    def driven(self, head: Head | State) -> bool:
        """Whether a living process drives it."""
        return head.status == ExecutionStatus.RUNNING and self._alive(head.driver, head.id)

    def _alive(self, driver: str, execution: str) -> bool:
        return self.journal.alive(driver)

    async def state(self, execution: str) -> State:
        """Where it stands, as far as is on disk."""
        head = await self.find(execution)
        return (await self.record(head.id))[0]

    async def record(self, execution: str) -> tuple[State, list[Entry]]:
        """The state and the events of an execution with this whole id. Raises `Damaged`, and remembers it."""
        try:
            entries = await self.journal.read(execution)
            state = folded(execution, [entry.event for entry in entries])
        except Damaged as damage:
            if not await self.journal.heads(prefix=execution, limit=1):
                raise NotFound(f"execution {execution} was removed") from damage
            self.damaged[execution] = damage
            raise
        self.damaged.pop(execution, None)
        return state, entries

    async def states(self, heads: Iterable[Head]) -> AsyncIterator[State]:
        """The states of those that can be read. The others are in `damaged`, unless they were removed meanwhile."""
        for head in heads:
            try:
                state, _entries = await self.record(head.id)
            except (Damaged, NotFound):
                continue
            yield state

    async def open_questions(
        self, *, before: int = 0, limit: int = 0, verify: int = 0
    ) -> list[tuple[AskedQuestion, ev.ApprovalAsked]]:
        """Questions that wait for a person, newest first. `before` is the position of the last of the page before.

        Those of damaged executions are left out, as far as the damage is known; it is looked for in the newest
        `verify` executions, which costs a fold of each.
        """
        found = await self.journal.questions(before=before, limit=limit)
        newest = list(dict.fromkeys(one.execution for one in found))[:verify]
        for execution in {*newest, *(one.execution for one in found if one.asked is None)}:
            with suppress(Damaged, NotFound):  # `record` has noted the damage
                await self.record(execution)
        return [(one, one.asked) for one in found if one.asked is not None and one.execution not in self.damaged]

    async def follow(self, execution: str, after: int = 0) -> AsyncIterator[Entry]:
        """Its events, those past and those to come, until it is finished or stands still."""
        head = await self.find(execution)
        still = False
        quiet = silence = 0.0
        news = self._listen(head.id)
        while True:
            if news.done():
                news = self._listen(head.id)
            entries = await self.journal.read(head.id, after)
            for entry in entries:
                after = entry.seq
                stands = isinstance(entry.event, ev.ExecutionPaused | ev.ExecutionFinished)
                still = stands or (still and isinstance(entry.event, ev.StepUndone))
                yield entry
            if entries:
                quiet = silence = 0.0
                continue
            if still:
                return
            await asyncio.wait({news}, timeout=POLL)
            quiet, silence = quiet + POLL, silence + POLL
            if quiet > 1.0:
                quiet = 0.0
                current = await self.find(head.id)
                begun = current.status == ExecutionStatus.RUNNING or silence > STARTING
                if begun and not self.driven(current):
                    return

    def on_events(self, heard: Callable[[str, Sequence[ev.Event]], None]) -> None:
        """Have `heard` called with the execution and the events of every commit of a driver here.

        It is called on the way of the commit, so it must only take a note and return.
        """
        self._tellers.append(heard)

    def on_commit(self, heard: Callable[[str], None]) -> Callable[[], None]:
        """Have `heard` called with the execution's id after every commit of a driver here; gives the way to end that.

        It is called on the way of the commit, so it must only take a note and return.
        """
        self._watchers.append(heard)
        return lambda: self._watchers.remove(heard)

    async def orphans(self) -> list[Head]:
        """Executions that a dead process left running (D6)."""
        running = await self.journal.heads(statuses=[ExecutionStatus.RUNNING, ExecutionStatus.PENDING])
        return [head for head in running if not self._alive(head.driver, head.id)]

    def _tell(self, execution: str) -> None:
        for waiting in self._listeners.pop(execution, ()):
            if not waiting.done():
                waiting.set_result(None)

    def _listen(self, execution: str) -> asyncio.Future[None]:
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.setdefault(execution, []).append(news)
        return news
