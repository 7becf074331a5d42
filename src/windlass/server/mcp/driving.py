"""Drivers of executions that a client started: its server, or a process that outlives the client.

A client ends its stdio server when it ends itself, mostly with a kill; an execution is meant to outlive that. So a
stdio server only writes executions down and leaves them to detached drivers. A long-lived server drives them itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.engine.run_request import OnOverrun
from windlass.errors import WindlassError
from windlass.server.mcp.look import following

__all__ = ["Detached", "Driving", "Inside"]

BEGINS_WITHIN = 30.0
"""Seconds that a detached driver may take to begin."""
LOOK_AGAIN = 0.1


class Driving(Protocol):
    async def start(
        self,
        engine: Engine,
        plan: LoadedPlan,
        inputs: Mapping[str, Any],
        workdir: str | None,
        on_overrun: OnOverrun = "proceed",
    ) -> str:
        """Start it, and give its id once somebody drives it. Its prerequisites were looked at before."""
        ...

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        """Go on with it; returns once somebody drives it."""
        ...


class Inside:
    """This process drives."""

    async def start(
        self,
        engine: Engine,
        plan: LoadedPlan,
        inputs: Mapping[str, Any],
        workdir: str | None,
        on_overrun: OnOverrun = "proceed",
    ) -> str:
        started = await engine.start(plan, inputs, workdir=workdir, on_overrun=on_overrun, anyway=True)
        return started.id

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        await engine.resume(execution, keep_plan=keep_plan)


class Detached:
    """A process of its own drives each execution. `drive` starts one, and gives the file that it logs to."""

    def __init__(self, drive: Callable[[Engine, str], Awaitable[Path]]) -> None:
        self._drive = drive

    async def start(
        self,
        engine: Engine,
        plan: LoadedPlan,
        inputs: Mapping[str, Any],
        workdir: str | None,
        on_overrun: OnOverrun = "proceed",
    ) -> str:
        execution = await engine.create(
            plan, inputs, workdir=workdir, on_overrun=on_overrun, anyway=True, to_start=True
        )
        await self._begin(engine, execution)
        return execution

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        if not keep_plan:  # its driver always keeps the plan
            await engine.check(execution)
        await self._begin(engine, execution)

    async def _begin(self, engine: Engine, execution: str) -> None:
        """Start a driver, and see it begin: an execution that nobody drives must not be called a running one."""
        since = (await engine.state(execution)).seq
        log = await self._drive(engine, execution)
        begun = asyncio.ensure_future(_first(engine, execution, since))
        failed = asyncio.ensure_future(_complaint(log, log.stat().st_size))
        try:
            await asyncio.wait({begun, failed}, timeout=BEGINS_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if begun.done() and begun.result():
                return
            said = f": {failed.result()}" if failed.done() else ""
        finally:
            for task in (begun, failed):
                task.cancel()
            await asyncio.gather(begun, failed, return_exceptions=True)
        raise WindlassError(
            f"execution {execution} is saved, but its process did not start{said}",
            advice=(f"windlass resume {execution}", f"see its log: {log}"),
        )


async def _first(engine: Engine, execution: str, since: int) -> bool:
    """Wait for its first event after `since`."""
    async with following(engine, execution, since) as news:
        async for _entry in news:
            return True
    return False


async def _complaint(log: Path, after: int) -> str:
    """The last words of a driver that could not begin."""
    while True:
        with log.open(errors="replace") as file:
            file.seek(after)
            said = file.read()
        if "windlass: " in said or "Traceback" in said:
            return said.strip()
        await asyncio.sleep(LOOK_AGAIN)
