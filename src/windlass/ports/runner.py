"""The seam towards agents: a runtime that is given a task and works on it until it is done (A1).

A runner is one file: `available`, `run`, `interrupt`. It is given an `AgentRequest` and a `Host`, reports progress to
the host, and gives an `AgentResult`. It never raises for a fault of the runtime: that is a `Failure` in the result,
with the output and usage before it. It decides nothing about retries, fallbacks or budgets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from windlass.context.limits import ContextRule
from windlass.core.budget import Amount
from windlass.core.events import AgentTold, Event, Usage
from windlass.errors import Failure
from windlass.ports.tool import Answer, Health

if TYPE_CHECKING:
    from windlass.plan.model import Effect
    from windlass.process import MemoryPool

__all__ = [
    "AgentRequest",
    "AgentResult",
    "Answer",
    "Brief",
    "ChooseTools",
    "Handoff",
    "Host",
    "Media",
    "Part",
    "Permissions",
    "PromptAttachment",
    "Runner",
    "RunnerHooks",
    "SessionPlace",
    "SummaryMethod",
    "ToolReturn",
    "ToolSpec",
    "Usage",
    "account_name",
    "hooks_of",
]


SummaryMethod: TypeAlias = Literal["model", "key points", "truncation", "runtime"]
Media: TypeAlias = Literal["", "opens", "attached"]
"""Images and PDF documents: left out, named to an agent whose own tool opens them, or attached to the prompt."""


class Part(NamedTuple):
    """One marked part of an agent's prompt."""

    kind: Literal["role", "skill", "rules", "file", "handoff", "task", "note"]
    name: str
    """The role, skill, path or step it came from."""
    text: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The assembled prompts of an agent: `system` describes its role, `prompt` its material and its task."""

    system: str
    prompt: str
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    """Parts left out or cut short, each with the reason: shown to the user."""
    nudge: bool = False
    """The prompt says nothing but to go on: a conversation whose last message has no reply yet needs none."""
    attachments: tuple[PromptAttachment, ...] = ()


class PromptAttachment(NamedTuple):
    """An image or a PDF document that goes to the model with the prompt."""

    path: str
    media_type: str
    data: bytes


class Handoff(NamedTuple):
    """Output that an earlier step hands to this one."""

    step: str
    role: str
    """Empty for a step that was no agent."""
    output: Any
    work: str = ""
    """Files that its agent wrote and commands that it ran."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of an agent."""

    mode: Literal["ask", "allow", "deny"] = "ask"
    """Verdict on a request that no list decides: ask a person, allow it, or deny it."""
    allow: tuple[str, ...] = ()
    """Tools that need no question, by the runtime's own names and patterns (`Read`, `Bash(git log:*)`, `files.*`)."""
    deny: tuple[str, ...] = ()
    """Tools that are refused unasked. Stronger than `allow`."""
    tools: tuple[str, ...] | None = None
    """The only tools there are at all, where a role says so; None is all."""


class ToolSpec(NamedTuple):
    """A tool of the engine, as described to a model."""

    name: str
    description: str
    schema: Mapping[str, Any]


ChooseTools: TypeAlias = Callable[[Mapping[str, bool]], Collection[str]]
"""Gets the names of tools, with True for those that come with Windlass, and gives those that are wanted."""


class ToolReturn(NamedTuple):
    """The result of a use of an engine's tool."""

    value: Any
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One task for one agent."""

    id: str
    """Names this run for `interrupt`: `EXECUTION:STEP:ATTEMPT`."""
    task: str
    brief: Brief
    workdir: Path
    scratch: Path
    """A folder of this step's own, kept between attempts; may not exist yet."""
    env: Mapping[str, str]
    """The environment for the runtime's processes, allow-listed; the runner adds the names that it says it needs."""
    role: str = ""
    model: str | None = None
    """As the plan or the settings name it; None is the runtime's own default."""
    skills: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    handoff: tuple[Handoff, ...] = ()
    budget: Amount = field(default_factory=Amount)
    """Limit of spending, as far as the runtime can hold itself to it. The engine watches too."""
    session: str | None = None
    """Go on with this conversation; `brief.prompt` is then the next message in it."""
    inherited: Path | None = None
    """The conversation belongs to another execution, and this is its `scratch`: go on in a copy, under another name."""
    permissions: Permissions = field(default_factory=Permissions)
    max_turns: int | None = None
    temperature: float | None = None
    trusted: bool = False
    """The user trusts the folder, so that its own hooks, plugins and settings of the runtime may take part."""
    form: Mapping[str, Any] | None = None
    """JSON Schema of the result, for a runtime with a way of its own to have an agent give data. The prompt asks for it
    in any case, and the engine checks it."""
    context: ContextRule = field(default_factory=ContextRule)
    """When the older part of the conversation is summarised, and by which model."""
    grace: float = 5.0
    pool: MemoryPool | None = None
    """Memory that the processes of all steps of the execution share; a runtime with a process of its own is in it."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def opening(self) -> Literal["prompt", "follow-up"]:
        """The way by which people's messages come to the agent that are there before this run's first prompt."""
        return "prompt" if self.brief.prompt else "follow-up"


class SessionPlace(NamedTuple):
    """A conversation of a step's agent, and the folders that its files are in."""

    session: str
    workdir: Path
    scratch: Path
    env: Mapping[str, str]
    """As in `AgentRequest`."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The result of a run. `output` and `usage` are given after a failure, too."""

    output: str = ""
    failure: Failure | None = None
    """Why it did not succeed. `failure.elsewhere`: another runtime could survive it; `resets_at`: a quota."""
    usage: Usage = field(default_factory=Usage)
    session: str | None = None
    duration: float = 0.0
    interrupted: bool = False
    """It ended because `interrupt` asked it to."""
    adjustments: tuple[str, ...] = ()
    """Deviations from the request: another model, a tool that was denied, a setting that was left out."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """More facts of the runtime's own: turns, the model it used, its version."""

    @property
    def success(self) -> bool:
        return self.failure is None and not self.interrupted


class Host(Protocol):
    """The engine's side of a running attempt: the runner reports to it. Only `afford`, `ask` and `use` wait."""

    def session(self, session: str) -> None:
        """The conversation's name, as soon as it is known: a resume goes on with it."""
        ...

    def text(self, text: str) -> None:
        """A piece of the agent's text, as it comes."""
        ...

    def acted(self, tool: str, summary: str, input: Any = None, call: str = "") -> None:
        """The agent uses a tool. `summary` is one line for people: a path, a command. `call` is the runtime's name of
        this use, which `returned` repeats."""
        ...

    def returned(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        """The result of that use, whole, as the agent got it."""
        ...

    def spoke(self, text: str, thinking: str = "", usage: Usage | None = None, number: int = 0) -> None:
        """One whole reply of the model, with the usage of this reply alone where it is known, and its number in the
        conversation where the runtime counts them. `text` has shown the same piece by piece."""
        ...

    def summarised(
        self,
        *,
        by: SummaryMethod,
        tokens_before: int | None,
        tokens_after: int | None,
        messages: int = 0,
        model: str = "",
        text: str = "",
        pinned: Sequence[str] = (),
        usage: Usage | None = None,
    ) -> None:
        """The older part of the conversation was replaced by a summary. None: the runtime does not tell how many
        tokens it had."""
        ...

    async def history(self) -> list[Event]:
        """Events of this step in the journal, from the beginning, with texts that it keeps in files. While its
        conversation is that of the execution it was forked from, those of that one come first."""
        ...

    def summary_wanted(self) -> bool:
        """A person asked for a summary of the older part now; `summarised` answers it."""
        ...

    def told(self) -> list[AgentTold]:
        """Messages of people that the agent has not been given yet, oldest first."""
        ...

    async def heard(self, ids: Sequence[str], how: Literal["steer", "follow-up", "prompt"]) -> None:
        """The agent has been given these messages; returns when that is on disk."""
        ...

    async def wait_told(self) -> None:
        """Wait until there is a message that the agent has not been given."""
        ...

    def usage(self, usage: Usage) -> None:
        """Total usage of this attempt so far. Reported as often as it is known."""
        ...

    async def afford(self, prompt: int) -> bool:
        """Reserve budget before a call of the model with a prompt of so many tokens, for runtimes that make their calls
        themselves. Waits for room if need be. False: end the turn, with the output so far."""
        ...

    def note(self, text: str, *, waits: bool = False) -> None:
        """Something the user should know: the runtime changed the model, say. `waits`: it waits for the model API,
        until the model says something."""
        ...

    async def ask(self, tool: str, input: Any) -> Answer:
        """May the agent use this tool with exactly this? Waits for a person if need be."""
        ...

    def tools(self, choose: ChooseTools | None = None) -> list[ToolSpec]:
        """The engine's own tools that this agent may use; with `choose` some of them: the others are not loaded."""
        ...

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        """The effect of this use, which decides if it may be repeated."""
        ...

    async def use(self, tool: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        """Use one of the engine's tools, through the same gates as a step."""
        ...


def account_name(provider: str, *secrets: str | None) -> str:
    """The name of an account: its provider, and a digest of the first key or login there is."""
    secret = next(filter(None, secrets), None)
    if secret is None:
        return provider
    return f"{provider}, account {hashlib.sha256(secret.encode()).hexdigest()[:8]}"


class Runner(Protocol):
    """A runtime for agents. `RunnerHooks` has the optional methods."""

    @property
    def name(self) -> str:
        """As in the table of runtimes, `windlass/runtimes.py`."""
        ...

    async def available(self) -> Health:
        """Check for real if it can be used here; the detail names the program and its version."""
        ...

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """The most that one call of this model can use with a prompt of so many tokens, as far as it can be said:
        that much is reserved for each call. `usd` None: no price is known, so no limit in dollars can be held."""
        ...

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        """Work on the task until it is done, has failed or is interrupted. Cancelled, it leaves nothing running."""
        ...

    async def interrupt(self, request: str) -> None:
        """Ask that run to end its turn now; `run` then returns the output so far. Unknown ids are ignored."""
        ...

    async def close(self) -> None:
        """Release warm processes and connections."""
        ...


class RunnerHooks:
    """Optional methods of a runner, which inherits from this class to have them."""

    takes_messages = False
    """It gives the messages of `Host.told` to the agent itself, also those that are there before the first prompt.
    Without it the engine puts them into the next prompt. A prompt without a text is for them alone."""

    def installed(self) -> Health:
        """Look for programs, packages and keys without starting anything; `available` finds out for real."""
        return Health(True)

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        """Name the provider and the account that this model is called with, without a secret in it:
        `anthropic, account 3fa1b2c4`; empty if not known. `env` is the step's own environment."""
        return ""

    def window(self, model: str | None) -> int | None:
        """Tokens that this model can read at once, where known."""
        return None

    def media(self, model: str | None) -> Media:
        """The way in which this model comes to see images and PDF documents among the files of a step."""
        return ""

    async def keep_session(self, place: SessionPlace) -> None:
        """Copy the conversation into its `scratch`, if it is elsewhere: another machine may go on with it."""

    async def bring_session(self, place: SessionPlace, *, current: bool) -> bool:
        """Take the conversation from its `scratch`: another machine has worked in it since. False if it is lost.

        Without `current` that machine is lost, and what is here and in `scratch` is older than the journal."""
        return current

    def prepare(self, model: str | None) -> None:
        """Load in the background everything that the first run would wait for: a step is about to need it."""


def hooks_of(runner: Runner) -> RunnerHooks:
    """The runner's own hooks, or those that do nothing."""
    return runner if isinstance(runner, RunnerHooks) else RunnerHooks()
