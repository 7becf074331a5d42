"""The seam towards agents: a runtime that is given a task and works on it until it is done (A1).

A runner is one file: `available`, `run`, `interrupt`. It is given an `AgentRequest` and a `Host`, tells the host what
happens as it happens, and gives an `AgentResult`. It never raises for what a runtime can do wrong: that is a `Failure`
in the result, together with everything there was before it. It decides nothing about retries, fallbacks or budgets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from windlass.core.budget import Amount
from windlass.core.events import Usage
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
    "Handoff",
    "Host",
    "Part",
    "Permissions",
    "Runner",
    "RunnerHooks",
    "ToolReturn",
    "ToolSpec",
    "Usage",
    "account_name",
    "hooks_of",
]


class Part(NamedTuple):
    """One marked part of what an agent is told."""

    kind: Literal["role", "skill", "rules", "file", "handoff", "task", "note"]
    name: str
    """The role, skill, path or step it came from."""
    text: str


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent is told, put together: `system` says who it is, `prompt` what it has and what to do."""

    system: str
    prompt: str
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out or cut short, and why: the user is told."""


class Handoff(NamedTuple):
    """What an earlier step leaves to this one."""

    step: str
    role: str
    """Empty for a step that was no agent."""
    output: Any


@dataclass(frozen=True, slots=True)
class Permissions:
    """What an agent may do by itself."""

    mode: Literal["ask", "allow", "deny"] = "ask"
    """What becomes of a request that no list decides: a person is asked, or it is allowed, or denied."""
    allow: tuple[str, ...] = ()
    """Tools that need no question, by the runtime's own names and patterns (`Read`, `Bash(git log:*)`, `files.*`)."""
    deny: tuple[str, ...] = ()
    """Tools that are refused unasked. Stronger than `allow`."""
    tools: tuple[str, ...] | None = None
    """The only tools there are at all, where a role says so; None is all."""


class ToolSpec(NamedTuple):
    """A tool of the engine, as a model is told of it."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ToolReturn(NamedTuple):
    """What came of a use of an engine's tool."""

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
    """What may be spent at most, as far as the runtime can hold itself to it. The engine watches too."""
    session: str | None = None
    """Go on with this conversation; `brief.prompt` is then what to say next in it."""
    permissions: Permissions = field(default_factory=Permissions)
    max_turns: int | None = None
    temperature: float | None = None
    trusted: bool = False
    """The user trusts the folder, so that its own hooks, plugins and settings of the runtime may take part."""
    grace: float = 5.0
    pool: MemoryPool | None = None
    """Memory that the processes of all steps of the execution share; a runtime with a process of its own is in it."""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What came of it. `output` and `usage` are what there was, whether it succeeded or not."""

    output: str = ""
    failure: Failure | None = None
    """Why it did not succeed. `failure.elsewhere`: another runtime could survive it; `resets_at`: a quota."""
    usage: Usage = field(default_factory=Usage)
    session: str | None = None
    duration: float = 0.0
    interrupted: bool = False
    """It ended because `interrupt` asked it to."""
    adjustments: tuple[str, ...] = ()
    """What was done otherwise than asked: another model, a tool that was denied, a setting that was left out."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """More facts of the runtime's own: turns, the model it used, its version."""

    @property
    def success(self) -> bool:
        return self.failure is None and not self.interrupted


class Host(Protocol):
    """The engine's side of a running attempt: the runner tells it what happens. Everything here returns at once
    but `afford`, `ask` and `use`."""

    def session(self, session: str) -> None:
        """The conversation's name, as soon as it is known: a resume goes on with it."""
        ...

    def text(self, text: str) -> None:
        """A piece of what the agent says, as it comes."""
        ...

    def acted(self, tool: str, summary: str, input: Any = None) -> None:
        """The agent uses a tool of its runtime. `summary` is one line for people: a path, a command."""
        ...

    def usage(self, usage: Usage) -> None:
        """What this attempt has used so far, in all. Told as often as it is known."""
        ...

    async def afford(self, prompt: int) -> bool:
        """Before each call of the model, by runtimes that make their calls themselves: there is budget for a call with
        a prompt of so many tokens. Waits for room if need be. False: end the turn, with what there is."""
        ...

    def note(self, text: str) -> None:
        """Something the user should know: the runtime retries, waits, changed the model."""
        ...

    async def ask(self, tool: str, input: Any) -> Answer:
        """May the agent use this tool with exactly this? Waits for a person if need be."""
        ...

    def tools(self) -> list[ToolSpec]:
        """The engine's own tools that this agent may use."""
        ...

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        """What a repetition of this use would do."""
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
    """A runtime for agents. `RunnerHooks` has what a runner may do besides."""

    @property
    def name(self) -> str:
        """As in the table of runtimes, `windlass/runtimes.py`."""
        ...

    async def available(self) -> Health:
        """Whether it can be used here, found out for real; the detail names the program and its version."""
        ...

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """The most that one call of this model can use with a prompt of so many tokens, as far as it can be said:
        that much is reserved for each call. `usd` None: no price is known, so no limit in dollars can be held."""
        ...

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        """Work on the task until it is done, has failed or is interrupted. Cancelled, it leaves nothing running."""
        ...

    async def interrupt(self, request: str) -> None:
        """Ask that run to end its turn now; `run` then returns what there was. Unknown ids are ignored."""
        ...

    async def close(self) -> None:
        """Let go of what was kept warm."""
        ...


class RunnerHooks:
    """Optional methods of a runner, which inherits from this class to have them."""

    def installed(self) -> Health:
        """Look for programs, packages and keys without starting anything; `available` finds out for real."""
        return Health(True)

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        """Name the provider and the account that this model is called with, without a secret in it:
        `anthropic, account 3fa1b2c4`; empty if not known. `env` is the step's own environment."""
        return ""

    def prepare(self, model: str | None) -> None:
        """Begin in the background what the first run would have to wait for: a step is about to need it."""


def hooks_of(runner: Runner) -> RunnerHooks:
    """The runner's own hooks, or those that do nothing."""
    return runner if isinstance(runner, RunnerHooks) else RunnerHooks()
