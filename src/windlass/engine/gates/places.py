"""Limit on concurrent uses of a tool, in all processes of a home: a place is a lock on a file.

The kernel releases a dead process' locks, so no place is ever lost. Waiting uses look again after a moment.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["Slots", "take_place", "wait_for_place"]

LOOK_AGAIN = 0.05


class Slots:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder, the places are those of this process alone."""
        self._folder = folder
        self._queues: dict[tuple[str, int], asyncio.Semaphore] = {}

    @asynccontextmanager
    async def one_of(self, name: str, count: int) -> AsyncIterator[None]:
        """Within this, one of `count` places of that name is ours."""
        # In this process one after the other, so that only one of them looks for a file at a time.
        queue = self._queues.setdefault((name, count), asyncio.Semaphore(count))
        async with queue:
            if self._folder is None:
                yield
                return
            descriptor = await wait_for_place(self._folder, name, count)
            try:
                yield
            finally:
                os.close(descriptor)


async def wait_for_place(folder: Path, name: str, count: int) -> int:
    """The same as `take_place`, when there is one."""
    while True:
        descriptor = take_place(folder, name, count)
        if descriptor is not None:
            return descriptor
        await asyncio.sleep(LOOK_AGAIN)


def take_place(folder: Path, name: str, count: int) -> int | None:
    """A descriptor that holds one of `count` places of that name until it is closed; None if all are taken."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = hashlib.sha256(name.encode()).hexdigest()[:24]
    for index in range(count):
        descriptor = os.open(folder / f"{stem}.{index}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # `flock`, not `lockf`: two descriptors of one process then exclude each other, too.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return descriptor
    return None
