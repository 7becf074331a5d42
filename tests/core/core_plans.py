"""Short ways to write plans and to read what became of them, for the tests of the rules."""

from __future__ import annotations

from typing import Any

from windlass.plan.model import Plan
from windlass.testing import Simulation

__all__ = ["attempts_of", "chain", "plan_of", "statuses"]


def plan_of(*steps: dict[str, Any], **rest: Any) -> Plan:
    """A plan of these steps; one without a tool gets one."""
    full = [{"tool": "t", **step} for step in steps]
    return Plan.model_validate({"name": "test", "steps": full, **rest})


def chain(*ids: str, **rest: Any) -> Plan:
    """Steps that wait for each other in this order."""
    steps = [{"id": name, "needs": [before] if before else []} for before, name in zip(("", *ids), ids, strict=False)]
    return plan_of(*steps, **rest)


def attempts_of(run: Simulation, step: str) -> list[int]:
    """The attempts of a step that were let loose on the world."""
    return [started.attempt for started in run.performed if started.step == step]


def statuses(run: Simulation) -> dict[str, str]:
    return {step.id: str(step.status) for step in run.state.top_level()}
