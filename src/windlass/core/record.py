"""Fold events read back from storage; `Damaged` names the event that cannot be used (D9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from windlass.core.events import Event
from windlass.core.state import State, fold
from windlass.errors import Damaged, WindlassError

__all__ = ["folded", "folded_on"]


class EventFold(Protocol):
    """Something that events are applied to, one after the other."""

    @property
    def id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    def apply(self, event: Event) -> None: ...


F = TypeVar("F", bound=EventFold)


def folded(execution: str, events: Sequence[Event]) -> State:
    """The state that all events of an execution amount to, or `Damaged`."""
    return folded_on(execution, None, events, _begun)


def folded_on(execution: str, sofar: F | None, events: Sequence[Event], begin: Callable[[Event], F]) -> F:
    """Apply further events to a fold of an execution, which the first one begins; or `Damaged`."""
    if sofar is None and not events:
        raise Damaged(execution, 1, "it is missing")
    seq = sofar.seq if sofar is not None else 0
    try:
        for event in events:
            seq += 1
            if sofar is None:
                sofar = begin(event)
            else:
                sofar.apply(event)
    except WindlassError as error:
        raise Damaged(execution, seq, error.message) from error
    except Exception as error:  # events that never happened in this order may break any rule
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise Damaged(execution, seq, f"it contradicts the events before it ({reason})") from error
    assert sofar is not None
    if sofar.id != execution:
        raise Damaged(execution, 1, f"it belongs to another execution ({sofar.id})")
    return sofar


def _begun(event: Event) -> State:
    return fold([event])
