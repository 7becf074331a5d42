"""Taking back what a finished step changed, because a person wants it.

The engine knows when that makes sense: nobody drives the execution, and the step will not go on. How it is done is the
tools' business: one that can take back what it changed has `take_back`, as the file tools do. The files come first and
the journal's word for it second: killed in between, the same request finds it done, and writes it down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.errors import ToolError, UsageError, WindlassError
from windlass.ports import Toolbox

__all__ = ["take_back"]

TakeBack = Callable[[Path, Collection[str], Path], list[dict[str, str]]]
"""The execution's folder, the steps, the working directory: what was put back, newest first. Safe to be repeated."""


async def take_back(
    state: State, step: StepState, *, driven: bool, tools: Toolbox, folder: Path, now: float, by: str
) -> ev.StepUndone:
    """Take back what the step and its items changed: the event that says so, to be written down."""
    _refuse_untimely(state, step, driven)
    names = [step.id, *(child.id for child in step.children or ())]
    changes: list[dict[str, str]] = []
    for way in _ways(tools):
        try:
            changes += await asyncio.to_thread(way, folder, names, Path(state.workdir))
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


def _ways(tools: Toolbox) -> list[TakeBack]:
    """How the tools here take back what they changed; tools that share a way are asked once."""
    found = (getattr(tools.get(name), "take_back", None) for name in tools.names())
    return list(dict.fromkeys(way for way in found if way is not None))


class _Refused(WindlassError):
    """A tool cannot take it back, or will not: a file was changed since, or nothing of it is kept."""

    def __init__(self, message: str, error: ToolError) -> None:
        super().__init__(message, advice=error.failure.advice)
        self.category = error.failure.category
