"""Apply the events of agents and budgets to a state. Called by `State.apply` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.agent import AgentState, add_record
from windlass.core.handover import note_work
from windlass.core.state_data import StateData
from windlass.core.step import StepState
from windlass.plan.model import Budget

__all__ = ["AGENT_EVENTS"]


def _agent(step: StepState) -> AgentState:
    if step.agent is None:
        step.agent = AgentState()
    return step.agent


def _began(state: StateData, event: ev.AgentBegan) -> None:
    step = state.steps[event.step]
    agent = _agent(step)
    agent.runtime, agent.role, agent.model, agent.asked = event.runtime, event.role, event.model, event.model
    agent.version = event.version
    agent.attempt, agent.worker = event.attempt, step.worker
    agent.waits = (0, "")
    agent.unheard = False


def _session(state: StateData, event: ev.AgentSession) -> None:
    agent = _agent(state.steps[event.step])
    if event.runtime != agent.session_runtime:
        agent.leave_session()
    left = agent.left.pop(event.runtime, None)
    if event.session != agent.session:
        agent.summaries = list(left.summaries) if left is not None and left.session == event.session else []
    agent.session, agent.session_runtime, agent.session_attempt = event.session, event.runtime, event.attempt
    agent.session_origin, agent.unheard = event.origin, event.unheard
    agent.session_version = agent.version if event.runtime == agent.runtime else ""


def _acted(state: StateData, event: ev.AgentActed) -> None:
    step = state.steps[event.step]
    step.last_output = f"{event.tool} {event.summary}"[:500]
    step.open_line, step.stalled = "", None
    agent = _agent(step)
    agent.progressed()
    agent.works_on()
    note_work(agent, event)


def _spoke(state: StateData, event: ev.AgentSpoke | ev.AgentReturned) -> None:
    """Part of the transcript, which is read from the journal. The state only needs to know that there is progress, and
    what is left of a conversation that its runtime summarised: the first reply after it tells."""
    step = state.steps[event.step]
    step.stalled = None
    agent = _agent(step)
    agent.progressed()
    agent.works_on()
    if agent.summaries and not agent.summaries[-1].tokens_after and isinstance(event, ev.AgentSpoke) and event.usage:
        agent.summaries[-1] = msgspec.structs.replace(agent.summaries[-1], tokens_after=event.usage.tokens_in or None)


def _told(state: StateData, event: ev.AgentTold) -> None:
    _agent(state.steps[event.step]).told[event.id] = event


def _heard(state: StateData, event: ev.AgentHeard) -> None:
    told = _agent(state.steps[event.step]).told
    for message in event.ids:
        told.pop(message, None)


def _claimed(state: StateData, event: ev.AgentClaimed) -> None:
    agent = _agent(state.steps[event.step])
    agent.claim, agent.checked = event.text, None
    agent.rounds += 1


def _checked(state: StateData, event: ev.AgentChecked) -> None:
    agent = _agent(state.steps[event.step])
    if not event.passed and event.number > max(agent.checks, 0):  # not one that a person asked for
        agent.refused += 1
    agent.checked, agent.checks, agent.unmatched = event, event.number, event.unmatched


def _reopened(state: StateData, event: ev.AgentReopened) -> None:
    agent = _agent(state.steps[event.step])
    agent.reopening = not event.gave_up
    if agent.reopening:
        agent.reopened += 1
        agent.works_on()
        agent.checks = 0


def _recorded(state: StateData, event: ev.WorkspaceSnapshot) -> None:
    agent = _agent(state.steps[event.step])
    agent.unrecorded = event.note
    # One that has begun before has another turn.
    add_record(agent.periods, event, after_check=agent.attempt == event.attempt)
    agent.changed = event.changed


def _files_kept(state: StateData, event: ev.FilesKept) -> None:
    state.steps[event.step].kept = event


def _opened(state: StateData, event: ev.WorkspaceOpened) -> None:
    _agent(state.steps[event.step]).workspace = event


def _committed(state: StateData, event: ev.WorkspaceCommitted) -> None:
    agent = _agent(state.steps[event.step])
    agent.commit, agent.reopening = event.commit, False


def _removed(state: StateData, event: ev.WorkspaceRemoved) -> None:
    if (agent := state.steps[event.step].agent) is not None:  # a merge has none
        agent.workspace = None


def _summarised(state: StateData, event: ev.AgentSummarised) -> None:
    agent = _agent(state.steps[event.step])
    agent.summaries.append(event)
    agent.summary_wanted = False


def _summary_wanted(state: StateData, event: ev.AgentSummaryRequested) -> None:
    _agent(state.steps[event.step]).summary_wanted = True


def _usage(state: StateData, event: ev.UsageReported) -> None:
    agent = _agent(state.steps[event.step])
    before = agent.usage.get(event.attempt)
    agent.prompt = max(agent.prompt, event.usage.tokens_in - (before.tokens_in if before is not None else 0))
    agent.usage[event.attempt] = event.usage
    agent.model = event.usage.model or agent.model
    agent.done_by[event.attempt] = (event.runtime or agent.runtime, agent.model)


def _fell_back(state: StateData, event: ev.RuntimeFellBack) -> None:
    if not event.final:
        return
    step = state.steps[event.step]
    agent = _agent(step)
    agent.instead = event.instead
    agent.given_up, agent.gave_up_because = (*agent.given_up, event.runtime), event.because
    agent.gave_up_with = event.failure
    if agent.session_runtime == event.runtime:
        agent.leave_session()
    if step.id in state.to_judge:
        step.failures = None  # the new one has its own retries
        agent.progressed()
        state.requeue(step)


def _answered(state: StateData, event: ev.BudgetAnswered) -> None:
    if not event.allow:
        state.wanted = state.wanted or ev.ControlRequested(event.at, "pause", event.by, reason="budget")
        return
    key = _key(event.scope, event.step)
    allowed = state.allowed[key] = _limits(event, state.allowed.get(key))
    for unit, limit in (("usd", allowed.usd), ("tokens", allowed.tokens)):
        passed = state.overruns.get((key, unit))
        if passed is not None and (limit is None or limit >= (passed.spent or 0.0)):
            del state.overruns[key, unit]
    for step in [s for s in state.questions.values() if s.waiting_for == "budget" and _key(s.scope, s.id) == key]:
        state.requeue(step)


def _limits(event: ev.BudgetAnswered, before: Budget | None) -> Budget:
    """The new limits: a unit that the answer leaves out stays; an answer without any unit removes both limits."""
    if before is None or (event.usd is None and event.tokens is None):
        return Budget(usd=event.usd, tokens=event.tokens)
    usd = before.usd if event.usd is None else event.usd
    return Budget(usd=usd, tokens=before.tokens if event.tokens is None else event.tokens)


def _warned(state: StateData, event: ev.BudgetWarned) -> None:
    if event.limit is not None:
        state.overruns[_key(event.scope, event.step), event.unit] = event


def _waited(state: StateData, event: ev.BudgetWaited) -> None:
    _agent(state.steps[event.step]).waits = (event.attempt, event.message)


def _key(scope: str, step: str) -> str:
    """A limit's name; the items of a step share the step's."""
    return f"step:{step.partition('[')[0]}" if scope == "step" else scope


AGENT_EVENTS: dict[type, Callable[[StateData, Any], None]] = {
    ev.AgentBegan: _began,
    ev.AgentSession: _session,
    ev.AgentActed: _acted,
    ev.AgentSpoke: _spoke,
    ev.AgentReturned: _spoke,
    ev.AgentTold: _told,
    ev.AgentHeard: _heard,
    ev.AgentClaimed: _claimed,
    ev.AgentChecked: _checked,
    ev.AgentReopened: _reopened,
    ev.WorkspaceSnapshot: _recorded,
    ev.FilesKept: _files_kept,
    ev.WorkspaceOpened: _opened,
    ev.WorkspaceCommitted: _committed,
    ev.WorkspaceRemoved: _removed,
    ev.AgentSummarised: _summarised,
    ev.AgentSummaryRequested: _summary_wanted,
    ev.UsageReported: _usage,
    ev.RuntimeFellBack: _fell_back,
    ev.BudgetAnswered: _answered,
    ev.BudgetWarned: _warned,
    ev.BudgetWaited: _waited,
}
