"""Advice about failures, as commands to type (C5, D10). One place for every surface. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from windlass.core.redo import AGAIN, ENDED_FOR_GOOD, is_over
from windlass.core.state import State
from windlass.core.step import StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.errors import Category, Failure, UsageError
from windlass.plan.template import references

__all__ = [
    "Way",
    "failure_advice",
    "fork_notes",
    "fork_rest",
    "no_outcome",
    "own_advice",
    "retry_notes",
    "ways_after",
    "ways_on",
]

_REDO = re.compile(r"\bwindlass (retry|skip) ")
"""A command that is refused for a step that never runs again."""


_SAME_AGAIN = (Category.CONFIGURATION, Category.LOGIC)
"""Categories of failures that come again with the same arguments."""


class Way(msgspec.Struct, frozen=True):
    """A command and its purpose."""

    command: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.purpose}: {self.command}"


def ways_on(state: State, step: StepState, changed_plan: str = "") -> list[Way]:
    """List the commands for a step that failed, most useful first. `changed_plan` is the plan's file, if it changed."""
    name, word = state.id, shlex.quote(step.id)
    accept = " --accept-changes" if changed_plan else ""
    if (parent := step.parent) is not None and parent.status is StepStatus.COMPLETED:
        again = f"{fork_rest(state, changed_plan)} --from {shlex.quote(parent.id)}"
        return [Way(again, "run it and the steps after it again, in a new execution")]
    if is_over(state, step):
        return [Way(fork_rest(state, changed_plan), AGAIN), *_list_anew(state, step, changed_plan)]
    ways = [Way(f"windlass logs {name} --step {word}", "see what it did")] if step.attempts or step.children else []
    purpose = "try its failed items again" if step.children else "try it again"
    ways.append(Way(f"windlass retry {name} {word}{accept}", purpose))
    category = step.error.category if step.error is not None else None
    if step.spec.is_agent:
        ways.append(Way(f"windlass retry {name} {word} --runtime NAME{accept}", "try it on another runtime"))
    elif category in _SAME_AGAIN:
        ways.append(Way(f"windlass retry {name} {word} --with KEY=VALUE{accept}", "try it with other arguments"))
    ways.append(Way(f"windlass skip {name} {word}{accept}", "continue without it"))
    return [*ways, *_list_anew(state, step, changed_plan)]


def _list_anew(state: State, step: StepState, changed_plan: str) -> list[Way]:
    """The command for a foreach whose list comes from steps or an input: a retry or a plain fork keeps it as it was."""
    failure, foreach = step.error, step.spec.foreach
    if not step.children or not isinstance(foreach, str) or failure is None or failure.category not in _SAME_AGAIN:
        return []
    named = references(foreach, expression=True)
    steps = {found.name for found in named if found.root == "steps"}
    source = next((one for one in state.prepared.graph.order if one in steps), None)
    if source is not None:
        again = f"{fork_rest(state, changed_plan)} --from {shlex.quote(source)}"
        return [Way(again, f"make the list anew, by {source}, and run all items, in a new execution")]
    given = next((found.name for found in named if found.root == "inputs" and found.name in state.inputs), None)
    if given is None:
        return []
    again = f"{fork_rest(state, changed_plan)} -i {shlex.quote(given)}=@FILE"
    return [Way(again, "run with a mended list what it changes, in a new execution")]


def own_advice(state: State, failure: Failure) -> tuple[str, ...]:
    """The failure's own advice, without commands that are refused because its step never runs again."""
    step = state.steps.get(failure.where)
    over = is_over(state, step) if step is not None else state.status in ENDED_FOR_GOOD
    return tuple(line for line in failure.advice if not (over and _REDO.search(line)))


def fork_rest(state: State, changed_plan: str = "") -> str:
    """The command that runs what failed or was skipped in a new execution, with the plan's file if it changed."""
    return f"windlass fork {state.id}{f' --plan {shlex.quote(changed_plan)}' if changed_plan else ''}"


def ways_after(state: State, changed_plan: str = "") -> tuple[str, ...]:
    """List the advice for an execution that has ended."""
    failed = next((step for step in state.top_level() if step.status is StepStatus.FAILED), None)
    ways = [str(way) for way in ways_on(state, failed, changed_plan)] if failed is not None else []
    if state.status is not ExecutionStatus.COMPLETED:
        ways.append(f"run failed and skipped steps in a new execution: {fork_rest(state, changed_plan)}")
    return (*ways, f"run parts of it again in a new execution: windlass fork {state.id} --from STEP")


def failure_advice(state: State, failure: Failure) -> tuple[str, ...]:
    """The failure's own advice, then the commands for its step."""
    step = state.steps.get(failure.where)
    if step is not None and step.status is StepStatus.FAILED:
        return (*own_advice(state, failure), *(str(way) for way in ways_on(state, step)))
    ended = next((s for s in state.top_level() if s.status is StepStatus.SKIPPED and not s.by_condition), None)
    if failure.where == "limits.timeout" and ended is not None:
        again = f"continue, with the same time limit again: windlass retry {state.id} {shlex.quote(ended.id)}"
        return (again, *failure.advice)
    return own_advice(state, failure)


def retry_notes(state: State, step: StepState) -> list[str]:
    """A remark about completed steps that used the result of a step which is to be tried again, if there are any.

    They never run again in this execution, so what they gave is outdated.
    """
    graph, name = state.prepared.graph, step.spec.id
    used = [one for one in graph.descendants(name) if state.steps[one].status is StepStatus.COMPLETED]
    if not used:
        return []
    first = used[0] if {*used[1:]} <= {*graph.descendants(used[0])} else name
    names = ", ".join(used[:5]) + (f" and {len(used) - 5} more" if len(used) > 5 else "")
    do, them = ("does", "it") if len(used) == 1 else ("do", "them")
    return [
        f"{names} used the earlier result of {name} and {do} not run again; to run {them}, too, in a new execution: "
        f"windlass fork {state.id} --from {shlex.quote(first)}"
    ]


def fork_notes(state: State, changed_plan: str, options: Sequence[str] = ()) -> list[str]:
    """A remark that a fork runs the plan as it was, where its file has changed since; `options` are of the fork."""
    if not changed_plan:
        return []
    more = f" {shlex.join(options)}" if options else ""
    return [
        f"the plan {changed_plan} has changed since, and this runs it as it was; to run the changed plan: "
        f"{fork_rest(state, changed_plan)}{more}"
    ]


def no_outcome(state: State, step: str) -> UsageError:
    return UsageError(
        f"step {step} of {state.id} has no unknown outcome to decide on",
        advice=(f"see what it waits for: windlass status {state.id}",),
    )
