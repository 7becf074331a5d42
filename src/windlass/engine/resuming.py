"""Goes on with executions that are paused or were left by a dead process, after checking that they can (D5).

Every reason against it is found and told at once, so that nobody fixes one thing to run into the next.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.advice import no_outcome, ways_after
from windlass.core.state import State
from windlass.engine.agents.tool import AgentTool
from windlass.engine.drivers import Launcher, LocalDrivers
from windlass.engine.execution import Execution
from windlass.engine.inbox import checked_limit
from windlass.engine.lookup import find_step
from windlass.engine.observer import Observer
from windlass.engine.plans import Plans
from windlass.engine.requests import Requests, check_edits, persist
from windlass.engine.starting import Handle
from windlass.errors import CannotResume, UsageError
from windlass.plan.model import Plan
from windlass.ports import Ledger, Tool, Toolbox

__all__ = ["ResumeFindings", "Resumer", "changed_plan", "examine", "file_digest"]


class Resumer:
    """Resumes executions."""

    def __init__(
        self,
        drivers: LocalDrivers,
        observer: Observer,
        requests: Requests,
        plans: Plans,
        launcher: Launcher,
        handle: Handle,
        ledger: Ledger,
        agents: AgentTool | None,
    ) -> None:
        self._drivers = drivers
        self._observer = observer
        self._requests = requests
        self._plans = plans
        self._launcher = launcher
        self._handle = handle
        self._ledger = ledger
        self._agents = agents

    async def resume(
        self,
        execution: str,
        *,
        hold: bool = True,
        accept_changes: bool = False,
        keep_plan: bool = False,
        workdir: str | None = None,
        take_over: bool = False,
        decisions: Sequence[ev.DecisionMade] = (),
        budget: Sequence[ev.BudgetAnswered] = (),
    ) -> Execution:
        """Go on with a paused or orphaned execution, after checking that it can (D5).

        If its plan file or tools changed since, that is a reason against it: `accept_changes` goes on with
        the new ones, `keep_plan` with the plan as it was.
        """

        answers: list[ev.DecisionMade | ev.BudgetAnswered] = [*decisions, *budget]
        for limit in budget:
            checked_limit(limit.usd, limit.tokens)
        for answer in answers:
            _expect_readable(answer)

        async def ask() -> Execution:
            state = await self._at_rest(execution)
            since = state.seq
            if decisions or budget or accept_changes:
                await self._requests.refuse_attempts(state, "resume")
            self._check_free(state, take_over)
            tools, replanned, warnings = await self._ready(state, workdir, accept_changes, keep_plan)
            opening = [*replanned, self._launcher.opening(state, workdir)]
            opening += [*_checked_decisions(state, decisions), *budget]
            messages = [one for one in await self._drivers.journal.receive() if one.execution == state.id]
            task = await self._launcher.launch(state, opening, tools, hold=hold, messages=messages)
            return self._handle(state.id, since, task, warnings)

        return await persist(ask)

    async def _at_rest(self, execution: str) -> State:
        """Its state, while no driver here is about to change who drives it."""
        while True:
            await self._drivers.let_go(execution)
            state = await self._observer.state(execution)
            if not self._drivers.changing(state.id):
                return state
            execution = state.id  # it may have been a beginning of it

    async def check(self, execution: str) -> State:
        """Its state, if a resume could go on with it as it is; else every reason why not is raised (D5)."""
        state = await self._at_rest(execution)
        self._check_free(state, take_over=False)
        await self.check_state(state)
        return state

    async def check_redo(
        self,
        execution: str,
        asked: Sequence[dict[str, Any]],
        *,
        accept_changes: bool = False,
        keep_plan: bool = False,
        workdir: str | None = None,
        decisions: Iterable[str] = (),
    ) -> None:
        """Raise every reason why it could not go on after these requests; nothing is written.

        Each has a `kind`, retry or skip, a `step`, and for a retry perhaps `edits`, a `runtime` and a `model`.
        `decisions` are the steps whose unknown outcome is decided on as well.
        """
        state = await self._at_rest(execution)
        for step in decisions:
            _expect_unknown(state, step)
        driven = self._drivers.driven(state)
        if driven and accept_changes:
            raise UsageError(
                f"execution {state.id} is running: it cannot take up a changed plan now",
                advice=(f"pause it first: windlass pause {state.id}",),
            )
        tools = self._launcher.attempt_runner.tools
        for body in asked:
            found = find_step(state, body["step"])
            check_edits(found, body, tools)
            self._requests.expect_redo(state, found.id, body)
        if driven:
            return
        self._check_free(state, take_over=False)
        typed = [f"windlass {body['kind']} {state.id} {shlex.quote(body['step'])}" for body in asked[:1]]
        state.workdir = workdir or state.workdir
        await self.check_state(state, *typed, accept_changes=accept_changes, keep_plan=keep_plan)

    async def check_say(self, execution: str, told: ev.AgentTold, *, keep_plan: bool) -> None:
        """Raise the reasons why it could not go on with this message to an agent, unless it is running.

        A missing tool or runtime is none: the message is kept until there is one.
        """
        state = await self._observer.state(execution)
        if self._drivers.driven(state):
            return
        self._requests.expect_say(state, told)
        _tools, findings = await self._examined(state, state.workdir)
        changed = [] if keep_plan else findings.changed
        if reasons := [*findings.missing, *changed]:
            keep = f"windlass say {state.id} {shlex.quote(told.step)} TEXT --keep-plan"
            raise CannotResume(reasons, advice=(f"keep the plan as it was started: {keep}",) if changed else ())

    async def check_fork(self, fork: State, origin: str) -> None:
        """Raise every reason why a fork of `origin` could not be started; it keeps the plan that it was made with."""
        _tools, findings = await self._examined(fork, fork.workdir)
        if reasons := [*findings.missing, *findings.tools]:
            raise CannotResume(reasons, advice=(f"when that is corrected: windlass fork {origin}",))

    async def check_state(
        self, state: State, command: str = "", *, accept_changes: bool = False, keep_plan: bool = False
    ) -> None:
        """Raise `CannotResume` with every reason against going on from this state; `command` is what is asked for."""
        _tools, findings = await self._examined(state, state.workdir)
        if accept_changes and (file := changed_plan(state)):
            self._plans.read(file, state.workdir)
            findings.tools = []  # reading the plan has checked them
        if accept_changes or keep_plan:
            findings.changed = []
        if findings.reasons:
            raise CannotResume(findings.reasons, advice=findings.ways_out(state.id, command))

    async def _ready(
        self, state: State, workdir: str | None, accept_changes: bool, keep_plan: bool
    ) -> tuple[Sequence[Tool], list[ev.Event], list[str]]:
        """Load the tools that it needs, and its changed plan if that is accepted; with warnings.

        Raises `CannotResume`.
        """
        folder, file = workdir or state.workdir, state.source.path
        tools: Sequence[Tool]
        tools, findings = await self._examined(state, folder)
        if any(step.spec.is_agent for step in state.steps.values()):
            # Reservations that its last driver did not live to settle.
            await self._ledger.abandon(state.id, self._drivers.clock.now())
        replanned: list[ev.Event] = []
        plan: Plan | None = None
        if findings.changed and accept_changes and file is not None and os.path.exists(file):
            loaded = self._plans.read(file, folder)
            tools, findings.tools = loaded.tools, []  # reading the plan has checked them
            plan = loaded.plan
            raw = msgspec.Raw(loaded.plan.encoded)
            replanned.append(ev.ExecutionReplanned(self._drivers.clock.now(), raw, loaded.source))
        unaccepted = findings.changed and not (accept_changes or keep_plan)
        if findings.missing or findings.tools or unaccepted:
            raise CannotResume(findings.reasons, advice=findings.ways_out(state.id))
        return tools, replanned, self._plans.missing_values(state, plan)

    async def _examined(self, state: State, workdir: str) -> tuple[list[Tool], ResumeFindings]:
        """Load the tools that its plan brings, and find every reason against going on with it."""
        tools: list[Tool] = []
        unloadable: list[str] = []
        try:
            tools = self._plans.tools_of(state.source)
        except UsageError as error:
            unloadable = [error.message]
        known = self._launcher.attempt_runner.tools.extended(tools)
        findings = examine(state, known, workdir, self._launcher.environment)
        findings.tools += unloadable
        if self._agents is not None:
            findings.tools += await self._agents.missing(state)
            findings.changed += await self._agents.outdated(state)
        return tools, findings

    def _check_free(self, state: State, take_over: bool) -> None:
        if state.status.finished:
            raise UsageError(
                f"execution {state.id} is {state.status}; there is nothing to resume",
                advice=ways_after(state, changed_plan(state)),
            )
        if state.id in self._drivers and not take_over:
            raise UsageError(
                f"execution {state.id} is running already", advice=(f"follow it: windlass watch {state.id}",)
            )
        if self._drivers.driven(state) and not take_over:
            raise UsageError(
                f"execution {state.id} is running in another process (driver {state.driver})",
                advice=(
                    f"follow it: windlass watch {state.id}",
                    f"if that process hangs: windlass resume {state.id} --take-over",
                ),
            )


def _checked_decisions(state: State, decisions: Sequence[ev.DecisionMade]) -> Sequence[ev.DecisionMade]:
    for decision in decisions:
        _expect_unknown(state, decision.step)
    return decisions


def _expect_readable(answer: ev.DecisionMade | ev.BudgetAnswered) -> None:
    """Refuse an answer that could not be read again: in Python, an event may hold anything."""
    try:
        ev.decode(ev.encode(answer))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this answer cannot be kept: {error}") from error


def _expect_unknown(state: State, step: str) -> None:
    if find_step(state, step).waiting_for != "outcome":
        raise no_outcome(state, step)


class ResumeFindings(msgspec.Struct):
    """Reasons against a resume."""

    changed: list[str] = msgspec.field(default_factory=list)
    """Things that differ from when it last ran: a person may accept them."""
    missing: list[str] = msgspec.field(default_factory=list)
    """Things without which it cannot run."""
    tools: list[str] = msgspec.field(default_factory=list)
    """Tools without which it cannot run, unless a changed plan does without them."""
    plan: str = ""
    """The plan's file, where it has changed."""

    @property
    def reasons(self) -> list[str]:
        return [*self.missing, *self.tools, *self.changed]

    def ways_out(self, execution: str, command: str = "") -> list[str]:
        """Commands with which a person can get past them; `command` is the refused one, if it is not `resume`."""
        command = command or f"windlass resume {execution}"
        ways = []
        if self.changed:
            ways.append(f"accept the changes: {command} --accept-changes")
            ways.append(f"keep the plan as it was started: {command} --keep-plan")
        edited = f" --plan {shlex.quote(self.plan)}" if self.plan else ""
        ways.append(f"start a new execution, keeping completed steps: windlass fork {execution}{edited}")
        return ways


def examine(state: State, tools: Toolbox, workdir: str, environment: Mapping[str, str]) -> ResumeFindings:
    findings = ResumeFindings()
    _examine_plan(state, findings)
    _examine_environment(state, environment, findings)
    if not Path(workdir).is_dir():
        findings.missing.append(f"its working directory {workdir} does not exist (`workdir` names another)")
    wanted = {s.spec.tool_name: s.id for s in state.top_level() if not s.settled}
    for name, step in wanted.items():
        if tools.get(name) is None:
            near = tools.nearest(name)
            hint = f"; did you mean {near!r}?" if near else ""
            findings.tools.append(f"step {step} needs the tool {name!r}, which does not exist here{hint}")
    return findings


def _examine_environment(state: State, now: Mapping[str, str], findings: ResumeFindings) -> None:
    """Only versions that something unfinished rests on."""
    before = {name: version for name, version in state.environment.items() if now.get(name, version) != version}
    left = [step for step in state.steps.values() if not step.settled]
    begun = next((step.id for step in left if step.programs is not None), None)
    if "quickjs" in before and begun is not None:
        change = f"QuickJS {before['quickjs']}, and this is {now['quickjs']}"
        findings.changed.append(f"the program of step {begun} started on {change}: it may make other calls")
    if "python" in before and state.source.tools and left:
        findings.changed.append(f"its Python tools ran on Python {before['python']}, and this is {now['python']}")


def _examine_plan(state: State, findings: ResumeFindings) -> None:
    source = state.source
    if file := changed_plan(state):
        findings.plan = file
        findings.changed.append(f"the plan {file} has changed since")
    for path, digest in source.tools.items():
        now = file_digest(Path(path))
        if now is None:
            findings.tools.append(f"the tool file {path} is missing")
        elif now != digest:
            findings.changed.append(f"the tools in {path} have changed since")


def changed_plan(state: State) -> str:
    """The plan's file, where it has changed since the execution last read it; else empty."""
    source = state.source
    if source.path is None or source.digest is None:
        return ""
    return source.path if file_digest(Path(source.path)) not in (None, source.digest) else ""


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file, or None when it cannot be read. A pipe has nothing more to read: its plan was in it once."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None
