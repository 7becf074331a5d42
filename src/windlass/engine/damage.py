"""Executions whose record is damaged: noticed where they are read, and shown like any other (D9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.clock import iso
from windlass.core.state import State, fold
from windlass.errors import Damaged, WindlassError
from windlass.ports import Entry, Head

__all__ = ["DAMAGED", "damaged_view", "folded"]

DAMAGED = "damaged"
"""The status that a damaged execution is shown with. It is never stored: the record still holds the last one."""


def folded(execution: str, entries: Sequence[Entry]) -> State:
    """The state that an execution's entries amount to. Whatever they stumble over, `Damaged` names the event."""
    if not entries:
        raise Damaged(execution, 1, "it is missing")
    seq = entries[0].seq
    try:
        state = fold([entries[0].event])
        for entry in entries[1:]:
            seq = entry.seq
            state.apply(entry.event)
    except WindlassError as error:
        raise Damaged(execution, seq, error.message) from error
    except Exception as error:  # events that never happened in this order may break any rule
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise Damaged(execution, seq, f"it does not follow from those before it ({reason})") from error
    if state.id != execution:
        raise Damaged(execution, 1, f"it is of another execution ({state.id})")
    return state


def damaged_view(head: Head, damage: Damaged) -> dict[str, Any]:
    """A damaged execution as one JSON object, with the keys of any other (`core.view.snapshot`)."""
    return {
        "id": head.id,
        "plan": head.name,
        "status": DAMAGED,
        "phase": DAMAGED,
        "reason": damage.reason,
        "inputs": {},
        "workdir": "",
        "created_at": iso(head.created_at),
        "started_at": None,
        "finished_at": None,
        "steps": [],
        "delegation": [],
        "cost": {"usd": None, "known": False, "tokens_in": 0, "tokens_out": 0},
        "resources": None,
        "progress": 0.0,
        "eta": None,
        "lacks": [],
        "error": {
            "category": str(damage.category),
            "message": damage.message,
            "where": f"event {damage.seq}",
            "advice": list(damage.advice),
        },
        "damage": {"seq": damage.seq, "reason": damage.reason, "status": head.status},
    }
