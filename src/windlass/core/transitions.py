"""The one table of moves. Every change of status passes a check here; the docs' diagram is tested against it."""

from __future__ import annotations

from enum import StrEnum

from windlass.errors import WindlassError

__all__ = [
    "EXECUTION_MOVES",
    "NOT_STARTED",
    "STEP_MOVES",
    "ExecutionStatus",
    "IllegalMove",
    "StepStatus",
    "check_execution_move",
    "check_step_move",
]


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def settled(self) -> bool:
        return self in _SETTLED


class ExecutionStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """It has ended. A failed or partial one can be reopened by a person."""
        return self in _ENDED


NOT_STARTED = "not started"
"""The reason of a pending execution that nobody has asked to start; another pending one was cut off."""

_S = StepStatus
_SETTLED = frozenset({_S.COMPLETED, _S.FAILED, _S.SKIPPED})

STEP_MOVES: dict[StepStatus, frozenset[StepStatus]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.WAITING, _S.COMPLETED, _S.FAILED, _S.SKIPPED}),
    _S.RUNNING: frozenset({_S.COMPLETED, _S.FAILED, _S.WAITING, _S.PAUSED, _S.SKIPPED}),
    _S.WAITING: frozenset({_S.PENDING, _S.RUNNING, _S.WAITING, _S.PAUSED, _S.COMPLETED, _S.FAILED, _S.SKIPPED}),
    _S.PAUSED: frozenset({_S.PENDING, _S.RUNNING, _S.WAITING, _S.COMPLETED, _S.FAILED, _S.SKIPPED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset({_S.PENDING, _S.RUNNING}),
    _S.SKIPPED: frozenset({_S.PENDING, _S.RUNNING}),
}

_E = ExecutionStatus
_ENDED = frozenset({_E.COMPLETED, _E.PARTIAL, _E.FAILED, _E.CANCELLED})

EXECUTION_MOVES: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    _E.PENDING: frozenset({_E.RUNNING, _E.PAUSED, _E.CANCELLED}),
    _E.RUNNING: frozenset({_E.PAUSED, _E.COMPLETED, _E.PARTIAL, _E.FAILED, _E.CANCELLED}),
    _E.PAUSED: frozenset({_E.RUNNING, _E.CANCELLED}),
    _E.COMPLETED: frozenset(),
    _E.PARTIAL: frozenset({_E.PAUSED}),
    _E.FAILED: frozenset({_E.PAUSED}),
    _E.CANCELLED: frozenset(),
}


class IllegalMove(WindlassError):
    """The journal holds a change of status that the table does not allow."""


def check_step_move(step: str, old: StepStatus, new: StepStatus) -> None:
    if new not in STEP_MOVES[old]:
        raise IllegalMove(f"step {step} cannot go from {old} to {new}")


def check_execution_move(old: ExecutionStatus, new: ExecutionStatus) -> None:
    if new not in EXECUTION_MOVES[old]:
        raise IllegalMove(f"the execution cannot go from {old} to {new}")
