"""Bodies of requests, as OpenAPI shows them. Each is checked strictly: a key that is not known, or a number written as
text, is an error.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from windlass.core.events import DecisionChoice, OnOverrun
from windlass.engine.run_request import RunRequest
from windlass.plan.model import MOST_PARALLEL
from windlass.plan.strategies import Strategy
from windlass.runtimes import RuntimeName

__all__ = [
    "ApprovalAnswer",
    "BudgetAnswer",
    "Cleaning",
    "Decision",
    "Fork",
    "Interrupt",
    "Limit",
    "NewExecution",
    "Pause",
    "PlanCheck",
    "Resume",
    "RetryStep",
    "Say",
    "Skip",
]

Text = Annotated[str, Field(min_length=1, max_length=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=400)]
PathText = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Seconds = Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Limit(_Request):
    """A limit in dollars, tokens or both."""

    usd: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0, le=10**15)] | None = None


class NewExecution(_Request):
    """A request to run exactly one of `plan`, `plan_text`, `plan_file`, `task` and `tasks`."""

    plan: dict[str, Any] | None = Field(default=None, description="A plan as an object.")
    plan_text: Text | None = Field(default=None, description="A plan as YAML or JSON text: problems name its lines.")
    plan_file: PathText | None = Field(
        default=None, description="A plan file on the server's machine, relative to workdir."
    )
    task: Text | None = Field(default=None, description="A task for agents.")
    tasks: list[Text | dict[str, Any]] | None = Field(
        default=None, min_length=1, max_length=10_000, description="Several: texts, or {id, task, depends_on}."
    )
    strategy: Literal["single", "multi", "parallel", "plan"] | None = Field(
        default=None, description="Strategy that turns tasks into a plan."
    )
    role: Name | None = None
    chain: list[Name] | None = Field(default=None, max_length=100, description="The roles of strategy multi.")
    files: list[PathText] = Field(default=[], max_length=1000, description="Files that agents are given.")
    skills: list[Name] = Field(default=[], max_length=100, description="Skills that agents are given.")
    runtime: RuntimeName | None = None
    model: Name | None = None
    fallback: bool | None = None
    parallel: Annotated[int, Field(ge=1, le=MOST_PARALLEL)] | None = None
    allow: list[Name] = Field(default=[], max_length=1000, description="Tools that agents may use without asking.")
    budget: Limit | None = Field(default=None, description="Total limit.")
    on_overrun: OnOverrun = Field(default="", description="Action at a budget limit; empty uses the settings.")
    inputs: dict[str, Any] = {}
    workdir: PathText | None = Field(
        default=None, description="Working directory of the steps; the server's own if not given."
    )
    hold: bool = Field(default=True, description="Wait for a person instead of pausing.")
    anyway: bool = Field(default=False, description="Start even if a program or runtime it needs is missing.")

    def request(self) -> RunRequest:
        """The same for the engine: all fields have the names that it knows."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        limit = self.budget or Limit()
        strategy = Strategy(self.strategy) if self.strategy is not None else None
        return RunRequest(**given | {"strategy": strategy, "budget": limit.usd, "budget_tokens": limit.tokens})


class PlanCheck(_Request):
    """Exactly one of `plan`, `plan_text` and `plan_file`."""

    plan: dict[str, Any] | None = None
    plan_text: Text | None = Field(default=None, description="YAML or JSON: problems name its lines.")
    plan_file: PathText | None = Field(default=None, description="On the server's machine, relative to workdir.")
    workdir: PathText | None = None


class Pause(_Request):
    now: bool = Field(default=False, description="Stop running attempts instead of letting them finish.")
    within: Seconds = Field(default=10.0, description="Seconds to wait until it is paused.")


class Interrupt(_Request):
    """Also the body of `cancel`."""

    within: Seconds = Field(default=30.0, description="Seconds to wait for it.")


class Decision(_Request):
    """The outcome of an attempt that nobody saw."""

    step: Name
    choice: DecisionChoice
    output: Any = None


class Resume(_Request):
    hold: bool = True
    accept_changes: bool = Field(default=False, description="Continue with the plan file as it is now.")
    keep_plan: bool = Field(default=False, description="Continue with the plan as it was started.")
    workdir: PathText | None = None
    take_over: bool = Field(default=False, description="Take over even if another process holds it.")
    decisions: list[Decision] = Field(default=[], max_length=10_000)
    budget: Limit | None = Field(
        default=None, description="Total from here on, of the limit that stopped it; else of the execution."
    )

    @model_validator(mode="after")
    def _has_limit(self) -> Resume:
        if self.budget is not None and self.budget.usd is None and self.budget.tokens is None:
            raise ValueError("budget: give `usd` or `tokens`")
        return self


class RetryStep(_Request):
    """Changes to a step before it is tried again."""

    with_: dict[str, Any] = Field(default={}, alias="with", description="Arguments in place of the plan's.")
    runtime: RuntimeName | None = Field(default=None, description="For its agent.")
    model: Name | None = Field(default=None, description="For its agent.")
    fresh: bool = Field(default=False, description="Begin a new conversation with its agent.")
    resume: bool = Field(default=True, description="Continue the execution here, if no process runs it.")
    keep_plan: bool = Field(
        default=False, description="Continue with the plan as it was started, though its file changed."
    )
    hold: bool = True


class Skip(_Request):
    resume: bool = Field(default=True, description="Continue the execution here, if no process runs it.")
    keep_plan: bool = Field(
        default=False, description="Continue with the plan as it was started, though its file changed."
    )
    hold: bool = True


class Say(_Request):
    """A message to the agent of a step."""

    text: Text
    within: Seconds = Field(default=0.0, description="Wait so long until the agent has it.")
    resume: bool = Field(default=True, description="Continue the execution here, if no process runs it.")
    keep_plan: bool = Field(
        default=False, description="Continue with the plan as it was started, though its file changed."
    )
    hold: bool = True


class Fork(_Request):
    from_step: Name | None = Field(default=None, description="Run this step and all after it again.")
    inputs: dict[str, Any] = {}
    plan: dict[str, Any] | None = None
    plan_text: Text | None = None
    plan_file: PathText | None = None
    fresh: bool = Field(default=False, description="Begin a new conversation with the agent of `from_step`.")
    start: bool = Field(default=True, description="Start it at once.")
    hold: bool = True


class ApprovalAnswer(_Request):
    """A person's word on a question."""

    allow: bool
    note: Annotated[str, Field(max_length=10_000)] = ""
    digest: Name | None = Field(
        default=None, description="Of what was seen: another question is then not answered by it."
    )
    always: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None, description="The rule of `/rule`, to be saved in the user's settings with this answer."
    )


class BudgetAnswer(_Request):
    """Permission to spend more: at least one of `allow`, `usd` and `tokens`."""

    allow: bool = Field(default=True, description="Without a limit, it lets a step that asks spend without one.")
    usd: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0, le=10**15)] | None = None
    scope: Literal["step", "execution", "day", "month"] = "execution"
    step: Annotated[str, Field(max_length=400)] = ""

    @model_validator(mode="after")
    def _says_something(self) -> BudgetAnswer:
        if not self.model_fields_set & {"allow", "usd", "tokens"}:
            raise ValueError("give `allow`, `usd` or `tokens`")
        return self


class Cleaning(_Request):
    execution: str = Field(default="", max_length=100, description="Only of this execution.")
