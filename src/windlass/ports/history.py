"""The seam towards the history of stopped executions, which a journal keeps beside its events."""

from __future__ import annotations

from typing import Protocol

from windlass.core.history import ExecutionRecord, StepRecord

__all__ = ["History"]


class History(Protocol):
    """Records of stopped executions, newest first. They follow from the events: never a second truth."""

    async def records(self, plan: str = "", limit: int = 60) -> list[ExecutionRecord]:
        """Read the last executions of a plan's name, or of all plans, by the time at which they stopped."""
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
        """Read the last steps that ran to their end, completed or failed: only those that match what is given."""
        ...
