"""What a request wants to have run, made a plan of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import msgspec

from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.engine.tasks import AgentFlags, plan_from
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.strategies import Strategy, tasks_of
from windlass.server.models import NewExecution

__all__ = ["plan_given", "plan_ordered"]


class _GivesPlan(Protocol):
    @property
    def plan(self) -> dict[str, Any] | None: ...
    @property
    def plan_text(self) -> str | None: ...
    @property
    def plan_file(self) -> str | None: ...


def plan_ordered(engine: Engine, order: NewExecution) -> LoadedPlan:
    """The plan, checked; what the request says about its agents is stronger than what the plan says."""
    ways = ("plan", "plan_text", "plan_file", "task", "tasks")
    given = [name for name in ways if getattr(order, name) is not None]
    if len(given) != 1:
        said = " and ".join(f"`{name}`" for name in given) or "nothing"
        raise UsageError(
            f"name one thing to run, of `plan`, `plan_text`, `plan_file`, `task`, `tasks`; given is {said}"
        )
    of_tasks = ("strategy", "role", "chain", "files", "skills")
    wrong = [name for name in of_tasks if getattr(order, name)]
    sourced = plan_given(engine, order, order.workdir)
    if sourced is None:
        sourced = _of_tasks(order)
    elif wrong:
        raise UsageError(f"`{wrong[0]}` is for `task` and `tasks`: a plan says so itself")
    limit = order.budget
    flags = AgentFlags(
        order.runtime,
        order.model,
        limit.usd if limit is not None else None,
        limit.tokens if limit is not None else None,
        order.fallback,
        order.parallel,
        tuple(order.allow),
    )
    return flags.apply(sourced)


def plan_given(engine: Engine, order: _GivesPlan, workdir: str | None) -> LoadedPlan | None:
    """The plan that a request brings or names; None if it does neither."""
    if order.plan is not None:
        try:
            return engine.parse(msgspec.json.encode(order.plan).decode(), workdir, name="plan.json")
        except PlanInvalid as error:
            # The text is ours, not the client's: its lines would mislead.
            bare = [msgspec.structs.replace(p, file="", line=None, column=None) for p in error.problems]
            raise PlanInvalid(bare) from error
    if order.plan_text is not None:
        return engine.parse(order.plan_text, workdir, name="plan.json" if _is_json(order.plan_text) else "plan.yaml")
    if order.plan_file is not None:
        return engine.read(Path(workdir or os.getcwd()) / order.plan_file, workdir)
    return None


def _is_json(text: str) -> bool:
    """YAML knows nearly all of JSON, but says what is wrong in its own words."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False


def _of_tasks(order: NewExecution) -> LoadedPlan:
    tasks = (
        [{"id": "task", "prompt": order.task}] if order.task is not None else tasks_of(list(order.tasks or ()), "tasks")
    )
    if order.task is not None and not order.task.strip():
        raise UsageError("`task` is empty: what is to be done?")
    strategy = Strategy(order.strategy) if order.strategy is not None else None
    made, _ = plan_from(
        tasks, strategy, role=order.role, chain=order.chain, files=order.files, skills=order.skills, file=""
    )
    return LoadedPlan(made)
