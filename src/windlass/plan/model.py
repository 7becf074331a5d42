"""Immutable models of a `Plan` and its `Step`s.

They know nothing of files, clocks or executions. `load.py` makes plans from YAML and JSON, Python code
makes them directly; both pass the same checks in `check.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from windlass.errors import Category
from windlass.plan.marking import mark_data, shows_only_inputs
from windlass.plan.program import source_problem
from windlass.plan.quantities import (
    GB,
    MB,
    OF_COMMANDS,
    CommandLimits,
    Duration,
    ProgramBounds,
    Size,
    StepLimits,
    Wait,
    misfit,
    parse_duration,
    within,
)
from windlass.plan.service import ServiceCheck
from windlass.values import Before, CheckedValue, FieldBounds, field

__all__ = [
    "AGENT",
    "CODE",
    "MAX_STEPS",
    "MERGE",
    "MOST_PARALLEL",
    "STEP_TOOLS",
    "Approve",
    "Budget",
    "Duration",
    "Effect",
    "Importance",
    "Limits",
    "Permits",
    "Pick",
    "Plan",
    "Retry",
    "Step",
    "ToolCheck",
    "WorkspaceChoice",
    "parse_duration",
]

MAX_STEPS = 20_000
"""Steps a plan may have, and items all its `foreach` steps together may expand to."""

MOST_PARALLEL = 1000
"""Steps at a time that a plan may have."""

AGENT = "agent"
"""The tool of agent steps."""
CODE = "code"
"""The tool of code steps."""
MERGE = "merge"
"""The tool of merge steps."""
STEP_TOOLS = (AGENT, CODE, MERGE)
"""Tools that steps alone use: no program and no check calls them."""
DEFAULT_ROLE = "developer"
"""The role of an agent step that names none."""

StepId = Annotated[str, FieldBounds(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", min_length=1, max_length=100)]

ToolPattern = Annotated[str, FieldBounds(min_length=1, max_length=200)]

if TYPE_CHECKING:  # types that a value may be given as, where its field keeps another one
    Data = dict[str, Any]
    Texts = str | Sequence[str]
    Time = float | str


class Importance(StrEnum):
    """The weight of a step's failure for the rest of the plan (C2)."""

    CRITICAL = "critical"
    """Stops the execution."""
    NORMAL = "normal"
    """Skips its dependents; the rest goes on; the execution ends partial."""
    OPTIONAL = "optional"
    """Dependents run with a null output; the execution can still complete."""


class Effect(StrEnum):
    """Permission to repeat an attempt whose outcome is unknown."""

    NONE = "none"
    """It only looks: repeat freely."""
    REPEATABLE = "repeatable"
    """Doing it twice ends the same as once."""
    ONCE = "once"
    """Never repeated unasked: after a crash a person decides."""


class Approve(StrEnum):
    ALWAYS = "always"
    """A person is asked before each run."""
    SENSITIVE = "sensitive"
    """Asked if the tool is one of those that the settings call sensitive."""
    AUTO = "auto"
    """Asked if the tool is sensitive by its own nature, as messages are."""
    NEVER = "never"
    """Not asked, unless the settings say so for this tool."""


class Retry(CheckedValue):
    """Number of attempts after a failure, and the waits between them."""

    max: int = field(default=3, ge=0, le=100)
    """Retries after a transient failure. Other categories keep their own, smaller numbers."""
    delay: Duration = 1.0
    """Wait before the first retry."""
    backoff: float = field(default=2.0, ge=1, le=100)
    """Each further wait is this many times longer."""
    max_delay: Duration = 300.0
    """The longest wait that backoff may reach."""
    patience: Wait | None = None
    """Of an agent: how long it waits for a model API that fails; unset, as the settings say, and 0 with `max: 0`."""
    on: tuple[Category, ...] = (Category.TRANSIENT, Category.PERMISSION, Category.RESOURCE)
    """Categories that are tried again at all. A bare `retry: 3` adds `logic`: any failed run."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            max: int = ...,
            delay: Time = ...,
            backoff: float = ...,
            max_delay: Time = ...,
            patience: Time | None = ...,
            on: Sequence[Category | str] = ...,
        ) -> None: ...


def _retry_from_number(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"max": value, "on": [c for c in Category if c is not Category.CONFIGURATION]}
    return value


class Budget(CheckedValue):
    """Limits of spending. A bare number is dollars."""

    usd: float | None = field(default=None, ge=0, allow_inf_nan=False)
    """Dollars."""
    tokens: int | None = field(default=None, ge=0)
    """Tokens read and written, all together."""

    @classmethod
    def _before(cls, value: Any) -> Any:
        return {"usd": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Permits(CheckedValue):
    """Actions that an agent may take without asking."""

    mode: Literal["ask", "allow", "deny"] | None = None
    """What becomes of a request that no list decides: a person is asked, or it is allowed, or denied."""
    allow: tuple[str, ...] = ()
    """Tools that need no question, by the runtime's own names."""
    deny: tuple[str, ...] = ()
    """Tools that are refused unasked."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            mode: Literal["ask", "allow", "deny"] | None = ...,
            allow: Sequence[str] = ...,
            deny: Sequence[str] = ...,
        ) -> None: ...


class ToolCheck(CheckedValue):
    """A check of an agent's work by a command, a tool or a program: it passes unless that fails."""

    run: str | None = None
    """A shell line. Values of templates are quoted."""
    tool: str | None = None
    code: str | None = None
    """A program in JavaScript. It fails by throwing an error."""
    with_: dict[str, Any] = field(default_factory=dict, key="with")
    """The tool's arguments, or the `args` of the program; text in them may be a template."""
    timeout: Duration | None = None
    """The longest time of the check. One that takes longer is stopped, and has failed."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            run: str | None = ...,
            tool: str | None = ...,
            code: str | None = ...,
            with_: Mapping[str, Any] = ...,
            timeout: Time | None = ...,
        ) -> None: ...

    def _after(self) -> ToolCheck:
        if sum(one is not None for one in (self.run, self.tool, self.code)) != 1:
            raise ValueError("a check has exactly one of `run`, `tool` and `code`")
        if self.run is not None and self.with_:
            raise ValueError("`with` is for a tool or a program: a command has its arguments in `run`")
        if self.code is not None and (wrong := source_problem(self.code)):
            raise ValueError(f"`code` {wrong}")
        return self


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class WorkspaceChoice(CheckedValue):
    """The folder that an agent works in. Its kind alone may be written as text."""

    kind: Literal["shared", "worktree", "copy"] = "shared"
    """The working directory itself; a git worktree with a branch of its own; or a copy of the working directory."""
    files: Annotated[tuple[str, ...], Before(_listed)] = ()
    """Files that git does not track and the work needs, for a worktree: paths and patterns in the repository."""

    if TYPE_CHECKING:

        def __init__(self, *, kind: Literal["shared", "worktree", "copy"] = ..., files: Texts = ...) -> None: ...

    @classmethod
    def _before(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    def _after(self) -> WorkspaceChoice:
        if self.files and self.kind != "worktree":
            raise ValueError("`files` is for a worktree: a copy has all files, and `shared` is the folder itself")
        return self


class Limits(CheckedValue):
    """Bounds of the whole execution."""

    parallel: int = field(default=4, ge=1, le=MOST_PARALLEL)
    """Attempts that may run at once."""
    timeout: Duration | None = None
    """Running time of the whole execution, pauses left out. None is no limit."""
    memory: Annotated[Size, within(16 * MB, 1024 * GB)] | None = None
    """Bytes in memory, of the processes of all its steps together. The step that grows beyond it is ended."""

    if TYPE_CHECKING:

        def __init__(
            self, *, parallel: int = ..., timeout: Time | None = ..., memory: float | str | None = ...
        ) -> None: ...


def _listed_check(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


Checks = Annotated[tuple[str | ToolCheck, ...], Before(_listed_check)]

if TYPE_CHECKING:
    GivenChecks = str | ToolCheck | Data | Sequence[str | ToolCheck | Data]


class Pick(CheckedValue):
    """The choice of one item of a `foreach` by checks."""

    check: Checks
    """Checks that the work of an agent has to pass to be the result. What fails is not sent back to it."""

    if TYPE_CHECKING:

        def __init__(self, *, check: GivenChecks) -> None: ...


DEFAULT_TRIES = 3
FAILURES_EACH = 2
"""Checks that fail with one of several models before the next one goes on."""


class Step(CheckedValue):
    """One node of a plan."""

    id: StepId
    name: str = ""
    """What people see, when the id says too little."""
    needs: Annotated[tuple[StepId, ...], Before(_listed)] = ()
    """Steps that must be settled first."""
    run: str | tuple[str, ...] | None = None
    """Short for `tool: shell`: one shell line, or a list of arguments with no shell in between."""
    tool: str | None = None
    """The tool that does the work."""
    with_: dict[str, Any] = field(default_factory=dict, key="with")
    """The tool's arguments, or the `args` of a program; text in them may be a template."""
    code: str | None = None
    """A program: the body of an async JavaScript function, run in the sandbox. `{{ }}` in it is not filled in."""
    grants: Annotated[tuple[ToolPattern, ...] | None, Before(_listed)] = None
    """Tools that the program may call: names, and patterns like `files.*`. Left out is every tool, `[]` is none."""
    workdir: str | None = field(default=None, min_length=1)
    """The folder that the command or the agent works in; a template. It begins at the execution's working directory."""
    env: dict[str, Any] = field(default_factory=dict)
    """Variables of the command; text may be a template. `{from: NAME}` is the value of a variable that steps see."""
    service: ServiceCheck | None = None
    """The command stays until the steps that need this one have ended; `true`, or when it is ready."""
    limits: StepLimits | None = None
    """What the command or the program may use."""
    agent: str | None = None
    """The role of the agent that does the work; `windlass agents` lists them."""
    prompt: str | None = None
    """What the agent is to do; a template."""
    runtime: str | None = None
    """What the agent runs on; `windlass doctor` lists the runtimes."""
    model: str | None = None
    """The model, by the runtime's own name."""
    models: Annotated[tuple[str, ...], Before(_listed)] = ()
    """Models in place of one: the next one goes on when a check has failed twice with one."""
    skills: Annotated[tuple[str, ...], Before(_listed)] = ()
    """Skills that the agent is given; `"*"` lists all that there are."""
    files: Annotated[tuple[str, ...], Before(_listed)] = ()
    """Files whose contents the agent is given: paths and patterns in the working directory."""
    handoff: bool | tuple[StepId, ...] = True
    """Whose outputs the agent is given: true is every agent it `needs`, false is none, or the steps by name."""
    permissions: Permits | None = None
    """What the agent may do unasked, where it is not what the settings say."""
    max_turns: int | None = field(default=None, ge=1, le=10_000)
    """Turns that the agent may take."""
    merge: StepId | None = None
    """The step whose agents' branches are merged, one after the other."""
    only: str | int | list[int] | None = None
    """Of a merge: the items whose branches are merged: a number from 0, a list, or an expression that gives either."""
    check: Checks = ()
    """Commands or tools that check the agent's work: it is done when all pass. Values of templates are quoted."""
    protect: Annotated[tuple[str, ...], Before(_listed)] | None = None
    """Files of the checks that the agent must not change: paths, folders and patterns. They are put back before it.
    Left out: the tests that commands of the checks name."""
    output: dict[str, Any] | Literal["plan"] | None = None
    """A JSON Schema: the agent's result is data that fits it. Or `plan`: it is a plan that passes all checks."""
    tries: int | None = field(default=None, ge=1, le=100)
    """Checks of the work, at most: after each but the last, the agent is told what failed and goes on. Default 3."""
    workspace: WorkspaceChoice | None = None
    """The folder that the agent works in: `shared` (default), `worktree` or `copy`."""
    budget: Budget | None = None
    """What all attempts of this step may spend together."""
    fallback: bool | None = None
    """Whether another runtime of the family takes over when this one cannot. Default from the settings."""
    when: str | bool | None = None
    """An expression; the step is skipped when it is false."""
    foreach: str | list[Any] | None = None
    """A list, or an expression that gives one: the step runs once for each `item`."""
    pick: Literal["first"] | Pick | None = None
    """Of a `foreach`: the first item that completes is the result, and the others are stopped. With a check: the first
    agent whose work passes it."""
    importance: Importance = Importance.NORMAL
    retry: Annotated[Retry, Before(_retry_from_number)] = Retry.model_construct()
    timeout: Duration | None = None
    """Longest time of one attempt."""
    tag: StepId | None = None
    """On several machines: only workers with this tag run the step."""
    effect: Effect | None = None
    """Overrides what the tool says of itself."""
    approve: Approve = Approve.AUTO
    """`always` asks a person before each run of the step; `sensitive` asks if its tool is one that the settings call
    sensitive; `auto` if it is sensitive by its own nature."""
    question: str | None = field(default=None, min_length=1)
    """The words in which the person is asked."""
    approve_within: Duration | None = None
    """How long the question stays open; unanswered, it fails closed. Default from the settings."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str,
            name: str = ...,
            needs: Texts = ...,
            run: Texts | None = ...,
            tool: str | None = ...,
            with_: Mapping[str, Any] = ...,
            code: str | None = ...,
            grants: Texts | None = ...,
            workdir: str | None = ...,
            env: Mapping[str, Any] = ...,
            service: ServiceCheck | Literal[True] | Data | None = ...,
            limits: StepLimits | Data | None = ...,
            agent: str | None = ...,
            prompt: str | None = ...,
            runtime: str | None = ...,
            model: str | None = ...,
            models: Texts = ...,
            skills: Texts = ...,
            files: Texts = ...,
            handoff: bool | Sequence[str] = ...,
            permissions: Permits | Data | None = ...,
            max_turns: int | None = ...,
            merge: str | None = ...,
            only: str | int | list[int] | None = ...,
            check: GivenChecks = ...,
            protect: Texts | None = ...,
            output: Data | Literal["plan"] | None = ...,
            tries: int | None = ...,
            workspace: WorkspaceChoice | Literal["shared", "worktree", "copy"] | Data | None = ...,
            budget: Budget | float | Data | None = ...,
            fallback: bool | None = ...,
            when: str | bool | None = ...,
            foreach: str | Sequence[Any] | None = ...,
            pick: Literal["first"] | Pick | Data | None = ...,
            importance: Importance | str = ...,
            retry: Retry | int | Data = ...,
            timeout: Time | None = ...,
            tag: str | None = ...,
            effect: Effect | str | None = ...,
            approve: Approve | str = ...,
            question: str | None = ...,
            approve_within: Time | None = ...,
        ) -> None: ...

    def _after(self) -> Step:
        if sum((self.run is not None, self.tool is not None, self.is_code, self.is_agent, self.merge is not None)) != 1:
            raise ValueError("a step has exactly one of `run`, `tool`, `agent`, `code` and `merge`")
        if self.run is not None and not self.run:
            raise ValueError("`run` is empty")
        if self.code is not None and (wrong_source := source_problem(self.code)):
            raise ValueError(f"`code` {wrong_source}")
        if self.is_agent and not (self.prompt or "").strip():
            raise ValueError("an agent needs a `prompt` that describes its task")
        if self.is_agent and self.with_:
            raise ValueError("`with` is for tools; describe the agent's task in its `prompt`")
        of_agents = [name for name in OF_AGENTS if name in self.model_fields_set]
        if not self.is_agent and (wrong := [one for one in of_agents if self.merge is None or one != "check"]):
            raise ValueError(f"`{wrong[0]}` is for agents, and this step has no `agent`")
        if self.question is not None and (self.approve not in (Approve.ALWAYS, Approve.SENSITIVE) or self.merge):
            raise ValueError("`question` goes with `approve: always` or `sensitive`, before a step other than a merge")
        if wrong_choice := self._wrong_choice():
            raise ValueError(wrong_choice)
        if wrong_checks := self._wrong_checks():
            raise ValueError(wrong_checks)
        commands = self.run is not None or self.tool == "shell"
        of_program = [] if self.is_code or self.tool is not None else OF_PROGRAMS
        if wrong := [
            name for name in of_program if name in self.model_fields_set and not (commands and name == "limits")
        ]:
            raise ValueError(f"`{wrong[0]}` is for programs, and this step has no `code` (and no `tool`)")
        if wrong_command := self._wrong_command(commands):
            raise ValueError(wrong_command)
        if self.limits is not None and (unfit := self._misfit(self.limits, commands)):
            raise ValueError(unfit)
        return self

    def _wrong_command(self, commands: bool) -> str:
        """Return the problem of a key of commands."""
        if self.workdir is not None and self.merge is not None:
            return "`workdir` is not for a merge, which works in the repository of the branches"
        if self.workdir is not None and self.tool is not None:
            from windlass.plan.file_arguments import no_folder  # few plans need it

            if why := no_folder(self.tool):
                return why
        if self.workdir is not None and commands and "cwd" in self.with_:
            return "`workdir` is given twice: in the step and as `cwd` in its `with`"
        if self.env and not commands:
            return "`env` is for commands, and this step has none"
        if self.env and "env" in self.with_:
            return "`env` is given twice: in the step and in its `with`"
        if self.service is not None and (not commands or self.foreach is not None):
            return "`service` is for one command, and " + ("a `foreach` is many" if commands else "this is none")
        return ""

    def with_variables(self, env: Mapping[str, Any]) -> Step:
        """The same command with these variables, as far as it does not set them itself; the same step if it is none."""
        if self.run is None and self.tool != "shell":
            return self
        if isinstance(own := self.with_.get("env"), Mapping):
            return self.model_copy(update={"with_": {**self.with_, "env": {**env, **own}}})
        return self.model_copy(update={"env": {**env, **self.env}})

    @property
    def all_checks(self) -> tuple[str | ToolCheck, ...]:
        """Its own checks, and those of `pick`."""
        return self.check + self.pick_checks

    @property
    def pick_checks(self) -> tuple[str | ToolCheck, ...]:
        """Checks that choose among the items."""
        return self.pick.check if isinstance(self.pick, Pick) else ()

    def _wrong_choice(self) -> str:
        """Return the problem of `pick` or `only`."""
        if self.pick is not None and self.foreach is None:
            return "`pick` takes one of the items of a `foreach`, and this step has none"
        if self.pick_checks and not self.is_agent:
            return "`pick.check` is for agents; of other steps `pick: first` takes the first that does not fail"
        if isinstance(self.pick, Pick) and (not self.pick.check or _has_empty(self.pick.check)):
            return "`pick.check` is empty"
        if self.only is not None and self.merge is None:
            return "`only` names the items that a `merge` takes, and this step has none"
        return ""

    def _wrong_checks(self) -> str:
        """Return the problem of the checks, or of what goes with them."""
        if _has_empty(self.check):
            return "`check` is empty"
        if self.tries is not None and not self.check and self.output is None:
            return "`tries` counts the tries to pass `check` and `output`, and this step has neither"
        if self.protect and not self.check and not self.pick_checks:
            return "`protect` names files that `check` needs, and this step has no `check`"
        for path in self.protect or ():
            if not path.strip() or path.startswith("~") or os.path.normpath(path).split("/")[0] == "..":
                return f"`protect` names files in the working directory, and {path!r} is none"
        return self._wrong_models() if self.models else ""

    def _wrong_models(self) -> str:
        if self.model is not None:
            return "`model` and `models` are both given: keep one of them"
        if not self.check and self.output is None:
            return "`models` go on with what `check` and `output` refuse, and this step has neither"
        needed = FAILURES_EACH * (len(self.models) - 1) + 1
        if self.tries is not None and self.tries < needed:
            return f"`tries: {self.tries}` never comes to the last of `models`: it takes {needed}"
        return ""

    def _misfit(self, limits: StepLimits, commands: bool) -> str | None:
        """Return the problem of limits that do not fit this kind of step."""
        told = limits.model_dump(exclude_none=True)
        if not commands:
            if "processes" in told:
                return "`limits.processes`: a program has no processes; this is for commands"
            if "cpu_share" in told:
                return "`limits.cpu_share`: only a command can be slowed down; a program has `limits.cpu`"
            return misfit(ProgramBounds, told)
        if "wall" in told:
            return "`limits.wall` is for programs; for a command use the step's `timeout`"
        if strange := sorted(told.keys() - OF_COMMANDS):
            return f"`limits.{strange[0]}` is for programs, and this step has no `code` (and no `tool`)"
        if "limits" in self.with_:
            return "`limits` is given twice: in the step and in its `with`"
        return misfit(CommandLimits, told)

    @property
    def is_agent(self) -> bool:
        return self.agent is not None or self.prompt is not None

    @property
    def may_be_left_out(self) -> bool:
        """It may never run, or its failure may not matter: what it lacks is no reason not to start."""
        return self.when is not None or self.importance is Importance.OPTIONAL

    @property
    def is_code(self) -> bool:
        return self.code is not None

    @property
    def tool_name(self) -> str:
        if self.is_agent:
            return AGENT
        if self.is_code:
            return CODE
        if self.merge is not None:
            return MERGE
        return "shell" if self.run is not None else str(self.tool)

    @property
    def arguments(self) -> dict[str, Any]:
        """The tool's arguments, before templates are filled in."""
        if self.is_agent:
            return self._for_agent()
        if self.is_code:
            return self._for_code()
        if self.merge is not None:
            only = {} if self.only is None else {"only": _as_template(self.only)}
            return {"step": self.merge, "check": [_use_of(check) for check in self.check], **only}
        if self.run is None and self.tool != "shell":
            return self.with_
        limits = self.limits.model_dump(exclude_none=True, mode="json") if self.limits is not None else None
        bounded: dict[str, Any] = {"limits": limits} if limits else {}
        if self.workdir is not None:
            bounded["cwd"] = self.workdir
        if self.env:
            bounded["env"] = self.env
        if self.service is not None:
            bounded["service"] = self.service.model_dump(exclude_none=True, mode="json")
        if self.run is None:
            return {**self.with_, **bounded}
        key = "line" if isinstance(self.run, str) else "argv"
        return {key: self.run if isinstance(self.run, str) else list(self.run), **self.with_, **bounded}

    @property
    def items_are_users(self) -> bool:
        """The items of its `foreach` stand in the plan itself or are an input, and not the results of other steps."""
        if isinstance(self.foreach, str):
            return shows_only_inputs(self.foreach)
        return isinstance(self.foreach, list) and "{{" not in str(self.foreach)

    def _for_agent(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "role": self.agent or DEFAULT_ROLE,
            "prompt": mark_data(self.prompt or "", items_of_user=self.items_are_users),
            "runtime": self.runtime,
            "model": self.model,
            "models": list(self.models),
            "skills": list(self.skills),
            "files": list(self.files),
            "max_turns": self.max_turns,
            "workdir": self.workdir,
        }
        if self.check:
            told["check"] = [_use_of(check) for check in self.check]
        if self.pick_checks:
            told["pick"] = [_use_of(check) for check in self.pick_checks]
        if self.protect is not None:
            told["protect"] = list(self.protect)
        if self.output is not None:
            told["output"] = self.output
        if self.check or self.output is not None:
            told["tries"] = self.tries or FAILURES_EACH * len(self.models) or DEFAULT_TRIES
        if self.workspace is not None and self.workspace.kind != "shared":
            told["workspace"] = self.workspace.model_dump(exclude_defaults=True, mode="json")
        if self.permissions is not None:
            told["permissions"] = self.permissions.model_dump(exclude_defaults=True, mode="json")
        # An empty list is the same as none, but of `protect`: with none, the tests that the checks name are protected.
        return {name: value for name, value in told.items() if value not in (None, []) or name == "protect"}

    def _for_code(self) -> dict[str, Any]:
        """Return the arguments of a code step. `source` is no template (see `prepare`)."""
        told: dict[str, Any] = {"source": self.code}
        if self.with_:
            told["args"] = self.with_
        if self.workdir is not None:
            told["workdir"] = self.workdir
        if self.grants is not None:
            told["grants"] = list(self.grants)
        if self.limits is not None:
            told["limits"] = self.limits.model_dump(exclude_none=True, mode="json")
        return told


def _has_empty(checks: tuple[str | ToolCheck, ...]) -> bool:
    lines = (check.run if isinstance(check, ToolCheck) else check for check in checks)
    return any(line is not None and not line.strip() for line in lines)


def _as_template(value: Any) -> Any:
    """An expression in braces, which keeps the type of its result; any other value as it is."""
    return f"{{{{ {value} }}}}" if isinstance(value, str) and "{{" not in value else value


def _use_of(check: str | ToolCheck) -> dict[str, Any]:
    """A check as the use of a tool. In a command each value is made one word, whatever an agent has put into it."""
    if isinstance(check, str):
        check = ToolCheck(run=check)
    limit = {"timeout": check.timeout} if check.timeout is not None else {}
    if check.run is not None:
        quoted = re.sub(r"\{\{(.+?)\}\}", _quote_value, check.run, flags=re.DOTALL)
        return {"tool": "shell", "with": {"line": quoted}, **limit}
    if check.code is not None:
        return {"tool": CODE, "with": {"args": check.with_}, "source": check.code, **limit}
    return {"tool": check.tool, "with": check.with_, **limit}


def _quote_value(template: re.Match[str]) -> str:
    expression = template[1].strip().strip("-+").strip()
    return template[0] if re.search(r"\|\s*quote$", expression) else f"{{{{ ({expression}) | quote }}}}"


OF_AGENTS = (
    "runtime",
    "model",
    "models",
    "skills",
    "files",
    "handoff",
    "permissions",
    "max_turns",
    "check",
    "protect",
    "output",
    "tries",
    "workspace",
    "budget",
    "fallback",
)
"""Fields that mean something for an agent alone."""
OF_PROGRAMS = ("grants", "limits")
"""Fields that mean something for a program alone: a code step's, or the one that a composed tool is."""


class ContextLimit(CheckedValue):
    """The summaries that keep the conversations of a plan's agents within their model's window."""

    threshold: float | None = field(default=None, ge=0.1, le=0.95)
    """Part of the window at which the older messages are summarised."""
    model: str | None = None
    """The model that summarises, for `cli`."""


class Plan(CheckedValue):
    """A graph of steps with inputs and limits. Immutable; its `digest` names its content."""

    name: str = field(default="plan", min_length=1, max_length=200)
    description: str = ""
    inputs: dict[StepId, Any] = field(default_factory=dict)
    """Names and default values that templates read as `inputs.NAME`."""
    tools: Annotated[tuple[str, ...], Before(_listed)] = ()
    """Python files of `@tool` functions, relative to the plan file."""
    limits: Limits = Limits.model_construct()
    budget: Budget | None = None
    """What the agents of one execution may spend together."""
    runtime: str | None = None
    """What agents run on that name no runtime themselves."""
    model: str | None = None
    """The model of agents that name none themselves."""
    fallback: bool | None = None
    """Whether another runtime of the family takes over, for agents that do not say."""
    context: ContextLimit | None = None
    """The summaries of its agents' conversations."""
    env: dict[str, Any] = field(default_factory=dict)
    """Variables of all its commands; a step's own `env` stands over it."""
    triggers: tuple[dict[str, Any], ...] = ()
    """The times or files by which it starts by itself, once it is scheduled: `windlass schedule add`."""
    steps: tuple[Step, ...] = field(min_length=1, max_length=MAX_STEPS)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str = ...,
            description: str = ...,
            inputs: Mapping[str, Any] = ...,
            tools: Texts = ...,
            limits: Limits | Data = ...,
            budget: Budget | float | Data | None = ...,
            runtime: str | None = ...,
            model: str | None = ...,
            fallback: bool | None = ...,
            context: ContextLimit | Data | None = ...,
            env: Mapping[str, Any] = ...,
            triggers: Sequence[Data] = ...,
            steps: Sequence[Step | Data],
        ) -> None: ...

    from_text = False
    """It was read from text: no program has a list of its own in it, which it may change later."""

    @classmethod
    def decode(cls, text: str | bytes) -> Plan:
        """The plan in JSON that was `encoded`."""
        return cls.model_validate_json(text).as_from_text()

    def as_from_text(self) -> Plan:
        self.__dict__["from_text"] = True
        return self

    def _after(self) -> Plan:
        """Give each command the plan's variables, so that nothing else has to know of them."""
        if self.env:
            self.__dict__["steps"] = tuple(step.with_variables(self.env) for step in self.steps)
        return self

    @cached_property
    def encoded(self) -> bytes:
        """The plan as canonical JSON, which is journalled and hashed: all that an execution needs of it."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True, exclude={"triggers"}).encode()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.encoded).hexdigest()

    @cached_property
    def by_id(self) -> dict[str, Step]:
        return {step.id: step for step in self.steps}
