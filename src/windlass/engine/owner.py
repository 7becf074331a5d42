"""The process and the event loop that an engine belongs to: its tasks, locks and files are of no use in another.

It belongs to the process that opened it, and to the loop of its first call. Any other one is refused in words: it would
wait for what never comes, or write where another process writes.
"""

from __future__ import annotations

import asyncio
import os

from windlass.errors import UsageError

__all__ = ["Owner"]

_OPEN_HERE = "open another one: async with windlass.open(…) as engine: …"


class Owner:
    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def forked(self) -> bool:
        """This process is a child of the one that opened the engine."""
        return os.getpid() != self._process

    @property
    def ended(self) -> bool:
        """The loop that the engine was used in has ended."""
        return self._loop is not None and self._loop.is_closed()

    def require(self, *, ended: bool = False) -> None:
        """Raise `UsageError` in another process or event loop; with `ended`, not after the end of the engine's loop."""
        if self.forked:
            raise UsageError("this engine was opened in another process: nothing was done", advice=(_OPEN_HERE,))
        try:
            here = asyncio.get_running_loop()
        except RuntimeError as error:
            raise UsageError(
                "no event loop of asyncio runs here: nothing was done",
                advice=("with anyio, choose its backend asyncio; below trio, run the engine in a thread of its own",),
            ) from error
        if self._loop is None:
            self._loop = here
        if self._loop is here or (ended and self.ended):
            return
        if self.ended:
            raise UsageError(
                "this engine belongs to an event loop that has ended: nothing was done",
                advice=("use it in one asyncio.run(…), from windlass.open(…) to its close",),
            )
        raise UsageError(
            "this engine belongs to another event loop: nothing was done",
            advice=("from another thread: asyncio.run_coroutine_threadsafe(engine.start(…), its_loop)", _OPEN_HERE),
        )
