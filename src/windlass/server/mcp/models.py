"""Answers of the tools: typed, so that a client gets structured content and a schema of it.

A field with a default is left out of an answer when that is all it would say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from windlass.runtimes import runtime_names

__all__ = [
    "Answered",
    "BudgetView",
    "CostView",
    "ErrorView",
    "ExecutionView",
    "HeadView",
    "HealthView",
    "OverviewView",
    "QuestionView",
    "RetryChange",
    "SpendingView",
    "StatusView",
    "StepView",
]


class ErrorView(BaseModel):
    """An error, with advice."""

    category: Literal["transient", "configuration", "permission", "resource", "logic"]
    message: str
    where: str = ""
    advice: list[str] = []


class QuestionView(BaseModel):
    """A question to a person, which a step waits for."""

    step: str
    kind: Literal["approval", "outcome", "budget"]
    text: str
    tool: str | None = None
    input: Any = Field(default=None, description="Exactly what would be run; never shortened.")
    hidden: list[str] = Field(default=[], description="Secrets in `input` that are not shown: they stand as [NAME].")
    digest: str | None = Field(default=None, description="Names exactly this request: engine_approve wants it.")
    expires_at: str | None = None
    answer: str = Field(description="How it is answered.")


class CostView(BaseModel):
    usd: float | None = Field(description="null when nothing of it is known, which is not the same as 0.")
    known: bool = Field(description="false: `usd` is what it cost at least.")
    tokens_in: int
    tokens_out: int
    text: str = Field(description="In words: $1.12, at least $1.12, unknown.")


class BudgetState(BaseModel):
    """An execution's own limit, and every limit that is passed."""

    limit_usd: float | None
    limit_tokens: int | None
    overruns: list[dict[str, Any]] = Field(description="scope, step, unit, limit, spent, text of each.")


class StepView(BaseModel):
    id: str
    status: str
    attempts: int
    output: Any = None
    cut: int = Field(default=0, description="Characters of the output that were left out here.")
    log: str = Field(default="", description="What its program logged, the end of it if that is long.")
    error: ErrorView | None = None
    skipped_because: str | None = None
    waiting_for: str | None = None
    waiting_because: str | None = None
    until: str | None = None
    duration_s: float | None = None
    items: dict[str, int] | None = Field(default=None, description="Of a foreach: done, failed, skipped, total.")
    role: str | None = None
    runtime: str | None = None
    model: str | None = None
    verdict: Literal["verified", "refuted", "claimed", "stale"] | None = Field(
        default=None, description="Of an agent's work, by its checks; stale: its files have changed since they passed."
    )
    cost_usd: float | None = None


class ExecutionView(BaseModel):
    """The status of an execution."""

    execution: str = Field(description="Its id; the other tools take it, or a unique beginning of it.")
    plan: str
    status: Literal["pending", "running", "paused", "completed", "partial", "failed", "cancelled", "damaged"]
    reason: str | None = Field(default=None, description="Why it is paused, or what is damaged.")
    progress: float = Field(description="Percent of the steps that are settled.")
    eta: float | None = Field(
        default=None, description="Seconds to its end, by the median, without waiting for people."
    )
    forecast: dict[str, Any] | None = Field(
        default=None, description="Band, cost and source of that; `text` has it all."
    )
    seq: int = Field(description="Events so far.")
    steps: list[StepView]
    steps_left_out: int = Field(default=0, description="Steps that are not listed, to keep this short.")
    questions: list[QuestionView]
    warnings: list[str] = Field(description="Warnings for the user: budgets, runtimes.")
    cost: CostView
    budget: BudgetState
    error: ErrorView | None = None
    lacks: list[str] = Field(default=[], description="Steps whose results it does not have.")
    workdir: str
    next: list[str] = Field(description="Calls or commands to use next.")


class HealthView(BaseModel):
    """The health of the engine."""

    ok: bool
    journal: str = Field(description="`ok`, or what is wrong with it.")
    version: str
    home: str
    executions: dict[str, int] = Field(description="How many there are, by status.")
    attempts: int = Field(description="Attempts that run in this process.")
    queued: int = Field(description="Attempts that wait for a place.")
    held_back: list[str] = Field(default=[], description="What keeps attempts from starting.")
    damaged: list[str] = Field(default=[], description="Executions whose record cannot be read, and why.")
    breakers: list[str] = Field(default=[], description="Tools and runtimes that fail, and are left alone for a while.")


class HeadView(BaseModel):
    """One line about an execution."""

    execution: str
    plan: str
    status: str
    reason: str | None = None
    created_at: str | None
    driven: bool = Field(description="True if a live process runs it.")


class OverviewView(BaseModel):
    """The engine's health, and its executions, the unfinished ones first."""

    health: HealthView
    executions: list[HeadView]
    next: list[str] = Field(description="Calls or commands to use next.")


class TranscriptView(BaseModel):
    """Part of an agent's conversation, as Markdown."""

    execution: str
    step: str
    markdown: str
    next: list[str] = Field(description="How to read on, if this is not all.")


class SaidView(BaseModel):
    """A message to an agent that is kept, and its delivery as far as it is known."""

    id: str
    execution: str = Field(description="The execution that has it: of a completed step, a fork.")
    step: str
    how: str | None = Field(description="steer (in its turn), follow-up (after it), prompt; null while it waits.")
    forked: bool
    detail: str
    warnings: list[str] = Field(default=[], description="Things that may make a step fail: tell the user.")


class WorkView(BaseModel):
    """A stretch of an agent's work on files."""

    step: str
    root: str = Field(description="The folder; paths are from there.")
    ended: bool = Field(description="False while the agent works: these are its changes so far.")
    note: str = ""
    files: list[dict[str, Any]] = Field(description="path, change, added and removed lines, patch.")


class DiffView(BaseModel):
    """Files that agents changed."""

    execution: str
    changes: list[WorkView]


class FolderView(BaseModel):
    """A folder that an agent or a merge has for itself."""

    execution: str
    step: str
    kind: str
    path: str
    branch: str
    work: str = Field(description="`no work`, `merged`, `in use`, or the work that would be lost.")
    merge: dict[str, str] | None = Field(description="The step that merges it, its state there, and the reason.")
    removed: bool | None = Field(default=None, description="Of a clean-up: false if it was kept.")


class FoldersView(BaseModel):
    workspaces: list[FolderView]


class UndoView(BaseModel):
    """Files of a step that were put back."""

    execution: str
    step: str
    changes: list[dict[str, str]] = Field(
        description="Each path with what became of it; maybe its `folder`, and the `branch` that keeps the commit."
    )


class RetryChange(BaseModel):
    """Changes to a step before it is tried again."""

    model_config = ConfigDict(extra="forbid")

    with_: dict[str, Any] = Field(default={}, alias="with", description="Arguments in place of the plan's.")
    runtime: str | None = Field(default=None, description=f"For its agent: {runtime_names()}.")
    model: str | None = Field(default=None, description="For its agent.")
    fresh: bool = Field(default=False, description="Begin a new conversation with its agent.")


class LimitView(BaseModel):
    usd: float | None
    tokens: int | None


class PeriodView(BaseModel):
    """A day or a month."""

    name: str
    limit_usd: float | None
    spent_usd: float = Field(description="The part whose price is known.")
    unknown: int = Field(description="Attempts of unknown cost.")
    assumed_usd: float = Field(description="The amount counted for them.")
    reserved_usd: float
    left_usd: float | None = Field(description="null where there is no limit.")
    limit_tokens: int | None
    tokens: int
    reserved_tokens: int
    left_tokens: int | None


class SpendingView(BaseModel):
    heading: str
    spent_usd: float
    unknown: int
    reserved_usd: float
    tokens_in: int
    tokens_out: int
    reserved_tokens: int
    attempts: int


class BudgetView(BaseModel):
    day: PeriodView
    month: PeriodView
    limits: dict[Literal["step", "execution", "day", "month"], LimitView]
    by: str
    spending: list[SpendingView]


class HistoryView(BaseModel):
    of: str = Field(description="The things that are counted: executions, steps, or slow steps.")
    rows: list[dict[str, Any]] = Field(description="At most 50; times are in seconds, null is unknown.")
    more: int = Field(description="Rows that are left out.")
    total: dict[str, Any] | None = None
    changes: list[dict[str, Any]] = Field(default=[], description="Steps that get slower or fail more, with p.")
    not_included: dict[str, Any] = {}


class EstimateView(BaseModel):
    expected_s: float | None = Field(description="P50 of the time in seconds; null is unknown.")
    high_s: float | None = Field(description="P90.")
    usd: float | None = Field(description="P50 of the cost; null is unknown.")
    text: str = Field(description="The forecast in words.")
    forecast: dict[str, Any] = Field(description="All of it: bands, sources, everything unknown.")


class ContextView(BaseModel):
    execution: str
    contexts: list[dict[str, Any]]
    """Of each agent: step, tokens, window, threshold, summaries, pinned facts."""


class Answered(BaseModel):
    """The form that the person at the client fills in."""

    allow: bool = Field(title="Allow it?", description="Whether exactly this may be run.")
    note: str = Field(default="", title="Note", description="What the agent or the record should be told.")


def _optional(field: FieldInfo) -> Any:
    annotation: Any = field.annotation
    return annotation | None, Field(default=None, description=field.description)


if TYPE_CHECKING:
    StatusView: TypeAlias = ExecutionView | OverviewView
else:
    # One object in the schema that clients see, because the protocol's library would wrap a union in another one.
    StatusView = create_model(
        "StatusView",
        __doc__="An execution's status; without an id, the engine's health and its executions.",
        **{
            name: _optional(field)
            for view in (OverviewView, ExecutionView)
            for name, field in view.model_fields.items()
        },
    )
