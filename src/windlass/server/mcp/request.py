"""What a client asks to have run, made a plan of, with the runtime that its agents get (A6).

A client that is a runtime itself gets its own family: Claude Code asks, Claude Code works. The order is

1. what the request, the step or the plan names;
2. what the settings name;
3. the caller's own runtime, by the name that the client gives itself, if it is healthy;
4. the first healthy one of claude-code, open-code, cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engine.engine import Engine
from windlass.engine.sourced import Sourced
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.load import load_text
from windlass.plan.model import RUNTIMES, Budget, Plan, Step
from windlass.plan.strategies import Strategy, choose_strategy, plan_data, tasks_of

__all__ = ["Asked", "own_runtime", "runtime_for"]

CALLERS = {
    "claude-code": "claude-code",
    "claude code": "claude-code",
    "opencode": "open-code",
    "open-code": "open-code",
}
"""Runtimes by the names that their clients give themselves."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run, and how; one of `plan`, `file` and `task`."""

    plan: dict[str, Any] | str | None = None
    file: str | None = None
    task: str | Sequence[str | dict[str, Any]] | None = None
    strategy: Strategy | None = None
    role: str | None = None
    chain: Sequence[str] | None = None
    runtime: str | None = None
    model: str | None = None
    budget: float | None = None
    budget_tokens: int | None = None
    workdir: str | None = None

    def sourced(self, engine: Engine) -> Sourced:
        """The plan, checked; what the request says about its agents is stronger than what the plan says."""
        if sum(given is not None for given in (self.plan, self.file, self.task)) != 1:
            raise UsageError("name one thing to run: `plan`, `file` or `task`")
        of_tasks = {"strategy": self.strategy, "role": self.role, "chain": self.chain}
        wrong = [name for name, given in of_tasks.items() if given]
        if self.task is None and wrong:
            raise UsageError(f"`{wrong[0]}` is for `task`: a plan says so itself")
        if self.file is not None:
            folder = Path(self.workdir) if self.workdir else Path.cwd()
            sourced = engine.read(folder / Path(self.file).expanduser(), self.workdir)
        elif self.task is not None:
            sourced = Sourced(self._of_tasks())
        elif isinstance(self.plan, str):
            sourced = Sourced(load_text(self.plan, file="plan").plan)
        else:
            sourced = Sourced(_checked(self.plan))
        changed = self._changed(sourced.plan)
        return Sourced(changed, sourced.source, sourced.tools, sourced.warnings)

    def _of_tasks(self) -> Plan:
        given = self.task if isinstance(self.task, str) else list(self.task or ())
        if isinstance(given, str) and not given.strip():
            raise UsageError("`task` is empty: what is to be done?")
        tasks = [{"id": "task", "prompt": given}] if isinstance(given, str) else tasks_of(given, "task")
        chain = list(self.chain) if self.chain else None
        chosen = self.strategy or (Strategy.MULTI if chain else choose_strategy(tasks))
        if chain and chosen is not Strategy.MULTI:
            raise UsageError(f"`chain` is for the strategy multi, and this is {chosen}")
        return _checked(plan_data(tasks, chosen, role=self.role, chain=chain))

    def _changed(self, plan: Plan) -> Plan:
        changes: dict[str, Any] = {}
        if self.runtime is not None or self.model is not None:
            changes["steps"] = tuple(self._step(step) if step.is_agent else step for step in plan.steps)
        for name in ("runtime", "model"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.budget is not None or self.budget_tokens is not None:
            changes["budget"] = Budget(usd=self.budget, tokens=self.budget_tokens)
        return _revised(plan, changes)

    def _step(self, step: Step) -> Step:
        """A model that was named for another runtime means nothing to this one."""
        changes: dict[str, Any] = {}
        if self.runtime is not None and step.runtime not in (None, self.runtime):
            changes |= {"runtime": None, "model": None}
        if self.model is not None:
            changes["model"] = None
        return step.model_copy(update=changes)


def own_runtime(client: str) -> str | None:
    """The runtime that the caller is, if it is one."""
    return CALLERS.get(client.strip().lower())


async def runtime_for(engine: Engine, sourced: Sourced, client: str) -> Sourced:
    """The plan with a runtime for the agents that nobody has named one for."""
    plan = sourced.plan
    needed = plan.runtime is None and any(step.is_agent and step.runtime is None for step in plan.steps)
    if not needed or engine.settings.runtime is not None or engine.agents is None:
        return sourced
    own = own_runtime(client)
    order = [name for name in (own, *RUNTIMES) if name is not None]
    chosen = order[0]  # if none can be used, the error is about the one that was meant
    for name in dict.fromkeys(order):
        if (await engine.agents.runners[name].available()).ok:
            chosen = name
            break
    return Sourced(_revised(plan, {"runtime": chosen}), sourced.source, sourced.tools, sourced.warnings)


def _checked(data: Any) -> Plan:
    found = check_data(data, file="plan")
    if found.plan is None or found.problems:
        raise PlanInvalid(found.problems)
    return found.plan


def _revised(plan: Plan, changes: dict[str, Any]) -> Plan:
    if not changes:
        return plan
    return Plan.model_validate_json(plan.model_copy(update=changes).encoded)
