"""The seam towards the history of stopped executions, which a journal keeps beside its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from windlass.core.history import ExecutionRecord, StepRecord
    from windlass.core.rollup import HistoryAnswer, HistoryQuery

if TYPE_CHECKING:
    from windlass.core.forecast.value import Forecast

__all__ = ["ForecastOutcome", "ForecastStore", "History"]


class History(Protocol):
    """Records of stopped executions, newest first. They follow from the events: never a second truth."""

    async def records(self, plan: str = "", limit: int = 60) -> list[ExecutionRecord]:
        """Read the last executions of a plan's name, by the time they stopped; or of all, by the time they began."""
        ...

    async def records_by_plan(self, limit: int) -> dict[str, list[ExecutionRecord]]:
        """Read the last executions of every plan's name, up to so many of each."""
        ...

    async def observations(
        self,
        *,
        plan: str | None = None,
        step: str | None = None,
        tool: str | None = None,
        runtime: str | None = None,
        model: str | None = None,
        limit: int = 60,
    ) -> list[StepRecord]:
        """Read the last steps that ran to their end, completed or failed: only those that match what is given.

        Looks at the newest 500 executions, of the plan if one is given: older ones say little about today.
        """
        ...

    async def answer(self, query: HistoryQuery, *, build: bool = True) -> HistoryAnswer:
        """Sum up everything that the query asks for; without `build`, only what is there already."""
        ...

    async def catch_up(self, most: int = 0, progress: Callable[[int], None] | None = None) -> None:
        """Build records that are missing: all, or the newest. `progress` is called with the number that is left."""
        ...

    async def rebuild(self, progress: Callable[[int], None] | None = None) -> None:
        """Make everything anew from the events."""
        ...


class ForecastOutcome(NamedTuple):
    """A forecast, and the execution in the end."""

    execution: str
    plan: str
    forecast: Forecast
    took_s: float
    """Seconds that the whole execution ran, waiting for people left out."""
    usd: float | None
    """Its cost; None if unknown."""


class ForecastStore(Protocol):
    """Forecasts that were shown. They are only added, so processes that do so at once cannot spoil each other's."""

    async def add(self, execution: str, plan: str, forecast: Forecast) -> None:
        """Record a forecast. An execution's first one in each quarter of its way is a mark: these are scored."""
        ...

    async def latest(self, *executions: str) -> dict[str, Forecast]:
        """Read the last forecast of each execution that has one."""
        ...

    async def outcomes(self, plan: str = "", limit: int = 400) -> list[ForecastOutcome]:
        """Read the newest marks of executions that completed, oldest first: of a plan, or of all."""
        ...
