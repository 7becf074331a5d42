"""Which drivers are alive: each holds a lock on a file of its own, and the kernel lets go when it dies.

No heartbeats: a frozen driver still holds its lock, a dead one never does, and no clock is asked. POSIX record
locks are used because a forked child does not inherit them.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path

from windlass.journal.database import translate

__all__ = ["Presence"]

_mine: dict[str, int] = {}
"""Drivers of this process, with the descriptor that holds each one's lock. A process cannot ask the kernel
about its own locks (and would drop them by closing the file), so it asks here first."""
os.register_at_fork(after_in_child=_mine.clear)  # the locks are the parent's


class Presence:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._enlisted: list[str] = []

    def enlist(self, label: str = "") -> str:
        """A new driver of this process; alive until `leave` or death."""
        driver = "-".join(filter(None, (str(os.getpid()), label, uuid.uuid4().hex[:12])))
        with translate(self._folder):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._folder / driver, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _mine[driver] = descriptor
        self._enlisted.append(driver)
        return driver

    def alive(self, driver: str) -> bool:
        if driver in _mine:
            return True
        if not driver or "/" in driver:
            return False
        try:
            descriptor = os.open(self._folder / driver, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # A shared lock: two that ask at once must not take each other for the driver.
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def leave(self) -> None:
        for driver in self._enlisted:
            if (descriptor := _mine.pop(driver, None)) is not None:  # a forked child has none to give up
                (self._folder / driver).unlink(missing_ok=True)
                os.close(descriptor)
        self._enlisted.clear()
