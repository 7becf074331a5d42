"""The journal's records: facts in the order they happened, and nothing else.

Every fact about an execution is one of these frozen values. `State` is their fold, every screen and API
is a reader of them. They are encoded as JSON with a `type`; a field may be added with a default, and
nothing may ever be renamed or removed, because journals of older releases must fold for good.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.agent_events import (
    AgentActed,
    AgentBegan,
    AgentChecked,
    AgentClaimed,
    AgentHeard,
    AgentReopened,
    AgentReturned,
    AgentSession,
    AgentSpoke,
    AgentSummarised,
    AgentSummaryRequested,
    AgentTold,
    BudgetAnswered,
    BudgetWaited,
    BudgetWarned,
    CheckResult,
    FilesKept,
    RuntimeFellBack,
    UsageReported,
    WorkspaceCommitted,
    WorkspaceOpened,
    WorkspaceRemoved,
    WorkspaceSnapshot,
)
from windlass.core.event_base import EventBase, Usage
from windlass.core.resources import Resources
from windlass.errors import Failure

__all__ = [
    "NO_SPACE",
    "AgentActed",
    "AgentBegan",
    "AgentChecked",
    "AgentClaimed",
    "AgentHeard",
    "AgentReopened",
    "AgentReturned",
    "AgentSession",
    "AgentSpoke",
    "AgentSummarised",
    "AgentSummaryRequested",
    "AgentTold",
    "AnswerRefused",
    "ApprovalAnswered",
    "ApprovalAsked",
    "AttemptFailed",
    "AttemptFinished",
    "AttemptPlaced",
    "AttemptStarted",
    "AttemptStopped",
    "BudgetAnswered",
    "BudgetWaited",
    "BudgetWarned",
    "CallFailed",
    "CallFinished",
    "CallStarted",
    "CheckResult",
    "ControlRequested",
    "DecisionChoice",
    "DecisionMade",
    "Event",
    "ExecutionCreated",
    "ExecutionFinished",
    "ExecutionPaused",
    "ExecutionReopened",
    "ExecutionReplanned",
    "ExecutionResumed",
    "ExecutionStarted",
    "FilesKept",
    "OnOverrun",
    "OutputWritten",
    "ProgramBegan",
    "RuntimeFellBack",
    "Source",
    "StepCompleted",
    "StepExpanded",
    "StepFailed",
    "StepRetried",
    "StepSkipRequested",
    "StepSkipped",
    "StepUndone",
    "StepWaiting",
    "Usage",
    "UsageReported",
    "WorkspaceCommitted",
    "WorkspaceOpened",
    "WorkspaceRemoved",
    "WorkspaceSnapshot",
    "decode",
    "encode",
    "type_of",
]

FORMAT = 1
"""The version of these records. A journal with a higher one is refused, not guessed at."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a plan, so that a resume can see if it changed since."""

    path: str | None = None
    digest: str | None = None
    """SHA-256 of the plan file."""
    tools: dict[str, str] = {}
    """Python files of tools that the plan names, with their SHA-256."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The execution this one continues."""

    kind: Literal["fork", "restore"]
    execution: str
    step: str | None = None


OnOverrun = Literal["", "ask", "proceed"]
"""At a limit of the budget: ask, or continue with a warning; empty is as the settings say."""


class ExecutionCreated(EventBase, frozen=True, tag="execution.created"):
    id: str
    plan: msgspec.Raw
    inputs: dict[str, Any]
    workdir: str
    source: Source = Source()
    origin: Origin | None = None
    format: int = FORMAT
    on_overrun: OnOverrun = ""
    environment: dict[str, str] = {}
    """Versions that matter for going on: `windlass`, `python`, `quickjs`."""
    traceparent: str = ""
    """The span of another program that started it (W3C trace context), if it was told and traces are on."""
    start: bool = True
    """It is to start at once, so one that has not is cut off; False: `resume` starts it when somebody asks."""


class ExecutionStarted(EventBase, frozen=True, tag="execution.started"):
    driver: str


class ExecutionResumed(EventBase, frozen=True, tag="execution.resumed"):
    """A driver took the execution up again. Attempts still marked running were lost with the last one."""

    driver: str
    workdir: str | None = None
    """The working directory from here on, when it is another one (another machine)."""
    environment: dict[str, str] = {}
    """The versions from here on, when they are others."""


class ExecutionReplanned(EventBase, frozen=True, tag="execution.replanned"):
    """The plan changed while the execution stood still, and a person accepted that."""

    plan: msgspec.Raw
    source: Source


class ExecutionPaused(EventBase, frozen=True, tag="execution.paused"):
    reason: str
    """`pause`, `interrupt`, `approval`, `decision`, `budget`, `quota`: why it stands still."""
    expires_at: float | None = None
    on_expiry: Literal["resume", "cancel"] = "cancel"


class ExecutionFinished(EventBase, frozen=True, tag="execution.finished"):
    status: Literal["completed", "partial", "failed", "cancelled"]
    error: Failure | None = None
    lacks: tuple[str, ...] = ()
    """Steps without a result."""


class ExecutionReopened(EventBase, frozen=True, tag="execution.reopened"):
    """A person retries or skips a step of an execution that ended failed or partial: it goes on, paused at first.

    Steps that were skipped because of its end may run again.
    """

    by: str = ""


class ControlRequested(EventBase, frozen=True, tag="control.requested"):
    """A person or program asked the running execution to stand still or end."""

    kind: Literal["pause", "interrupt", "cancel"]
    by: str = ""
    now: bool = False
    """Stop running attempts instead of letting them finish."""
    reason: str = ""
    """Why it then stands still, when that is not the request itself: `approval`, `budget`."""


class AttemptStarted(EventBase, frozen=True, tag="attempt.started"):
    step: str
    attempt: int
    tool: str
    input: Any
    effect: str
    reduced: int = 0
    """Number of reductions of usage after resource failures."""


class AttemptPlaced(EventBase, frozen=True, tag="attempt.placed"):
    """A worker is about to perform the attempt. One that was placed and has no outcome is never performed again."""

    step: str
    attempt: int
    worker: str


class AttemptFinished(EventBase, frozen=True, tag="attempt.finished"):
    step: str
    attempt: int
    output: Any = None
    used: Resources | None = None
    queued: float = 0.0
    """Seconds of the attempt before its work began: it waited for a place, a rate, memory or a breaker."""


class AttemptFailed(EventBase, frozen=True, tag="attempt.failed"):
    step: str
    attempt: int
    failure: Failure
    output: Any = None
    """Output before the failure."""
    used: Resources | None = None
    queued: float = 0.0


class AttemptStopped(EventBase, frozen=True, tag="attempt.stopped"):
    step: str
    attempt: int
    reason: Literal[
        "paused", "cancelled", "lost", "critical", "timeout", "quota", "budget", "changed", "skipped", "model"
    ]
    """`changed`: the basis of the approval changed since it was given. Nothing was done. `model`: its checks failed,
    and the next model of the step goes on."""
    used: Resources | None = None
    changes: tuple[str, ...] = ()
    """Changes since the person was asked, a sentence each."""
    queued: float = 0.0


class StepWaiting(EventBase, frozen=True, tag="step.waiting"):
    step: str
    reason: Literal["retry", "outcome", "quota", "budget"]
    until: float | None = None
    question: str = ""
    runtime: str = ""
    """The runtime with the used-up quota, if the account is not known."""
    scope: str = ""
    """The limit without room: step, execution, day, month."""
    needed: float | None = None
    """The value of that limit at which it could go on."""
    unit: Literal["usd", "tokens"] = "usd"
    account: str = ""
    """Provider and account with the used-up quota, if known."""
    gives_up_at: float | None = None
    """The end of the wait for a model API that fails."""


class StepCompleted(EventBase, frozen=True, tag="step.completed"):
    """A step completed without an attempt of its own: all items of a foreach are done."""

    step: str
    output: Any = None


class StepFailed(EventBase, frozen=True, tag="step.failed"):
    step: str
    failure: Failure
    output: Any = None
    """Of a foreach: the outputs of its items, null where one failed."""


class StepSkipped(EventBase, frozen=True, tag="step.skipped"):
    step: str
    because: str
    condition: bool = False
    """The step's own `when` was false (or an ancestor's), so nothing failed."""


class StepRetried(EventBase, frozen=True, tag="step.retried"):
    """A person wants the step, or the failed items of a foreach, tried again. Automatic retries count anew."""

    step: str
    by: str = ""
    edits: dict[str, Any] = {}
    """Arguments that replace those of the plan from here on."""
    runtime: str = ""
    """The runtime of its agent from here on; empty for no change."""
    model: str = ""
    fresh: bool = False
    """Its agent begins a new conversation."""
    request: str = ""
    """The id of the request that it is written for, if there is one: a repeated request finds its event by it."""


class StepSkipRequested(EventBase, frozen=True, tag="step.skip_requested"):
    """A person does without the step: it is stopped if it runs, then skipped. Dependents run with a null output."""

    step: str
    by: str
    request: str = ""


class StepExpanded(EventBase, frozen=True, tag="step.expanded"):
    step: str
    items: list[Any]


class ApprovalAsked(EventBase, frozen=True, tag="approval.asked"):
    step: str
    digest: str
    tool: str
    input: Any
    expires_at: float
    attempt: int = 0
    """The running attempt that asks, for something its agent or program wants to do; 0 asks before an attempt."""
    question: str = ""
    """The question's text, if it is more than "may this be done?"."""
    basis: dict[str, str] = {}
    """Everything else that decides the effect (`file NOTES.md`, `program report`), with its hash."""
    workdir: str = ""
    """The folder that paths in the input start from, if it is not the execution's working directory."""


class ApprovalAnswered(EventBase, frozen=True, tag="approval.answered"):
    step: str
    digest: str
    allow: bool
    by: str
    note: str = ""
    request: str = ""


class AnswerRefused(EventBase, frozen=True, tag="answer.refused"):
    """An attempt tried to give an answer that is a person's to give."""

    what: str
    """The answer: `approve`, `decide`, `budget`, `resume`, `retry`, `skip`."""
    by: str
    """The attempt that it came from, as far as that is known."""
    step: str = ""
    """The step that the answer was for."""
    request: str = ""


DecisionChoice = Literal["again", "done", "fail"]
"""For an attempt whose outcome is unknown: try it again, take it as done, or as failed."""


class DecisionMade(EventBase, frozen=True, tag="decision.made"):
    """A person decided the unknown outcome of an attempt."""

    step: str
    choice: DecisionChoice
    by: str
    output: Any = None
    request: str = ""


class ProgramBegan(EventBase, frozen=True, tag="program.began"):
    """A program was begun for the first time. Its `Date` starts at this moment, whenever it is made again."""

    step: str
    program: str
    """Empty for the step's own; else which call of it is a program, or which use of an agent's."""
    digest: str
    """SHA-256 of its text."""


class CallStarted(EventBase, frozen=True, tag="call.started"):
    """A program called a tool."""

    step: str
    attempt: int
    call: str
    """Its number in the step: `3`, or `3.1` in a program that call 3 runs."""
    tool: str
    input: Any
    effect: str


class CallFinished(EventBase, frozen=True, tag="call.finished"):
    step: str
    attempt: int
    call: str
    output: Any = None
    used: Resources | None = None


class CallFailed(EventBase, frozen=True, tag="call.failed"):
    step: str
    attempt: int
    call: str
    failure: Failure
    seen: str = ""
    """The message that the program saw, which says less."""
    used: Resources | None = None


class StepUndone(EventBase, frozen=True, tag="step.undone"):
    """A person had a step's changes undone; its result stays the same."""

    step: str
    by: str = ""
    changes: list[dict[str, str]] = []
    """Changes that were undone, newest first: each with `path`, and the way it was undone."""
    request: str = ""


NO_SPACE = "waiting for disk space: "
"""Beginning of the output of an attempt that waits until a person frees some."""


class OutputWritten(EventBase, frozen=True, tag="output.written"):
    step: str
    attempt: int
    stream: str
    text: str


Event: TypeAlias = (
    ExecutionCreated
    | ExecutionStarted
    | ExecutionResumed
    | ExecutionReplanned
    | ExecutionPaused
    | ExecutionFinished
    | ExecutionReopened
    | ControlRequested
    | AttemptStarted
    | AttemptPlaced
    | AttemptFinished
    | AttemptFailed
    | AttemptStopped
    | StepWaiting
    | StepCompleted
    | StepFailed
    | StepSkipped
    | StepRetried
    | StepSkipRequested
    | StepExpanded
    | ApprovalAsked
    | ApprovalAnswered
    | AnswerRefused
    | DecisionMade
    | OutputWritten
    | AgentBegan
    | AgentChecked
    | AgentClaimed
    | AgentSession
    | AgentActed
    | AgentSpoke
    | AgentReopened
    | AgentReturned
    | AgentTold
    | AgentHeard
    | AgentSummarised
    | AgentSummaryRequested
    | UsageReported
    | FilesKept
    | WorkspaceCommitted
    | WorkspaceOpened
    | WorkspaceRemoved
    | WorkspaceSnapshot
    | RuntimeFellBack
    | BudgetAnswered
    | BudgetWarned
    | BudgetWaited
    | ProgramBegan
    | CallStarted
    | CallFinished
    | CallFailed
    | StepUndone
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

encode = _encoder.encode
decode = _decoder.decode


def type_of(event: Event) -> str:
    """The record's type as it is written in the journal."""
    return str(event.__struct_config__.tag)
