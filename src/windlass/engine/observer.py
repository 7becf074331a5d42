"""Reads executions, whichever process drives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from windlass.core import events as ev
from windlass.core.transitions import NOT_STARTED, ExecutionStatus
from windlass.engine.lookup import find_head
from windlass.errors import Damaged, NotFound, UsageError
from windlass.ids import is_id
from windlass.ports import ASKED_FOR, AskedQuestion, Entry, Head, Journal

if TYPE_CHECKING:
    from windlass.core.state import State

__all__ = ["POLL", "Commits", "Drivers", "Observer", "Subscriber", "wait_for_news"]

POLL = 0.1
"""Seconds between looks at the events of other processes."""
STARTING = 20.0
"""Seconds that a driver may take to begin a pending execution; after that, none will."""

LAST_SEQ = 2**53
"""A sequence that no event reaches."""

Subscriber = Callable[[str, Sequence[ev.Event], int], None]
"""Called with the execution, its new events, and the sequence of the last; with no events when its driver has ended."""


class Commits:
    """Passes each commit of a driver on to the subscribers.

    They are called on the path of the commit, so they must only take a note and return.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()  # replaced, not changed: one may unsubscribe while it is called

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Returns the function that ends the subscription."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, execution: str, events: Sequence[ev.Event], seq: int) -> None:
        for subscriber in self._subscribers:
            subscriber(execution, events, seq)


async def wait_for_news(news: asyncio.Event, journal: Journal) -> float:
    """Wait until somebody tells of news, or until it is time to look again; returns the seconds of that."""
    within = journal.poll
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await news.wait()
    return within


class Drivers:
    """The drivers of a process that only reads: it has none, and knows those of others by the journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.commits = Commits()

    def driven(self, head: Head | State) -> bool:
        """True if a living process drives it."""
        return head.status == ExecutionStatus.RUNNING and self.alive(head)

    def alive(self, head: Head | State) -> bool:
        """True if the process named as its driver lives."""
        return self.journal.alive(head.driver)

    def task(self, execution: str) -> asyncio.Task[State] | None:
        """The task that drives it, if this process does."""
        return None


class Observer:
    """Finds executions, reads their state, follows them. Changes nothing."""

    def __init__(self, drivers: Drivers) -> None:
        self._drivers = drivers
        self._journal = drivers.journal
        self.driven = drivers.driven
        self.alive = drivers.alive
        self.damaged: dict[str, Damaged] = {}
        """Executions that were found damaged, by id."""
        self._followers: dict[str, list[asyncio.Event]] = {}
        self._unsubscribe: Callable[[], None]

    async def find(self, name: str) -> Head:
        """Find an execution by its id or a unique prefix of it."""
        return await find_head(self._journal, name)

    async def executions(
        self,
        statuses: Sequence[str] = (),
        limit: int = 0,
        *,
        name: str = "",
        text: str = "",
        since: float = 0.0,
        before: str = "",
        asking: bool = False,
    ) -> list[Head]:
        """Executions, newest first. `before` is the last id of the previous page; see `Journal.heads`."""
        if before and not is_id(before):
            raise UsageError(f"`before` is the last id of the page before; given is {before!r}")
        statuses = (statuses,) if isinstance(statuses, str) else statuses
        if unknown := sorted({str(one) for one in statuses} - set(ExecutionStatus)):
            raise UsageError(f"there is no status {unknown[0]!r}; there are: {', '.join(ExecutionStatus)}")
        return await self._journal.heads(
            statuses=statuses, name=name, text=text, since=since, before=before, asking=asking, limit=limit
        )

    async def waiting(self, heads: Sequence[Head]) -> dict[str, str]:
        """Find which of these executions wait for a person, by id: for `approval`, `budget` or `outcome`."""
        unfinished = [head for head in heads if head.status in ("pending", "running", "paused")]
        asking = await self._journal.asking([head.id for head in unfinished]) if unfinished else ()
        found = {head.id: ASKED_FOR[head.detail] for head in unfinished if head.detail in ASKED_FOR}
        return dict.fromkeys(asking, "approval") | found

    async def counts(self) -> dict[str, int]:
        """Count the executions of each status."""
        return {str(status): 0 for status in ExecutionStatus} | await self._journal.counts()

    async def etas(self, heads: Iterable[Head], now: float) -> dict[str, float]:
        """Seconds to the end of executions that run, by the last forecast of each that has one; none is made."""
        running = [head.id for head in heads if self.driven(head)]
        found = await self._journal.forecasts.latest(*running) if running else {}
        left = {name: forecast.left_at(now) for name, forecast in found.items()}
        return {name: round(band.middle, 1) for name, band in left.items() if band is not None}

    async def state(self, execution: str) -> State:
        """Read its state, as it is on disk."""
        head = await self.find(execution)
        return (await self.record(head.id))[0]

    async def record(self, execution: str) -> tuple[State, list[Entry]]:
        """Read the state and the events of an execution by its full id. Raises `Damaged`, and remembers it."""
        from windlass.core.record import folded  # a list of executions folds none of them

        try:
            entries = await self._journal.read(execution)
            state = folded(execution, [entry.event for entry in entries])
        except Damaged as damage:
            await self._remember(damage)
            raise
        self.damaged.pop(execution, None)
        return state, entries

    async def verify(self, execution: str) -> None:
        """Compare every event of an execution, by its full id, with its checksum, and remember the damage.

        Cheaper than `record`: intact events are not compared with the rules of events.
        """
        with suppress(NotFound):
            try:
                if not await self._journal.read(execution):
                    raise Damaged(execution, 1, "it is missing")
            except Damaged as damage:
                await self._remember(damage)

    async def _remember(self, damage: Damaged) -> None:
        if not await self._journal.heads(prefix=damage.execution, limit=1):
            raise NotFound(f"execution {damage.execution} was removed") from damage
        self.damaged[damage.execution] = damage

    async def states(self, heads: Iterable[Head]) -> AsyncIterator[State]:
        """Read the states of all that can be read. The others are in `damaged`, unless they were removed meanwhile."""
        for head in heads:
            try:
                state, _entries = await self.record(head.id)
            except (Damaged, NotFound):
                continue
            yield state

    async def open_questions(
        self, *, before: int = 0, limit: int = 0, verify: int = 0
    ) -> list[tuple[AskedQuestion, ev.ApprovalAsked]]:
        """Questions that wait for a person, newest first. `before` is the position of the previous page's last one.

        Those of executions known to be damaged are left out. The newest `verify` executions are checked for damage,
        which costs a fold of each.
        """
        found = await self._journal.questions(before=before, limit=limit)
        newest = list(dict.fromkeys(one.execution for one in found))[:verify]
        for execution in {*newest, *(one.execution for one in found if one.asked is None)}:
            with suppress(Damaged, NotFound):  # `record` has noted the damage
                await self.record(execution)
        return [(one, one.asked) for one in found if one.asked is not None and one.execution not in self.damaged]

    async def follow(self, execution: str, after: int = 0) -> AsyncIterator[Entry]:
        """Its events, past and future, until it has finished or paused."""
        if not isinstance(after, int) or not 0 <= after <= LAST_SEQ:
            raise UsageError(f"`after` is the `seq` of an event, or 0 for all; given is {after!r}")
        head = await self.find(execution)
        stopped = False
        quiet = silence = 0.0
        with self._commits_of(head.id) as news:
            while True:
                news.clear()
                entries = await self._journal.read(head.id, after)
                for entry in entries:
                    after = entry.seq
                    stops = isinstance(entry.event, ev.ExecutionPaused | ev.ExecutionFinished)
                    stopped = stops or (stopped and isinstance(entry.event, ev.StepUndone))
                    yield entry
                if entries:
                    quiet = silence = 0.0
                    continue
                if stopped:
                    return
                waited = await wait_for_news(news, self._journal)
                quiet, silence = quiet + waited, silence + waited
                if quiet > 1.0:
                    quiet = 0.0
                    current = await self.find(head.id)
                    begun = current.status == ExecutionStatus.RUNNING or silence > STARTING
                    # Its driver may have written more, and ended, since that was read: look once more.
                    stopped = begun and not self.driven(current)

    async def wait(self, execution: str) -> State:
        """Wait until it has finished or paused; returns its state."""
        task = self._drivers.task(execution)
        if task is None:
            execution = (await self.find(execution)).id
            task = self._drivers.task(execution)
        if task is not None:
            return await asyncio.shield(task)
        async for _entry in self.follow(execution):
            """Until it has stopped."""
        return await self.state(execution)

    async def orphans(self) -> list[Head]:
        """Executions that a dead process left running (D6)."""
        running = await self._journal.heads(statuses=[ExecutionStatus.RUNNING, ExecutionStatus.PENDING])
        return [head for head in running if not self._drivers.alive(head) and head.detail != NOT_STARTED]

    @contextmanager
    def _commits_of(self, execution: str) -> Iterator[asyncio.Event]:
        """Set an event with each commit of the execution here; subscribed only while it is followed."""
        news = asyncio.Event()
        if not self._followers:
            self._unsubscribe = self._drivers.commits.subscribe(self._wake_followers)
        followers = self._followers.setdefault(execution, [])
        followers.append(news)
        end = self._journal.listen(execution, news.set)
        try:
            yield news
        finally:
            end()
            followers.remove(news)
            if not followers:
                del self._followers[execution]
            if not self._followers:
                self._unsubscribe()

    def _wake_followers(self, execution: str, _events: Sequence[ev.Event], _seq: int) -> None:
        for news in self._followers.get(execution, ()):
            news.set()
