"""The commits of one execution: its events since the last one, and when they are written.

The driver adds events to `batch` and then either waits for `write`, or, where `may_overlap` allows it, asks for a
commit beside the attempts (`write_soon`). Commits of an execution follow one another: there is never a second one
under way. Nobody else appends to the journal for an execution that has a driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from windlass.core import events as ev
from windlass.core.history import record_of
from windlass.core.questions import QuestionChanges, asked_beside_approval, changes_of, open_questions
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus
from windlass.ports import OVER_BUDGET, Head, Journal

if TYPE_CHECKING:
    from windlass.ports.notify import Notifier

__all__ = ["CommitWriter", "head_of"]

OVERLAP_FOR = 0.005
"""Seconds that events of attempts without effect may wait for company before they are written."""
OVERLAP_MOST = 200
"""Events that may wait so."""
_RUNNING = ExecutionStatus.RUNNING


class CommitWriter:
    """Writes the events of one execution to the journal, in order."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        notifier: Notifier | None,
        *,
        created: ev.ExecutionCreated | None,
        only_looks: Callable[[StepState], bool],
        on_disk: Callable[[list[ev.Event], int], None],
        wake: Callable[[], None],
    ) -> None:
        """`on_disk` gets each commit's events and the sequence of the last one; `wake` is called when one failed.

        `created` is the first event when it is not in the journal yet (the state has it already).
        """
        self.batch: list[ev.Event] = [created] if created is not None else []
        """Events since the last commit. Every commit begins a new list."""
        self.consumed: list[int] = []
        """Messages that are gone with the next commit."""
        self.witnesses: list[asyncio.Future[None]] = []
        """Callers that wait until their events are on disk."""
        self.failed: BaseException | None = None
        """The error of a commit beside the attempts."""
        self._state, self._journal, self._notifier = state, journal, notifier
        self._only_looks, self._on_disk, self._wake = only_looks, on_disk, wake
        self._loop = asyncio.get_running_loop()
        self._written = state.seq - len(self.batch)
        self._harmless = 0
        """Events at the beginning of the batch that nothing without effect has to wait for."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        """The commit that goes on beside attempts without effect."""
        self._closed = False
        self._shown: tuple[str, ...] = ()
        self._open = open_questions(state)
        """Entries of this execution in the journal's index of open questions."""
        self._watch = notifier.watch(state) if notifier is not None else None

    def may_overlap(self) -> bool:
        """Tell whether the attempts that start now may run before the batch is on disk.

        Only an attempt without effect may, and only if nothing else but the ends and starts of such attempts is still
        to be written. A crash then loses work that has changed nothing and that nobody has been told of: it is done
        again. Whatever has an effect, asks, answers or ends the execution waits for all of it (docs/decisions/0010).
        """
        if self.witnesses or self.consumed:
            return False
        batch, only_looks = self.batch, self._only_looks
        for event in batch[self._harmless :] if self._harmless else batch:
            if type(event) is not ev.AttemptStarted and type(event) is not ev.AttemptFinished:
                return False
            if not only_looks(self._state.steps[event.step]):
                return False
        self._harmless = len(batch)
        return True

    def write(self) -> Coroutine[Any, Any, None]:
        """Return when everything so far is on disk."""
        if self.batch and self._writing is None and not self.witnesses and self.failed is None:
            return self._commit()  # nearly always, and one coroutine less
        return self._write_after()

    async def _write_after(self) -> None:
        """Write after the commit that goes on beside the attempts, and tell those who wait for it."""
        # Their events are in this batch; events during the commit go into the next.
        witnesses, self.witnesses = self.witnesses, []
        while self._writing is not None:
            await asyncio.wait({self._writing})
        if self.failed is not None:
            raise self.failed
        if self.batch or self.consumed:
            await self._commit()
        for witness in witnesses:
            if not witness.done():
                witness.set_result(None)

    def write_soon(self) -> None:
        """Write the batch beside the attempts that run, after a moment in which more may come."""
        if self._writing is None and len(self.batch) >= OVERLAP_MOST:
            self._write_beside()
        elif self._writing is None and self._timer is None:
            self._timer = self._loop.call_later(OVERLAP_FOR, self._write_beside)

    def close(self) -> None:
        """Begin no more commits beside attempts."""
        self._closed = True

    async def settled(self) -> None:
        """Return when no commit goes on any more; none begins after it."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        # The driver refers to this, too: a circle would stay in memory until the garbage collector finds it.
        self._on_disk = self._wake = _ignore

    def _write_beside(self) -> None:
        if self.batch and self._writing is None and not self._closed:
            self._writing = self._loop.create_task(self._commit())
            self._writing.add_done_callback(self._written_beside)

    def _written_beside(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.failed = error
            self._wake()
        elif self.batch:
            self.write_soon()  # the events that came meanwhile

    async def _commit(self) -> None:
        state = self._state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self.batch, self._harmless = self.batch, [], 0
        consumed, self.consumed = self.consumed, []
        asked = asked_beside_approval(state) if state.questions else ""
        shown = (state.status, state.driver, state.paused_for, asked)
        head = head_of(state) if shown != self._shown else None
        questions = self._question_changes() if state.questions or self._open else None
        record = record_of(state) if state.status is not _RUNNING else None
        notes = self._watch(batch) if self._watch is not None else ()
        await self._journal.append(
            state.id,
            self._written,
            batch,
            head=head,
            consumed=consumed,
            questions=questions,
            record=record,
            notes=notes,
        )
        if notes and self._notifier is not None:
            self._notifier.committed(notes)
        self._written += len(batch)
        self._shown = shown
        self._on_disk(batch, self._written)

    def _question_changes(self) -> QuestionChanges | None:
        """Changes of this commit to the index of open questions."""
        before, self._open = self._open, open_questions(self._state)
        return changes_of(before, self._open)


def _ignore(*_: object) -> None:
    """Nobody waits for a commit after the end."""


def _detail(state: State) -> str:
    if state.status is _RUNNING:
        return asked_beside_approval(state)
    return state.paused_for or (OVER_BUDGET if state.overruns and state.status.finished else "")


def head_of(state: State) -> Head:
    return Head(
        state.id,
        state.plan.name,
        state.status,
        state.created_at,
        state.updated_at,
        state.driver,
        _detail(state),
        state.expires_at,
    )
