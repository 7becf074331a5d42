"""Waits of the tests: for something to become true, however busy the machine is. No test sleeps for a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["PATIENCE", "settled", "skip_time", "wait_promised", "wait_until", "wait_until_async"]

PATIENCE = 180.0
"""Seconds after which something that should happen counts as not happening, on a machine that is busy, too."""
PAUSE = 0.005
REST = 4.0
"""How much longer than a probe took it is not asked again: to look through all processes is work, too."""
T = TypeVar("T")


def wait_until(probe: Callable[[], T], what: str = "", patience: float = PATIENCE) -> T:
    """The probe's first true answer."""
    deadline = time.monotonic() + patience
    while True:
        asked = time.monotonic()
        if found := probe():
            return found
        answered = time.monotonic()
        assert answered < deadline, _late(probe, what, patience)
        time.sleep(max(PAUSE, REST * (answered - asked)))


async def wait_until_async(
    probe: Callable[[], Awaitable[T]] | Callable[[], T], what: str = "", patience: float = PATIENCE
) -> T:
    """The same where the probe, or what it waits for, needs the event loop."""
    deadline = time.monotonic() + patience
    while True:
        asked = time.monotonic()
        found = probe()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        answered = time.monotonic()
        assert answered < deadline, _late(probe, what, patience)
        await asyncio.sleep(max(PAUSE, REST * (answered - asked)))


async def settled(turns: int = 20) -> None:
    """Let all that can go on now do so: turns of the event loop, and of the threads that write and read for it."""
    for _ in range(turns):
        await asyncio.to_thread(os.sched_yield)


def skip_time(seconds: float) -> None:
    """Set the clock of the running loop forward: what it would do within that time is due now, on any machine."""
    loop = asyncio.get_running_loop()
    _skipped[loop] = _skipped.get(loop, 0.0) + seconds


_skipped: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
_time = asyncio.BaseEventLoop.time


def _time_with_skips(loop: asyncio.BaseEventLoop) -> float:
    return _time(loop) + _skipped.get(loop, 0.0)


asyncio.BaseEventLoop.time = _time_with_skips  # type: ignore[method-assign]  # here: some keep `loop.time` for later


def wait_promised(probe: Callable[[], T], what: str, seconds: float) -> T:
    """The probe's first true answer, for what is promised within that time of a machine that has time.

    One look and the rest after it count as a tenth of a second at most: where they take longer, the machine stood
    still or had other things to do. The time is longer where the load is over half of the cores.
    """
    left = seconds * max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
    while True:
        asked = time.monotonic()
        if found := probe():
            return found
        assert left > 0, _late(probe, what, seconds)
        time.sleep(max(PAUSE, REST * (time.monotonic() - asked)))
        left -= min(time.monotonic() - asked, 0.1)


def _late(probe: Callable[[], Any], what: str, patience: float) -> str:
    return f"this did not happen within {patience:g} s: {what or probe}"
