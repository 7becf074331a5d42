"""Writes checkpoint files: by itself after each step and at each stop, and whenever one is asked for (D4).

The journal is the truth; an automatic file is a second copy of an execution outside of the database. So no execution
is held up for it: the files are extended one after another in the background, once a second and whenever no execution
is running here, and are complete when an execution has stopped and the engine is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from windlass.core.events import AttemptFinished, Event, StepCompleted, StepFailed, StepSkipped
from windlass.engine.drivers import LocalDrivers
from windlass.errors import JournalError
from windlass.ports import Archive

__all__ = ["CheckpointWriter"]

_log = logging.getLogger("windlass.engine")

INTERVAL = 1.0
"""Seconds between two rounds of automatic checkpoints while executions are running."""
MOST_HELD = 500
"""Events that are held in memory until a step ends; with more, the file is extended in the middle of a step."""
STEP_ENDS = frozenset({AttemptFinished, StepCompleted, StepFailed, StepSkipped})


class _Fresh(msgspec.Struct):
    """Events committed here since the automatic file was last written."""

    after: int
    """The sequence before the first one."""
    events: list[Event] = msgspec.field(default_factory=list)


class _Piece(NamedTuple):
    execution: str
    after: int
    events: list[Event]
    stopped: bool


class CheckpointWriter:
    """Writes the checkpoint files of executions."""

    def __init__(self, drivers: LocalDrivers, archive: Archive, when: Literal["step", "stop", "off"]) -> None:
        """`when` names the moment at which an automatic file is brought up to date."""
        self._drivers = drivers
        self._archive = archive
        self._clock = drivers.clock
        self._behind: dict[str, None] = {}
        """Executions with an automatic file that lacks events, in the order in which they are to be written."""
        self._fresh: dict[str, _Fresh] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Set when the last execution here has stopped."""
        self.failures: dict[str, str] = {}
        """Automatic checkpoints that could not be written, with the reason."""
        if when != "off":
            drivers.commits.subscribe(self._add if when == "step" else self._add_stop)

    def _add(self, execution: str, events: Sequence[Event], seq: int) -> None:
        if events:
            fresh = self._fresh.get(execution)
            if fresh is None:
                fresh = self._fresh[execution] = _Fresh(seq - len(events))
            fresh.events += events
            if execution in self._behind:
                return
            if len(fresh.events) <= MOST_HELD and STEP_ENDS.isdisjoint(map(type, events)):
                return
        self._update(execution)

    def _add_stop(self, execution: str, events: Sequence[Event], _seq: int) -> None:
        if not events:
            self._update(execution)

    def _update(self, execution: str) -> None:
        """Bring the automatic file up to date soon; several requests for one execution become one."""
        self._behind[execution] = None
        if not len(self._drivers):
            self._hurry.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def write(self, execution: str) -> Path:
        """Write a file of the execution as it is now."""
        events = await self._events(execution, 0)
        return await asyncio.to_thread(self._archive.write, execution, events, self._clock.now())

    def read(self, path: Path) -> list[Event]:
        return self._archive.read(path)

    def forget(self, execution: str) -> None:
        self._behind.pop(execution, None)
        self._fresh.pop(execution, None)
        self._archive.remove(execution)

    async def close(self) -> None:
        """Write all pending files."""
        if self._task is not None:
            self._hurry.set()
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        while self._behind:
            await self._until_due()
            batch, self._behind = self._behind, {}
            pieces = []
            for execution in batch:
                try:
                    pieces.append(await self._piece(execution))
                except (OSError, JournalError) as error:
                    self._failed(execution, str(error))
            await asyncio.to_thread(self._write, pieces)

    async def _until_due(self) -> None:
        if len(self._drivers):
            self._hurry.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), INTERVAL)

    async def _piece(self, execution: str) -> _Piece:
        """The events that the automatic file of an execution lacks."""
        stopped = execution not in self._drivers
        after = self._archive.saved(execution)
        fresh = self._fresh.pop(execution, None)
        if fresh is None or fresh.after > after:
            return _Piece(execution, after, await self._events(execution, after), stopped)
        return _Piece(execution, after, fresh.events[after - fresh.after :], stopped)

    def _write(self, pieces: list[_Piece]) -> None:
        """Extend the files. A full disk must not fail an execution that is safe in the journal."""
        now = self._clock.now()
        for piece in pieces:
            try:
                if piece.events:
                    self._archive.extend(piece.execution, piece.after, piece.events, now)
            except (OSError, JournalError) as error:
                self._failed(piece.execution, str(error))
            else:
                self.failures.pop(piece.execution, None)
            if piece.stopped:
                self._archive.release(piece.execution)

    def _failed(self, execution: str, reason: str) -> None:
        """Tell it once: each further event would fail alike."""
        if execution not in self.failures:
            _log.warning("could not write a checkpoint file: %s", reason, extra={"fields": {"execution": execution}})
        self.failures[execution] = reason

    async def _events(self, execution: str, after: int) -> list[Event]:
        return [entry.event for entry in await self._drivers.journal.read(execution, after)]
