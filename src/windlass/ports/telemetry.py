"""Traces of executions, as far as the engine and its surfaces know of them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple, Protocol

__all__ = ["CurrentAttempt", "SpanCounts", "Telemetry", "current_attempt", "incoming_traceparent"]


class CurrentAttempt(NamedTuple):
    execution: str
    step: str
    attempt: int


current_attempt: ContextVar[CurrentAttempt | None] = ContextVar("windlass_current_attempt", default=None)
"""The attempt that the running code belongs to, for log lines."""
incoming_traceparent: ContextVar[str | None] = ContextVar("windlass_incoming_traceparent", default=None)
"""The `traceparent` of the request that is being answered; None outside of requests, where the environment counts."""


class SpanCounts(NamedTuple):
    exported: int
    """Spans that the endpoint has taken."""
    dropped: int
    """Spans that it did not get: it refused them, or they were too many to keep."""


class Telemetry(Protocol):
    """Sends the traces of executions somewhere. It never fails or slows down what it reports on."""

    def caller(self) -> str:
        """The `traceparent` of whoever starts an execution now; empty if there is none."""
        ...

    def ids(self, execution: str, step: str = "", attempt: int = 0) -> dict[str, str]:
        """`trace_id`, and `span_id` of the attempt or else of the execution, in hex; nothing for a part of an id."""
        ...

    def child_environment(self, execution: str, step: str, attempt: int) -> dict[str, str]:
        """Variables that tell the processes of an attempt which span they belong to."""
        ...

    def counts(self) -> SpanCounts: ...

    @property
    def trouble(self) -> str:
        """Why spans were dropped, and how many; empty if none were."""
        ...

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        ...
