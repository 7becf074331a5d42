"""Bodies of answers, for those who read the OpenAPI document. The answers themselves are the engine's own views
(`core.view`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AgentWork",
    "AlwaysRule",
    "Artifact",
    "ArtifactList",
    "CheckedPlan",
    "EventPage",
    "ExecutionLine",
    "ExecutionPage",
    "ExecutionSummary",
    "FileChange",
    "FileChanges",
    "FolderList",
    "ListedFolder",
    "MergePlace",
    "OneStep",
    "OutlinedStep",
    "PlanEstimate",
    "PlanInput",
    "PlanList",
    "PlanName",
    "ProblemDetails",
    "Question",
    "SaidMessage",
    "Snapshot",
    "StepForecast",
    "StepForecasts",
    "StepList",
    "StepRow",
    "TranscriptPage",
    "UndoneFiles",
    "Used",
    "UsedPlan",
    "WaitingGate",
    "WaitingStep",
]

Seconds = Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemDetails(_Told):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    category: Literal["transient", "configuration", "permission", "resource", "logic"]
    advice: list[str]
    where: str
    problems: list[dict[str, Any]] | None = Field(default=None, description="Of a plan or a request: one by one.")


class Used(_Told):
    """Use of the machine; null where it is not known."""

    cpu_s: float | None = Field(description="Seconds of computing, of all attempts together.")
    memory_bytes: int | None = Field(description="The most at one time.")
    received_bytes: int | None = Field(description="Over the network, out of files, out of processes.")
    sent_bytes: int | None = Field(description="The same ways out.")


class Snapshot(_Told):
    """An execution as it stands; the same as `windlass status ID --json`."""

    id: str
    plan: str
    status: Literal["pending", "running", "paused", "completed", "partial", "failed", "cancelled", "damaged"]
    phase: str
    reason: str | None
    inputs: dict[str, Any]
    workdir: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    steps: list[dict[str, Any]]
    cost: dict[str, Any]
    budget: dict[str, Any] = Field(description="Its own limit, and every limit that is passed.")
    resources: Used | None = Field(description="Of all steps; each step has its own. Null when nothing is known.")
    progress: float
    eta: float | None = Field(description="Seconds to its end, by the median; null where that is not known.")
    forecast: dict[str, Any] | None = Field(
        default=None, description="Time and cost of the rest; of the plain status only, while it is not finished."
    )
    lacks: list[str]
    error: dict[str, Any] | None
    notes: list[str] | None = Field(
        default=None,
        description="Of a retry: completed steps that used the earlier result and do not run again. Of a fork: that it "
        "runs the plan as it was, where the plan's file has changed since.",
    )
    warnings: list[str] = Field(
        default=[], description="Of a start or a resume: things that may make a step fail, such as a variable not set."
    )
    damage: dict[str, Any] | None = Field(
        default=None, description="Of a damaged one only: the event's `seq`, the `reason`, the last `status`."
    )


StretchTuple = tuple[Literal["queue", "work", "wait", "person"], float, float | None, int, str]
"""A stretch of time: its kind, start and end (null while it lasts), the attempt, the outcome or the reason."""


class StepRow(_Told):
    """One step of many, without input and output. Times are seconds since the epoch."""

    id: str
    status: str
    tool: str
    needs: list[str]
    importance: Literal["critical", "normal", "optional"]
    stretches: list[StretchTuple] = Field(description="Its time. The question of a running attempt lies over its work.")
    attempts: int
    started: float | None
    finished: float | None
    waiting_for: str | None
    waiting_because: str | None
    until: float | None
    asks: bool = Field(description="It waits for a person.")
    last_output: str = Field(description="The last line of its output.")
    cost_usd: float | None
    role: str | None
    runtime: str | None
    model: str | None
    category: str | None
    error: str | None = Field(description="The beginning of the message, of a failed step.")
    items: dict[str, int] | None = Field(default=None, description="Of a foreach: how many are done, failed, skipped.")


class ExecutionSummary(_Told):
    """An execution without its steps, and the questions that it asks."""

    id: str
    plan: str
    status: Literal["pending", "running", "paused", "completed", "partial", "failed", "cancelled"]
    reason: str | None
    progress: float
    seq: int = Field(description="The event after which it was so.")
    at: float
    driven: bool = Field(description="A process runs it.")
    steps: int
    counts: dict[str, int] = Field(description="Steps by status.")
    questions: list[dict[str, Any]] = Field(description="Open questions, the first 20, each with its `step`.")
    cost: dict[str, Any]
    budget: dict[str, Any]
    forecast: dict[str, Any] | None = Field(description="Of the rest; null after its end, and of the past.")
    inputs: dict[str, Any]
    error: dict[str, Any] | None


class WaitingStep(_Told):
    execution: str
    plan: str
    step: str
    since: float = Field(description="Seconds since the epoch.")
    until: float | None = Field(description="The time of its next attempt, where it is known.")


class WaitingGate(_Told):
    """A gate at which steps wait."""

    gate: Literal["slot", "rate", "place", "breaker"]
    name: str = Field(description="The tool or the breaker; empty for the slots, which every attempt needs.")
    count: int
    steps: list[WaitingStep] = Field(description="The first 20.")


class Artifact(_Told):
    path: str = Field(description="Below the execution's artifacts.")
    bytes: int
    image: bool = Field(description="A picture that a page can show.")


class ArtifactList(_Told):
    execution: str
    step: str
    artifacts: list[Artifact]


class StepList(_Told):
    """The steps of an execution, at one moment."""

    execution: str
    plan: str
    status: str
    reason: str | None
    progress: float
    seq: int = Field(description="The event after which it was so.")
    at: float
    created: float
    started: float | None
    finished: float | None
    pauses: list[StretchTuple] = Field(description="Times in which it stood still, each with its reason.")
    steps: list[StepRow]


class StepForecast(_Told):
    """Seconds from the forecast's `at`."""

    id: str
    begins_s: float = Field(description="Median; 0 of a step that has begun.")
    ends_s: float = Field(description="Median.")
    late_s: float = Field(description="The end that one of ten passes.")


class StepForecasts(_Told):
    """The expected times of the steps that are left. Those that nothing is known of are not among them."""

    execution: str
    seq: int = Field(description="The event after which it was so.")
    at: float = Field(description="When the forecast was made.")
    steps: list[StepForecast]


class OneStep(_Told):
    """A step as `windlass status ID --json` has it, with its place in the plan and the stretches of its time."""

    execution: str
    seq: int
    id: str
    status: str
    tool: str
    needs: list[str]
    importance: Literal["critical", "normal", "optional"]
    stretches: list[StretchTuple]
    attempts: int
    input: Any
    output: Any
    error: dict[str, Any] | None


class ExecutionLine(_Told):
    """One line about an execution."""

    id: str
    plan: str
    status: str
    reason: str | None
    over_budget: bool = Field(description="It ended with more spent than a limit allows.")
    created_at: str
    updated_at: str
    driven: bool
    progress: float | None = Field(description="Percent; of one that this server runs.")
    eta: float | None = Field(description="Seconds to its end, by the median; where that is known.")
    waiting: str | None = Field(default=None, description="While a person is asked: `approval`, `budget`, `outcome`.")
    damage: dict[str, Any] | None = Field(default=None, description="Of a damaged one: `seq`, `reason`, last `status`.")


class PlanEstimate(_Told):
    """A plan before it runs; the same as `windlass plan estimate --json`."""

    expected_s: float | None = Field(description="P50 of the time; null where nothing is known of its steps.")
    low_s: float | None = Field(description="P10.")
    high_s: float | None = Field(description="P90.")
    samples: int = Field(description="Earlier steps that the times come from.")
    unknown: list[str] = Field(description="Steps that nothing is known of: not counted.")
    by_tools: list[str] = Field(description="Steps with the time that their tools expect.")
    usd: float | None = Field(description="P50 of the cost; null where a part of it is not known.")
    forecast: dict[str, Any] = Field(description="All of it, as of an execution.")


class ExecutionPage(_Told):
    executions: list[ExecutionLine]
    next: str | None = Field(description="The address of the next page; null on the last one.")
    warnings: list[str] = Field(default=[], description="One, where the journal has lost all its executions.")


class PlanName(_Told):
    name: str
    execution: str = Field(description="The last execution of a plan of this name.")
    started_at: str


class PlanList(_Told):
    plans: list[PlanName]


class UsedPlan(_Told):
    """The plan of an execution, to start it again."""

    execution: str
    name: str
    plan: dict[str, Any]
    plan_file: str | None = Field(description="The file that it came from, if it is still there.")
    inputs: dict[str, Any]
    workdir: str


class PlanInput(_Told):
    name: str
    type: Literal["text", "yes or no", "whole number", "number", "list", "mapping", "any"]
    default: Any


class OutlinedStep(_Told):
    """A step of a plan that has not run."""

    id: str
    does: str = Field(description="The command, the tool, or the agent with its task, in one line.")
    needs: list[str]
    foreach: bool
    asks: bool = Field(description="A person is asked before it runs, as the plan says.")


class CheckedPlan(_Told):
    """A plan that is valid, in short."""

    name: str
    description: str
    steps: int
    agents: int = Field(description="Steps that agents perform.")
    inputs: list[PlanInput]
    budget: dict[str, Any] | None
    warnings: list[str]
    outline: list[OutlinedStep] = Field(description="The steps in an order in which they can run, at most 200.")


class EventPage(_Told):
    execution: str
    events: list[dict[str, Any]]
    next: str | None


class TranscriptPage(_Told):
    execution: str
    step: str
    entries: list[dict[str, Any]]
    next: str | None


class SaidMessage(_Told):
    """A message that is kept, and its delivery as far as it is known."""

    id: str
    execution: str = Field(description="The execution that has it: of a completed step, a fork.")
    step: str
    how: Literal["steer", "follow-up", "prompt"] | None = Field(
        description="Within the agent's turn, after it, or with the prompt of an attempt; null while it waits."
    )
    forked: bool
    detail: str
    warnings: list[str] = Field(default=[], description="Of the resume that the message brings about.")


class FileChange(_Told):
    """A file that an agent changed."""

    path: str
    change: Literal["added", "deleted", "changed"]
    added: int | None = Field(description="Lines; null for a binary file.")
    removed: int | None
    patch: str = Field(description="As `git diff` writes it.")


class AgentWork(_Told):
    """A stretch of an agent's work on files."""

    step: str
    root: str = Field(description="The folder; paths are from there.")
    ended: bool = Field(description="False while the agent works: these are its changes so far.")
    note: str = Field(description="Files that were not recorded.")
    files: list[FileChange]


class FileChanges(_Told):
    execution: str
    changes: list[AgentWork]


class MergePlace(_Told):
    """The place of a branch in a merge."""

    step: str = Field(description="The step that merges it.")
    state: Literal["waits", "with its agent", "merged", "left", "out"] = Field(
        description="`left` stays on its branch; `out` takes no part."
    )
    reason: str


class ListedFolder(_Told):
    """A folder that an agent or a merge has for itself."""

    execution: str
    step: str
    kind: Literal["worktree", "copy"]
    path: str
    branch: str
    work: str = Field(description="`no work`, `merged`, `in use`, or the work that would be lost.")
    merge: MergePlace | None
    removed: bool | None = Field(default=None, description="Of a clean-up: false if it was kept.")


class FolderList(_Told):
    workspaces: list[ListedFolder]


class UndoneFiles(_Told):
    execution: str
    step: str
    changes: list[dict[str, str]] = Field(
        description="Each `path` with what became of it: `undone`, and maybe `to`, `folder` and `branch`."
    )


class AlwaysRule(_Told):
    rule: str = Field(description="What is saved: it allows exactly this, for agents.")
    file: str
    text: str = Field(description="What the rule means.")


class Question(_Told):
    id: str
    execution: str
    plan: str
    step: str
    tool: str
    input: Any
    question: str
    """The question, where it is more than permission: what changed since it was asked before."""
    diff: str | None
    """The change to the file that it writes or edits, where that is known."""
    hidden: list[str]
    """Names of secrets in `input` and `diff` that are not shown: they stand there as `[NAME]`."""
    basis: dict[str, str]
    """Anything besides the input that decides the effect (`file NOTES.md`, `program report`), with its hash."""
    digest: str
    in_attempt: bool
    """Asked by an agent or a program at work, rather than by the plan before an attempt."""
    asked_at: str
    expires_at: str
    forecast: dict[str, Any] | None = None
    """Time and cost of the rest of its execution, where that is known."""
    link: str
    """A path that shows this one question and takes one answer, for notifications. It needs no token."""
