"""Keeps the home in order: checkpoint files, removed executions, pauses that lasted too long, dead reservations."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.core import events as ev
from windlass.core.history import has_stopped, record_of
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import State, fold
from windlass.core.transitions import ExecutionStatus
from windlass.engine.checkpoints import CheckpointWriter
from windlass.engine.commit_writer import head_of
from windlass.engine.control import Control
from windlass.engine.drivers import LocalDrivers
from windlass.engine.observer import Observer
from windlass.errors import Damaged, UsageError, WindlassError
from windlass.ports import Charge, Head, Ledger

if TYPE_CHECKING:
    from windlass.engine.kept_files import KeptFiles

__all__ = ["Housekeeping", "release_dead_reservations"]

_log = logging.getLogger("windlass.engine")

REMOVED_TOGETHER = 500
"""Executions that are removed in one commit: more would keep other processes from writing for too long."""
QUICKLY_RECLAIMED = 256 * 1024 * 1024
"""Bytes in use up to which the journal's file is rewritten while executions are running."""


class Housekeeping:
    """Writes, restores and removes executions as a whole."""

    def __init__(
        self,
        drivers: LocalDrivers,
        observer: Observer,
        checkpoints: CheckpointWriter,
        ledger: Ledger,
        control: Control,
        kept_files: KeptFiles | None = None,
        *,
        home: Path,
    ) -> None:
        self._drivers = drivers
        self._journal = drivers.journal
        self._observer = observer
        self._checkpoints = checkpoints
        self._ledger = ledger
        self._control = control
        self._kept_files = kept_files
        self._home = home

    async def checkpoint(self, execution: str) -> Path:
        """Write a portable file of the execution as it is now, whichever process drives it."""
        head = await self._observer.find(execution)
        return await self._checkpoints.write(head.id)

    async def restore(self, path: Path | str) -> str:
        """Bring an execution in from a checkpoint file, perhaps of another machine."""
        events = self._checkpoints.read(Path(path))
        state = fold(events)
        known = await self._journal.heads(prefix=state.id)
        if known:
            await self._make_room(known[0])
        questions = changes_of({}, open_questions(state))
        record = record_of(state) if has_stopped(state) else None
        await self._journal.append(state.id, 0, events, head=head_of(state), questions=questions, record=record)
        await self._take_over_charges(state, events)
        return state.id

    async def _make_room(self, head: Head) -> None:
        """Remove an execution that is to be restored. Only a damaged one gives way."""
        try:
            await self._observer.record(head.id)
        except Damaged as damage:
            if self._drivers.driven(head):
                raise _running(head) from damage
            await self._journal.remove(head.id)
            self._observer.damaged.pop(head.id, None)
            return
        raise UsageError(
            f"execution {head.id} already exists here ({head.status})",
            advice=(f"see its status: windlass status {head.id}",),
        )

    async def _take_over_charges(self, state: State, events: Sequence[ev.Event]) -> None:
        """Count its spending on another machine, so that its own limit goes on from there."""
        for event in events:
            if isinstance(event, ev.UsageReported):
                model = event.usage.model
                charge = Charge(state.id, event.step, event.attempt, event.runtime, model, event.role)
                await self._ledger.settle(charge, event.at, event.usage)

    async def forget(self, *executions: str | Head) -> int:
        """Remove executions and their files for good; one that is being driven is refused.

        Returns the bytes by which the journal's file shrank.
        """
        heads = [found if isinstance(found, Head) else await self._observer.find(found) for found in executions]
        for head in heads:
            if self._drivers.driven(head):
                raise _running(head)
        for first in range(0, len(heads), REMOVED_TOGETHER):
            ids = [head.id for head in heads[first : first + REMOVED_TOGETHER]]
            if self._kept_files is not None:
                await self._kept_files.remove(ids)
            for removed in ids:
                await self._leave_folders(removed)
            await self._prune_records(ids)
            await self._journal.remove(*ids)
            for removed in ids:
                self._checkpoints.forget(removed)
                self._observer.damaged.pop(removed, None)
        running = await self._journal.heads(statuses=[ExecutionStatus.RUNNING])
        return await self._journal.reclaim(QUICKLY_RECLAIMED if any(map(self._drivers.driven, running)) else None)

    async def _leave_folders(self, execution: str) -> None:
        """Remove the folders of its agents, and the records of their files. Work that would be lost stays, with its
        branch."""
        from windlass.workspaces.store import stores_of  # few commands need it
        from windlass.workspaces.worktrees import place_of

        if place_of(execution, "x").parent.is_dir():
            try:
                found = await self._control.workspaces(execution, clean=True)
            except WindlassError as error:
                _log.warning("the folders of the agents of %s stay: %s", execution, error.message)
            else:
                for one in (one for one in found if not one["removed"]):
                    _log.warning("%s of %s stays (%s): %s", one["step"], execution, one["work"], one["path"])
        await asyncio.to_thread(shutil.rmtree, stores_of(execution, self._home), ignore_errors=True)

    async def _prune_records(self, executions: Sequence[str]) -> None:
        """Remove the records of files that these executions had. The journal loses them after that: a removal that was
        cut off is done again, and executions of another journal are never taken for removed ones."""
        if (self._home / "snapshots").is_dir():
            from windlass.workspaces.pruning import prune_records  # few homes have any

            await asyncio.to_thread(prune_records, self._home, executions)

    async def sweep(self) -> list[tuple[str, str]]:
        """Deal with executions that were paused for too long: cancel them, or name those to resume (D3)."""
        dealt: list[tuple[str, str]] = []
        now = self._drivers.clock.now()
        for head in await self._journal.heads(statuses=[ExecutionStatus.PAUSED]):
            if head.expires_at is None or head.expires_at > now:
                continue
            try:
                state = await self._observer.state(head.id)
                if state.on_expiry == "cancel":
                    await self._control.cancel(head.id, by="pause_expiry")
            except WindlassError as error:  # the others are dealt with all the same
                _log.warning(
                    "%s reached its pause limit, and could not be cancelled or resumed: %s", head.id, error.message
                )
            else:
                dealt.append((head.id, state.on_expiry))
        return dealt


async def release_dead_reservations(drivers: LocalDrivers, ledger: Ledger) -> None:
    """Count reservations of dead processes' executions as spent, so that no attempt waits for them."""
    for row in await ledger.spent("execution"):
        if row.reserved_usd or row.reserved_tokens:
            heads = await drivers.journal.heads(prefix=row.heading)
            if not heads or not drivers.driven(heads[0]):
                await ledger.abandon(row.heading, drivers.clock.now())


def _running(head: Head) -> UsageError:
    return UsageError(f"execution {head.id} is running", advice=(f"windlass cancel {head.id}",))
