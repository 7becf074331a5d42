"""Admission of attempts by the machine's load (C8): with little memory or disk left, new ones wait, and report it.

Short memory makes attempts wait as long as others are under way, for these will give some back; one attempt always goes
on. A nearly full disk holds all new attempts back until somebody frees space: an execution waits for that instead of
failing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.core import events as ev
from windlass.engine.gates.places import take_place, wait_for_place
from windlass.settings import LoadSettings

__all__ = ["Admission"]

FRESH = 1.0
"""Seconds for which the last look at memory and disk is reused."""
LOOK_AGAIN = 0.25


class Admission:
    def __init__(
        self,
        settings: LoadSettings | None = None,
        home: Path | None = None,
        *,
        memory: Callable[[], int | None] | None = None,
    ) -> None:
        """`memory` tells how many bytes are free; None is unknown."""
        self._settings = settings or LoadSettings()
        self._most, self._by_home = self._settings.attempts, self._settings.home is not None
        self._home = home
        self._memory = memory or free_memory
        self._taken = 0
        """Taken slots of the `load.attempts`, including those of attempts that wait for memory."""
        self._under_way = 0
        self._held = 0
        """Attempts that wait for their turn or for memory."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._looked_at = float("-inf")
        self._open_until = float("-inf")
        """Until then nothing but the number of attempts holds one back."""
        self._short = False
        self._disk_left: int | None = None
        """Bytes left on the disk of the home, when these are too few."""
        self._places: list[int] = []
        """Descriptors of the home's places that attempts of this process have (`load.home`), one for each."""
        self._waiting_for_home = 0

    def enter(self) -> bool:
        """Admit an attempt at once, if nothing holds it back; False: call `wait` first."""
        if self._taken >= self._most or time.monotonic() >= self._open_until or self._waiting:
            return False
        self._taken += 1
        self._under_way += 1
        return True

    async def wait(self, say: Callable[[str, str], None]) -> None:
        """Wait until the attempt may begin. Reports the reason of the wait."""
        self._held += 1
        try:
            if self._waiting or self._taken >= self._most:
                say("wait.place", f"waiting for a slot: {self._most} attempts are running (load.attempts)\n")
                await self._turn()
            else:
                self._taken += 1
            try:
                await self._enough(say)
                await self._place_in_the_home(say)
            except BaseException:
                self._hand_on()  # or the place would be lost
                raise
            self._under_way += 1
        finally:
            self._held -= 1

    def leave(self) -> None:
        self._under_way -= 1
        if self._places:
            os.close(self._places.pop())  # any of them: one is like the other
        if self._waiting:
            self._hand_on()
        else:
            self._taken -= 1

    def told(self) -> dict[str, Any]:
        """Counts of running and waiting attempts in this process, and the reasons that hold new ones back."""
        against = []
        if self._waiting:
            against.append(f"{self._most} attempts are running (load.attempts)")
        if self._waiting_for_home:
            against.append(self._full_home())
        if self._lack_of_memory():
            against.append(self._little_memory())
        if (left := self._lack_of_disk()) is not None:
            against.append(self._little_disk(left))
        return {
            "under_way": self._under_way,
            "waiting": self._held,
            "limit": self._most,
            "held_back": against,
        }

    @property
    def stands_still(self) -> bool:
        """No attempt is under way, and none begins before there is disk space."""
        return self._held > 0 and not self._under_way and self._disk_left is not None

    def _hand_on(self) -> None:
        """Hand the slot to the longest waiting attempt, without freeing it in between, so that no other slips in."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on()  # the turn came in the moment of the cancellation: to the next
            raise

    async def _enough(self, say: Callable[[str, str], None]) -> None:
        """Wait until there is disk space; and memory, unless no other attempt is under way that could free some."""
        said = set[str]()
        while lack := self._lack():
            if lack not in said:
                say("wait.place", self._lacking())
                said.add(lack)
            await asyncio.sleep(LOOK_AGAIN)

    def _lack(self) -> str:
        self._look()
        if self._disk_left is not None:
            return "disk"
        return "memory" if self._short and self._under_way else ""

    def _lacking(self) -> str:
        if self._disk_left is None:
            return f"waiting for memory: {self._little_memory()}\n"
        told = self._little_disk(self._disk_left)
        return f"{ev.NO_SPACE}{told} (load.disk_floor); remove old executions: windlass clean\n"

    async def _place_in_the_home(self, say: Callable[[str, str], None]) -> None:
        """Until there is room among the attempts of all processes of the home."""
        most = self._settings.home
        if most is None or self._home is None:
            return
        if (place := take_place(self._home / "places", "attempts", most)) is None:
            say("wait.place", f"waiting for a slot: {self._full_home()}\n")
            self._waiting_for_home += 1
            try:
                place = await wait_for_place(self._home / "places", "attempts", most)
            finally:
                self._waiting_for_home -= 1
        self._places.append(place)

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < FRESH:
            return
        self._short = self._lack_of_memory()
        self._disk_left = self._lack_of_disk()
        self._looked_at = time.monotonic()
        # A place in the home is asked of the disk, and may have to be asked again.
        is_open = not (self._short or self._by_home) and self._disk_left is None
        self._open_until = self._looked_at + FRESH if is_open else float("-inf")

    def _lack_of_memory(self) -> bool:
        free = self._memory()
        return free is not None and free < self._settings.memory_floor

    def _lack_of_disk(self) -> int | None:
        """Bytes left on the disk, if too few; else None."""
        if self._home is None or not self._home.exists():
            return None
        left = shutil.disk_usage(self._home).free
        return left if left < self._settings.disk_floor else None

    def _full_home(self) -> str:
        return f"{self._settings.home} attempts are running in this home (load.home)"

    def _little_memory(self) -> str:
        return f"less than {self._settings.memory_floor >> 20} MiB are free (load.memory_floor)"

    def _little_disk(self, left: int) -> str:
        floor = self._settings.disk_floor >> 20
        return f"only {left >> 20} MiB are free on the disk of {self._home}, and {floor} MiB must stay free"


def free_memory() -> int | None:
    """Bytes available without swapping; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
