"""Drivers of executions that a client started: its server, or a process that outlives the client.

A client ends its stdio server when it ends itself, mostly with a kill; an execution is meant to outlive that. So a
stdio server only writes executions down and leaves them to detached drivers. A long-lived server drives them itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from windlass.core.events import OnOverrun
from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan

__all__ = ["Detached", "Driving", "Inside"]


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
    """A process of its own drives each execution. `drive` starts one, and returns once it has begun."""

    def __init__(self, drive: Callable[[Engine, str], Awaitable[object]]) -> None:
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
        await self._drive(engine, execution)
        return execution

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        if not keep_plan:  # its driver always keeps the plan
            await engine.check(execution)
        await self._drive(engine, execution)
