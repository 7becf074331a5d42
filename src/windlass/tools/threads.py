"""Threads for sync functions: reused, and never in the way of the process's end."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["in_thread"]

IDLE_THREADS = 64
"""Threads that are kept for the next functions."""


class _Worker(threading.Thread):
    """A thread for sync functions that nobody waits for when the process ends.

    The threads of a `ThreadPoolExecutor` are joined at exit: one function that never returns would keep the
    whole process, and sixty-four of them every function after them.
    """

    idle: list[_Worker] = []

    def __init__(self) -> None:
        super().__init__(name="windlass-tool", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            self.jobs.get()()
            if len(self.idle) >= IDLE_THREADS:
                return
            self.idle.append(self)


def in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """The result of the function, run in a thread of its own."""
    loop = asyncio.get_running_loop()
    work: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if work.done():
            return  # who waited for it was cancelled
        if error is None:
            work.set_result(value)
        else:
            work.set_exception(error)
            work.exception()  # seen: if nobody waits for it any more, nobody is to be warned

    def job() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = function()
        except StopIteration:  # no future can hold it, and the attempt would never end
            error = RuntimeError("the function raised StopIteration")
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    try:
        worker = _Worker.idle.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(job)
    return work
