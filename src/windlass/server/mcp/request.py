"""What a client asks to have run, made a plan of, with the runtime that its agents get (A6).

A client that is a runtime itself gets its own family: Claude Code asks, Claude Code works. The order is

1. what the request, the step or the plan names;
2. what the settings name;
3. the caller's own runtime, by the name that the client gives itself, if it is healthy;
4. the first healthy one in the table of runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.engine.tasks import AgentFlags, plan_from
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.load import load_text
from windlass.plan.model import Plan
from windlass.plan.strategies import Strategy, tasks_of
from windlass.runtimes import RUNTIMES

__all__ = ["Asked", "own_runtime", "runtime_for"]


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

    def sourced(self, engine: Engine) -> LoadedPlan:
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
            sourced = LoadedPlan(self._of_tasks())
        elif isinstance(self.plan, str):
            sourced = LoadedPlan(load_text(self.plan, file="plan").plan)
        else:
            sourced = LoadedPlan(_checked(self.plan))
        flags = AgentFlags(self.runtime, self.model, self.budget, self.budget_tokens)
        return flags.apply(sourced)

    def _of_tasks(self) -> Plan:
        given = self.task if isinstance(self.task, str) else list(self.task or ())
        if isinstance(given, str) and not given.strip():
            raise UsageError("`task` is empty: what is to be done?")
        tasks = [{"id": "task", "prompt": given}] if isinstance(given, str) else tasks_of(given, "task")
        return plan_from(tasks, self.strategy, role=self.role, chain=self.chain)[0]


def own_runtime(client: str) -> str | None:
    """The runtime that the caller is, if it is one."""
    called = client.strip().lower()
    return next((row.name for row in RUNTIMES.values() if called in row.client_names), None)


async def runtime_for(engine: Engine, sourced: LoadedPlan, client: str) -> LoadedPlan:
    """The plan with a runtime for the agents that nobody has named one for."""
    plan = sourced.plan
    needed = plan.runtime is None and any(step.is_agent and step.runtime is None for step in plan.steps)
    if not needed or engine.settings.runtime is not None or engine.agents is None:
        return sourced
    own = own_runtime(client)
    order = [name for name in (own, *RUNTIMES) if name is not None]
    chosen = order[0]  # if none can be used, the error is about the one that was meant
    for name in dict.fromkeys(order):
        health = await engine.agents.runners[name].available()
        if health.ok and not health.unset:
            chosen = name
            break
    revised = Plan.model_validate_json(plan.model_copy(update={"runtime": chosen}).encoded)
    return LoadedPlan(revised, sourced.source, sourced.tools, sourced.warnings)


def _checked(data: Any) -> Plan:
    found = check_data(data, file="plan")
    if found.plan is None or found.problems:
        raise PlanInvalid(found.problems)
    return found.plan
