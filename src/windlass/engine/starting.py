"""Makes new executions: of a plan, or as a fork of an earlier one that keeps its completed steps (D8)."""

from __future__ import annotations

import os
from asyncio import Task
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, get_args

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.scope import scope_of
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import StepStatus
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import Launcher
from windlass.engine.execution import Execution
from windlass.engine.lookup import find_plan_step
from windlass.engine.observer import Observer
from windlass.engine.plans import LoadedPlan, Plans
from windlass.errors import UsageError
from windlass.ids import is_id, new_id
from windlass.plan.load import bind_inputs
from windlass.plan.model import Plan
from windlass.plan.prepare import prepare
from windlass.plan.template import TemplateProblem
from windlass.ports import Journal

__all__ = ["Handle", "Starter", "check_workdir", "fork_events"]

Handle = Callable[[str, int, Task[State] | None, Sequence[str]], Execution]
"""Makes the handle of an execution that goes on: its id, the sequence it had reached, the task here that drives it."""


class Starter:
    """Starts executions."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        plans: Plans,
        observer: Observer,
        launcher: Launcher,
        handle: Handle,
        check_fork: Callable[[State, str], Awaitable[None]],
        caller: Callable[[], str] | None = None,
    ) -> None:
        """`check_fork` raises why a fork of an execution could not go on.

        `caller` gives the span of the program that starts an execution, for its trace.
        """
        self._journal = journal
        self._clock = clock
        self._plans = plans
        self._observer = observer
        self._launcher = launcher
        self._handle = handle
        self._check_fork = check_fork
        self._caller = caller

    async def create(
        self,
        plan: Plan | LoadedPlan,
        inputs: Mapping[str, Any] | None = None,
        *,
        workdir: Path | str | None = None,
        on_overrun: ev.OnOverrun = "",
        anyway: bool = False,
        id: str | None = None,
        to_start: bool = False,
    ) -> str:
        """Write a new execution down without driving it; `resume` starts it, in any process. `id` is as for `start`.

        With `to_start`, the caller has it started at once: if nothing drives it, it was cut off.
        """
        loaded = LoadedPlan.of(plan)
        created, _warnings = await self._created(loaded, inputs, workdir, on_overrun, anyway, id, to_start)
        state = fold([created], loaded.plan)
        self._launcher.check(state)
        await self._journal.append(created.id, 0, [created], head=head_of(state))
        return created.id

    async def start(
        self,
        plan: Plan | LoadedPlan | Path | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        workdir: Path | str | None = None,
        hold: bool = True,
        on_overrun: ev.OnOverrun = "",
        anyway: bool = False,
        id: str | None = None,
    ) -> Execution:
        """Start a plan. Returns when the start is on disk; the execution goes on in the background.

        With `hold`, it stays while only a person can go on; without, it is then paused. `on_overrun` is its
        choice at a limit of the budget. A missing program or runtime is refused, unless `anyway`. `id` is one of
        `new_id` that was kept for it: a second start with the same id makes no second execution.
        """
        loaded = self._plans.read(plan, workdir) if isinstance(plan, Path | str) else LoadedPlan.of(plan)
        created, warnings = await self._created(loaded, inputs, workdir, on_overrun, anyway, id, True)
        state = fold([created], loaded.plan)
        opening = [self._launcher.opening(state)]
        task = await self._launcher.launch(state, opening, loaded.tools, hold=hold, created=created)
        return self._handle(created.id, 0, task, warnings)

    async def fork(
        self,
        execution: str,
        *,
        from_step: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        plan: Plan | LoadedPlan | None = None,
        fresh: bool = False,
        message: ev.AgentTold | None = None,
        id: str | None = None,
        to_start: bool = False,
    ) -> str:
        """Make a new execution that keeps this one's steps completed before `from_step`. `id` is as for `start`.

        An agent at `from_step` goes on in a copy of its conversation, unless `fresh`; with a `message`, it goes on
        with that. `to_start` is as for `create`, and none is made where `resume` could not start it.
        """
        origin = await self._observer.state(execution)
        loaded = LoadedPlan(origin.plan, origin.source) if plan is None else LoadedPlan.of(plan)
        chosen = loaded.plan
        if from_step is not None:
            from_step = find_plan_step(chosen, from_step)
            if fresh and not chosen.by_id[from_step].is_agent:
                raise UsageError(
                    f"step {from_step} has no agent, so it has no conversation to begin anew: leave out `fresh`"
                )
        elif fresh:
            raise UsageError("`fresh` is about the agent of one step, from which the fork begins: name that step, too")
        known = {name: value for name, value in origin.inputs.items() if name in chosen.inputs}
        events = fork_events(
            origin,
            new_id=_checked_id(id),
            now=self._clock.now(),
            plan=chosen,
            source=loaded.source,
            inputs=bind_inputs(chosen, {**known, **(inputs or {})}),
            workdir=origin.workdir,
            from_step=from_step,
            fresh=fresh,
            message=message,
            to_start=to_start,
        )
        state = fold(events, chosen)
        self._launcher.check(state)
        if to_start:
            await self._check_fork(state, origin.id)
        await self._journal.append(state.id, 0, events, head=head_of(state))
        return state.id

    async def _created(
        self,
        loaded: LoadedPlan,
        inputs: Mapping[str, Any] | None,
        workdir: Path | str | None,
        on_overrun: ev.OnOverrun,
        anyway: bool,
        id: str | None,
        to_start: bool,
    ) -> tuple[ev.ExecutionCreated, list[str]]:
        """Make the first event of an execution, after every check that its plan has to pass; with warnings."""
        plan, folder = loaded.plan, os.path.abspath(workdir) if workdir else os.getcwd()
        if on_overrun not in get_args(ev.OnOverrun):
            raise UsageError(f"`on_overrun` is `ask` or `proceed`, or empty for the settings; given is {on_overrun!r}")
        check_workdir(folder)
        warnings = [*loaded.warnings, *await self._plans.prerequisites(loaded, workdir, anyway=anyway)]
        await self._plans.check_programs(loaded)
        bound = bind_inputs(prepare(plan).plan, inputs or {})  # the caller may change the lists in its own plan later
        created = ev.ExecutionCreated(
            self._clock.now(),
            id=_checked_id(id),
            plan=msgspec.Raw(plan.encoded),
            inputs=bound,
            workdir=folder,
            source=loaded.source,
            on_overrun=on_overrun,
            environment=self._launcher.environment,
            traceparent=self._caller() if self._caller is not None else "",
            start=to_start,
        )
        return created, warnings


def _checked_id(id: str | None) -> str:
    """The id that was kept for an execution, or a new one."""
    if id and not is_id(id):
        raise UsageError(f"{id[:80]!r} is not an id of an execution: it is a UUID, such as {new_id()}")
    return id or new_id()


def check_workdir(folder: str) -> None:
    """Refuse a folder in which no execution can work."""
    if not os.path.isdir(folder):
        raise UsageError(f"the working directory {folder} does not exist")
    if not _utf8(folder):
        raise UsageError(f"the name of the working directory {folder!r} is not UTF-8, so it cannot be stored")


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fork_events(
    origin: State,
    *,
    new_id: str,
    now: float,
    plan: Plan,
    source: ev.Source,
    inputs: Mapping[str, Any],
    workdir: str,
    from_step: str | None,
    fresh: bool,
    message: ev.AgentTold | None,
    to_start: bool,
) -> list[ev.Event]:
    """The journal that the fork begins with.

    Without `from_step`, everything completed is kept and the rest runs again. With it, that step and its
    dependents run again, and all other completed steps are kept. Services that the rest needs start again.
    """
    graph = prepare(plan).graph
    again: set[str] = set()
    if from_step is not None:
        again = {from_step, *graph.descendants(from_step)}
    events: list[ev.Event] = [
        ev.ExecutionCreated(
            now,
            id=new_id,
            plan=msgspec.Raw(plan.encoded),
            inputs=dict(inputs),
            workdir=workdir,
            source=source,
            origin=ev.Origin("fork", origin.id, from_step),
            on_overrun=origin.on_overrun,
            start=to_start,
        )
    ]
    fork = fold(events, plan)
    kept: set[str] = set()
    for step_id in graph.order:
        before = origin.steps.get(step_id)
        # Something that is to run again must not have a kept result built upon it.
        built_on = all(need in kept for need in graph.needs[step_id])
        if before is None or step_id in again or not built_on:
            continue
        more: list[ev.Event] = []
        if _done(before):
            kept.add(step_id)
            more = _kept_step(before, now, origin.id)
        elif before.children is not None:
            more = _kept_items(fork, fork.steps[step_id], before.children, now, origin.id)
        for event in more:
            fork.apply(event)
        events += more
    if started := _needed_services(fork, kept):
        events = [event for event in events if not (isinstance(event, ev.StepCompleted) and event.step in started)]
    if from_step is not None and not fresh and fork.steps[from_step].spec.is_agent and from_step in origin.steps:
        step, before = fork.steps[from_step], origin.steps[from_step]
        if step.spec.foreach is None:
            events += _conversation(origin, fork, before, now, message)
        elif before.children is not None and all(need in kept for need in graph.needs[from_step]):
            events += _conversations(origin, fork, step, before.children, now, message)
    if message is None:
        return events
    if message.step not in fork.steps:
        raise UsageError(
            f"{message.step} of {origin.id} cannot go on in a fork: steps before it have to run again",
            advice=(f"run them again in a new execution: windlass fork {origin.id}",),
        )
    return [*events, message]


def _needed_services(fork: State, kept: Set[str]) -> Set[str]:
    """Services that steps of the fork need which run again, and those that these services need.

    Their steps run again, too, so that a person is asked where the plan says so. That spoils no result built upon them.
    """
    graph, services = fork.prepared.graph, fork.prepared.services
    found: set[str] = set()
    for name in reversed(graph.order) if services else ():
        if name in services and any(step not in kept or step in found for step in graph.dependents[name]):
            found.add(name)
    return found


def _conversation(
    origin: State, fork: State, before: StepState, now: float, message: ev.AgentTold | None
) -> list[ev.Event]:
    """The conversation that the agent of this step goes on in: the next attempt makes a copy of the original's.

    With a person's message to it, the task of a completed step is not given to it again.
    """
    agent = before.agent
    if agent is None or agent.session is None:
        return []
    owner = agent.session_origin or origin.id
    goes_on = message is not None and message.step == before.id
    unheard = (_done(before) and not goes_on) or not _same_arguments(fork, fork.steps[before.id], before)
    return [ev.AgentSession(now, before.id, 0, agent.session_runtime, agent.session, owner, unheard)]


def _conversations(
    origin: State,
    fork: State,
    step: StepState,
    before: Sequence[StepState],
    now: float,
    message: ev.AgentTold | None,
) -> list[ev.Event]:
    """The same for each item of a foreach. With a message to one of them, the completed others are kept."""
    items, same = _same_items(fork, step, before)
    if not any(old.agent is not None and old.agent.session is not None for old in same):
        return []
    kept = [old for old in same if message is not None and message.step != old.id and _done(old)]
    events: list[ev.Event] = [ev.StepExpanded(now, step.id, items)]
    events += [event for old in kept for event in _kept_step(old, now, origin.id)]
    for event in events:
        fork.apply(event)
    for old in same:
        events += _conversation(origin, fork, old, now, message) if old not in kept else []
    return events


def _same_arguments(fork: State, step: StepState, before: StepState) -> bool:
    try:
        arguments = step.prepared.arguments.render(scope_of(fork, step))
    except TemplateProblem:
        return False
    return all((before.input or {}).get(name) == value for name, value in arguments.items())


def _done(step: StepState) -> bool:
    return step.status is StepStatus.COMPLETED and not step.undone


def _kept_step(before: StepState, now: float, origin: str) -> list[ev.Event]:
    """A completed step as it was. Agents with a branch keep it, so that a merge in the fork finds their work."""
    items, events = before.children or (), list[ev.Event]()
    if any(_has_branch(item) for item in items):
        events.append(ev.StepExpanded(now, before.id, [item.item for item in items]))
        for item in items:
            left_out = ev.StepSkipped(now, item.id, item.skipped_because or before.id, condition=True)
            events += _kept_step(item, now, origin) if _done(item) else [left_out]
    if (agent := before.agent) is not None and agent.workspace is not None and _has_branch(before):
        events.append(msgspec.structs.replace(agent.workspace, at=now, attempt=0))
        events.append(ev.WorkspaceCommitted(now, before.id, 0, agent.workspace.branch, agent.commit))
        if agent.checked is not None and agent.checked.passed:
            events.append(msgspec.structs.replace(agent.checked, at=now, attempt=0))
        if (kept := before.kept) is not None:
            events.append(msgspec.structs.replace(kept, at=now, attempt=0, origin=kept.origin or origin))
    return [*events, ev.StepCompleted(now, before.id, before.output)]


def _has_branch(step: StepState) -> bool:
    return step.agent is not None and step.agent.workspace is not None and bool(step.agent.commit)


def _kept_items(fork: State, step: StepState, before: Sequence[StepState], now: float, origin: str) -> list[ev.Event]:
    """The items of a foreach that were completed, where the fork has the same item at the same place."""
    items, same = _same_items(fork, step, before)
    done = [event for old in same if _done(old) for event in _kept_step(old, now, origin)]
    return [ev.StepExpanded(now, step.id, items), *done] if done else []


def _same_items(fork: State, step: StepState, before: Sequence[StepState]) -> tuple[list[Any], list[StepState]]:
    """The items of a foreach in the fork, and the original's that are the same at the same place."""
    try:
        scope = scope_of(fork, step)
        if step.spec.foreach is None or not fork.prepared.condition(step.spec, scope):
            return [], []
        items = fork.prepared.items(step.spec, scope)
    except TemplateProblem:
        return [], []  # the step fails with it when its turn comes
    return items, [old for old, item in zip(before, items, strict=False) if old.item == item]
