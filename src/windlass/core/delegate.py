"""Delegation of an agent step: its runtime, the outputs handed to it, its fallback (A6, A7, B2). Pure."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from windlass.core.agent import next_in_family
from windlass.core.state import State
from windlass.core.step import StepState
from windlass.core.transitions import StepStatus
from windlass.errors import UNAVAILABLE, Failure
from windlass.plan.model import FAILURES_EACH
from windlass.runtimes import CLI

__all__ = ["DEFAULT_RUNTIME", "falls_back", "handoff_of", "last_word", "named_model", "runtime_of", "successor"]

DEFAULT_RUNTIME = CLI.name
"""The runtime of agents that name none: it needs no other program."""


class _Preference(Protocol):
    @property
    def runtime(self) -> str: ...

    @property
    def fallback(self) -> bool: ...


def runtime_of(state: State, step: StepState, policy: _Preference) -> str:
    """The runtime of the next attempt: the fallback, else as the person, step, plan or settings name it."""
    instead = step.agent.instead if step.agent is not None else None
    return instead or step.runtime or step.spec.runtime or state.plan.runtime or policy.runtime


def named_model(state: State, step: StepState) -> str:
    """The model that the person, the step or the plan names; empty for that of its role or its runtime.

    Empty also for a name that is a template, until the step's first attempt has it filled in.
    """
    if step.model:
        return step.model
    spec, given = step.spec, step.input if isinstance(step.input, dict) else {}
    if spec.models:
        refused = step.agent.refused if step.agent is not None else 0
        models = given.get("models", spec.models)
        name = models[min(refused // FAILURES_EACH, len(models) - 1)]
    else:
        name = given.get("model", spec.model) or state.plan.model or ""
    return "" if "{{" in name else name


def falls_back(state: State, step: StepState, policy: _Preference) -> bool:
    for says in (step.spec.fallback, state.plan.fallback):
        if says is not None:
            return says
    return policy.fallback


def successor(state: State, step: StepState, failure: Failure, policy: _Preference) -> str | None:
    """The runtime that takes over after a failure that it could survive."""
    if step.agent is None or not failure.elsewhere or not falls_back(state, step, policy):
        return None
    return next_in_family(step.agent.runtime, step.agent.given_up)


def last_word(step: StepState, failure: Failure) -> Failure:
    """The failure of a step for good, with how the runtime failed that it began on.

    A runtime that could not even take over is not why the step failed: the first one's failure then comes first.
    """
    agent = step.agent
    if agent is None or not agent.given_up:
        return failure
    if failure.kind == UNAVAILABLE and (first := agent.gave_up_with) is not None:
        advice = tuple(dict.fromkeys((*first.advice, *failure.advice)))
        return msgspec.structs.replace(first, message=f"{first.message}; {failure.message}", advice=advice)
    before = f"before that, {agent.given_up[-1]} failed: {agent.gave_up_because}"
    return msgspec.structs.replace(failure, message=f"{failure.message}; {before}")


def handoff_of(state: State, step: StepState) -> list[dict[str, Any]]:
    """Outputs of earlier steps that are handed to this one, in the plan's order."""
    wanted = step.spec.handoff
    if wanted is False:
        return []
    needs = state.prepared.graph.needs[step.spec.id]
    named = {need for need in needs if state.steps[need].spec.is_agent} if wanted is True else set(wanted)
    given = [s for s in state.top_level() if s.id in named and s.status is StepStatus.COMPLETED]
    return [{"step": s.id, "role": _role(s), "output": s.output} for s in given]


def _role(step: StepState) -> str:
    if not step.spec.is_agent:
        return ""
    return step.agent.role if step.agent is not None and step.agent.role else step.spec.agent or ""
