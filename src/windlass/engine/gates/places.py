"""Limit on concurrent uses of a tool, in all processes of a home: a place is a lock on a file.

The kernel releases a dead process' locks, so no place is ever lost. Waiting uses look again after a moment. Where
several machines share a journal, they share the places, too (`ports.SharedPlaces`).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.ports.places import SharedPlaces

__all__ = ["SharedSlot", "Slot", "Slots", "take_place", "wait_for_place"]

LOOK_AGAIN = 0.05
SHARED_AGAIN = 0.25
"""The same where a look is a question to a server."""
_NO_WAIT = nullcontext()
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


class Slots:
    def __init__(self, folder: Path | None, shared: SharedPlaces | None = None) -> None:
        """Without a folder, the places are those of this process alone; `shared` are those of several machines."""
        self._folder = folder
        self._shared = shared
        self._queues: dict[tuple[str, int], asyncio.Semaphore] = {}

    def one_of(
        self, name: str, count: int, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> AbstractAsyncContextManager[None]:
        """Within this, one of `count` places of that name is ours. `waiting` is around a wait for it."""
        queue = self._queues.get((name, count))
        if queue is None:
            queue = self._queues[name, count] = asyncio.Semaphore(count)
        if self._shared is not None:
            return SharedSlot(self._shared, name, count, queue, waiting)
        return Slot(self._folder, name, count, queue, waiting)


class Slot:
    """A place, for as long as it is entered."""

    __slots__ = ("_count", "_descriptor", "_folder", "_name", "_queue", "_waiting")

    def __init__(
        self,
        folder: Path | None,
        name: str,
        count: int,
        queue: asyncio.Semaphore,
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._folder, self._name, self._count, self._queue, self._waiting = folder, name, count, queue, waiting
        self._descriptor: int | None = None

    async def __aenter__(self) -> None:
        # In this process one after the other, so that only one of them looks for a file at a time.
        with self._waiting() if self._queue.locked() else _NO_WAIT:
            await self._queue.acquire()
        if self._folder is not None:
            try:
                self._descriptor = take_place(self._folder, self._name, self._count)
                if self._descriptor is None:
                    with self._waiting():
                        self._descriptor = await wait_for_place(self._folder, self._name, self._count)
            except BaseException:
                self._queue.release()
                raise

    async def __aexit__(self, *_error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._queue.release()


class SharedSlot:
    """A place among those that several machines share, for as long as it is entered."""

    def __init__(
        self,
        shared: SharedPlaces,
        name: str,
        count: int,
        queue: asyncio.Semaphore,
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._shared, self._name, self._count, self._queue, self._waiting = shared, name, count, queue, waiting
        self._place: int | None = None

    async def __aenter__(self) -> None:
        with self._waiting() if self._queue.locked() else _NO_WAIT:
            await self._queue.acquire()
        try:
            self._place = await self._shared.take(self._name, self._count)
            if self._place is None:
                with self._waiting():
                    while self._place is None:
                        await asyncio.sleep(SHARED_AGAIN)
                        self._place = await self._shared.take(self._name, self._count)
        except BaseException:
            self._queue.release()
            raise

    async def __aexit__(self, *_error: object) -> None:
        try:
            if self._place is not None:
                await asyncio.shield(self._shared.give_back(self._place))
        finally:
            self._queue.release()


async def wait_for_place(folder: Path, name: str, count: int) -> int:
    """The same as `take_place`, when there is one."""
    while True:
        descriptor = take_place(folder, name, count)
        if descriptor is not None:
            return descriptor
        await asyncio.sleep(LOOK_AGAIN)


def take_place(folder: Path, name: str, count: int) -> int | None:
    """A descriptor that holds one of `count` places of that name until it is closed; None if all are taken."""
    stem = f"{folder}/{_stem(name)}"
    for index in range(count):
        try:
            descriptor = os.open(f"{stem}.{index}", _FLAGS, 0o600)
        except FileNotFoundError:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(f"{stem}.{index}", _FLAGS, 0o600)
        try:
            # `flock`, not `lockf`: two descriptors of one process then exclude each other, too.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return descriptor
    return None


@lru_cache(maxsize=256)
def _stem(name: str) -> str:
    """The name of a place's files, whatever characters the tool's name has."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]
