"""Steps of this process that wait at a gate, by gate: a slot, a tool's rate or places, an open breaker (C4, C8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.core.decide import Policy
from windlass.core.delegate import runtime_of
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.engine.gates import Gates
from windlass.engine.gates.view import open_breakers
from windlass.ports import Toolbox

__all__ = ["waiting_steps"]

MOST_NAMED = 20
"""Steps that are named at each gate."""


def waiting_steps(gates: Gates, states: Iterable[State], tools: Toolbox, policy: Policy) -> list[dict[str, Any]]:
    """Each gate at which steps of these executions wait: their number, and the first of them by name."""
    known = {state.id: state for state in states}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for wait in gates.waits:
        if (state := known.get(wait.execution)) is not None:
            found.setdefault((wait.gate, wait.tool), []).append(_named(state, wait.step, wait.since, None))
    if closed := open_breakers(gates):
        for state in known.values():
            for step in _repeated(state):
                for circuit in closed:
                    if _needs(state, step, circuit, tools, policy):
                        since = step.waiting_since or state.updated_at
                        found.setdefault(("breaker", circuit), []).append(_named(state, step.id, since, step.until))
    return [
        {"gate": gate, "name": name, "count": len(steps), "steps": steps[:MOST_NAMED]}
        for (gate, name), steps in sorted(found.items())
    ]


def _named(state: State, step: str, since: float, until: float | None) -> dict[str, Any]:
    return {"execution": state.id, "plan": state.plan.name, "step": step, "since": since, "until": until}


def _repeated(state: State) -> list[StepState]:
    """Steps that wait for their next attempt."""
    return [
        step
        for step in state.steps.values()
        if step.status is StepStatus.WAITING and step.waiting_for == "retry" and step.error is not None
    ]


def _needs(state: State, step: StepState, circuit: str, tools: Toolbox, policy: Policy) -> bool:
    """Tell whether its next attempt has to pass this breaker."""
    if step.prepared.is_agent:
        runtime, _, account = circuit.removeprefix("runtime ").partition(" (")
        named = step.error.message if step.error is not None else ""
        return runtime == runtime_of(state, step, policy) and account.removesuffix(")") in named
    tool = tools.get(step.prepared.tool)
    try:
        return tool is not None and tool.circuit(step.input or {}) == circuit
    except Exception:  # the tool is anybody's
        return False
