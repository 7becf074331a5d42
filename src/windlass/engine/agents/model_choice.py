"""The model of an attempt: as the person, step, plan, role or settings name it, if the name fits the runtime.

A name means something to one runtime only. One that takes over uses a model of the same class, where it has one.
"""

from __future__ import annotations

import re

from windlass.core.decide import Policy
from windlass.core.delegate import named_model
from windlass.core.state import State, StepState
from windlass.engine.agents.deps import RoleFacts
from windlass.runtimes import RUNTIMES, ModelClass
from windlass.settings import Settings

__all__ = ["class_of", "model_for"]

_WORDS: tuple[tuple[ModelClass, frozenset[str]], ...] = (
    ("small", frozenset({"haiku", "mini", "nano", "flash", "lite", "small", "fast"})),
    ("large", frozenset({"opus", "large", "ultra", "max", "pro"})),
    ("standard", frozenset({"sonnet", "medium", "standard", "gpt", "codex"})),
)
"""Words in a model's name, the first that fits."""


def class_of(model: str | None) -> ModelClass | None:
    """The class of a model by its name; None if the name does not say."""
    words = set(re.split(r"[^a-z]+", (model or "").lower()))
    return next((name for name, known in _WORDS if words & known), None)


def model_for(
    runtime: str, role: RoleFacts, state: State, step: StepState, settings: Settings, policy: Policy
) -> tuple[str | None, list[str]]:
    """The model of the next attempt on this runtime, None for the runtime's own default; and notes for the user."""
    of_runtime = settings.runtimes.get(runtime)
    default = of_runtime.model if of_runtime is not None else None
    of_step, of_plan, usual = step.spec.runtime, state.plan.runtime, policy.runtime
    first = step.runtime or of_step or of_plan or usual
    if named := named_model(state, step):
        of_its_own = step.spec.model or step.spec.models
        meant_for = (of_step or of_plan if of_its_own else of_plan or of_step) or usual
        if step.model:
            meant_for = first  # a person chose both for this step
        if meant_for == runtime:
            return named, []
        return _same_class(runtime, named, f"model {named} was named for {meant_for}", default, settings)
    row = RUNTIMES.get(runtime)
    if role.model is not None and (role.runtime in ("", runtime) or (row is not None and row.any_model)):
        return role.model, []
    agent = step.agent
    if first == runtime or agent is None or agent.runtime == runtime or class_of(agent.model) is None:
        return default, []
    return _same_class(runtime, agent.model, f"{agent.runtime} used {agent.model}", default, settings)


def _same_class(
    runtime: str, model: str, why: str, default: str | None, settings: Settings
) -> tuple[str | None, list[str]]:
    wanted, row, of_runtime = class_of(model), RUNTIMES.get(runtime), settings.runtimes.get(runtime)
    if wanted is None:
        return default, [f"{why}; {runtime} uses {default or 'its own default'}"]
    found = of_runtime.models.get(wanted) if of_runtime is not None else None
    if found is None and default is not None and class_of(default) == wanted:
        found = default
    if found is None and default is None and row is not None:
        found = row.models.get(wanted)
    if found is not None:
        return found, [f"{why}; {runtime} uses {found}, of the same class ({wanted})"]
    other = class_of(default)
    what = f"a {other} model, not a {wanted} one" if other else f"which may not be a {wanted} model"
    return default, [f"{why}; {runtime} uses {default or 'its own default'}, {what}"]
