"""What a template can see: `inputs`, `steps`, `execution`, and in a foreach `item` and `index`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus

__all__ = ["scope_of"]


class _Steps:
    """The steps as templates see them. No methods, so that a step may be called `items` or `keys`."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> dict[str, Any]:
        step = self._state.steps[name]
        return {
            "id": step.id,
            "status": str(step.status),
            "output": step.output if step.status is StepStatus.COMPLETED else None,
            "error": msgspec.to_builtins(step.error) if step.error is not None else None,
        }

    def __contains__(self, name: object) -> bool:
        return name in self._state.steps

    def __iter__(self) -> Iterator[str]:
        return (step.id for step in self._state.top_level())


def scope_of(state: State, step: StepState) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "inputs": state.inputs,
        "steps": _Steps(state),
        "execution": {"id": state.id, "workdir": state.workdir, "plan": state.plan.name},
    }
    if step.parent is not None:
        scope["item"], scope["index"] = step.item, step.index
    return scope
