"""One request to run something, for every surface: command line, HTTP, MCP and Python have these fields by these names.

A surface translates its input into a `RunRequest` and decides nothing: the plan, the runtime of its agents and their
budget are settled here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.core.events import OnOverrun
from windlass.engine.inbox import checked_limit
from windlass.engine.perform import not_finite
from windlass.engine.plans import LoadedPlan
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.model import MOST_PARALLEL, Permits, Plan, Step
from windlass.plan.strategies import Strategy, choose_strategy, plan_data, tasks_of

if TYPE_CHECKING:
    from windlass.core.forecast.value import Forecast
    from windlass.engine.engine import Engine
    from windlass.engine.execution import Execution

__all__ = ["RunRequest"]

_WAYS = ("plan", "plan_text", "plan_file", "task", "tasks")
_OF_TASKS = ("strategy", "role", "chain", "files", "skills")
_LISTS = ("chain", "files", "skills", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A plan or tasks to run, with options: exactly one of `plan`, `plan_text`, `plan_file`, `task` and `tasks`."""

    plan: Plan | Mapping[str, Any] | None = None
    """A plan, or its data."""
    plan_text: str | None = None
    """A plan as YAML or JSON."""
    plan_name: str = "plan"
    """Its name in the problems of `plan_text`."""
    plan_file: str | Path | None = None
    """A plan file, relative to the working directory."""
    task: str | None = None
    """A task for agents."""
    tasks: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None
    """Several tasks, texts or `{id, task, depends_on}`; or all that a file of tasks says."""
    tasks_file: str = ""
    """The file that the tasks were read from, for the problems in it."""
    strategy: Strategy | None = None
    """The strategy that turns tasks into a plan; None is by the tasks."""
    role: str | None = None
    """The role of the tasks' agent."""
    chain: Sequence[str] | None = None
    """The roles of the strategy multi, in order."""
    files: Sequence[str] = ()
    """Files that the tasks' agents are given."""
    skills: Sequence[str] = ()
    """Skills that the tasks' agents are given."""
    runtime: str | None = None
    """The runtime of all agents, in place of the plan's."""
    model: str | None = None
    """The model of all agents, in place of the plan's."""
    fallback: bool | None = None
    """Let another runtime take over when one cannot be used, in place of the plan's choice."""
    parallel: int | None = None
    """Steps at a time, over the plan's own limit."""
    allow: Sequence[str] = ()
    """Tools that agents may use without asking."""
    budget: float | None = None
    """Dollars that the execution may spend in all."""
    budget_tokens: int | None = None
    """Tokens that it may read and write in all."""
    on_overrun: OnOverrun = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Values for the plan's inputs."""
    workdir: str | Path | None = None
    """The working directory of the steps; None is the current one."""
    hold: bool = True
    """Stay while only a person can continue it, instead of pausing."""
    anyway: bool = False
    """Start even if a program or runtime it needs is missing."""

    def load(self, engine: Engine) -> LoadedPlan:
        """Read and check the plan, with everything that the request says about its agents."""
        given = [name for name in _WAYS if getattr(self, name) is not None]
        if len(given) != 1:
            listed = " and ".join(f"`{name}`" for name in given) or "nothing"
            raise UsageError(
                f"name one thing to run, of `plan`, `plan_text`, `plan_file`, `task`, `tasks`; given is {listed}"
            )
        self._check_values()
        wrong = [name for name in _OF_TASKS if getattr(self, name)]
        if wrong and given[0] not in ("task", "tasks"):
            raise UsageError(f"`{wrong[0]}` works only with `task` and `tasks`: set it in the plan instead")
        return self._applied(self._given_plan(engine) or LoadedPlan(self._plan_of_tasks()))

    async def start(self, engine: Engine, loaded: LoadedPlan | None = None, *, id: str | None = None) -> Execution:
        """Start it. `loaded` is its plan where it was loaded before; `id` is one that was kept for it."""
        # In a thread: a plan of thousands of steps takes its time to check, and others are served meanwhile.
        return await engine.start(
            loaded if loaded is not None else await asyncio.to_thread(self.load, engine),
            self.inputs,
            workdir=self.workdir,
            hold=self.hold,
            on_overrun=self.on_overrun,
            anyway=self.anyway,
            id=id,
        )

    async def create(self, engine: Engine, loaded: LoadedPlan | None = None, *, id: str | None = None) -> str:
        """Write it down for another process to drive; returns the id of the execution. `id` is as for `start`."""
        return await engine.create(
            loaded if loaded is not None else await asyncio.to_thread(self.load, engine),
            self.inputs,
            workdir=self.workdir,
            on_overrun=self.on_overrun,
            anyway=self.anyway,
            id=id,
            to_start=True,
        )

    async def estimate(self, engine: Engine) -> Forecast:
        """Forecast it without starting it."""
        loaded = await asyncio.to_thread(self.load, engine)
        return await engine.estimate(loaded.plan, engine.attempt_runner.tools.extended(loaded.tools), self.inputs)

    def chosen_strategy(self) -> Strategy:
        """The strategy that makes a plan of the tasks."""
        named = Strategy(self.strategy) if self.strategy else None
        chosen = named or (Strategy.MULTI if self.chain else choose_strategy(self._tasks(), role=self.role))
        if self.chain and chosen is not Strategy.MULTI:
            raise UsageError(f"a chain of roles works only with the strategy multi, not with {chosen}")
        if self.role and chosen is Strategy.MULTI:
            raise UsageError(
                "one role is not a chain", advice=("name its roles: `chain`, such as architect, developer",)
            )
        return chosen

    def _check_values(self) -> None:
        """Refuse what Python lets through: the other surfaces check the types of their values themselves."""
        for name in _LISTS:
            if isinstance(given := getattr(self, name), str):
                raise UsageError(f"`{name}` is a list of texts, and given is one text: write [{given!r}]")
        if self.strategy and self.strategy not in list(Strategy):
            raise UsageError(f"there is no strategy {self.strategy!r}; there are: {', '.join(Strategy)}")
        if self.parallel is not None and self.parallel not in range(1, MOST_PARALLEL + 1):
            raise UsageError(f"`parallel` is a whole number from 1 to {MOST_PARALLEL}; given is {self.parallel!r}")

    def _given_plan(self, engine: Engine) -> LoadedPlan | None:
        if isinstance(self.plan, Plan):
            return LoadedPlan(self.plan)
        if self.plan is not None:
            text = _as_json(self.plan)
            try:
                return engine.parse(text, self.workdir, name="plan.json")
            except PlanInvalid as error:
                # The text is ours, not the client's: its lines would mislead.
                bare = [msgspec.structs.replace(p, file="", line=None, column=None) for p in error.problems]
                raise PlanInvalid(bare) from error
        if self.plan_text is not None:
            kind = "json" if _is_json(self.plan_text) else "yaml"
            return engine.parse(self.plan_text, self.workdir, name=f"{self.plan_name}.{kind}")
        if self.plan_file is not None:
            file = Path(self.workdir) / self.plan_file if self.workdir is not None else Path(self.plan_file)
            return engine.read(file, self.workdir)
        return None

    def _tasks(self) -> list[dict[str, Any]]:
        if self.task is not None and not self.task.strip():
            raise UsageError("`task` is empty: describe the task")
        given = self.tasks if isinstance(self.tasks, str | Mapping) else list(self.tasks or ())
        named = self.tasks_file or "tasks"
        tasks = [{"id": "task", "prompt": self.task}] if self.task is not None else tasks_of(given, named)
        more = {"files": self.files, "skills": self.skills}
        return [
            {**task, **{name: [*_listed(task.get(name)), *given] for name, given in more.items() if given}}
            for task in tasks
        ]

    def _plan_of_tasks(self) -> Plan:
        data = plan_data(self._tasks(), self.chosen_strategy(), role=self.role, chain=self.chain)
        found = check_data(data, file=self.tasks_file)
        if found.plan is None:
            raise PlanInvalid(
                found.problems, advice=("correct the tasks, whose keys are in: windlass docs strategies",)
            )
        return found.plan

    def _applied(self, loaded: LoadedPlan) -> LoadedPlan:
        """The plan with the request's options for its agents, which override the plan's own."""
        plan = loaded.plan
        changes: dict[str, Any] = {}
        if self.runtime is not None or self.model is not None or self.fallback is not None or self.allow:
            changes["steps"] = tuple(self._changed(step) if step.is_agent else step for step in plan.steps)
        for name in ("runtime", "model", "fallback"):
            if getattr(self, name) is not None:
                changes[name] = getattr(self, name)
        if self.budget is not None or self.budget_tokens is not None:
            changes["budget"] = checked_limit(self.budget, self.budget_tokens)
        if self.parallel is not None:
            changes["limits"] = plan.limits.model_copy(update={"parallel": self.parallel})
        if not changes:
            return loaded
        changed = plan.model_copy(update=changes)
        return LoadedPlan(Plan.decode(changed.encoded), loaded.source, loaded.tools, loaded.warnings)

    def _changed(self, step: Step) -> Step:
        changes: dict[str, Any] = {}
        if self.runtime is not None and step.runtime not in (None, self.runtime):
            changes |= {"runtime": None, "model": None, "models": ()}
        if self.model is not None:
            changes |= {"model": None, "models": ()}
        if self.fallback is not None:
            changes["fallback"] = None
        if self.allow:
            given = step.permissions or Permits()
            changes["permissions"] = given.model_copy(update={"allow": (*given.allow, *self.allow)})
        return step.model_copy(update=changes)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _as_json(plan: Mapping[str, Any]) -> str:
    """The data of a plan as text. Raises `UsageError` for a value that would not come back from it."""
    try:
        encoded = msgspec.json.encode(plan)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"`plan` is not plain data: {error}") from error
    # JSON makes null of NaN.
    if b"null" in encoded and (place := not_finite(msgspec.to_builtins(plan))) is not None:
        raise UsageError(f"`plan` has a number that is not finite at {place}")
    return encoded.decode()


def _is_json(text: str) -> bool:
    """True for a JSON object: YAML reads nearly all JSON, but its messages speak of YAML."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
