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
            "branch": _of_workspace(step, "branch"),
            "workdir": _of_workspace(step, "workdir"),
        }

    def __contains__(self, name: object) -> bool:
        return name in self._state.steps

    def __iter__(self) -> Iterator[str]:
        return (step.id for step in self._state.top_level())


def errors_of(step: StepState) -> dict[str, Any]:
    """Why items of a foreach failed, by their index as text."""
    children = step.children or ()
    failed = (child for child in children if child.status is StepStatus.FAILED)
    return {str(child.index): msgspec.to_builtins(child.error) for child in failed}


def _of_workspace(step: StepState, name: str) -> Any:
    """The branch or the folder that the agent of a completed step worked in: of a foreach those of the items, or the
    one of the item that was picked; null where it had none of its own."""
    if step.children is None:
        opened = step.agent.workspace if step.agent is not None and step.status is _COMPLETED else None
        return getattr(opened, name) or None if opened is not None else None
    if step.spec.pick is None:
        return [_of_workspace(child, name) for child in step.children]
    return next((_of_workspace(child, name) for child in step.children if child.id == step.picked), None)


def scope_of(state: State, step: StepState) -> dict[str, Any]:
    scope = state.scope
    if not scope:
        execution = {"id": state.id, "workdir": state.workdir, "plan": state.plan.name}
        scope = state.scope = {"inputs": state.inputs, "steps": _Steps(state), "execution": execution}
    return scope if step.parent is None else {**scope, "item": step.item, "index": step.index}
