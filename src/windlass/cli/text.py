"""Executions, steps and events in plain text: the same words in the live view, in logs and in summaries."""

from __future__ import annotations

import json
import math
import shlex
import time
from typing import Any

from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.advice import ways_on
from windlass.core.agent import Cost
from windlass.core.call_summary import call_summary
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.core.view import items_of, waits_because
from windlass.errors import Failure

__all__ = [
    "MARKS",
    "agent_lines",
    "cost_text",
    "describe",
    "describe_agent",
    "duration",
    "items_text",
    "next_commands",
    "plural",
    "quota_waits",
    "shown",
    "summary",
    "time_text",
]


MARKS = {
    StepStatus.PENDING: "·",
    StepStatus.RUNNING: "▶",
    StepStatus.WAITING: "…",
    StepStatus.PAUSED: "‖",
    StepStatus.COMPLETED: "✓",
    StepStatus.FAILED: "✗",
    StepStatus.SKIPPED: "↷",
}


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def at_time(at: float) -> str:
    """The time of day here: `15:32`."""
    return time.strftime("%H:%M", time.localtime(at))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(value: Any) -> str:
    """A value for a person: text as it is, data as JSON, a command's output as what it printed."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) >= {"exit_code", "stdout"}:
        return str(value["stdout"]).rstrip("\n")
    return json.dumps(value, ensure_ascii=False)


def describe(event: ev.Event, state: State) -> str | None:
    """One line for a log, or None for what is not worth one."""
    match event:
        case ev.ExecutionCreated():
            return f"execution {event.id} of {state.plan.name}"
        case ev.ExecutionStarted():
            return f"started with {plural(len(state.plan.steps), 'step')}"
        case ev.ExecutionResumed():
            return "resumed"
        case ev.ExecutionReplanned():
            return "continues with the changed plan"
        case ev.ExecutionPaused():
            return f"paused ({event.reason})"
        case ev.ControlRequested():
            if event.reason == "budget":
                return "pausing: budget limit reached, and no terminal to ask for more"
            return f"{event.kind} requested" + (f" by {event.by}" if event.by else "")
        case ev.ExecutionFinished():
            return f"{event.status}"
        case ev.ExecutionReopened():
            return "reopened" + (f" by {event.by}" if event.by else "")
        case ev.StepRetried():
            return f"↻ {event.step} retried{_by(event)}{_changed(event)}"
        case ev.StepSkipRequested():
            return f"↷ {event.step} will be skipped{_by(event)}"
        case ev.AttemptStarted():
            again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"▶ {event.step}: {event.tool}{again}"
        case ev.AttemptFinished():
            return f"✓ {event.step}{_took(state.steps[event.step])}{_in_queue(event.queued)}"
        case ev.AttemptFailed():
            return f"✗ {event.step} attempt {event.attempt}: {event.failure.message}"
        case ev.AttemptStopped():
            return f"‖ {event.step} attempt {event.attempt} stopped ({event.reason})"
        case ev.StepWaiting():
            return _waiting(event)
        case ev.StepCompleted():
            return f"✓ {event.step}"
        case ev.StepFailed():
            return f"✗ {event.step} failed: {event.failure.message}{_impact(state, event.step)}"
        case ev.StepSkipped():
            return f"↷ {event.step} skipped: {event.because}"
        case ev.StepExpanded():
            return f"▶ {event.step}: {len(event.items)} items"
        case ev.ApprovalAsked():
            again = f" ({event.question})" if event.question else ""
            return f"? {event.step} is waiting for approval: {event.tool} {json.dumps(event.input)}{again}"
        case ev.ApprovalAnswered():
            note = f": {event.note}" if event.note else ""
            return f"{'✓' if event.allow else '✗'} {event.step} {_answer(event)} by {event.by}{note}"
        case ev.AnswerRefused():
            about = f" for {event.step}" if event.step else ""
            return f"! refused an answer ({event.what}){about}: it came from inside {event.by}"
        case ev.DecisionMade():
            return f"{event.step}: {event.by} decided: {event.choice}"
        case ev.StepUndone():
            return f"↶ {event.step} undone{f' by {event.by}' if event.by else ''}: {plural(len(event.changes), 'path')}"
        case _:
            return describe_agent(event)


def _by(event: ev.StepRetried | ev.StepSkipRequested) -> str:
    return f" by {event.by}" if event.by else ""


def _changed(event: ev.StepRetried) -> str:
    changes = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in event.edits.items()]
    changes += [f"{name} {value}" for name, value in (("runtime", event.runtime), ("model", event.model)) if value]
    anew = ", in a new conversation" if event.fresh else ""
    return f" with {', '.join(changes)}{anew}" if changes else anew


def _waiting(event: ev.StepWaiting) -> str:
    if event.until is None:
        return f"? {event.step}: {event.question}"
    wait = duration(max(0.0, event.until - event.at))
    if event.reason == "retry":
        if event.gives_up_at is not None:
            return f"… {event.step} {event.question}, next try in {wait}, gives up at {at_time(event.gives_up_at)}"
        return f"… {event.step} retries in {wait}"
    until = f" until {iso(event.until)}" if event.reason == "quota" else ""
    return f"… {event.step} waits{until} ({wait}): {event.question}"


def _answer(event: ev.ApprovalAnswered) -> str:
    return "approved" if event.allow else "denied"


def _took(step: StepState) -> str:
    if step.attempt_at is None or step.finished_at is None:
        return ""
    return f"  {duration(step.finished_at - step.attempt_at)}"


def _in_queue(seconds: float) -> str:
    return f" ({duration(seconds)} of it in the queue)" if seconds >= 0.05 else ""


def time_text(step: StepState) -> str:
    """Tell a step's time in the queue and waiting, when it was not all work."""
    parts = [(step.queued, "in the queue"), (step.waited, "waiting")]
    told = [f"{duration(seconds)} {what}" for seconds, what in parts if seconds >= 0.05]
    return f"  worked {duration(step.worked)}, {', '.join(told)}" if told else ""


def items_text(step: StepState) -> str:
    """Tell the progress of a foreach: `39 of 40 items`."""
    if not step.children:
        return ""
    count = items_of(step)
    failed = f", {count['failed']} failed" if count["failed"] else ""
    return f"  {count['done']} of {count['total']} items{failed}"


def _impact(state: State, step_id: str) -> str:
    """The steps that will be skipped because of a failure (C2)."""
    step = state.steps[step_id]
    if step.parent is not None:
        return ""
    if step.spec.importance == "critical":
        return "; it is critical, so the execution stops"
    if step.spec.importance == "optional":
        return "; it is optional, so the rest continues"
    lost = _skipped_by(state, step_id)
    if not lost:
        return "; nothing depends on it"
    names = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    return f"; it causes these to be skipped: {names}"


def _skipped_by(state: State, failed: str) -> list[str]:
    """The steps that go down with one; those whose `when` looks at its status decide for themselves."""
    graph = state.prepared.graph
    lost: dict[str, None] = {}
    queue = [failed]
    for gone in queue:
        for after in graph.dependents[gone]:
            if after not in lost and gone not in graph.in_charge.get(after, ()):
                lost[after] = None
                queue.append(after)
    return list(lost)


def failure_lines(who: str, failure: Failure) -> list[str]:
    """The failed step, its error and category, then advice."""
    return [
        f"  ✗ {who}: {failure.message} ({failure.category})",
        *(f"      → {advice}" for advice in failure.advice),
    ]


def next_commands(state: State, driven: bool = False) -> list[str]:
    """Commands to type next, exactly as they are typed."""
    name = state.id
    if state.status is ExecutionStatus.RUNNING and driven:
        return [f"windlass watch {name}"]
    if state.status in (ExecutionStatus.PAUSED, ExecutionStatus.RUNNING, ExecutionStatus.PENDING):
        lines = []
        asked = [step for step in state.questions.values() if step.waiting_for == "budget"]
        lines += [f"windlass resume {name} {flag}   # new total limit" for flag in _raised(asked)]
        for step in state.questions.values():
            word = shlex.quote(step.id)
            if step.waiting_for == "approval":
                lines.append(f"windlass approve {name} {word}   # or with --deny")
            elif step.waiting_for == "outcome":
                lines.append(f"windlass resume {name} --again {word}   # run it again")
                lines.append(f"windlass resume {name} --done {word}    # it took effect")
                lines.append(f"windlass resume {name} --fail {word}    # count it as failed")
        # Without an answer, it would stop again at once where it asks for budget or for a decision.
        return lines if state.paused_for in ("budget", "decision") and lines else [*lines, f"windlass resume {name}"]
    if state.status in (ExecutionStatus.FAILED, ExecutionStatus.PARTIAL, ExecutionStatus.CANCELLED):
        return [*_ways_on(state), f"windlass fork {name}   # re-run only failed and skipped steps, in a new execution"]
    return []


def _ways_on(state: State) -> list[str]:
    """Commands for the first failed step; they are the same for the others."""
    failed = next((step for step in state.top_level() if step.status is StepStatus.FAILED), None)
    if failed is None or state.status is ExecutionStatus.CANCELLED:
        return []
    return [f"{way.command}   # {way.purpose}" for way in ways_on(state, failed)]


def _raised(asked: list[StepState]) -> list[str]:
    """The options that let steps go on which a limit has stopped, with a limit that is enough for all of them."""
    flags = []
    for unit, option, usual in (("usd", "--budget", "USD"), ("tokens", "--budget-tokens", "N")):
        needed = [step.needed for step in asked if step.unit == unit]
        if needed:
            most = max(one or 0.0 for one in needed)
            amount = f"{math.ceil(most * 100) / 100:.2f}" if unit == "usd" else f"{math.ceil(most)}"
            flags.append(f"{option} {amount if most else usual}")
    return flags


def summary(state: State, driven: bool = False) -> list[str]:
    """The status of an execution in a few lines: for the end of a run and for `status`."""
    counts: dict[StepStatus, int] = {}
    for step in state.top_level():
        counts[step.status] = counts.get(step.status, 0) + 1
    parts = ", ".join(f"{count} {status}" for status, count in counts.items())
    status = str(state.status)
    if state.status is ExecutionStatus.PAUSED:
        status += f" ({state.paused_for})"
    elif state.status is ExecutionStatus.RUNNING and not driven:
        status += " (its process is gone)"
    lines = [f"{state.plan.name}  {status}: {parts}", f"execution {state.id}"]
    for step in state.top_level():
        if step.status is StepStatus.FAILED and step.error is not None:
            lines += failure_lines(step.id, step.error)
        elif step.status is StepStatus.SKIPPED and not step.by_condition:
            lines.append(f"  ↷ {step.id}: {step.skipped_because}")
    if state.error is not None and state.error.where not in state.steps:
        lines += failure_lines(state.error.where or state.plan.name, state.error)
    lines += [f"  {describe(refused, state)}" for refused in state.refused]
    for step in state.questions.values():
        lines += _question_lines(step)
    lines += [f"  … {s.id}: {s.question}; available again at {iso(s.until)}" for s in quota_waits(state)]
    lines += [f"  … {s.id}: {waits_because(s)}" for s in state.active.values() if waits_because(s)]
    lines += agent_lines(state)
    if state.status is ExecutionStatus.COMPLETED and state.lacks:
        lines.append(f"  missing from the result: {', '.join(state.lacks)} (optional)")
    return lines


def _question_lines(step: StepState) -> list[str]:
    if step.waiting_for in ("outcome", "budget"):
        return [f"  ? {step.id}: {step.question}"]
    if step.approval is None:
        return []
    arguments = json.dumps(step.approval.input, ensure_ascii=False, indent=2).split("\n")
    return [
        f"  ? {step.id} is waiting for approval of {step.approval.tool} with",
        *(f"    {line}" for line in arguments),
    ]


def describe_agent(event: ev.Event) -> str | None:
    """One line for a log, or None for what is not worth one."""
    match event:
        case ev.AgentBegan():
            model = f", model {event.model}" if event.model else ""
            again = ", in the same conversation" if event.session else ""
            return f"  {event.step}: {event.role} on {event.runtime}{model}{again}"
        case ev.AgentActed():
            return f"  {event.step} · {event.tool} {event.summary}".rstrip()
        case ev.CallStarted():
            return f"  {event.step} · {event.tool} {call_summary(event.input)}".rstrip()
        case ev.CallFailed():
            return f"  {event.step} · call {event.call} failed: {event.failure.message}"
        case ev.RuntimeFellBack():
            return f"! {event.step}: switched from {event.runtime} to {event.instead}: {event.because}"
        case ev.BudgetWarned():
            return f"! {event.step}: {event.message}"
        case ev.BudgetWaited():
            return f"… {event.step}: {event.message or 'budget is available again: continuing'}"
        case ev.BudgetAnswered():
            return f"{'✓' if event.allow else '✗'} budget: {_budget_answer(event)} by {event.by}"
        case _:
            return None


def _budget_answer(event: ev.BudgetAnswered) -> str:
    if not event.allow:
        return "increase denied"
    limits = [f"${event.usd:,.2f}" if event.usd is not None else "", f"{event.tokens:,} tokens" if event.tokens else ""]
    return f"{' and '.join(filter(None, limits)) or 'more'} allowed for {event.scope}"


def cost_text(cost: Cost) -> str:
    """`$0.12`, `at least $0.12 (1 attempt of unknown cost)`, `unknown`: what nobody knows is never shown as 0."""
    tokens = f", {cost.tokens:,} tokens" if cost.tokens else ""
    attempts = f" ({cost.unknown} attempt{'s' if cost.unknown > 1 else ''} of unknown cost)" if cost.unknown else ""
    return f"{cost.text}{attempts}{tokens}"


def agent_lines(state: State) -> list[str]:
    """The agents in the order of their work, with their cost."""
    order = (state.steps[name] for name in state.prepared.graph.order)
    agents = [step for step in order if step.agent is not None and step.agent.runtime]
    if not agents:
        return []
    chain = " → ".join(_who(step) for step in agents[:8]) + (f" and {len(agents) - 8} more" if len(agents) > 8 else "")
    lines = [f"  agents: {chain}", f"  cost: {cost_text(state.cost)}"]
    return lines + [f"  ! over budget: {passed.message}" for passed in state.overruns.values()]


def _who(step: StepState) -> str:
    assert step.agent is not None
    return f"{step.agent.role} ({step.agent.runtime})"


def quota_waits(state: State) -> list[StepState]:
    return [s for s in state.steps.values() if s.status is StepStatus.WAITING and s.waiting_for == "quota"]
