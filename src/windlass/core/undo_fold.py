"""Apply the undoing of a step to a state. Called by `State.apply` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windlass.core import events as ev

if TYPE_CHECKING:
    from windlass.core.state import State

__all__ = ["UNDO_EVENTS"]


def _undone(state: State, event: ev.StepUndone) -> None:
    """The step and its items are marked; they stay completed, because nothing may run them again."""
    step = state.steps[event.step]
    for one in (step, *(step.children or ())):
        one.undone = True


UNDO_EVENTS: dict[type, Callable[[State, Any], None]] = {ev.StepUndone: _undone}
