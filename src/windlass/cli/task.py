"""`run --task`: a plan made of tasks, by a strategy, and what the flags say about its agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engine.sourced import Sourced
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.model import Budget, Permits, Plan
from windlass.plan.strategies import Strategy, choose_strategy, plan_data, tasks_of
from windlass.plan.yamlread import read

__all__ = ["AgentFlags", "plan_of_tasks"]

MAX_TASK_FILE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AgentFlags:
    """What the command line says about agents. It is stronger than the plan."""

    runtime: str | None = None
    model: str | None = None
    budget: float | None = None
    budget_tokens: int | None = None
    fallback: bool | None = None
    parallel: int | None = None
    allow: tuple[str, ...] = ()

    def apply(self, sourced: Sourced) -> Sourced:
        plan = sourced.plan
        changes: dict[str, Any] = {}
        if self.runtime is not None or self.model is not None or self.fallback is not None or self.allow:
            changes["steps"] = tuple(self._step(step) if step.is_agent else step for step in plan.steps)
        for name in ("runtime", "model", "fallback"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.budget is not None or self.budget_tokens is not None:
            changes["budget"] = Budget(usd=self.budget, tokens=self.budget_tokens)
        if self.parallel is not None:
            changes["limits"] = plan.limits.model_copy(update={"parallel": self.parallel})
        if not changes:
            return sourced
        changed = plan.model_copy(update=changes)
        return Sourced(Plan.model_validate_json(changed.encoded), sourced.source, sourced.tools, sourced.warnings)

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


def plan_of_tasks(
    task: str | None,
    file: Path | None,
    strategy: Strategy | None,
    *,
    role: str | None,
    chain: str | None,
    files: Sequence[str],
    skills: Sequence[str],
) -> tuple[Plan, Strategy]:
    """The plan of `--task` or `--task-file`, and the strategy that made it."""
    tasks: list[dict[str, Any]] = [{"id": "task", "prompt": task}] if task is not None else _read(file)
    if task is not None and not task.strip():
        raise UsageError("--task is empty: what is to be done?")
    for entry in tasks:
        for name, given in (("files", files), ("skills", skills)):
            if given:
                entry[name] = [*_listed(entry.get(name)), *given]
    members = [name.strip() for name in chain.split(",") if name.strip()] if chain else None
    chosen = strategy or (Strategy.MULTI if members else choose_strategy(tasks))
    if members and chosen is not Strategy.MULTI:
        raise UsageError(f"--chain is for the strategy multi, and this is {chosen}")
    data = plan_data(tasks, chosen, role=role, chain=members)
    found = check_data(data, file=str(file) if file else "")
    if found.plan is None:
        raise PlanInvalid(found.problems)
    return found.plan, chosen


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _read(file: Path | None) -> list[dict[str, Any]]:
    assert file is not None
    try:
        if file.stat().st_size > MAX_TASK_FILE:
            raise UsageError(f"{file} is larger than {MAX_TASK_FILE // 1024**2} MiB: that is no list of tasks")
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return tasks_of(text, str(file))
    return tasks_of(read(text, file=str(file), as_json=file.suffix.lower() == ".json").data, str(file))
