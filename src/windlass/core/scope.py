"""Names that a template can use: `inputs`, `steps`, `execution`, and in a foreach `item` and `index`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.plan.template import StepOutputs

__all__ = ["errors_of", "scope_of"]

_COMPLETED = StepStatus.COMPLETED


class _Steps(StepOutputs):
    """The steps as templates see them. No methods, so that a step may be called `items` or `keys`."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def _output(self, name: str) -> Any:
        step = self._state.steps[name]
        # A foreach with failed items still gives the outputs of the others.
        given = step.status is _COMPLETED or (step.children is not None and step.settled)
        return step.output if given else None

    def __getitem__(self, name: str) -> dict[str, Any]:
        step = self._state.steps[name]
        return {
            "id": step.id,
            "status": str(step.status),
            "output": self._output(name),
            "error": msgspec.to_builtins(step.error) if step.error is not None else None,
            "errors": errors_of(step),
        }

    def __contains__(self, name: object) -> bool:
        return name in self._state.steps

    def __iter__(self) -> Iterator[str]:
        return (step.id for step in self._state.top_level())


def errors_of(step: StepState) -> dict[str, Any]:
    """Why items of a foreach failed, by their index as text."""
    children = step.children or ()
    failed = (child for child in children if child.status is StepStatus.FAILED and child.error is not None)
    return {str(child.index): msgspec.to_builtins(child.error) for child in failed}


def scope_of(state: State, step: StepState) -> dict[str, Any]:
    scope = state.scope
    if not scope:
        execution = {"id": state.id, "workdir": state.workdir, "plan": state.plan.name}
        scope = state.scope = {"inputs": state.inputs, "steps": _Steps(state), "execution": execution}
    return scope if step.parent is None else {**scope, "item": step.item, "index": step.index}
