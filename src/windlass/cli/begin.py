"""Beginning an execution in this process: Ctrl-C interrupts it, twice kills it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable

from windlass.cli.session import say, who
from windlass.core.state import State
from windlass.engine.engine import Engine
from windlass.engine.execution import Execution

__all__ = ["begin"]


async def begin(engine: Engine, beginning: Awaitable[Execution]) -> Execution:
    """Heed SIGINT and SIGTERM before the execution begins: its first step may run before `beginning` returns."""
    signals = _Signals(engine)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.take)
    execution = await beginning
    signals.aim(execution)
    return execution


class _Signals:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._execution: Execution | None = None
        self._request: asyncio.Task[State] | None = None
        self._asked = False

    def aim(self, execution: Execution) -> None:
        """Interrupt this execution, and at once if that was asked for while it began."""
        self._execution = execution
        if self._asked:
            self._interrupt(execution)

    def take(self) -> None:
        if self._asked:
            # Asked twice: go at once. The journal is true at any moment, and the warden ends the processes.
            from windlass.cli.prompt import leave_terminal

            leave_terminal()
            os._exit(130)
        self._asked = True
        say("")
        say("Stopping… press Ctrl-C again to quit now.")
        if self._execution is not None:
            self._interrupt(self._execution)

    def _interrupt(self, execution: Execution) -> None:
        self._request = asyncio.create_task(self._engine.interrupt(execution.id, by=who()))
