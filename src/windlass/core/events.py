"""The journal's records: facts in the order they happened, and nothing else.

Every fact about an execution is one of these frozen values. `State` is their fold, every screen and API
is a reader of them. They are encoded as JSON with a `type`; a field may be added with a default, and
nothing may ever be renamed or removed, because journals of older releases must fold for good.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.resources import Resources
from windlass.errors import Failure

__all__ = [
    "AgentActed",
    "AgentBegan",
    "AgentSession",
    "AnswerRefused",
    "ApprovalAnswered",
    "ApprovalAsked",
    "AttemptFailed",
    "AttemptFinished",
    "AttemptStarted",
    "AttemptStopped",
    "BudgetAnswered",
    "BudgetWaited",
    "BudgetWarned",
    "CallFailed",
    "CallFinished",
    "CallStarted",
    "ControlRequested",
    "DecisionMade",
    "Event",
    "ExecutionCreated",
    "ExecutionFinished",
    "ExecutionPaused",
    "ExecutionReopened",
    "ExecutionReplanned",
    "ExecutionResumed",
    "ExecutionStarted",
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
    "decode",
    "encode",
    "type_of",
]

FORMAT = 1
"""The version of these records. A journal with a higher one is refused, not guessed at."""


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    at: float
    """Seconds since the epoch."""


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


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Total usage of an agent's attempt, so far or at its end."""

    tokens_in: int = 0
    """Everything the models read, including reads from a cache and writes to one."""
    tokens_out: int = 0
    cache_read: int = 0
    """Of `tokens_in`: read from a cache."""
    cache_write: int = 0
    """Of `tokens_in`: written to a cache."""
    usd: float | None = None
    """None is unknown, which is not the same as nothing."""
    source: Literal["runtime", "prices", "unknown"] = "unknown"
    """Source of the cost: the runtime itself, or our prices."""
    model: str = ""
    """The model that did (most of) it, by its own name."""
    at_least: float = 0.0
    """Known part of the dollars where `usd` is None: the calls before the one that could not be counted."""


class ExecutionCreated(_Event, frozen=True, tag="execution.created"):
    id: str
    plan: msgspec.Raw
    inputs: dict[str, Any]
    workdir: str
    source: Source = Source()
    origin: Origin | None = None
    format: int = FORMAT
    on_overrun: Literal["", "ask", "proceed"] = ""
    """Choice at a limit of the budget, for this execution; empty is as the settings say."""
    environment: dict[str, str] = {}
    """Versions that matter for going on: `windlass`, `python`, `quickjs`."""


class ExecutionStarted(_Event, frozen=True, tag="execution.started"):
    driver: str


class ExecutionResumed(_Event, frozen=True, tag="execution.resumed"):
    """A driver took the execution up again. Attempts still marked running were lost with the last one."""

    driver: str
    workdir: str | None = None
    """The working directory from here on, when it is another one (another machine)."""
    environment: dict[str, str] = {}
    """The versions from here on, when they are others."""


class ExecutionReplanned(_Event, frozen=True, tag="execution.replanned"):
    """The plan changed while the execution stood still, and a person accepted that."""

    plan: msgspec.Raw
    source: Source


class ExecutionPaused(_Event, frozen=True, tag="execution.paused"):
    reason: str
    """`pause`, `interrupt`, `approval`, `decision`, `budget`, `quota`: why it stands still."""
    expires_at: float | None = None
    on_expiry: Literal["resume", "cancel"] = "cancel"


class ExecutionFinished(_Event, frozen=True, tag="execution.finished"):
    status: Literal["completed", "partial", "failed", "cancelled"]
    error: Failure | None = None
    lacks: tuple[str, ...] = ()
    """Steps without a result."""


class ExecutionReopened(_Event, frozen=True, tag="execution.reopened"):
    """A person retries or skips a step of an execution that ended failed or partial: it goes on, paused at first.

    Steps that were skipped because of its end may run again.
    """

    by: str = ""


class ControlRequested(_Event, frozen=True, tag="control.requested"):
    """A person or program asked the running execution to stand still or end."""

    kind: Literal["pause", "interrupt", "cancel"]
    by: str = ""
    now: bool = False
    """Stop running attempts instead of letting them finish."""
    reason: str = ""
    """Why it then stands still, when that is not the request itself: `approval`, `budget`."""


class AttemptStarted(_Event, frozen=True, tag="attempt.started"):
    step: str
    attempt: int
    tool: str
    input: Any
    effect: str
    reduced: int = 0
    """Number of reductions of usage after resource failures."""


class AttemptFinished(_Event, frozen=True, tag="attempt.finished"):
    step: str
    attempt: int
    output: Any = None
    used: Resources | None = None
    queued: float = 0.0
    """Seconds of the attempt before its work began: it waited for a place, a rate, memory or a breaker."""


class AttemptFailed(_Event, frozen=True, tag="attempt.failed"):
    step: str
    attempt: int
    failure: Failure
    output: Any = None
    """Output before the failure."""
    used: Resources | None = None
    queued: float = 0.0


class AttemptStopped(_Event, frozen=True, tag="attempt.stopped"):
    step: str
    attempt: int
    reason: Literal["paused", "cancelled", "lost", "critical", "timeout", "quota", "budget", "changed", "skipped"]
    """`changed`: the basis of the approval changed since it was given. Nothing was done."""
    used: Resources | None = None
    changes: tuple[str, ...] = ()
    """Changes since the person was asked, a sentence each."""
    queued: float = 0.0


class StepWaiting(_Event, frozen=True, tag="step.waiting"):
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


class StepCompleted(_Event, frozen=True, tag="step.completed"):
    """A step completed without an attempt of its own: all items of a foreach are done."""

    step: str
    output: Any = None


class StepFailed(_Event, frozen=True, tag="step.failed"):
    step: str
    failure: Failure
    output: Any = None
    """Of a foreach: the outputs of its items, null where one failed."""


class StepSkipped(_Event, frozen=True, tag="step.skipped"):
    step: str
    because: str
    condition: bool = False
    """The step's own `when` was false (or an ancestor's), so nothing failed."""


class StepRetried(_Event, frozen=True, tag="step.retried"):
    """A person wants the step, or the failed items of a foreach, tried again. Automatic retries count anew."""

    step: str
    by: str = ""
    edits: dict[str, Any] = {}
    """Arguments that replace those of the plan from here on."""
    runtime: str = ""
    """The runtime of its agent from here on; empty for no change."""
    model: str = ""


class StepSkipRequested(_Event, frozen=True, tag="step.skip_requested"):
    """A person does without the step: it is stopped if it runs, then skipped. Dependents run with a null output."""

    step: str
    by: str


class StepExpanded(_Event, frozen=True, tag="step.expanded"):
    step: str
    items: list[Any]


class ApprovalAsked(_Event, frozen=True, tag="approval.asked"):
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


class ApprovalAnswered(_Event, frozen=True, tag="approval.answered"):
    step: str
    digest: str
    allow: bool
    by: str
    note: str = ""


class AnswerRefused(_Event, frozen=True, tag="answer.refused"):
    """An attempt tried to give an answer that is a person's to give."""

    what: str
    """The answer: `approve`, `decide`, `budget`, `resume`, `retry`, `skip`."""
    by: str
    """The attempt that it came from, as far as that is known."""
    step: str = ""
    """The step that the answer was for."""


class DecisionMade(_Event, frozen=True, tag="decision.made"):
    """A person decided the unknown outcome of an attempt."""

    step: str
    choice: Literal["again", "done", "fail"]
    by: str
    output: Any = None


class AgentBegan(_Event, frozen=True, tag="agent.began"):
    """An attempt was given to a runtime, with exactly these prompts."""

    step: str
    attempt: int
    runtime: str
    role: str
    system: str
    prompt: str
    model: str = ""
    session: str | None = None
    """The conversation it goes on with; None is a new one."""
    notes: tuple[str, ...] = ()
    """Parts left out of the prompt, each with the reason."""
    version: str = ""
    """The version of the runtime's program."""


class AgentSession(_Event, frozen=True, tag="agent.session"):
    """The name of the conversation; None when it is lost and the next attempt begins a new one."""

    step: str
    attempt: int
    runtime: str
    session: str | None


class AgentActed(_Event, frozen=True, tag="agent.acted"):
    """The agent used a tool."""

    step: str
    attempt: int
    tool: str
    summary: str
    input: Any = None


class UsageReported(_Event, frozen=True, tag="usage.reported"):
    """Total usage of an attempt so far."""

    step: str
    attempt: int
    usage: Usage
    runtime: str = ""
    role: str = ""


class RuntimeFellBack(_Event, frozen=True, tag="runtime.fell_back"):
    """Another runtime takes over."""

    step: str
    runtime: str
    instead: str
    because: str
    final: bool = True
    """The step stays with the new one; False is for this attempt alone."""
    failure: Failure | None = None
    """The first runtime's failure, if it was tried."""


class BudgetAnswered(_Event, frozen=True, tag="budget.answered"):
    """A person allowed or refused more spending."""

    allow: bool
    by: str
    step: str = ""
    scope: str = "execution"
    usd: float | None = None
    """The limit from here on, for this execution."""
    tokens: int | None = None
    note: str = ""


class BudgetWarned(_Event, frozen=True, tag="budget.warned"):
    """A limit is reached and the settings say to go on; or, with `limit` and `spent`, more was spent than it allows."""

    step: str
    message: str
    scope: str = ""
    unit: Literal["usd", "tokens"] = "usd"
    limit: float | None = None
    spent: float | None = None


class BudgetWaited(_Event, frozen=True, tag="budget.waited"):
    """An attempt waits for budget that others have reserved; with an empty message, it waits no longer."""

    step: str
    attempt: int
    message: str


class ProgramBegan(_Event, frozen=True, tag="program.began"):
    """A program was begun for the first time. Its `Date` starts at this moment, whenever it is made again."""

    step: str
    program: str
    """Empty for the step's own; else which call of it is a program, or which use of an agent's."""
    digest: str
    """SHA-256 of its text."""


class CallStarted(_Event, frozen=True, tag="call.started"):
    """A program called a tool."""

    step: str
    attempt: int
    call: str
    """Its number in the step: `3`, or `3.1` in a program that call 3 runs."""
    tool: str
    input: Any
    effect: str


class CallFinished(_Event, frozen=True, tag="call.finished"):
    step: str
    attempt: int
    call: str
    output: Any = None
    used: Resources | None = None


class CallFailed(_Event, frozen=True, tag="call.failed"):
    step: str
    attempt: int
    call: str
    failure: Failure
    seen: str = ""
    """The message that the program saw, which says less."""
    used: Resources | None = None


class StepUndone(_Event, frozen=True, tag="step.undone"):
    """A person had a step's changes undone; its result stays the same."""

    step: str
    by: str = ""
    changes: list[dict[str, str]] = []
    """Changes that were undone, newest first: each with `path`, and the way it was undone."""


class OutputWritten(_Event, frozen=True, tag="output.written"):
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
    | AgentSession
    | AgentActed
    | UsageReported
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
