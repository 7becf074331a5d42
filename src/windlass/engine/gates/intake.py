"""Less is begun when there is little left, so that what runs can end (C8): it waits, and says what for.

Memory that is short makes attempts wait as long as others are under way, for these will give some back; one attempt
always goes on. A disk that is nearly full is an error at once: nobody frees it by waiting.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.errors import Category, ToolError
from windlass.settings import LoadSettings

__all__ = ["Intake"]

FRESH = 1.0
"""Seconds for which what was seen of memory and disk is taken as it is."""
LOOK_AGAIN = 0.25


class Intake:
    def __init__(
        self,
        settings: LoadSettings | None = None,
        home: Path | None = None,
        *,
        memory: Callable[[], int | None] | None = None,
    ) -> None:
        """`memory` tells how many bytes are free; None is unknown."""
        self._settings = settings or LoadSettings()
        self._home = home
        self._memory = memory or free_memory
        self._places = asyncio.Semaphore(self._settings.attempts)
        self._under_way = 0
        self._looked_at = float("-inf")
        self._short = False

    @asynccontextmanager
    async def admitted(self, say: Callable[[str, str], None]) -> AsyncIterator[None]:
        """Within this an attempt is under way. Before it, it may wait."""
        if self._places.locked():
            say("note", f"waits for its turn: {self._settings.attempts} attempts are under way (load.attempts)\n")
        async with self._places:
            await self._room(say)
            self._under_way += 1
            try:
                yield
            finally:
                self._under_way -= 1

    async def _room(self, say: Callable[[str, str], None]) -> None:
        self._look()
        if self._short and self._under_way:
            floor = self._settings.memory_floor >> 20
            say("note", f"waits for memory: less than {floor} MiB are free (load.memory_floor)\n")
        while self._short and self._under_way:
            await asyncio.sleep(LOOK_AGAIN)
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < FRESH:
            return
        free = self._memory()
        self._short = free is not None and free < self._settings.memory_floor
        if self._home is not None and self._home.exists():
            left = shutil.disk_usage(self._home).free
            if left < self._settings.disk_floor:
                floor = self._settings.disk_floor >> 20
                raise ToolError(
                    f"only {left >> 20} MiB are free on the disk of {self._home}, and {floor} must stay free",
                    category=Category.RESOURCE,
                    advice=("free some space: windlass clean", "or lower load.disk_floor in your settings"),
                )
        self._looked_at = now


def free_memory() -> int | None:
    """Bytes that could be had without swapping; None where nobody tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
