"""Threads for sync functions: reused, and never in the way of the process's end."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from windlass.errors import ordinary

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


os.register_at_fork(after_in_child=_Worker.idle.clear)  # a child has none of its parent's threads


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
        process = os.getpid()
        try:
            value = function()
        except (StopIteration, GeneratorExit) as raised:  # no future or no loop would survive them
            error = RuntimeError(f"the function raised {type(raised).__name__}")
        except BaseException as raised:
            error = ordinary(raised)
        if os.getpid() != process:  # the function has forked, and this is its child: nobody here waits for a result
            os._exit(_exit_code(error))
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    try:
        worker = _Worker.idle.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(job)
    return work


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 0 if error is None else 1
