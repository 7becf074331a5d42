"""Decide the next commands: `decide(state, now)` reads a state and changes nothing.

The driver turns every command into an event (and an act), applies it, and asks again until there is nothing
left to do; so each rule here looks at one thing and need not foresee the others. The order of the rules is
the order of their importance: lost attempts, failures, requests of people, timers, ready steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from windlass.core import events as ev
from windlass.core.approval import answer_for, asked_again, digest_of, hash_of
from windlass.core.delegate import DEFAULT_RUNTIME, handoff_of, last_word, runtime_of, successor
from windlass.core.edit import edited
from windlass.core.retry import outlast, patience_of, retry_at
from windlass.core.scope import scope_of
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.errors import MODEL_API, Category, Failure
from windlass.plan.marking import unmarked
from windlass.plan.model import MAX_STEPS, MERGE, Approve, Effect, Importance
from windlass.plan.prepare import NoFolder, PreparedStep
from windlass.plan.template import TemplateProblem

__all__ = ["Command", "Launch", "Policy", "Record", "Stop", "decide", "no_tool"]

# Those that every step is compared with: to read a member from its class takes forty times as long.
_RUNNING, _PENDING, _COMPLETED = ExecutionStatus.RUNNING, StepStatus.PENDING, StepStatus.COMPLETED
_ALWAYS, _SENSITIVE, _NEVER = Approve.ALWAYS, Approve.SENSITIVE, Approve.NEVER


def no_tool(name: str) -> bool:
    return False


class Policy(msgspec.Struct, frozen=True):
    """Settings for waiting and approval, and the defaults for agents."""

    approval_expiry: float = 86400.0
    """Seconds a request for approval stays open."""
    pause_expiry: float | None = None
    """Seconds an execution may stay paused; None is for ever."""
    on_expiry: Literal["resume", "cancel"] = "cancel"
    """Action when a pause expires."""
    runtime: str = DEFAULT_RUNTIME
    """The runtime of agents that name none."""
    fallback: bool = True
    """Let another runtime of the family take over, unless the step or the plan says otherwise."""
    wait_for_quota: bool = True
    """Wait until a used-up quota comes back, instead of pausing."""
    ask_for: tuple[str, ...] = ()
    """Tools that every step asks for, even with `approve: never`; patterns like `message.*`."""
    sensitive: tuple[str, ...] = ()
    """Tools that a step with `approve: sensitive` asks for."""
    patience: float = 1800.0
    """Seconds that an agent waits for a model API that fails, unless its step says otherwise."""
    by_nature: Callable[[str], bool] = no_tool
    """True for a tool that is sensitive by itself: it is asked for unless a plan says `never`."""

    def asks(self, step: PreparedStep) -> bool:
        """True if a person is asked before the step: the stricter of plan and settings holds (C6)."""
        approve = step.approve
        if approve is _ALWAYS:
            return True
        if self.ask_for or (approve is _SENSITIVE and self.sensitive):
            return self.asks_for(approve, step.tool)
        return approve is not _NEVER and self.by_nature(step.tool)

    def asks_for(self, approve: Approve, tool: str) -> bool:
        """The same for one tool that a step with this `approve` uses, as a program does."""
        asked = self.ask_for + self.sensitive if approve is _SENSITIVE else self.ask_for
        if asked and any(fnmatchcase(tool, pattern) for pattern in asked):
            return True
        return approve is not _NEVER and self.by_nature(tool)

    def paused(self, now: float, reason: str) -> ev.ExecutionPaused:
        expires_at = None if self.pause_expiry is None else now + self.pause_expiry
        return ev.ExecutionPaused(now, reason, expires_at, self.on_expiry)


class Record(msgspec.Struct, frozen=True, gc=False):
    """Write this event."""

    event: ev.Event


class Launch(msgspec.Struct, frozen=True, gc=False):
    """Start an attempt of this step with these arguments."""

    step: StepState
    arguments: dict[str, Any]


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Stop the attempt in flight; its end is recorded when it has ended."""

    step: StepState
    reason: Literal["paused", "cancelled", "critical", "timeout", "skipped", "lost"]


Command = Record | Launch | Stop
_DEFAULT = Policy()
_NO_SCOPE: dict[str, Any] = {}


def decide(state: State, now: float, policy: Policy = _DEFAULT) -> list[Command]:
    """Everything that can be done now. Empty means: wait for an attempt, a person or a time."""
    if state.status is not _RUNNING:
        return []
    if state.in_doubt or state.to_judge:
        return [*_settle_doubts(state, now), *_judge(state, now, policy)]
    commands: list[Command] = [Stop(step, "skipped") for step in state.to_skip.values()] if state.to_skip else []
    ending = _ending(state, now)
    if ending is not None:
        return [*commands, *_wind_down(state, now, ending, policy)]
    if state.ready or state.timers:
        _fill(state, now, policy, commands)
    if not commands:
        return [Record(_finish(state, now))] if state.unsettled == 0 and not state.active else commands
    for command in commands:
        if type(command) is Record:  # it may be the failure of a critical step: starts wait for the next look
            return [command for command in commands if type(command) is not Launch]
    return commands


# -- lost and failed attempts ------------------------------------------------------------------


def _settle_doubts(state: State, now: float) -> Iterator[Command]:
    """Attempts that were cut off: repeated if their effect allows, else put to a person (D2)."""
    for step in state.in_doubt.values():
        if step.skip_by:
            yield Record(_skipped(step, now))
        elif step.effect == Effect.ONCE:
            question = (
                f"attempt {step.attempts} was cut off and may or may not have taken effect; "
                "it is marked `once`, so it is not repeated without asking"
            )
            yield Record(ev.StepWaiting(now, step.id, "outcome", None, question))
        else:
            yield Record(ev.AttemptStopped(now, step.id, step.attempts, "lost"))


def _judge(state: State, now: float, policy: Policy) -> Iterator[Command]:
    for step in state.to_judge.values():
        if step.skip_by:
            yield Record(_skipped(step, now))
            continue
        failure = step.error or Failure(Category.LOGIC, "failed without a message")
        seed = f"{state.id}:{step.id}"
        agent = step.agent if failure.kind == MODEL_API else None
        failures = {failure.category: agent.api_failures} if agent is not None else step.failures or {}
        again = retry_at(failure, failures, step.spec.retry, now, seed)
        cancelled = _ending(state, now) == "cancel"
        instead = successor(state, step, failure, policy) if again is None and not cancelled else None
        if instead is not None and step.agent is not None:
            because = failure.message
            yield Record(ev.RuntimeFellBack(now, step.id, step.agent.runtime, instead, because, failure=failure))
            continue
        gives_up_at, question = None, ""
        if agent is not None and (patience := patience_of(step.spec.retry, policy.patience)):
            gives_up_at = (agent.failing_since or now) + patience
            again = again or outlast(failure, agent.api_failures, step.spec.retry, now, gives_up_at, seed)
            said = failure.message.removeprefix(f"{agent.runtime}: ").removeprefix("the model API ")
            question = f"waiting for the model API: {said}"
        if again is None or cancelled:
            yield Record(ev.StepFailed(now, step.id, last_word(step, failure).located(step.id)))
        else:
            yield Record(ev.StepWaiting(now, step.id, "retry", again, question, gives_up_at=gives_up_at))


# -- ending ------------------------------------------------------------------------------------

_Ending = Literal["cancel", "timeout", "critical", "interrupt", "pause"]


def _ending(state: State, now: float) -> _Ending | None:
    """Why the execution is to stand still or end, strongest reason first."""
    if state.wanted is not None and state.wanted.kind == "cancel":
        return "cancel"
    if state.broken_by is not None:
        return "critical"
    if state.prepared.timeout is not None and (state.time_left(now) or 0.0) <= 0:
        return "timeout"
    if state.wanted is not None:
        return "interrupt" if state.wanted.kind == "interrupt" or state.wanted.now else "pause"
    return None


def _wind_down(state: State, now: float, ending: _Ending, policy: Policy) -> Iterator[Command]:
    if state.active:
        # An answer may take long: if all attempts wait for one, they are stopped, and their questions stay.
        if ending != "pause" or all(step.asks_in_attempt for step in state.active.values()):
            for step in state.active.values():
                yield Stop(step, _stop_reason(ending))
        return
    if ending in ("pause", "interrupt"):
        wanted = state.wanted
        yield Record(policy.paused(now, (wanted.reason or wanted.kind) if wanted is not None else ending))
        return
    because, failure = _verdict(state, ending)
    for step in list(state.steps.values()):
        if not step.settled and not (step.children and step.open_children):
            yield Record(ev.StepSkipped(now, step.id, because))
    if any(not s.settled and s.children and s.open_children for s in state.steps.values()):
        return
    status: Literal["cancelled", "failed"] = "cancelled" if ending == "cancel" else "failed"
    yield Record(ev.ExecutionFinished(now, status, failure, _lacking(state)))


def _stop_reason(ending: _Ending) -> Literal["paused", "cancelled", "critical", "timeout"]:
    match ending:
        case "cancel":
            return "cancelled"
        case "critical" | "timeout":
            return ending
        case _:
            return "paused"


def _verdict(state: State, ending: _Ending) -> tuple[str, Failure | None]:
    if ending == "cancel":
        return "execution cancelled", None
    if state.broken_by is not None:
        return f"critical step {state.broken_by.id} failed", state.broken_by.error
    limit = state.plan.limits.timeout
    return "time limit of the execution reached", Failure(
        Category.RESOURCE,
        f"the execution ran longer than its limit of {limit:g} s",
        where="limits.timeout",
        advice=("raise limits.timeout in the plan",),
    )


def _finish(state: State, now: float) -> ev.ExecutionFinished:
    lacking = _lacking(state)
    missing = [s for s in map(state.steps.__getitem__, lacking) if not _dispensable(s)]
    if not missing:
        return ev.ExecutionFinished(now, "completed", None, lacking)
    first = next((s.error for s in missing if s.error is not None), None)
    status: Literal["partial", "failed"] = "partial" if state.completed else "failed"
    return ev.ExecutionFinished(now, status, first, lacking)


def _dispensable(step: StepState) -> bool:
    """Dependents run without its result: it is optional, or a person skipped it."""
    return step.spec.importance is Importance.OPTIONAL or bool(step.skip_by)


def _lacking(state: State) -> tuple[str, ...]:
    """Steps that were to give a result and did not, and items that a person skipped. A false `when` was not to."""
    lacking: list[str] = []
    for step in state.top_level():
        if step.status is not _COMPLETED:
            lacking += [step.id] if not step.by_condition else []
        elif step.children and not step.picked:
            lacking += [item.id for item in step.children if item.skip_by and item.status is not _COMPLETED]
    return tuple(lacking)


# -- going on ----------------------------------------------------------------------------------


def _fill(state: State, now: float, policy: Policy, commands: list[Command]) -> None:
    """Start steps up to the parallel limit. A retry after a resource failure runs alone."""
    # An attempt that waits for a person's answer takes no place from others.
    busy: Collection[StepState] = state.active.values()
    if state.questions:
        busy = [step for step in busy if not step.asks_in_attempt]
    free = room = 0 if busy and any(step.reduced for step in busy) else state.prepared.parallel - len(busy)
    for step in state.due(now) if state.timers else ():
        if step.waiting_for == "approval":
            commands.append(Record(_closed(step, now)))
            continue
        if state.waits_again(step):
            continue
        alone = _runs_alone(step)
        if alone and (busy or room < free):
            return
        if room > 0:
            command = _start(state, step, now, policy)
            room -= type(command) is Launch
            commands.append(command)
            if alone:
                return
    for step in state.ready.values():
        before = _next(state, step, now)
        if before is not None:
            commands.append(before)
            continue
        if room <= 0:
            break
        if state.retried and state.waits_again(step):
            continue
        alone = step.failures is not None and _runs_alone(step)  # one that was stopped, and goes on
        if alone and (busy or room < free):
            break
        command = _start(state, step, now, policy)
        room -= type(command) is Launch
        commands.append(command)
        if alone:
            break


def _runs_alone(step: StepState) -> bool:
    return bool(step.failures and Category.RESOURCE in step.failures)


def _next(state: State, step: StepState, now: float) -> Command | None:
    """The command that a ready step needs before an attempt: its skip, its failure, its items; None to start it."""
    if step.skip_by:
        return Record(_skipped(step, now))
    if step.children is not None:
        return Record(_gather(step, now))
    if step.status is not _PENDING or step.parent is not None:
        return None
    if step.upstream_failed:
        skipped = _blocked(state, step, now)
        if skipped is not None:
            return Record(skipped)
    if not step.prepared.branches:
        return None
    spec = step.spec
    try:
        scope = scope_of(state, step)
        if not state.prepared.condition(spec, scope):
            because = f"condition was false: {spec.when}"
            return Record(ev.StepSkipped(now, step.id, because, condition=True))
        if spec.foreach is not None:
            items = state.prepared.items(spec, scope)
            if state.expanded_items + len(items) > MAX_STEPS:
                raise TemplateProblem(f"foreach over {len(items)} items exceeds the limit of {MAX_STEPS} for a plan")
            return Record(ev.StepExpanded(now, step.id, items))
    except TemplateProblem as problem:
        return Record(ev.StepFailed(now, step.id, _bad_template(step, problem)))
    return None


def _blocked(state: State, step: StepState, now: float) -> ev.StepSkipped | None:
    handled = state.prepared.graph.in_charge.get(step.spec.id, frozenset())
    for need in state.prepared.graph.needs[step.spec.id]:
        before = state.steps[need]
        if before.status is StepStatus.COMPLETED or need in handled:
            continue
        if _dispensable(before) and not before.by_condition:
            continue
        if before.by_condition:
            because = f"dependency skipped: {need}"
            return ev.StepSkipped(now, step.id, because, condition=True)
        return ev.StepSkipped(now, step.id, f"dependency failed: {need}")
    return None


def _start(state: State, step: StepState, now: float, policy: Policy) -> Command:
    prepared = step.prepared
    try:
        compiled = prepared.arguments
        scope = _NO_SCOPE if compiled.constant else scope_of(state, step)
        arguments = compiled.render(scope)
        if step.edits is not None or step.runtime or step.model:
            arguments = edited(step, arguments)
        if prepared.workdir is not None:
            arguments = prepared.in_workdir(arguments, scope)
    except TemplateProblem as problem:
        return Record(ev.StepFailed(now, step.id, _bad_template(step, problem)))
    if prepared.is_agent:
        runtime = runtime_of(state, step, policy)
        until = state.quotas.get(runtime, 0.0)
        if until > now:
            question = f"the quota of {runtime} is used up"
            return Record(ev.StepWaiting(now, step.id, "quota", until, question, runtime))
        arguments = {**arguments, "handoff": handoff_of(state, step)}
    if policy.asks(prepared) and prepared.tool != MERGE:  # a merge asks when its difference is known
        tool = prepared.tool
        try:
            question = state.prepared.question(step.spec, scope_of(state, step)) if step.spec.question else ""
        except TemplateProblem as problem:
            return Record(ev.StepFailed(now, step.id, _bad_template(step, problem)))
        basis = {f"question {step.id}": hash_of(question)} if question else {}
        answer = answer_for(step, tool, arguments)
        if answer is None or not basis.items() <= answer.basis.items():
            digest = digest_of(step.id, tool, arguments, basis)  # the driver adds the rest of the basis
            expires_at = now + (step.spec.approve_within or policy.approval_expiry)
            text = "\n".join(filter(None, (question, asked_again(step.changes))))
            return Record(
                ev.ApprovalAsked(now, step.id, digest, tool, arguments, expires_at, question=text, basis=basis)
            )
        if not answer.allow:
            return Record(ev.StepFailed(now, step.id, _denied(step)))
    return Launch(step, arguments)


def _skipped(step: StepState, now: float) -> ev.StepSkipped:
    if step.parent is not None and step.parent.picked and step.skip_by == step.parent.picked:
        return ev.StepSkipped(now, step.id, f"{step.skip_by} was picked")
    return ev.StepSkipped(now, step.id, f"skipped by {step.skip_by}")


def _gather(step: StepState, now: float) -> ev.Event:
    """The result of a foreach whose items are all settled: the outputs in the items' order or the one of the item that
    was picked, or a failure."""
    children = step.children or []
    failed = [child for child in children if child.status is not StepStatus.COMPLETED and not child.skip_by]
    outputs = [child.output if child.status is StepStatus.COMPLETED else None for child in children]
    if step.picked:
        found = next(child for child in children if child.id == step.picked)
        return ev.StepCompleted(now, step.id, found.output)
    if not failed and step.spec.pick is not None:
        message = f"no item was picked: none of {len(children)} completed" if children else "there is no item to pick"
        return ev.StepFailed(now, step.id, Failure(Category.LOGIC, message, step.id), outputs)
    if not failed:
        return ev.StepCompleted(now, step.id, outputs)
    first = failed[0]
    reason = first.error.message if first.error else first.skipped_because
    category = first.error.category if first.error else Category.LOGIC
    advice = first.error.advice if first.error else ()
    message = f"{len(failed)} of {len(children)} items failed, first {first.id}: {reason}"
    return ev.StepFailed(now, step.id, Failure(category, message, step.id, advice), outputs)


def _bad_template(step: StepState, problem: TemplateProblem) -> Failure:
    if isinstance(problem, NoFolder):
        advice = ("correct `workdir` in the plan, or the value that it reads",)
        return Failure(Category.CONFIGURATION, str(problem), where=step.id, advice=advice)
    return Failure(
        Category.LOGIC,
        f"a template could not be filled in: {unmarked(str(problem))}",
        where=step.id,
        advice=("correct the template in the plan, then try the step again with the changed plan",),
    )


def _closed(step: StepState, now: float) -> ev.Event:
    """Close a question that nobody answered in time: deny the agent's request, or fail the step."""
    asked = step.approval
    if asked is not None and asked.attempt:
        return ev.ApprovalAnswered(now, step.id, asked.digest, False, "windlass", "the approval expired")
    return ev.StepFailed(now, step.id, _unanswered(step))


def _unanswered(step: StepState) -> Failure:
    return Failure(
        Category.PERMISSION,
        "the approval expired without an answer, so the step did not run",
        where=step.id,
        advice=("a retry asks again",),
    )


def _denied(step: StepState) -> Failure:
    asked = step.approval
    note = f": {asked.note}" if asked and asked.note else ""
    by = asked.by if asked else "somebody"
    return Failure(
        Category.PERMISSION,
        f"denied by {by}{note}",
        where=step.id,
        advice=("a retry asks again, with other arguments if you edit them",),
    )
