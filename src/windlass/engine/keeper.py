"""Keeps checkpoint files: on completion and on pause by itself, at any time when asked (D4).

Automatic ones are written one after another in the background, when no execution is running here or at the latest
after a few seconds: the journal already holds everything, so no execution is held up for a copy of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from windlass.clock import Clock
from windlass.core.events import Event
from windlass.ports import Archive, Journal

__all__ = ["Keeper"]

GLANCE = 0.2
"""Seconds between looks whether there is time for automatic checkpoints."""
LATEST = 5.0
"""Seconds after which they are written even while executions are running."""


class Keeper:
    def __init__(self, journal: Journal, archive: Archive, clock: Clock, busy: Callable[[], bool]) -> None:
        self._journal = journal
        self._busy = busy
        self._archive = archive
        self._clock = clock
        self._waiting: dict[str, float] = {}
        """Executions to be kept, with the time by which that is to happen."""
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.failures: dict[str, str] = {}
        """Automatic checkpoints that could not be written, with the reason."""

    def later(self, execution: str) -> None:
        """Write an automatic checkpoint soon; several requests for one execution become one."""
        self._waiting.setdefault(execution, self._clock.now() + LATEST)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

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

    async def _work(self) -> None:
        while self._waiting:
            execution, latest = next(iter(self._waiting.items()))
            if not self._hurry.is_set() and self._busy() and self._clock.now() < latest:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), GLANCE)
                continue
            del self._waiting[execution]
            try:
                await self.keep(execution, "auto")
                self.failures.pop(execution, None)
            except OSError as error:  # a full disk must not fail an execution that is safe in the journal
                self.failures[execution] = str(error)
