"""A handle on one execution, driven here or by another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windlass.core.events import Event
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.ports import Entry

if TYPE_CHECKING:
    from windlass.core.forecast.value import Forecast

__all__ = ["Execution"]


class _Engine(Protocol):
    """The part of the engine that a handle needs."""

    async def state(self, execution: str) -> State: ...
    async def wait(self, execution: str) -> State: ...
    def follow(self, execution: str, after: int = 0) -> AsyncIterator[Entry]: ...
    async def pause(self, execution: str, *, now: bool = False, by: str = "") -> State: ...
    async def interrupt(self, execution: str, *, by: str = "") -> State: ...
    async def cancel(self, execution: str, *, by: str = "") -> State: ...
    async def approve(self, execution: str, step: str, *, allow: bool = True, by: str = "", note: str = "") -> None: ...
    async def skip(self, execution: str, step: str, *, by: str = "") -> State: ...
    async def resume(self, execution: str) -> Execution: ...
    def driven(self, head: State) -> bool: ...
    async def forecast(self, state: State) -> Forecast | None: ...
    async def retry(
        self,
        execution: str,
        step: str,
        *,
        edits: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        model: str | None = None,
        fresh: bool = False,
        by: str = "",
    ) -> State: ...


class Execution:
    """One execution. All its methods may be called from any process that has its home."""

    def __init__(
        self,
        engine: _Engine,
        execution: str,
        since: int = 0,
        task: asyncio.Task[State] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._task = task
        self.id = execution
        self.since = since
        """The sequence it had reached when this handle's start or resume took it up."""
        self.warnings = tuple(warnings)
        """Warnings of this handle's start or resume: things that may make a step fail here (D5)."""

    def __repr__(self) -> str:
        return f"<Execution {self.id}>"

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Everything that happens, from the beginning or after a sequence, until it stands still."""
        async for entry in self._engine.follow(self.id, after):
            yield entry.event

    async def wait(self) -> State:
        """Its state when it has finished or stands still. Raises the error of its driver."""
        task = self._task
        here = task is not None and task.get_loop() is asyncio.get_running_loop()
        if task is not None and here and (not task.done() or task.exception() is not None):
            return await asyncio.shield(task)
        # The driver of this handle has ended; another may have resumed the execution since.
        return await self._engine.wait(self.id)

    async def state(self) -> State:
        return await self._engine.state(self.id)

    async def forecast(self) -> Forecast | None:
        """The time and money that it will still take; None after its end."""
        return await self._engine.forecast(await self.state())

    async def result(self) -> dict[str, Any]:
        """Wait for it, then the same object that `windlass status ID --json` prints."""
        return snapshot(await self.wait())

    async def pause(self, *, now: bool = False) -> State:
        return await self._engine.pause(self.id, now=now, by="python")

    async def interrupt(self) -> State:
        return await self._engine.interrupt(self.id, by="python")

    async def cancel(self) -> State:
        return await self._engine.cancel(self.id, by="python")

    async def approve(self, step: str, *, allow: bool = True, note: str = "") -> None:
        await self._engine.approve(self.id, step, allow=allow, by="python", note=note)

    async def retry(
        self,
        step: str,
        *,
        edits: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        model: str | None = None,
        fresh: bool = False,
    ) -> None:
        """Try a failed step again and go on, also after the end: with other arguments, on another runtime or model.

        Its agent goes on in its conversation; `fresh` begins a new one.
        """
        await self._go_on(
            await self._engine.retry(self.id, step, edits=edits, runtime=runtime, model=model, fresh=fresh, by="python")
        )

    async def skip(self, step: str) -> None:
        """Go on without a step, also after the end: steps that depend on it run with a null output."""
        await self._go_on(await self._engine.skip(self.id, step, by="python"))

    async def _go_on(self, state: State) -> None:
        if not self._engine.driven(state):
            resumed = await self._engine.resume(self.id)
            self._task, self.since = resumed._task, resumed.since
