"""Who drives what a client has started: the server that it runs in, or a process that outlives the client.

A client ends its stdio server when it ends itself, mostly with a kill; an execution is meant to outlive that. So a
stdio server only writes executions down and leaves them to detached drivers. A long-lived server drives them itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from windlass.engine.engine import Engine
from windlass.engine.sourced import Sourced
from windlass.errors import WindlassError
from windlass.server.mcp.look import following

__all__ = ["Detached", "Driving", "Inside"]

BEGINS_WITHIN = 30.0
"""Seconds that a detached driver may take to begin."""


class Driving(Protocol):
    async def start(self, engine: Engine, plan: Sourced, inputs: Mapping[str, Any], workdir: str | None) -> str:
        """Start it, and give its id once somebody drives it."""
        ...

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        """Go on with it; returns once somebody drives it."""
        ...


class Inside:
    """This process drives."""

    async def start(self, engine: Engine, plan: Sourced, inputs: Mapping[str, Any], workdir: str | None) -> str:
        started = await engine.start(plan, inputs, workdir=workdir, on_overrun="proceed")
        return started.id

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        await engine.resume(execution, keep_plan=keep_plan)


class Detached:
    """A process of its own drives each execution. `drive` starts one, and gives the file that it logs to."""

    def __init__(self, drive: Callable[[Engine, str], Awaitable[Path]]) -> None:
        self._drive = drive

    async def start(self, engine: Engine, plan: Sourced, inputs: Mapping[str, Any], workdir: str | None) -> str:
        execution = await engine.create(plan, inputs, workdir=workdir, on_overrun="proceed")
        await self._begin(engine, execution)
        return execution

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        await self._begin(engine, execution)

    async def _begin(self, engine: Engine, execution: str) -> None:
        since = (await engine.state(execution)).seq
        log = await self._drive(engine, execution)
        try:
            async with asyncio.timeout(BEGINS_WITHIN), following(engine, execution, since) as news:
                async for _entry in news:
                    return
        except TimeoutError:
            pass  # said below, like a driver that ended at once
        raise WindlassError(
            f"execution {execution} is written down, but its driver did not begin{_last_words(log)}",
            advice=(f"windlass resume {execution}", f"see what it said: {log}"),
        )


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f": {lines[-1]}" if lines else ""
