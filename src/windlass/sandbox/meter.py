"""CPU time of a guest, measured on the thread's own clock, so that a busy computer takes nothing from it.

A second thread looks at that clock while a guest runs, and moves the engine's epoch on when the time is used up. That
ends the guest wherever it is, in the middle of one long native operation, too.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from windlass.sandbox.machine import Guest

__all__ = ["CpuMeter"]

LOOK = 0.01
"""Seconds between two looks at a running guest."""
REST = 1.0
"""Seconds without a guest after which the thread goes to sleep altogether."""


class Epoch(Protocol):
    def increment_epoch(self) -> None: ...


class CpuMeter:
    """Belongs to the main thread, in which the guests run. Begin and end do not nest."""

    def __init__(self, engine: Epoch) -> None:
        self._engine = engine
        main = threading.main_thread().ident
        assert main is not None
        # On a platform without clocks for threads, a guest is measured in wall time.
        self._clock = time.pthread_getcpuclockid(main) if hasattr(time, "pthread_getcpuclockid") else None
        self._lock = threading.Lock()
        self._ends: float | None = None
        self._began = 0.0
        self._awake = threading.Event()
        threading.Thread(target=self._watch, name="meter", daemon=True).start()

    def begin(self, guest: Guest, seconds: float) -> None:
        with self._lock:
            guest.allow_one_epoch()
            self._began = self._now()
            self._ends = self._began + seconds
        if not self._awake.is_set():
            self._awake.set()

    def end(self) -> float:
        """Seconds that the guest computed."""
        with self._lock:
            self._ends = None
            return self._now() - self._began

    def _now(self) -> float:
        return time.monotonic() if self._clock is None else time.clock_gettime(self._clock)

    def _watch(self) -> None:
        idle_since = time.monotonic()
        while True:
            if self._ends is not None:
                idle_since = time.monotonic()
                self._end_what_is_due()
            elif time.monotonic() - idle_since > REST:
                self._awake.clear()
                if self._ends is None:
                    self._awake.wait()
                idle_since = time.monotonic()
            time.sleep(LOOK)

    def _end_what_is_due(self) -> None:
        # In one piece with `begin`: a guest that has ended must not take the next one with it.
        with self._lock:
            if self._ends is not None and self._now() >= self._ends:
                self._ends = None
                self._engine.increment_epoch()
