"""Abandon a use that ignores its cancellation, after a grace period.

`asyncio` waits for a cancelled task without limit. A tool that swallows its cancellation would keep its step running
for ever, long after the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["UseTookTooLong", "await_or_abandon"]

LEAVE_AFTER = 5.0
"""Seconds past the grace period: a function in a thread has that to itself."""


class UseTookTooLong(Exception):
    """The use took longer than it may."""


async def await_or_abandon(
    use: Coroutine[Any, Any, Any], grace: float, abandoned: Callable[[], None], seconds: float | None = None
) -> Any:
    """Await the use, for `seconds` at most. Cancelled or out of time, it has the grace period to end.

    A result by then is kept; else the cancellation goes on, or `UseTookTooLong` is raised.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = asyncio.Task(_told(use, ended), loop=loop, name="use")  # `create_task` would think up a name for each
    timer = loop.call_later(seconds, _tell, ended) if seconds is not None else None
    try:
        await ended
    except asyncio.CancelledError:
        if await _stopped(task, grace, abandoned):
            return _result(task)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if task.done():
        return _result(task)
    error = None
    if await _stopped(task, grace, abandoned) and (error := task.exception()) is None:
        return task.result()
    raise UseTookTooLong from error


class _ToolExit(Exception):
    """The use called `sys.exit`. As the error of a task of its own, SystemExit would end the event loop."""


async def _told(use: Coroutine[Any, Any, Any], ended: asyncio.Future[None]) -> Any:
    """The use, which says itself that it has ended: a callback of its task would come one turn of the loop later."""
    try:
        return await use
    except SystemExit as error:
        raise _ToolExit from error
    finally:
        _tell(ended)


def _result(task: asyncio.Task[Any]) -> Any:
    """The result of the use, or its error as it raised it."""
    try:
        return task.result()
    except _ToolExit as error:
        raise error.__cause__ or error from None


def _tell(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _stopped(task: asyncio.Task[Any], grace: float, abandoned: Callable[[], None]) -> bool:
    """Cancel the task, and abandon it after the grace period. True if it came to an end of its own."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=grace + LEAVE_AFTER)
    if not task.done():
        _abandon(task)
        abandoned()
        return False
    return not task.cancelled()


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
