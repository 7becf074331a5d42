"""What is left to check of a step whose shape is wrong somewhere."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from windlass.plan.model import OF_AGENTS, OF_PROGRAMS, Step
from windlass.plan.program import source_problem

__all__ = ["STAND_IN", "readable_id", "salvaged"]

STAND_IN = "_"
"""The id or tool of a step that has none of its own."""


def salvaged(raw: Any, flaws: Set[str]) -> Step | None:
    """A step without its flawed fields, with stand-ins for what no step can be without."""
    if not isinstance(raw, dict):
        return None
    # What limits are good for depends on the rest of the step, and nothing else depends on them.
    kept = {key: value for key, value in raw.items() if key not in flaws and key != "limits"}
    kept.setdefault("id", STAND_IN)
    kept |= {"tool": kept.get("tool") or STAND_IN}
    if (kept.get("prompt") or "").strip():
        others: tuple[str, ...] = ("run", "tool", "with", "code", *OF_PROGRAMS)
    elif kept.get("run"):
        others = ("tool", "code", *OF_AGENTS, *OF_PROGRAMS, "agent", "prompt")
    elif source_problem(kept.get("code") or "") is None:
        others = ("run", "tool", *OF_AGENTS, "agent", "prompt")
    else:
        others = ("run", "code", *OF_AGENTS, "agent", "prompt")
    return Step.model_validate({key: value for key, value in kept.items() if key not in others})


def readable_id(raw: Any) -> str | None:
    found = raw.get("id") if isinstance(raw, dict) else None
    return found if isinstance(found, str) and found else None
