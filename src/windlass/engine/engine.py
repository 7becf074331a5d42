"""The facade: everything a surface (CLI, Python, later HTTP and MCP) can ask of executions.

An `Engine` belongs to one home. It drives the executions that were started or resumed through it, as tasks of
the running event loop, and reaches those of other processes through the journal's inbox. It decides nothing:
rules are in `core`, reasons against a resume in `recovery`, look-ups in `lookup`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.advice import no_outcome, ways_after
from windlass.core.decide import Policy
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import ExecutionStatus
from windlass.engine.agents.tool import AgentTool
from windlass.engine.checkpoints import CheckpointWriter
from windlass.engine.code.reading import refuse_unreadable
from windlass.engine.control import Control
from windlass.engine.crew import Crew
from windlass.engine.driver import Driver, World, head_of
from windlass.engine.execution import Execution
from windlass.engine.fork import fork_events
from windlass.engine.lookup import find_plan_step, find_step
from windlass.engine.mail import checked_limit
from windlass.engine.perform import Performer
from windlass.engine.prerequisites import find_missing
from windlass.engine.recovery import Findings, environment_of, examine
from windlass.engine.redo import check_edits
from windlass.engine.sourced import Sourced
from windlass.engine.undoing import take_back
from windlass.errors import CannotResume, Damaged, PlanInvalid, UsageError, WindlassError
from windlass.ids import new_id
from windlass.plan.check import ToolCatalog
from windlass.plan.load import bind_inputs, check_plan
from windlass.plan.model import Plan
from windlass.ports import Archive, Charge, Head, Health, Journal, Ledger, Sandbox, Shelf, Tool
from windlass.settings import Settings

__all__ = ["Engine"]

_log = logging.getLogger("windlass.engine")

REMOVED_TOGETHER = 500
"""Executions that are removed in one commit: more would keep others from writing for too long."""
QUICKLY_RECLAIMED = 256 * 1024 * 1024
"""Bytes in use up to which the journal's file is written anew while executions are running."""


class ToolHealth(Protocol):
    """The tools that come with the engine, as far as they have a health or have to be closed."""

    def __contains__(self, name: object) -> bool: ...

    def problems(self) -> list[str]: ...

    async def check(self) -> dict[str, Health]: ...

    async def close(self) -> None: ...


class Workshop(Protocol):
    """Where plans are read from files, and the tools that they bring are loaded."""

    def read(self, path: Path, workdir: Path) -> Sourced: ...

    def parse(self, text: str, name: str, workdir: Path) -> Sourced: ...

    def catalog(self, tools: Iterable[Tool], workdir: Path) -> ToolCatalog: ...

    def of_source(self, source: ev.Source) -> list[Tool]: ...


class Engine(Control):
    """Starts, drives, watches and controls the executions of one home."""

    def __init__(
        self,
        journal: Journal,
        performer: Performer,
        clock: Clock,
        *,
        home: Path,
        workshop: Workshop,
        archive: Archive,
        ledger: Ledger,
        agents: AgentTool | None = None,
        sandbox: Sandbox | None = None,
        shelf: Shelf | None = None,
        built_in: ToolHealth | None = None,
        settings: Settings | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(journal, clock)
        self.home = home
        self.ledger = ledger
        self.agents = agents
        self.sandbox = sandbox
        self.shelf = shelf
        """The composed tools."""
        self.built_in = built_in
        """The tools that come with the engine."""
        if agents is not None:
            agents.bury = self.bury_the_dead
        self.settings = settings or Settings()
        self._checkpoints = CheckpointWriter(journal, archive, clock, self._drives)
        self._workshop = workshop
        self.performer = performer
        self._world = World(journal, clock, policy or Policy(), self._committed)
        self._crew = Crew(journal, clock, lambda: self.driver, self._stands_still)
        self._checked: set[str] = set()
        """Digests of plans built in Python that were found good."""
        self.label = ""
        """Part of the driver's name: what a server drove, the next server knows by it."""

    @property
    def checkpoint_failures(self) -> Mapping[str, str]:
        """Executions whose automatic checkpoint could not be written, with the reason."""
        return self._checkpoints.failures

    @cached_property
    def driver(self) -> str:
        """The name under which this engine drives. Who only looks never needs one."""
        return self.journal.enlist(self.label)

    def _alive(self, driver: str, execution: str) -> bool:
        # This process lives, but that does not mean that it still drives what it once did.
        return execution in self._crew if driver == self.driver else super()._alive(driver, execution)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, reason: str = "") -> None:
        """Interrupt what runs here and let go of everything. What is unfinished can be resumed.

        `reason` is what it then stands still for, when that is not an interruption: `restart`.
        """
        await self._crew.close(reason)
        await self._checkpoints.close()
        if self.agents is not None:
            await self.agents.close()
        for part in (self.sandbox, self.built_in, self.performer.tools):
            if part is not None:
                await part.close()
        await self.performer.processes.close()
        self.performer.gates.close()
        await self.ledger.close()
        await self.journal.close()

    # -- starting and going on -------------------------------------------------------------------

    def read(self, path: Path | str, workdir: Path | str | None = None) -> Sourced:
        """A plan file, checked whole. Raises `PlanInvalid` with every problem in it.

        Roles and skills of its agents are looked for in `workdir`.
        """
        return self._workshop.read(Path(path), Path(workdir or os.getcwd()))

    async def look_at_programs(self, plan: Plan) -> None:
        """Raises `PlanInvalid` with every program of the plan that cannot be read as one."""
        if self.sandbox is not None and any(step.is_code for step in plan.steps):
            await refuse_unreadable(self.sandbox, plan)

    async def prerequisites(
        self, plan: Plan | Sourced, workdir: Path | str | None = None, *, anyway: bool = False
    ) -> list[str]:
        """Look for the programs and runtimes that a plan needs. Returns warnings; raises what is missing (D5).

        With `anyway` that is a warning, too: the step will fail or fall back in its turn.
        """
        sourced = Sourced.of(plan)
        self._check(sourced, workdir)
        if not any(step.is_agent or step.tool_name == "shell" for step in sourced.plan.steps):
            return []
        runners = self.agents.runners if self.agents is not None else {}
        folder = os.path.abspath(workdir or os.getcwd())
        env, policy = self.performer.env, self._world.policy
        found = await asyncio.to_thread(find_missing, sourced.plan, folder, env, runners, policy)
        if not found.missing or anyway:
            return [*found.missing, *found.doubtful]
        listed = "\n".join(f"  - {line}" for line in found.missing)
        advice = (*found.advice, "see what is installed: windlass doctor", "start it all the same: --anyway")
        raise UsageError(f"this plan cannot run here as it is, so nothing was started:\n{listed}", advice=advice)

    def parse(self, text: str, workdir: Path | str | None = None, *, name: str = "<text>") -> Sourced:
        """A plan as text, checked as a file is. A `name` that ends in .json makes it JSON."""
        sourced = self._workshop.parse(text, name, Path(workdir or os.getcwd()))
        self._checked.add(sourced.plan.digest)
        return sourced

    async def create(
        self,
        plan: Plan | Sourced,
        inputs: Mapping[str, Any] | None = None,
        *,
        workdir: Path | str | None = None,
        on_overrun: Literal["", "ask", "proceed"] = "",
        anyway: bool = False,
    ) -> str:
        """Write a new execution down without driving it; `resume` starts it, in any process."""
        sourced = Sourced.of(plan)
        created = self._created(sourced, inputs, workdir, on_overrun, None)
        await self.prerequisites(sourced, workdir, anyway=anyway)
        await self.look_at_programs(sourced.plan)
        state = fold([created], sourced.plan)
        await self.journal.append(created.id, 0, [created], head=head_of(state))
        return created.id

    async def start(
        self,
        plan: Plan | Sourced | Path | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        workdir: Path | str | None = None,
        hold: bool = True,
        on_overrun: Literal["", "ask", "proceed"] = "",
        anyway: bool = False,
        id: str | None = None,
    ) -> Execution:
        """Start a plan. Returns when the start is on disk; the execution goes on in the background.

        With `hold`, it stays while only a person can go on; without, it is then paused. `on_overrun` says for this
        execution alone what happens at a limit of the budget. A program or runtime that is missing is refused, unless
        it is to start `anyway`. `id` is one of `new_id` that was kept for it: there
        can be only one execution of an id, whoever asks how often.
        """
        sourced = self.read(plan, workdir) if isinstance(plan, Path | str) else Sourced.of(plan)
        created = self._created(sourced, inputs, workdir, on_overrun, id)
        await self.prerequisites(sourced, workdir, anyway=anyway)
        await self.look_at_programs(sourced.plan)
        state = fold([created], sourced.plan)
        driver = self._driver(state, sourced.tools, hold=hold, created=created)
        task = await self._crew.drive(driver, [self._opening(state)])
        return Execution(self, created.id, task=task)

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
        return await self._persist(
            lambda: self._resume(
                execution,
                hold=hold,
                accept_changes=accept_changes,
                keep_plan=keep_plan,
                workdir=workdir,
                take_over=take_over,
                decisions=decisions,
                budget=budget,
            )
        )

    async def _resume(
        self,
        execution: str,
        *,
        hold: bool,
        accept_changes: bool,
        keep_plan: bool,
        workdir: str | None,
        take_over: bool,
        decisions: Sequence[ev.DecisionMade],
        budget: Sequence[ev.BudgetAnswered],
    ) -> Execution:
        state = await self.state(execution)
        since = state.seq
        if decisions or budget or accept_changes:
            await self._from_a_person(state, "resume")
        self._check_free(state, take_over)
        tools, findings = await self._examined(state, workdir or state.workdir)
        if any(step.spec.is_agent for step in state.steps.values()):
            await self.ledger.abandon(state.id, self.clock.now())  # what its last driver did not live to settle
        opening: list[ev.Event] = []
        file = state.source.path
        if findings.changed and accept_changes and file is not None and os.path.exists(file):
            sourced = self.read(file, workdir or state.workdir)
            tools, findings.tools = list(sourced.tools), []  # what it needs was checked with it
            raw = msgspec.Raw(sourced.plan.encoded)
            opening.append(ev.ExecutionReplanned(self.clock.now(), raw, sourced.source))
        unaccepted = findings.changed and not (accept_changes or keep_plan)
        if findings.missing or findings.tools or unaccepted:
            raise CannotResume(findings.reasons, advice=findings.ways_out(state.id))
        opening.append(self._opening(state, workdir))
        opening += [*self._answers(state, decisions), *budget]
        for answer in budget:
            checked_limit(answer.usd, answer.tokens)
        waiting = [m for m in await self.journal.receive() if m.execution == state.id]
        driver = self._driver(state, tools, hold=hold)
        for message in waiting:
            driver.catch_up(message)
        task = await self._crew.drive(driver, opening)
        return Execution(self, state.id, since, task)

    async def check(self, execution: str) -> State:
        """Its state, if a resume could go on with it as it is; else every reason why not is raised (D5)."""
        state = await self.state(execution)
        self._check_free(state, take_over=False)
        _tools, findings = await self._examined(state, state.workdir)
        if findings.reasons:
            raise CannotResume(findings.reasons, advice=findings.ways_out(state.id))
        return state

    async def fork(
        self,
        execution: str,
        *,
        from_step: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        plan: Plan | Sourced | None = None,
        id: str | None = None,
    ) -> str:
        """Make a new execution that keeps what this one completed before `from_step`. `id` is as for `start`."""
        origin = await self.state(execution)
        sourced = Sourced(origin.plan, origin.source) if plan is None else Sourced.of(plan)
        chosen = sourced.plan
        if from_step is not None:
            from_step = find_plan_step(chosen, from_step)
        known = {name: value for name, value in origin.inputs.items() if name in chosen.inputs}
        events = fork_events(
            origin,
            new_id=id or new_id(),
            now=self.clock.now(),
            plan=chosen,
            source=sourced.source,
            inputs=bind_inputs(chosen, {**known, **(inputs or {})}),
            workdir=origin.workdir,
            from_step=from_step,
        )
        state = fold(events, chosen)
        await self.journal.append(state.id, 0, events, head=head_of(state))
        return state.id

    async def checkpoint(self, execution: str) -> Path:
        """Write a portable file of the execution as it stands; any time, whoever drives it."""
        head = await self.find(execution)
        return await self._checkpoints.write(head.id)

    async def restore(self, path: Path | str) -> str:
        """Bring an execution in from a checkpoint file, perhaps of another machine."""
        events = self._checkpoints.read(Path(path))
        state = fold(events)
        known = await self.journal.heads(prefix=state.id)
        if known:
            await self._make_room(known[0])
        questions = changes_of({}, open_questions(state))
        await self.journal.append(state.id, 0, events, head=head_of(state), questions=questions)
        await self._take_over_charges(state, events)
        return state.id

    async def _make_room(self, head: Head) -> None:
        """Remove an execution that is to be restored. Only a damaged one gives way."""
        try:
            await self.record(head.id)
        except Damaged as damage:
            if self.driven(head):
                raise UsageError(f"execution {head.id} is running", advice=(f"windlass cancel {head.id}",)) from damage
            await self.journal.remove(head.id)
            self.damaged.pop(head.id, None)
            return
        raise UsageError(
            f"execution {head.id} is here already ({head.status})",
            advice=(f"see how it stands: windlass status {head.id}",),
        )

    async def _take_over_charges(self, state: State, events: Sequence[ev.Event]) -> None:
        """What it spent on another machine counts here, too: its own limit goes on where it was."""
        for event in events:
            if isinstance(event, ev.UsageReported):
                model = event.usage.model
                charge = Charge(state.id, event.step, event.attempt, event.runtime, model, event.role)
                await self.ledger.settle(charge, event.at, event.usage)

    async def forget(self, *executions: str | Head) -> int:
        """Remove executions and their files for good; one that is being driven is refused.

        Returns the bytes that the journal's file gave back.
        """
        heads = [found if isinstance(found, Head) else await self.find(found) for found in executions]
        for head in heads:
            if self.driven(head):
                raise UsageError(f"execution {head.id} is running", advice=(f"windlass cancel {head.id}",))
        for first in range(0, len(heads), REMOVED_TOGETHER):
            ids = [head.id for head in heads[first : first + REMOVED_TOGETHER]]
            await self.journal.remove(*ids)
            for removed in ids:
                self._checkpoints.forget(removed)
                self.damaged.pop(removed, None)
        running = await self.journal.heads(statuses=[ExecutionStatus.RUNNING])
        return await self.journal.reclaim(QUICKLY_RECLAIMED if any(map(self.driven, running)) else None)

    async def undo(self, execution: str, step: str, *, by: str = "") -> list[dict[str, str]]:
        """Take back what a finished step changed in files: what was put back, newest first (H2).

        Refused while somebody drives the execution, and where a file was changed since: then nothing is touched.
        """
        return await self._persist(lambda: self._undo(execution, step, by))

    async def _undo(self, execution: str, step: str, by: str) -> list[dict[str, str]]:
        state = await self.state(execution)
        event = await take_back(
            state,
            find_step(state, step),
            driven=self.driven(state),
            tools=self.performer.tools,
            folder=self.performer.folder / state.id,
            now=self.clock.now(),
            by=by,
        )
        await self.journal.append(state.id, state.seq, [event])
        return event.changes

    async def sweep(self) -> list[tuple[str, str]]:
        """Deal with executions that were paused for too long: cancel them, or name those to resume (D3)."""
        dealt: list[tuple[str, str]] = []
        now = self.clock.now()
        for head in await self.journal.heads(statuses=[ExecutionStatus.PAUSED]):
            if head.expires_at is None or head.expires_at > now:
                continue
            try:
                state = await self.state(head.id)
                if state.on_expiry == "cancel":
                    await self.cancel(head.id, by="paused for too long")
            except WindlassError as error:  # the others are dealt with all the same
                _log.warning("%s was paused for too long and cannot be dealt with: %s", head.id, error.message)
            else:
                dealt.append((head.id, state.on_expiry))
        return dealt

    async def wait(self, execution: str) -> State:
        """Its state once it has finished or stands still."""
        task = self._crew.task(execution)
        if task is None:
            execution = (await self.find(execution)).id
            task = self._crew.task(execution)
        if task is not None:
            return await asyncio.shield(task)
        async for _entry in self.follow(execution):
            """Until it stands still."""
        return await self.state(execution)

    async def bury_the_dead(self) -> None:
        """What executions of dead processes have set aside counts as spent, and nobody waits for it."""
        for row in await self.ledger.spent("execution"):
            if row.reserved_usd or row.reserved_tokens:
                heads = await self.journal.heads(prefix=row.heading)
                if not heads or not self.driven(heads[0]):
                    await self.ledger.abandon(row.heading, self.clock.now())

    # -- inside ----------------------------------------------------------------------------------

    def _check(self, sourced: Sourced, workdir: Path | str | None) -> None:
        """Refuse a plan with problems of its own; one from a file was checked when it was read."""
        plan = sourced.plan
        if sourced.source.path is None and plan.digest not in self._checked:
            problems = check_plan(plan, self._workshop.catalog(sourced.tools, Path(workdir or os.getcwd())))
            if problems:
                raise PlanInvalid(problems)
            self._checked.add(plan.digest)
        if self.agents is not None and (strange := self.agents.strange_runtimes(plan)):
            raise UsageError("; ".join(strange))

    def _created(
        self,
        sourced: Sourced,
        inputs: Mapping[str, Any] | None,
        workdir: Path | str | None,
        on_overrun: Literal["", "ask", "proceed"],
        id: str | None,
    ) -> ev.ExecutionCreated:
        self._check(sourced, workdir)
        plan = sourced.plan
        folder = os.path.abspath(workdir or os.getcwd())
        if not os.path.isdir(folder):
            raise UsageError(f"the working directory {folder} does not exist")
        if not _utf8(folder):
            raise UsageError(f"the name of the working directory {folder!r} is not UTF-8, so it cannot be kept")
        return ev.ExecutionCreated(
            self.clock.now(),
            id=id or new_id(),
            plan=msgspec.Raw(plan.encoded),
            inputs=bind_inputs(plan, inputs or {}),
            workdir=folder,
            source=sourced.source,
            on_overrun=on_overrun,
            environment=environment_of(self.sandbox),
        )

    def _driver(
        self,
        state: State,
        tools: Sequence[Tool],
        *,
        hold: bool,
        created: ev.ExecutionCreated | None = None,
    ) -> Driver:
        if self.agents is not None:
            self.agents.prepare(state)
        performer = self.performer
        if tools:
            performer = replace(performer, tools=performer.tools.extended(tools))
        return Driver(state, self._world, performer, hold=hold, created=created)

    def _opening(self, state: State, workdir: str | None = None) -> ev.Event:
        now = self.clock.now()
        if state.status is ExecutionStatus.PENDING and workdir is None:
            return ev.ExecutionStarted(now, self.driver)
        here = environment_of(self.sandbox)
        return ev.ExecutionResumed(now, self.driver, workdir, here if here != state.environment else {})

    async def _examined(self, state: State, workdir: str) -> tuple[list[Tool], Findings]:
        """The tools that its plan brings, and what stands against going on with it."""
        tools: list[Tool] = []
        unloadable: list[str] = []
        try:
            tools = self._workshop.of_source(state.source)
        except UsageError as error:
            unloadable = [error.message]
        findings = examine(state, self.performer.tools.extended(tools), workdir, environment_of(self.sandbox))
        findings.tools += unloadable
        if self.agents is not None:
            findings.tools += await self.agents.missing(state)
            findings.changed += await self.agents.outdated(state)
        return tools, findings

    def _check_free(self, state: State, take_over: bool) -> None:
        if state.status.finished:
            raise UsageError(
                f"execution {state.id} is {state.status}; there is nothing to resume", advice=ways_after(state)
            )
        if self.driven(state) and not take_over:
            raise UsageError(
                f"execution {state.id} is running in another process (driver {state.driver})",
                advice=(
                    f"follow it: windlass watch {state.id}",
                    f"if that process hangs: windlass resume {state.id} --take-over",
                ),
            )

    def _answers(self, state: State, decisions: Sequence[ev.DecisionMade]) -> list[ev.Event]:
        for decision in decisions:
            if find_step(state, decision.step).waiting_for != "outcome":
                raise no_outcome(state, decision.step)
        return list(decisions)

    def _drives(self, execution: str | None) -> bool:
        return len(self._crew) > 0 if execution is None else execution in self._crew

    def _check_edits(
        self, state: State, step: StepState, edits: Mapping[str, Any], runtime: str | None, model: str | None
    ) -> dict[str, Any]:
        if runtime is not None and self.agents is not None and (strange := self.agents.validate({"runtime": runtime})):
            raise UsageError("; ".join(strange))
        return check_edits(step, edits, runtime, model, self.performer.tools)

    def _stands_still(self, execution: str, good: bool) -> None:
        self._tell(execution)
        if good and self.settings.checkpoints != "off":
            self._checkpoints.later(execution)

    def _committed(self, execution: str, events: Sequence[ev.Event], seq: int) -> None:
        if self._listeners:
            self._tell(execution)
        for heard in self._watchers:
            heard(execution)
        for teller in self._tellers:
            teller(execution, events)
        if self.settings.checkpoints == "step":
            self._checkpoints.add(execution, events, seq)


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
