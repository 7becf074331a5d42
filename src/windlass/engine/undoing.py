"""Taking back what a finished step changed, because a person wants it.

The engine knows when that makes sense: nobody drives the execution, and the step will not go on. How it is done is the
tools' business: one that can take back what it changed overrides `Tool.take_back`, as the file tools do. The files come
first and the journal's word for it second: killed in between, the same request finds it done, and writes it down.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.errors import ToolError, UsageError, WindlassError
from windlass.ports import Tool, Toolbox

__all__ = ["take_back"]


async def take_back(
    state: State, step: StepState, *, driven: bool, tools: Toolbox, folder: Path, now: float, by: str
) -> ev.StepUndone:
    """Take back what the step and its items changed: the event that says so, to be written down."""
    _refuse_untimely(state, step, driven)
    names = [step.id, *(child.id for child in step.children or ())]
    changes: list[dict[str, str]] = []
    for tool in _one_of_each_class(tools):
        try:
            changes += await asyncio.to_thread(tool.take_back, folder, names, Path(state.workdir))
        except ToolError as error:
            raise _Refused(f"step {step.id}: {error.failure.message}", error) from error
    if not changes:
        raise UsageError(
            f"there is nothing of step {step.id} to take back: it changed no file with the file tools here",
            advice=("what commands and other programs changed is not written down",),
        )
    return ev.StepUndone(now, step.id, by, changes)


def _refuse_untimely(state: State, step: StepState, driven: bool) -> None:
    if driven:
        raise UsageError(
            f"execution {state.id} is running: nothing of it can be taken back now",
            advice=(f"windlass pause {state.id}, or wait for its end",),
        )
    if step.undone:
        raise UsageError(f"step {step.id} of {state.id} is undone already")
    if not step.settled and not state.status.finished:
        raise UsageError(
            f"step {step.id} is {step.status}: it can still go on, and would build on what is taken back",
            advice=(f"end the execution first: windlass cancel {state.id}",),
        )


def _one_of_each_class(tools: Toolbox) -> list[Tool]:
    """One tool of each class that can take back changes: those of a class share the record of them."""
    found = (tool for name in tools.names() if (tool := tools.get(name)) is not None)
    return list({type(tool).take_back: tool for tool in found}.values())


class _Refused(WindlassError):
    """A tool cannot take it back, or will not: a file was changed since, or nothing of it is kept."""

    def __init__(self, message: str, error: ToolError) -> None:
        super().__init__(message, advice=error.failure.advice)
        self.category = error.failure.category
