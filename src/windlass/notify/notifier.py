"""Sends what is in the outbox, in a task beside the executions; nothing of it slows them down or fails them.

Each process with rules does so. A note is claimed by one of them (`journal.outbox`): first the one that recorded it,
later any. A failed try is repeated with a growing pause, for as long as the note is news. At its end a process waits
some seconds for its own notes; what is left, the next one sends.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from windlass.clock import Clock
from windlass.core.budget import Scope
from windlass.core.record import folded
from windlass.core.state import State
from windlass.engine.spending import scopes_of
from windlass.errors import Category, ToolError, WindlassError
from windlass.faults import fault_point
from windlass.homes.key import HomeKey
from windlass.journal.stores import HomeStores
from windlass.notify.channels import Channels
from windlass.notify.texts import Wording
from windlass.notify.watch import SHORTEST_WAIT, ExecutionWatch, NoteMaker, budget_occasions
from windlass.ports import Journal, Ledger, Note
from windlass.ports.notify import OutboxEntry, Watch
from windlass.process import Supervisor
from windlass.redact import Redactor
from windlass.settings import Settings
from windlass.settings.variables import with_mcp_variables
from windlass.tools.message.once import OutcomeUnknown

__all__ = ["HomeNotifier", "troubles_of"]

_log = logging.getLogger("windlass.notify")

AT_ONCE = 8
"""Notes that are sent at the same time."""
LOOK_EVERY = 5.0
"""Seconds between looks for notes of other processes."""
TIMEOUT = 90.0
"""Seconds that one try may take."""
PAUSES = (5.0, 30.0, 120.0, 600.0)
"""Seconds after the first failed tries; the last one repeats."""
FAREWELL = 10.0
"""Seconds that a process waits for its own notes at its end."""


class HomeNotifier:
    """The notifier of one process, for one home."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        journal: Journal,
        ledger: Ledger,
        clock: Clock,
        processes: Supervisor,
        owner: Callable[[], str],
        *,
        bell: bool = False,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """`owner` names this process among those alive; `bell` says that it has a terminal with somebody at it."""
        self._settings, self._home = settings, home
        self._journal, self._ledger, self._clock, self._owner = journal, ledger, clock, owner
        self._outbox = HomeStores(home, settings.journal).outbox()
        self._channels = Channels(settings.messages, settings.notify, home, processes, clock.now, env)
        self._redactor = Redactor(with_mcp_variables(settings, env), self._channels.secrets())
        wording = Wording(str(home), settings.public_url, self._redactor.text)
        self._maker = NoteMaker(settings.notify, wording, lambda: self._key, owner, bell=bell)
        self._troubles: dict[int, str] = {}
        """Notes that this process could not send, by number; 0 is all of them."""
        self._closing = False
        self._spent: dict[str, tuple[State, list[Scope]]] = {}
        """Executions that have spent something since the last look at the limits."""
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._unrecorded: set[int] = set()
        """Notes that we have claimed, and whose outcome could not be written down."""
        self._news = asyncio.Event()

    @cached_property
    def _key(self) -> HomeKey:
        return HomeKey(self._home)

    # -- the port --------------------------------------------------------------------------------

    @property
    def troubles(self) -> list[str]:
        return list(self._troubles.values())

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="windlass-notify")

    def watch(self, state: State) -> Watch:
        self.start()
        return ExecutionWatch(state, self._maker, self._note_spending)

    def committed(self, notes: Sequence[Note]) -> None:
        fault_point("notify.recorded")
        self._news.set()

    async def close(self) -> None:
        self._closing = True
        self._news.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._task  # not cancelled: it may have claimed something this very moment
                    await self._finish()
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)
        await self._outbox.close()

    # -- sending ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing:
            self._news.clear()
            pause = LOOK_EVERY
            try:
                await self._put_back()
                await self._check_limits()
                await self._send_due()
                due = await self._outbox.next_due()
                if due is not None and due > self._clock.now():
                    pause = min(pause, due - self._clock.now())
            except Exception:  # a full disk, a lock: the next look may succeed, and nothing else would make one
                _log.warning("notifications cannot be sent now", exc_info=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if not self._closing else 0):
                    await self._news.wait()

    async def _finish(self) -> None:
        """Send what is due, and wait until it is sent."""
        try:
            await self._check_limits()
            # Nobody answers here any more: a question that was just asked is told now.
            while await self._send_due(ahead=SHORTEST_WAIT) or self._sending:
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        except WindlassError as error:
            self._troubles[0] = f"notifications could not be sent: {error.message}"

    async def _send_due(self, ahead: float = 0.0) -> int:
        """Begin to send what is due, or is so many seconds from now; returns how many notes that are."""
        room = AT_ONCE - len(self._sending)
        if room <= 0:
            return 0
        rate = self._settings.messages.rate
        now = self._clock.now() + ahead
        claimed = await self._outbox.claim(self._owner(), now, self._journal.alive, rate, room)
        for entry in claimed:
            task = asyncio.get_running_loop().create_task(self._send(entry))
            self._sending.add(task)
            task.add_done_callback(partial(self._sent, entry.number))
        return len(claimed)

    def _sent(self, number: int, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._news.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a notification could not be recorded", exc_info=error)
            self._unrecorded.add(number)

    async def _put_back(self) -> None:
        """Have notes tried again that would stay claimed for as long as we live: whether they have left is in the
        record of messages."""
        for number in tuple(self._unrecorded):
            now = self._clock.now()
            await self._outbox.settle(number, "waiting", now, "its outcome could not be written down", now + PAUSES[0])
            self._unrecorded.discard(number)

    async def _send(self, entry: OutboxEntry) -> None:
        fault_point("notify.claimed")
        try:
            if not self._maker.names(entry.note.to, entry.note.recipient):
                await self._outbox.settle(entry.number, "moot", self._clock.now(), "no rule names this place any more")
                return
            if not await self._holds(entry.note):
                await self._outbox.settle(entry.number, "moot", self._clock.now())
                return
            async with asyncio.timeout(TIMEOUT):
                detail = await self._channels.deliver(entry.note, entry.tries)
        except OutcomeUnknown as error:
            if self._channels.repeats(entry.note):
                await self._try_again(entry, error)
            else:
                await self._give_up(entry, "unknown", str(error))
        except ToolError as error:
            if error.failure.category is Category.TRANSIENT:
                await self._try_again(entry, error)
            else:
                await self._give_up(entry, "failed", str(error))
        except Exception as error:  # one of its own kind: the record of messages says what the next try may do
            await self._try_again(entry, ToolError(f"{type(error).__name__}: {error}"))
        else:
            fault_point("notify.sent")
            self._troubles.pop(entry.number, None)
            await self._outbox.settle(entry.number, "sent", self._clock.now(), detail)

    async def _try_again(self, entry: OutboxEntry, error: ToolError) -> None:
        now, said = self._clock.now(), self._redactor.text(str(error))
        pause = max(PAUSES[min(entry.tries, len(PAUSES)) - 1], error.failure.retry_after or 0.0)
        if now + pause > entry.note.until:
            await self._give_up(entry, "failed", f"{said} ({entry.tries} tries)")
            return
        _log.warning("notification to %s: %s; next try in %.0f s", entry.note.to, said, pause)
        self._troubles[entry.number] = f"not sent yet: {entry.note.title} (to {entry.note.to}: {said})"
        await self._outbox.settle(entry.number, "waiting", now, said, now + pause)

    async def _give_up(self, entry: OutboxEntry, status: str, said: str) -> None:
        said = self._redactor.text(said)
        _log.warning("notification to %s: %s", entry.note.to, said)
        self._troubles[entry.number] = trouble_of(entry._replace(status=status, detail=said))
        await self._outbox.settle(entry.number, status, self._clock.now(), said)

    async def _holds(self, note: Note) -> bool:
        """Tell whether the question is still open, or the execution still waits."""
        if not note.while_open:
            return True
        what, _, about = note.while_open.partition(" ")
        if what == "approval":
            asked = await self._journal.questions(named=about)
            return any(one.execution == note.execution for one in asked)
        if what == "paused":
            heads = await self._journal.heads(prefix=note.execution, limit=1)
            return bool(heads) and heads[0].status == "paused" and heads[0].detail == about
        entries = await self._journal.read(note.execution)
        state = folded(note.execution, [one.event for one in entries])
        if state.status.finished:
            return False
        return (
            about in state.questions if what == "waits" else any(s.waiting_for == "quota" for s in state.steps.values())
        )

    # -- budgets ---------------------------------------------------------------------------------

    def _note_spending(self, state: State, step: str) -> None:
        scopes = scopes_of(state, state.steps[step], self._settings.budget, self._clock.now())
        if scopes:
            self._spent[f"{state.id} {step}"] = (state, scopes)
            self._news.set()

    async def _check_limits(self) -> None:
        """Record a note for each limit that is nearly used. Its key names the limit and its period: it comes once."""
        spent, self._spent = self._spent, {}
        for state, scopes in spent.values():
            standings = await self._ledger.standing(scopes)
            notes = [
                note
                for occasion in budget_occasions(standings, state, self._clock.now())
                for note in self._maker.notes(occasion, state.plan.name, state.id)
            ]
            if notes:
                await self._outbox.add(notes)


def trouble_of(entry: OutboxEntry) -> str:
    """Say what became of a note that has not arrived for certain."""
    about = f"{entry.note.title} (to {entry.note.recipient or entry.note.to})"
    match entry.status:
        case "unknown":
            return f"may have been sent, and is not sent again: {about}: {entry.detail}"
        case "stale":
            return f"not sent, for nobody could while it was news: {about}{': ' if entry.detail else ''}{entry.detail}"
        case _:
            return f"not sent: {about}: {entry.detail}"


def troubles_of(entries: Sequence[OutboxEntry]) -> Iterator[str]:
    for entry in entries:
        if entry.status in ("unknown", "failed", "stale") and entry.note.to != "bell":
            yield trouble_of(entry)
