"""Keeps checkpoint files: on completion and on pause by itself, at any time when asked (D4).

Automatic ones are written one after another in the background: the journal already holds everything, so no
execution waits for its copy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from windlass.clock import Clock
from windlass.core.events import Event
from windlass.ports import Archive, Journal

__all__ = ["Keeper"]

SOON = 0.5
"""Seconds that an automatic checkpoint waits, so that a burst of executions is not slowed down by it."""


class Keeper:
    def __init__(self, journal: Journal, archive: Archive, clock: Clock) -> None:
        self._journal = journal
        self._archive = archive
        self._clock = clock
        self._waiting: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.failures: dict[str, str] = {}
        """Automatic checkpoints that could not be written, with the reason."""

    def later(self, execution: str) -> None:
        """Write an automatic checkpoint soon; several requests for one execution become one."""
        self._waiting[execution] = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(SOON))

    async def keep(self, execution: str, label: str) -> Path:
        entries = await self._journal.read(execution)
        events = [entry.event for entry in entries]
        now = self._clock.now()
        return await asyncio.to_thread(self._archive.write, execution, events, now, label)

    def read(self, path: Path) -> list[Event]:
        return self._archive.read(path)

    def forget(self, execution: str) -> None:
        self._archive.remove(execution)

    async def close(self) -> None:
        """Write what is still to be written."""
        if self._task is not None:
            self._hurry.set()
            await asyncio.wait({self._task})

    async def _work(self, pause: float) -> None:
        await asyncio.wait({asyncio.ensure_future(self._hurry.wait())}, timeout=pause)
        while self._waiting:
            execution = next(iter(self._waiting))
            del self._waiting[execution]
            try:
                await self.keep(execution, "auto")
                self.failures.pop(execution, None)
            except OSError as error:  # a full disk must not fail an execution that is safe in the journal
                self.failures[execution] = str(error)
