"""Records of agents: their conversations, their usage, their budgets. `events` says what holds for all records."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from windlass.core.event_base import EventBase, Usage
from windlass.errors import Failure

__all__ = [
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
    "BudgetAnswered",
    "BudgetWaited",
    "BudgetWarned",
    "CheckResult",
    "FilesKept",
    "RuntimeFellBack",
    "UsageReported",
    "WorkspaceCommitted",
    "WorkspaceOpened",
    "WorkspaceRemoved",
    "WorkspaceSnapshot",
    "token_change",
]


class AgentBegan(EventBase, frozen=True, tag="agent.began"):
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


class AgentSession(EventBase, frozen=True, tag="agent.session"):
    """The name of the conversation; None when it is lost and the next attempt begins a new one."""

    step: str
    attempt: int
    runtime: str
    session: str | None
    origin: str = ""
    """The execution that it belongs to, in a fork: the next attempt goes on in a copy."""
    unheard: bool = False
    """It has not been given the step's task as it is now."""


class AgentActed(EventBase, frozen=True, tag="agent.acted"):
    """The agent used a tool."""

    step: str
    attempt: int
    tool: str
    summary: str
    input: Any = None
    """None also where it is too big for the journal: `file` then names it."""
    call: str = ""
    """The runtime's name of this use, which its result repeats."""
    file: str = ""
    """The input as JSON, below the execution's artifacts."""


class AgentSpoke(EventBase, frozen=True, tag="agent.spoke"):
    """One reply of the model, as the conversation holds it."""

    step: str
    attempt: int
    text: str = ""
    thinking: str = ""
    usage: Usage | None = None
    """Usage of this reply alone, where the runtime tells it."""
    number: int = 0
    """Its number in the conversation, where the runtime counts: 1 is the first."""


class AgentReturned(EventBase, frozen=True, tag="agent.returned"):
    """The result of a tool, as the agent got it."""

    step: str
    attempt: int
    call: str
    tool: str
    text: str = ""
    """The beginning of it, where `file` names the whole."""
    failed: bool = False
    file: str = ""
    """The whole text, below the execution's artifacts, where it is too big for the journal."""
    size: int = 0
    """Its length in bytes, where it is not all here."""


class AgentTold(EventBase, frozen=True, tag="agent.told"):
    """A person's message to the agent of a step."""

    step: str
    id: str
    text: str
    by: str = ""


class AgentHeard(EventBase, frozen=True, tag="agent.heard"):
    """Messages of a person were given to the agent."""

    step: str
    attempt: int
    ids: tuple[str, ...]
    how: Literal["steer", "follow-up", "prompt"]
    """Within the running turn, after it, or with the prompt of an attempt."""


class AgentClaimed(EventBase, frozen=True, tag="agent.claimed"):
    """The agent of a step with checks says that it is done; its work is checked next."""

    step: str
    attempt: int
    text: str


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check of an agent's work."""

    check: str
    """The command, or the tool with its arguments."""
    passed: bool
    seconds: float
    exit_code: int | None = None
    """Of a command."""
    output: str = ""
    """The end of its output; of a tool, its failure."""
    of_form: bool = False
    """It looks at the form of the result alone (`output` of the step), not at the work."""


class AgentChecked(EventBase, frozen=True, tag="agent.checked"):
    """The checks of a step ran on the agent's work; those after one that failed did not."""

    step: str
    attempt: int
    number: int
    """1 for the first time since the step began, or since a person had it tried again; 0 for the check before that."""
    results: tuple[CheckResult, ...]
    put_back: tuple[str, ...] = ()
    """Protected files that the agent had changed: they were as before when the checks ran."""
    touched: tuple[str, ...] = ()
    """Files that a check runs, and that the agent had changed."""
    root: str = ""
    """The folder of the files that it saw."""
    tree: str = ""
    """Names their content, as checks that passed left them; empty where it was not recorded."""
    unmatched: tuple[str, ...] = ()
    """Names of `protect` that fitted no file when the agent began."""

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)


class AgentReopened(EventBase, frozen=True, tag="agent.reopened"):
    """A merge has the agent of a completed step go on: its branch does not fit together with the others."""

    step: str
    attempt: int
    """The next run of its agent, which is none of the step's."""
    by: str
    """The step that merges."""
    gave_up: str = ""
    """Ends that: the reason why its branch stays as it was."""


class WorkspaceSnapshot(EventBase, frozen=True, tag="workspace.snapshot"):
    """The files where an agent works were recorded, before or after a turn of it."""

    step: str
    attempt: int
    moment: Literal["before", "after"]
    root: str
    """The folder that was recorded."""
    tree: str = ""
    """Names the content of its files: `git:HASH` or `files:HASH`; empty where it was not recorded."""
    note: str = ""
    """Files that were not recorded, or the reason why none was."""
    changed: int | None = None
    """After a turn: the files that the agent has changed since its step began; None where that is not known."""


class FilesKept(EventBase, frozen=True, tag="files.kept"):
    """The files of an attempt are in the store that several machines share."""

    step: str
    attempt: int
    manifest: str
    """SHA-256 of the list of files, which is in the store like the files."""
    files: int
    bytes: int
    origin: str = ""
    """The execution that put them there, if that is the original of this fork."""


class WorkspaceOpened(EventBase, frozen=True, tag="workspace.opened"):
    """A folder of its own is made for an agent, or found again."""

    step: str
    attempt: int
    kind: Literal["worktree", "copy"]
    path: str
    ready: bool
    """False before it is made."""
    workdir: str = ""
    """The folder in it that the agent works in."""
    repository: str = ""
    """The checkout that a worktree belongs to."""
    branch: str = ""
    base: str = ""
    """The commit that the branch began at."""
    files: tuple[str, ...] = ()
    """Files that were brought along, and are no part of the work."""


class WorkspaceCommitted(EventBase, frozen=True, tag="workspace.committed"):
    """The work of an agent is on its branch."""

    step: str
    attempt: int
    branch: str
    commit: str


class WorkspaceRemoved(EventBase, frozen=True, tag="workspace.removed"):
    """The folder of an agent was removed, with its branch: no work in it would be lost."""

    step: str
    path: str
    by: str = ""


class AgentSummarised(EventBase, frozen=True, tag="agent.summarised"):
    """The older part of a conversation was replaced by a summary."""

    step: str
    attempt: int
    number: int
    """1 for the first summary of the conversation."""
    by: Literal["model", "key points", "truncation", "runtime"]
    tokens_before: int | None
    """Tokens of the conversation; None where the runtime does not tell."""
    tokens_after: int | None
    """None where the runtime does not tell: the first reply after it does."""
    messages: int = 0
    """Messages that it replaces."""
    model: str = ""
    text: str = ""
    pinned: tuple[str, ...] = ()
    """Facts that were carried over word for word."""
    usage: Usage | None = None
    """Cost of making it; None if no model was asked or the runtime does not tell."""


def token_change(before: int | None, after: int | None) -> str:
    """`26,214 → 9,800 tokens`; journals of earlier versions have 0 for what is not known."""
    return f"{f'{before:,}' if before else 'unknown'} → {f'{after:,}' if after else 'unknown'} tokens"


class AgentSummaryRequested(EventBase, frozen=True, tag="agent.summary_requested"):
    """A person asked for a summary of an agent's conversation."""

    step: str
    by: str = ""
    request: str = ""


class UsageReported(EventBase, frozen=True, tag="usage.reported"):
    """Total usage of an attempt so far."""

    step: str
    attempt: int
    usage: Usage
    runtime: str = ""
    role: str = ""


class RuntimeFellBack(EventBase, frozen=True, tag="runtime.fell_back"):
    """Another runtime takes over."""

    step: str
    runtime: str
    instead: str
    because: str
    final: bool = True
    """The step stays with the new one; False is for this attempt alone."""
    failure: Failure | None = None
    """The first runtime's failure, if it was tried."""


class BudgetAnswered(EventBase, frozen=True, tag="budget.answered"):
    """A person allowed or refused more spending."""

    allow: bool
    by: str
    step: str = ""
    scope: str = "execution"
    usd: float | None = None
    """The limit from here on, for this execution."""
    tokens: int | None = None
    note: str = ""
    request: str = ""


class BudgetWarned(EventBase, frozen=True, tag="budget.warned"):
    """A limit is reached and the settings say to go on; or, with `limit` and `spent`, more was spent than it allows."""

    step: str
    message: str
    scope: str = ""
    unit: Literal["usd", "tokens"] = "usd"
    limit: float | None = None
    spent: float | None = None


class BudgetWaited(EventBase, frozen=True, tag="budget.waited"):
    """An attempt waits for budget that others have reserved; with an empty message, it waits no longer."""

    step: str
    attempt: int
    message: str
