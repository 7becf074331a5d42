"""Fold events read back from storage; `Damaged` names the event that cannot be used (D9)."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.events import Event
from windlass.core.state import State, fold
from windlass.errors import Damaged, WindlassError

__all__ = ["folded"]


def folded(execution: str, events: Sequence[Event]) -> State:
    """The state that all events of an execution amount to, or `Damaged`."""
    if not events:
        raise Damaged(execution, 1, "it is missing")
    seq = 1
    try:
        state = fold(events[:1])
        for event in events[1:]:
            seq += 1
            state.apply(event)
    except WindlassError as error:
        raise Damaged(execution, seq, error.message) from error
    except Exception as error:  # events that never happened in this order may break any rule
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise Damaged(execution, seq, f"it contradicts the events before it ({reason})") from error
    if state.id != execution:
        raise Damaged(execution, 1, f"it belongs to another execution ({state.id})")
    return state
