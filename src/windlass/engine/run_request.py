"""Plans made of tasks, and the flags for agents with which a plan is started: for every surface the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.engine.inbox import checked_limit
from windlass.engine.plans import LoadedPlan
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.model import Permits, Plan
from windlass.plan.strategies import Strategy, choose_strategy, plan_data

__all__ = ["AgentFlags", "plan_from"]


@dataclass(frozen=True, slots=True)
class AgentFlags:
    """Flags for its agents with which a plan is started. They are stronger than the plan."""

    runtime: str | None = None
    model: str | None = None
    budget: float | None = None
    budget_tokens: int | None = None
    fallback: bool | None = None
    parallel: int | None = None
    allow: tuple[str, ...] = ()

    def apply(self, sourced: LoadedPlan) -> LoadedPlan:
        plan = sourced.plan
        changes: dict[str, Any] = {}
        if self.runtime is not None or self.model is not None or self.fallback is not None or self.allow:
            changes["steps"] = tuple(self._step(step) if step.is_agent else step for step in plan.steps)
        for name in ("runtime", "model", "fallback"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.budget is not None or self.budget_tokens is not None:
            changes["budget"] = checked_limit(self.budget, self.budget_tokens)
        if self.parallel is not None:
            changes["limits"] = plan.limits.model_copy(update={"parallel": self.parallel})
        if not changes:
            return sourced
        changed = plan.model_copy(update=changes)
        return LoadedPlan(Plan.model_validate_json(changed.encoded), sourced.source, sourced.tools, sourced.warnings)

    def _step(self, step: Any) -> Any:
        changes: dict[str, Any] = {}
        if self.runtime is not None and step.runtime not in (None, self.runtime):
            changes |= {"runtime": None, "model": None}
        if self.model is not None:
            changes["model"] = None
        if self.fallback is not None:
            changes["fallback"] = None
        if self.allow:
            given = step.permissions or Permits()
            changes["permissions"] = given.model_copy(update={"allow": (*given.allow, *self.allow)})
        return step.model_copy(update=changes)


def plan_from(
    tasks: Sequence[dict[str, Any]],
    strategy: Strategy | None = None,
    *,
    role: str | None = None,
    chain: Sequence[str] | None = None,
    files: Sequence[str] = (),
    skills: Sequence[str] = (),
    file: str = "",
) -> tuple[Plan, Strategy]:
    """The plan of some tasks (as `tasks_of` gives them), and the strategy that made it."""
    given = [{**entry, **_more(entry, files=files, skills=skills)} for entry in tasks]
    chosen = strategy or (Strategy.MULTI if chain else choose_strategy(given, role=role))
    if chain and chosen is not Strategy.MULTI:
        raise UsageError(f"a chain of roles is for the strategy multi, and this is {chosen}")
    if role and chosen is Strategy.MULTI:
        raise UsageError("one role is not a chain", advice=("name its roles: --chain architect,developer",))
    found = check_data(plan_data(given, chosen, role=role, chain=chain), file=file)
    if found.plan is None:
        raise PlanInvalid(found.problems)
    return found.plan, chosen


def _more(entry: dict[str, Any], **given: Sequence[str]) -> dict[str, Any]:
    return {name: [*_listed(entry.get(name)), *more] for name, more in given.items() if more}


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
