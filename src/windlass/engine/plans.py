"""Plans before they run: read, checked, and compared with the installed tools and programs.

All missing things are found and reported at once, with advice. Nothing is started for it: a program is looked for on
the PATH that steps get, a runtime is only asked if it is installed. Unknown tools, roles, runtimes and
unreadable programs are problems of the plan, and are refused with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.core.agent import next_in_family
from windlass.core.decide import Policy
from windlass.core.events import Source
from windlass.core.state import State
from windlass.engine.agents.tool import AgentTool
from windlass.engine.code.tool import refuse_unreadable
from windlass.engine.drivers import Launcher
from windlass.errors import PlanInvalid, UsageError
from windlass.plan.check import Locate, ToolCatalog
from windlass.plan.load import check_plan, locate_in
from windlass.plan.model import AGENT, CODE, MERGE, Plan, Step
from windlass.plan.prepare import prepare
from windlass.plan.report import Report
from windlass.plan.yamlread import FilePosition
from windlass.ports import Health, Runner, Sandbox, Tool, hooks_of
from windlass.settings.variables import missing_variable

__all__ = ["LoadedPlan", "PlanReader", "Plans", "Prerequisites", "find_missing", "value_sources"]


class LoadedPlan(msgspec.Struct, frozen=True):
    """A plan with its source and the tools that it brings along."""

    plan: Plan
    source: Source = msgspec.field(default_factory=Source)
    tools: tuple[Tool, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan | LoadedPlan) -> LoadedPlan:
        """Wrap a bare plan, which has no source and brings nothing. Refuses anything else than a plan."""
        if not isinstance(plan, Plan | LoadedPlan):
            from windlass.plan.schema import kind_of  # programs seldom give something else

            raise UsageError(
                f"a plan is a `Plan`, or the path of a file; given is {kind_of(plan)}",
                advice=("a plan as data: await windlass.RunRequest(plan={…}).start(engine)",),
            )
        return cls(plan) if isinstance(plan, Plan) else plan


class PlanReader(Protocol):
    """Reads plans from files, and loads the tools that they bring."""

    def read(self, path: Path, workdir: Path) -> LoadedPlan: ...

    def parse(self, text: str, name: str, workdir: Path) -> LoadedPlan: ...

    def catalog(self, tools: Iterable[Tool], workdir: Path) -> ToolCatalog: ...

    def of_source(self, source: Source) -> list[Tool]: ...


class Plans:
    """Reads plans, and refuses those that cannot run here."""

    def __init__(
        self, reader: PlanReader, launcher: Launcher, agents: AgentTool | None, sandbox: Sandbox | None
    ) -> None:
        self.tools_of = reader.of_source
        """Loads the tools that a plan from this source brings."""
        self._reader = reader
        self._launcher = launcher
        self._agents = agents
        self._sandbox = sandbox
        self._checked: set[str] = set()
        """Digests of plans from Python or text that were found valid."""

    def read(self, path: Path | str, workdir: Path | str | None = None) -> LoadedPlan:
        """Read a plan file and check all of it. Raises `PlanInvalid` with every problem in it.

        Roles and skills of its agents are looked for in `workdir`.
        """
        folder = Path(workdir or os.getcwd())
        return _with_warnings(self._reader.read(Path(path), folder), folder)

    def parse(self, text: str, workdir: Path | str | None = None, *, name: str = "<text>") -> LoadedPlan:
        """Read a plan from text, checked as a file is. A `name` that ends in .json makes it JSON."""
        folder = Path(workdir or os.getcwd())
        loaded = self._reader.parse(text, name, folder)
        self._checked.add(loaded.plan.digest)
        return _with_warnings(loaded, folder)

    def check(self, loaded: LoadedPlan, workdir: Path | str | None = None) -> None:
        """Refuse a plan with problems of its own; one from a file was checked when it was read.

        A runtime that is not known is refused here if the settings or the request name it.
        """
        plan = loaded.plan
        if loaded.source.path is None and not self._was_checked(plan):
            problems = check_plan(plan, self._reader.catalog(loaded.tools, Path(workdir or os.getcwd())))
            if problems:
                raise PlanInvalid(problems)
            self._checked.add(plan.digest)
        if self._agents is not None and (strange := self._agents.strange_runtimes(plan)):
            raise UsageError("; ".join(strange))

    def _was_checked(self, plan: Plan) -> bool:
        try:
            return plan.digest in self._checked
        except ValueError:  # a value that JSON cannot hold, which the checks name
            return False

    async def check_programs(self, plan: Plan | LoadedPlan) -> None:
        """Raises `PlanInvalid` with every program of the plan that cannot be parsed."""
        loaded = LoadedPlan.of(plan)
        if self._sandbox is not None and not prepare(loaded.plan).tools.isdisjoint((AGENT, CODE, MERGE)):
            await refuse_unreadable(self._sandbox, loaded.plan, _report_of(loaded.source))

    async def prerequisites(
        self, plan: Plan | LoadedPlan, workdir: Path | str | None = None, *, anyway: bool = False
    ) -> list[str]:
        """Look for the programs and runtimes that a plan needs. Returns warnings; raises for missing ones (D5).

        With `anyway` that is a warning, too: the step will fail or fall back in its turn.
        """
        found = await self.find_prerequisites(plan, workdir)
        if not found.missing or anyway:
            return [*found.missing, *found.doubtful]
        listed = "\n".join(f"  - {line}" for line in found.missing)
        advice = (
            *found.advice,
            "see what is installed: windlass doctor",
            "start it all the same: `anyway` (windlass run --anyway)",
        )
        raise UsageError(f"this plan cannot run here, so nothing was started:\n{listed}", advice=advice)

    async def find_prerequisites(self, plan: Plan | LoadedPlan, workdir: Path | str | None = None) -> Prerequisites:
        """Look for the programs and runtimes that a plan needs; gives those that are missing."""
        loaded = LoadedPlan.of(plan)
        self.check(loaded, workdir)
        if not any(name in (AGENT, "shell") or name.startswith(_WITH_SECRETS) for name in prepare(loaded.plan).tools):
            return Prerequisites([], [], [])
        runners = self._agents.runners if self._agents is not None else {}
        folder = os.path.abspath(workdir or os.getcwd())
        env, policy = self._launcher.attempt_runner.env, self._launcher.policy
        return await asyncio.to_thread(find_missing, loaded.plan, folder, env, runners, policy)

    def missing_values(self, state: State, plan: Plan | None = None) -> list[str]:
        """Warnings of values that steps still to run have from variables which steps here do not have, and of the
        missing runtimes of those that may be left out.

        `plan` is the changed one, where the execution goes on with that.
        """
        chosen, env = plan or state.plan, self._launcher.attempt_runner.env
        left = [step for step in chosen.steps if step.id not in state.steps or not state.steps[step.id].settled]
        own = [(step, lack) for step in left for lack in _values_of(chosen, step, env)]
        runners = self._agents.runners if self._agents is not None else {}
        for step in left:
            begun = step.id in state.steps and state.steps[step.id].attempts
            if step.is_agent and step.may_be_left_out and not begun:
                lack = _runtime(chosen, step, runners, self._launcher.policy)
                own += [(step, lack)] if lack is not None else []
        return _shared_values(chosen, left, env) + [f"step {s.id}: {lack.message} ({lack.advice})" for s, lack in own]


def _report_of(source: Source) -> Report:
    """A report with places in the plan's file, which is read again where one is asked for."""
    if source.path is None:
        return Report("", None)
    file, digest = Path(source.path), source.digest or ""
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file

    @cache
    def find_places() -> Locate | None:
        return locate_in(file, digest)

    def locate(path: tuple[str | int, ...], inside: FilePosition | None = None) -> FilePosition | None:
        found = find_places()
        return found(path, inside) if found is not None else None

    return Report(str(shown), locate)


def _with_warnings(loaded: LoadedPlan, workdir: Path) -> LoadedPlan:
    """Add the warnings of misspelt names in `protect`. One with nothing like it is no finding yet: the folder in which
    a plan is read may be another than the one in which it will run."""
    return msgspec.structs.replace(
        loaded, warnings=(*loaded.warnings, *_unmatched(loaded.plan, workdir, misspelt=True))
    )


def _unmatched(plan: Plan, workdir: Path, *, misspelt: bool) -> list[str]:
    if not any(step.protect for step in plan.steps):
        return []
    from windlass.engine.agents.protected_names import unmatched_in  # most plans protect nothing

    return unmatched_in(plan, workdir, misspelt=misspelt)


_ONE_COMMAND = re.compile(r"\s*([\w./+-]+)(?:[ \t](?:\{\{[^{}]*\}\}|[^;&|()\n{}])*)?\n?\Z")
"""A line with one command, and no more: its name."""


_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_WITH_SECRETS = ("http.", "browser.")
"""Tools with an argument that names the variable of a secret."""


class Prerequisites(NamedTuple):
    missing: list[str]
    """Things without which a step is sure to fail."""
    doubtful: list[str]
    """The same for steps that may be left out, and for runtimes that another one replaces."""
    advice: list[str]


class _Lack(NamedTuple):
    message: str
    advice: str = ""
    may_work: bool = False
    """Another runtime takes over, or the command does without it."""
    variable: str = ""
    """The variable that has no value."""


def find_missing(
    plan: Plan, workdir: str, env: Mapping[str, str], runners: Mapping[str, Runner], policy: Policy
) -> Prerequisites:
    """Find missing programs and runtimes of a plan's steps."""
    missing: list[str] = []
    doubtful: list[str] = []
    advice: dict[str, None] = {}
    known: dict[str, bool] = {}
    doubtful += _shared_values(plan, plan.steps, env)
    doubtful += _unmatched(plan, Path(workdir), misspelt=False)
    for step in plan.steps:
        for lack in _of_step(plan, step, workdir, env, runners, policy, known):
            message = f"step {step.id}: {lack.message}"
            if lack.may_work or step.may_be_left_out:
                doubtful.append(f"{message} ({lack.advice})" if lack.advice else message)
            else:
                missing.append(message)
                advice |= {lack.advice: None} if lack.advice else {}
    return Prerequisites(missing, doubtful, list(advice))


def _shared_values(plan: Plan, steps: Sequence[Step], env: Mapping[str, str]) -> list[str]:
    """Values of the plan's `env` that these steps will lack."""
    if not any(step.tool_name == "shell" for step in steps):
        return []
    return [f"`env` of the plan: {lack.message} ({lack.advice})" for lack in _without_value(plan.env, env)]


def _of_step(
    plan: Plan,
    step: Step,
    workdir: str,
    env: Mapping[str, str],
    runners: Mapping[str, Runner],
    policy: Policy,
    known: dict[str, bool],
) -> Iterator[_Lack]:
    if step.is_agent:
        if (lack := _runtime(plan, step, runners, policy)) is not None:
            yield lack
    elif step.tool_name == "shell":
        for program in _programs(step):
            if program not in known:
                known[program] = _is_there(program, workdir, env)
            if not known[program]:
                where = "is not there" if "/" in program else "is not on PATH"
                yield _Lack(f"the program {program} {where}", f"install {program}")
        for name in _held_back(step, env):
            advice = f"{missing_variable(name, env).advice}; or set it in `env` of the step"
            yield _Lack(f"${name} is set here, but held back from steps", advice, may_work=True)
    yield from _values_of(plan, step, env)


def _values_of(plan: Plan, step: Step, env: Mapping[str, str]) -> Iterator[_Lack]:
    """Values that a step has from variables which steps here do not have, without those of the plan's `env`."""
    if step.tool_name == "shell":
        own = {name: value for name, value in _variables(step).items() if plan.env.get(name) != value}
        yield from _without_value(own, env)
    elif step.tool_name.startswith(_WITH_SECRETS):
        for argument in ("auth_env", "value_env"):
            source = step.arguments.get(argument)
            if isinstance(source, str) and "{" not in source and source not in env:
                missing = missing_variable(source, env)
                message = f"{argument}: the variable {source} {missing.reason}"
                yield _Lack(message, missing.advice, may_work=True, variable=source)


def _runtime(plan: Plan, step: Step, runners: Mapping[str, Runner], policy: Policy) -> _Lack | None:
    named = step.runtime or plan.runtime or policy.runtime
    health = _installed(runners, named)
    if health is None or health.ok:
        return None
    detail = f"{named} cannot be used: {health.detail}"
    allowed = next(one for one in (step.fallback, plan.fallback, policy.fallback) if one is not None)
    other = next_in_family(named, ()) if allowed else None
    instead = _installed(runners, other) if other is not None else None
    if instead is not None and instead.ok:
        return _Lack(f"{detail}; {other} is used instead", health.advice, may_work=True)
    return _Lack(detail, health.advice)


def _installed(runners: Mapping[str, Runner], name: str) -> Health | None:
    runner = runners.get(name)
    return hooks_of(runner).installed() if runner is not None else None


def _programs(step: Step) -> Iterator[str]:
    """Programs that the step is sure to start: of a list the first word, of a line with one command its name."""
    given = step.arguments
    if "PATH" in _variables(step) or "isolate" in given:
        return
    words, line, shell = given.get("argv"), given.get("line"), given.get("shell")
    if isinstance(words, list) and words and isinstance(words[0], str) and "{" not in words[0]:
        yield words[0]
    if not isinstance(line, str):
        return
    if isinstance(shell, str) and "{" not in shell:
        yield shell
    if found := _ONE_COMMAND.match(line):
        yield found[1]


def _variables(step: Step) -> Mapping[str, Any]:
    """The variables that a command is given."""
    given = step.arguments.get("env")
    return given if isinstance(given, Mapping) else {}


def _without_value(variables: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[_Lack]:
    """Variables that have their value from one that steps here do not have; another worker may have it."""
    for name, value in variables.items():
        source = value.get("from") if isinstance(value, Mapping) else None
        if isinstance(source, str) and "{" not in source and source not in env:
            missing = missing_variable(source, env)
            message = f"{name} has its value from ${source}, which {missing.reason}"
            yield _Lack(message, missing.advice, may_work=True, variable=source)


def value_sources(plan: Plan) -> list[str]:
    """The variables from which the steps of a plan have values."""
    env: dict[str, str] = {}
    lacks = [lack for step in plan.steps for lack in _values_of(plan, step, env)]
    if any(step.tool_name == "shell" for step in plan.steps):
        lacks += _without_value(plan.env, env)
    return list(dict.fromkeys(lack.variable for lack in lacks))


def _held_back(step: Step, env: Mapping[str, str]) -> Iterator[str]:
    """Variables of ours that the step's line reads, does not set, and does not get to see."""
    line, own = step.arguments.get("line"), _variables(step)
    if not isinstance(line, str):
        return
    for name in dict.fromkeys(_VARIABLE.findall(line)):
        ours = name in os.environ and name not in env and name not in own and not name.startswith("WINDLASS_")
        if ours and not re.search(rf"\b(?:{name}=|(?:for|read|export|local) [^;\n]*\b{name}\b)", line):
            yield name


def _is_there(program: str, workdir: str, env: Mapping[str, str]) -> bool:
    if "/" in program:  # an earlier step may make it, where it is one of the project's own
        place = os.path.normpath(os.path.join(workdir, program))
        return os.path.commonpath([place, workdir]) == workdir or os.path.exists(place)
    if shutil.which(program, path=env.get("PATH", os.defpath)) is not None:
        return True
    asked = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", program]  # it knows its own commands best
    return subprocess.run(asked, env=dict(env), capture_output=True, check=False, timeout=10).returncode == 0
