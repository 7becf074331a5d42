"""Abandon a use that ignores its cancellation, after a grace period.

`asyncio` waits for a cancelled task without limit. A tool that swallows its cancellation would keep its step running
for ever, long after the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

__all__ = ["await_or_abandon"]

LEAVE_AFTER = 5.0
"""Seconds past the grace period: a function in a thread has that to itself."""


async def await_or_abandon(use: Coroutine[Any, Any, Any], grace: float, abandoned: Callable[[], None]) -> Any:
    """Await the use. Cancelled, it has the grace period to end, and a result by then is kept."""
    loop = asyncio.get_running_loop()
    task, ended = loop.create_task(use), loop.create_future()
    task.add_done_callback(partial(_tell, ended))  # as `shield` does, with one callback less
    try:
        await ended
        return task.result()
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=grace + LEAVE_AFTER)
        if task.done() and not task.cancelled():
            return task.result()
        if not task.done():
            _abandon(task)
            abandoned()
        raise


def _tell(ended: asyncio.Future[None], _task: asyncio.Task[Any]) -> None:
    if not ended.done():
        ended.set_result(None)


def _abandon(task: asyncio.Task[Any]) -> None:
    """Abandon the task: `asyncio.run` does not wait for it either, which else would never end."""
    task.add_done_callback(_heard_out)
    asyncio._unregister_task(task)
    # The step's log says that it never ended; asyncio itself silences tasks in this way, and has no other.
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def _heard_out(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()
