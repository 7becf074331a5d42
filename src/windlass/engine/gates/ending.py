"""A use that is told to end, and does not: it gets its time of grace, and is then left behind.

`asyncio` waits for who is cancelled for as long as that takes. A tool that swallows its cancellation would keep a step
for ever, whose time is long over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["to_its_end"]

LEAVE_AFTER = 5.0
"""Seconds past the grace period: a function in a thread has that to itself."""


async def to_its_end(use: Coroutine[Any, Any, Any], grace: float, left_behind: Callable[[], None]) -> Any:
    """What the use gives. Cancelled, it is waited for within the grace period, and what it then gives is kept."""
    task = asyncio.ensure_future(use)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=grace + LEAVE_AFTER)
        if task.done() and not task.cancelled():
            return task.result()
        if not task.done():
            _let_go_of(task)
            left_behind()
        raise


def _let_go_of(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more: also not `asyncio.run` at its end, which else would never come to one."""
    task.add_done_callback(_heard_out)
    asyncio._unregister_task(task)
    # That it never ended is said in the log of its step; asyncio itself silences tasks in this way, and has no other.
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def _heard_out(task: asyncio.Task[Any]) -> None:
    """Nobody hears what it raises in the end, and nobody is to be warned of it."""
    if not task.cancelled():
        task.exception()
