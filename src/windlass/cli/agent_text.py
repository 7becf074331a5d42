"""How agents, their runtimes and costs, and the calls of programs look in plain text."""

from __future__ import annotations

from windlass.core import events as ev
from windlass.core.agent import Cost
from windlass.core.gist import gist
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus

__all__ = ["agent_lines", "cost_text", "describe_agent", "quota_waits"]


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
            return f"  {event.step} · {event.tool} {gist(event.input)}".rstrip()
        case ev.CallFailed():
            return f"  {event.step} · call {event.call} failed: {event.failure.message}"
        case ev.RuntimeFellBack():
            return f"! {event.step}: {event.instead} takes over from {event.runtime}: {event.because}"
        case ev.BudgetWarned():
            return f"! {event.step}: {event.message}"
        case ev.BudgetWaited():
            return f"… {event.step}: {event.message or 'there is room in the budget: it goes on'}"
        case ev.BudgetAnswered():
            return f"{'✓' if event.allow else '✗'} budget: {_answer(event)} by {event.by}"
        case _:
            return None


def _answer(event: ev.BudgetAnswered) -> str:
    if not event.allow:
        return "no more is allowed"
    limits = [f"${event.usd:,.2f}" if event.usd is not None else "", f"{event.tokens:,} tokens" if event.tokens else ""]
    return f"{' and '.join(filter(None, limits)) or 'more'} allowed for {event.scope}"


def cost_text(cost: Cost) -> str:
    """`$0.12`, `at least $0.12 (1 attempt of unknown cost)`, `unknown`: what nobody knows is never shown as 0."""
    tokens = f", {cost.tokens:,} tokens" if cost.tokens else ""
    attempts = f" ({cost.unknown} attempt{'s' if cost.unknown > 1 else ''} of unknown cost)" if cost.unknown else ""
    return f"{cost.text}{attempts}{tokens}"


def agent_lines(state: State) -> list[str]:
    """Who worked, in the order of the work, and what it cost."""
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
