"""Less is begun when there is little left, so that what runs can end (C8): it waits, and says what for.

Memory that is short makes attempts wait as long as others are under way, for these will give some back; one attempt
always goes on. A disk that is nearly full is an error at once: nobody frees it by waiting.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from collections.abc import Callable
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
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._looked_at = float("-inf")
        self._short = False

    def enter(self) -> bool:
        """One more attempt is under way, if nothing is against it; else somebody has to `wait` first."""
        if self._waiting or self._under_way >= self._settings.attempts or self._short or self._stale():
            return False
        self._under_way += 1
        return True

    async def wait(self, say: Callable[[str, str], None]) -> None:
        """Until it is under way. Says what it waits for."""
        if self._waiting or self._under_way >= self._settings.attempts:
            say("note", f"waits for its turn: {self._settings.attempts} attempts are under way (load.attempts)\n")
            await self._turn()
        self._look()
        if self._short and self._under_way:
            floor = self._settings.memory_floor >> 20
            say("note", f"waits for memory: less than {floor} MiB are free (load.memory_floor)\n")
        while self._short and self._under_way:
            await asyncio.sleep(LOOK_AGAIN)
            self._look()
        self._under_way += 1

    def leave(self) -> None:
        self._under_way -= 1
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._under_way += 1
                self.leave()  # it came in the very moment that nobody wanted it any more: to the next
            raise

    def _stale(self) -> bool:
        return time.monotonic() - self._looked_at >= FRESH

    def _look(self) -> None:
        if not self._stale():
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
        self._looked_at = time.monotonic()


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
