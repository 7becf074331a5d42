"""Tells the parts of one worker's process what all workers write: traces, checkpoint files and forecasts.

On one machine the driver tells them of its commits. Here no process writes all events of an execution, so one worker
follows the journal: the first by name of those that live. Another one goes on where it dies; what the parts missed
meanwhile they read from the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from windlass.core import events as ev
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.journal.postgres_workers import WorkerTable
from windlass.ports import Entry

__all__ = ["CommitPublisher"]

MOST = 1000
"""Events of one look."""
_BEGINS = (ev.ExecutionStarted, ev.ExecutionResumed)
_STOPS = (ev.ExecutionPaused, ev.ExecutionFinished)


class CommitPublisher:
    def __init__(self, engine: Engine, table: WorkerTable, driver: str, worker: str) -> None:
        """`driver` is the name of all workers, `worker` that of this one."""
        self._engine, self._table = engine, table
        self._driver, self._worker = driver, worker
        self._after: int | None = None
        """The position of the last event that was told; None while another worker does it."""
        self._ours: dict[str, bool] = {}
        """Executions that were seen since, with True for those of the workers."""
        self._forecast: set[str] = set()
        """Executions of the workers that run; this process forecasts them."""

    async def look(self) -> None:
        if self._worker != min((line.name for line in await self._table.lines()), default=self._worker):
            self._after = None
            for execution in list(self._forecast):
                self._attend(execution, False)
            return
        if self._after is None:
            after = await self._table.last_position()
            self._ours.clear()
            for head in await self._engine.executions([ExecutionStatus.RUNNING]):
                self._attend(head.id, head.driver == self._driver)
            self._after = after
        while entries := await self._engine.journal.read(None, self._after, MOST):
            for execution, some in groupby(entries, key=lambda entry: entry.execution):
                await self._tell(execution, list(some))
            self._after = entries[-1].position

    async def _tell(self, execution: str, entries: Sequence[Entry]) -> None:
        begun = [entry.event.driver for entry in entries if isinstance(entry.event, _BEGINS)]
        if begun:
            self._ours[execution] = begun[-1] == self._driver
        elif execution not in self._ours:
            heads = await self._engine.journal.heads(prefix=execution, limit=1)
            self._ours[execution] = bool(heads) and heads[0].driver == self._driver
        if self._ours[execution]:
            events, seq = [entry.event for entry in entries], entries[-1].seq
            self._engine.commits.publish(execution, events, seq)
            if isinstance(events[-1], _STOPS):
                self._engine.commits.publish(execution, (), seq)
        turns = [entry.event for entry in entries if isinstance(entry.event, _BEGINS + _STOPS)]
        if turns:
            self._attend(execution, isinstance(turns[-1], _BEGINS) and self._ours[execution])
        if any(isinstance(event, _STOPS) for event in turns):
            del self._ours[execution]

    def _attend(self, execution: str, runs: bool) -> None:
        """Forecast it, or stop that."""
        if runs:
            self._forecast.add(execution)
            self._engine.attend_forecast(execution)
        elif execution in self._forecast:
            self._forecast.remove(execution)
            self._engine.leave_forecast(execution)
