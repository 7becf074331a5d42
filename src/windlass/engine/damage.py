"""Damaged executions as others are shown (D9)."""

from __future__ import annotations

from typing import Any

from windlass.clock import iso
from windlass.errors import Damaged
from windlass.ports import Head

__all__ = ["DAMAGED", "damaged_view"]

DAMAGED = "damaged"
"""The status that a damaged execution is shown with. It is never stored: the record still holds the last one."""


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
        "cost": {"usd": None, "known": False, "tokens_in": 0, "tokens_out": 0, "text": "unknown"},
        "budget": {"limit_usd": None, "limit_tokens": None, "overruns": []},
        "resources": None,
        "progress": 0.0,
        "eta": None,
        "forecast": None,
        "lacks": [],
        "error": {
            "category": str(damage.category),
            "message": damage.message,
            "where": f"event {damage.seq}",
            "advice": list(damage.advice),
        },
        "damage": {"seq": damage.seq, "reason": damage.reason, "status": head.status},
    }
