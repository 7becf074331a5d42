"""The context of an agent step: its rule from plan, role and settings, and a view of where it stands (F1–F3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from windlass.context.limits import THRESHOLD, ContextLimits, ContextRule
from windlass.core import events as ev
from windlass.core.state import State, StepState
from windlass.engine.lookup import find_step
from windlass.errors import UsageError
from windlass.plan.model import ContextLimit
from windlass.ports import Entry, Runner, hooks_of
from windlass.settings import ContextSettings, Settings

__all__ = ["StepContext", "check_agent", "context_rule", "contexts"]


def context_rule(settings: ContextSettings, plan: ContextLimit | None, role: str, model: str | None) -> ContextRule:
    """The rule for one agent: the plan's own over the role's over the model's over the general one."""
    of_model = _of_model(settings.models, model or "")
    rules = [plan, settings.roles.get(role), of_model, settings]
    thresholds = (rule.threshold for rule in rules if rule is not None)
    models = (rule.model for rule in rules if rule is not None)
    return ContextRule(
        next((found for found in thresholds if found is not None), THRESHOLD),
        next((found for found in models if found), None),
        of_model.window if of_model is not None else None,
    )


def _of_model(rules: Mapping[str, Any], model: str) -> Any:
    """The settings for this model; of several patterns that fit, the longest says most about it."""
    names = {model.lower(), model.lower().partition(":")[2] or model.lower(), model.lower().rpartition("/")[2]}
    fitting = [name for name in rules if any(fnmatchcase(known, name.lower()) for known in names)]
    return rules[max(fitting, key=len)] if fitting else None


@dataclass(frozen=True, slots=True)
class StepContext:
    """Tokens, limits and summaries of one step's agent."""

    step: str
    runtime: str
    model: str
    tokens: int | None
    """Tokens of its last request, or after its last summary; None before the first reply."""
    window: int | None
    """None: not known; then only the provider says when it is full."""
    threshold: float
    summaries: tuple[ev.AgentSummarised, ...]
    wanted: bool
    """A person asked for a summary, and it is not made yet."""

    @property
    def most(self) -> int | None:
        """Tokens at which the older part is summarised."""
        return None if self.window is None else ContextLimits(self.window, self.threshold).most

    @property
    def pinned(self) -> tuple[str, ...]:
        return self.summaries[-1].pinned if self.summaries else ()

    def plain(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "step": self.step,
            "runtime": self.runtime,
            "model": self.model,
            "tokens": self.tokens,
            "window": self.window,
            "threshold": self.threshold,
            "summarise_at": self.most,
            "summary_requested": self.wanted,
            "summaries": [_summary(made) for made in self.summaries],
            "pinned": list(self.pinned),
        }


def _summary(made: ev.AgentSummarised) -> dict[str, Any]:
    return {
        "number": made.number,
        "at": made.at,
        "by": made.by,
        "model": made.model,
        "tokens_before": made.tokens_before,
        "tokens_after": made.tokens_after,
        "messages": made.messages,
        "text": made.text,
        "usd": made.usage.usd if made.usage is not None else None,
    }


def contexts(
    state: State, entries: Iterable[Entry], step: str | None, runners: Mapping[str, Runner], settings: Settings
) -> list[StepContext]:
    """The contexts of all agents of an execution that began, or of one step. Raises `UsageError` for any other step."""
    if step is not None:
        steps = [check_agent(state, step)]
    else:
        steps = [found for found in state.steps.values() if found.agent is not None and found.agent.attempt]
    tokens = _tokens(entries)
    return [_context(state, found, tokens, runners, settings) for found in steps]


def check_agent(state: State, step: str) -> StepState:
    """The step, if it is an agent with a conversation."""
    found = find_step(state, step)
    if not found.spec.is_agent:
        raise UsageError(
            f"step {found.id} of {state.id} is not an agent, so it has no conversation",
            advice=(f"agents of this execution: windlass context {state.id}",),
        )
    if found.agent is None or not found.agent.attempt:
        raise UsageError(
            f"step {found.id} of {state.id} has no conversation yet: it is {found.status}",
            advice=(f"see its status: windlass status {state.id}",),
        )
    return found


def _context(
    state: State, step: StepState, tokens: Mapping[str, int], runners: Mapping[str, Runner], settings: Settings
) -> StepContext:
    agent = step.agent
    assert agent is not None
    rule = context_rule(settings.context, state.plan.context, agent.role, agent.model)
    runner = runners.get(agent.runtime)
    window = rule.window or (hooks_of(runner).window(agent.model or None) if runner is not None else None)
    return StepContext(
        step.id,
        agent.runtime,
        agent.model,
        tokens.get(step.id),
        window,
        rule.threshold,
        tuple(agent.summaries),
        agent.summary_wanted,
    )


def _tokens(entries: Iterable[Entry]) -> dict[str, int]:
    """Tokens of the last request of each step, as the journal tells them."""
    found: dict[str, int] = {}
    total: dict[tuple[str, int], int] = {}
    for entry in entries:
        match entry.event:
            case ev.AgentSpoke(step=step, usage=usage) if usage is not None and usage.tokens_in:
                found[step] = usage.tokens_in
            case ev.UsageReported(step=step, attempt=attempt, usage=usage):
                more = usage.tokens_in - total.get((step, attempt), 0)
                total[step, attempt] = usage.tokens_in
                if more > 0:
                    found[step] = more
            case ev.AgentSummarised(step=step, tokens_after=after) if after:
                found[step] = after
    return found
