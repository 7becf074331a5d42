"""Check if a person may retry or skip a step; the error names the command to use instead (D10). Pure."""

from __future__ import annotations

import shlex

from windlass.core.state import State
from windlass.core.step import StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.errors import UsageError

__all__ = ["AGAIN", "ENDED_FOR_GOOD", "check_retry", "check_skip", "is_over"]

ENDED_FOR_GOOD = (ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED)
"""An execution that ended so is not reopened."""
AGAIN = "run what failed and the steps after it again, in a new execution"
"""The purpose of a fork of one."""


def is_over(state: State, step: StepState) -> bool:
    """True if the step never runs again in this execution: it, and its agent, can only go on in a fork."""
    parent = step.parent
    done = step.status is StepStatus.COMPLETED or (parent is not None and parent.status is StepStatus.COMPLETED)
    return done or state.status in ENDED_FOR_GOOD


def check_retry(state: State, step: StepState, *, driven: bool = True) -> None:
    """Raise `UsageError` unless a retry of the step would change something now; `driven` if a process drives it."""
    _check_execution(state, step)
    name, word = state.id, shlex.quote(step.id)
    match step.status:
        case StepStatus.FAILED | StepStatus.PAUSED:
            return
        case StepStatus.SKIPPED if step.skip_by:
            return
        case StepStatus.SKIPPED if step.by_condition:
            raise UsageError(
                f"step {step.id} of {name} was skipped because {step.skipped_because}",
                advice=(f"run it with other inputs: windlass fork {name} --from {word} -i KEY=VALUE",),
            )
        case StepStatus.SKIPPED:
            cause = state.broken_by or _failed_before(state, step)
            if cause is None:
                return
            raise UsageError(
                f"step {step.id} of {name} was skipped because {cause.id} failed",
                advice=(
                    f"retry that one, and {step.id} follows: windlass retry {name} {shlex.quote(cause.id)}",
                    f"continue without it: windlass skip {name} {shlex.quote(cause.id)}",
                ),
            )
        case StepStatus.WAITING if step.waiting_for in ("retry", "quota"):
            return
        case StepStatus.WAITING if step.waiting_for == "budget":
            raise UsageError(
                f"step {step.id} of {name} is waiting for budget: {step.question}",
                advice=(f"raise the limit: windlass resume {name} --budget USD",),
            )
        case StepStatus.WAITING if step.waiting_for == "outcome":
            raise UsageError(
                f"step {step.id} of {name} is waiting for a decision: {step.question}",
                advice=(
                    f"run it again: windlass resume {name} --again {word}",
                    f"it took effect: windlass resume {name} --done {word}",
                    f"count it as failed: windlass resume {name} --fail {word}",
                ),
            )
        case StepStatus.WAITING:
            raise UsageError(
                f"step {step.id} of {name} is waiting for approval",
                advice=(f"answer it: windlass approve {name} {word}",),
            )
        case StepStatus.COMPLETED:
            raise UsageError(
                f"step {step.id} of {name} is completed, and a completed step never runs again in its execution",
                advice=(f"run it again in a new execution: windlass fork {name} --from {word}",),
            )
        case StepStatus.RUNNING:
            raise _while_running(state, step, driven=driven)
        case _:
            raise UsageError(
                f"step {step.id} of {name} has not run yet",
                advice=(f"see what it waits for: windlass status {name}",),
            )


def check_skip(state: State, step: StepState) -> None:
    """Raise `UsageError` unless skipping the step would change something now."""
    _check_execution(state, step)
    if step.status is StepStatus.COMPLETED:
        raise UsageError(
            f"step {step.id} of {state.id} is completed and cannot be skipped",
            advice=(f"run it again in a new execution: windlass fork {state.id} --from {shlex.quote(step.id)}",),
        )
    if step.skip_by:
        raise UsageError(
            f"step {step.id} of {state.id} is already skipped by {step.skip_by}",
            advice=(f"run it after all: windlass retry {state.id} {shlex.quote(step.id)}",),
        )


def _check_execution(state: State, step: StepState) -> None:
    parent = step.parent
    if parent is not None and parent.status is StepStatus.COMPLETED:
        raise UsageError(
            f"step {parent.id} of {state.id} is completed, and a completed step never runs again in its execution",
            advice=(f"run it again in a new execution: windlass fork {state.id} --from {shlex.quote(parent.id)}",),
        )
    if state.status in ENDED_FOR_GOOD:
        again = f"run parts of it again: windlass fork {state.id} --from {shlex.quote(step.spec.id)}"
        if step.status is StepStatus.FAILED:
            again = f"{AGAIN}: windlass fork {state.id}"
        raise UsageError(f"execution {state.id} is {state.status} and cannot be reopened", advice=(again,))


def _while_running(state: State, step: StepState, *, driven: bool) -> UsageError:
    """The error for a step that is running, or whose items wait, or that stands still with its execution."""
    name, skip = state.id, f"continue without it: windlass skip {state.id} {shlex.quote(step.id)}"
    asking = [item for item in step.children or () if item.status is StepStatus.WAITING and item.asks]
    if asking:
        names = ", ".join(item.id for item in asking[:5]) + (f" and {len(asking) - 5} more" if len(asking) > 5 else "")
        try:
            check_retry(state, asking[0])
        except UsageError as error:
            return UsageError(f"items of step {step.id} of {name} wait for an answer: {names}", advice=error.advice)
    if state.status is ExecutionStatus.RUNNING and driven:
        return UsageError(
            f"step {step.id} of {name} is running", advice=(f"stop it first: windlass interrupt {name}", skip)
        )
    stopped = "its execution is paused" if state.status is ExecutionStatus.PAUSED else "its process is gone"
    return UsageError(
        f"step {step.id} of {name} has not ended: {stopped}", advice=(f"continue it: windlass resume {name}", skip)
    )


def _failed_before(state: State, step: StepState) -> StepState | None:
    """The failed step because of which this one was skipped."""
    graph = state.prepared.graph
    queue = list(graph.needs[step.spec.id])
    for need in queue:
        before = state.steps[need]
        if before.status is StepStatus.FAILED:
            return before
        if before.status is StepStatus.SKIPPED and not before.skip_by:
            queue += [more for more in graph.needs[need] if more not in queue]
    return None
