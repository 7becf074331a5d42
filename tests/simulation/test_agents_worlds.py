"""Worlds with agents: fallbacks, quotas, budgets, questions and power cuts in any order, and the rules."""

from __future__ import annotations

from collections import Counter

import pytest
from agent_world import AgentPlayer, AgentSimulation
from invariants import check_performed, picture
from test_simulation import blocks, named, world

from windlass.core import events as ev
from windlass.core.delegate import runtime_of
from windlass.core.retry import allowed
from windlass.core.state import fold
from windlass.core.transitions import STEP_MOVES
from windlass.core.view import snapshot

SEEDS = 600


def check(run: AgentSimulation) -> None:
    """Read the journal, and hold each event against what went before it."""
    history = run.journal
    state = fold(history[:1])
    attempts: Counter[str] = Counter()
    failures: Counter[tuple[str, str, str]] = Counter()
    answered: set[tuple[str, str]] = set()
    for event in history[1:]:
        before = {name: step.status for name, step in state.steps.items()}
        at_work = [step for step in state.active.values() if not step.asks_in_attempt]
        runtime = ""
        if isinstance(event, ev.AttemptStarted | ev.AttemptFailed):
            runtime = runtime_of(state, state.steps[event.step], run.policy)
        state.apply(event)
        for name, step in state.steps.items():
            old = before.get(name, step.status)
            assert step.status == old or step.status in STEP_MOVES[old], (name, event)
        match event:
            case ev.AttemptStarted(step=name):
                attempts[name] += 1
                assert before[name] != "completed", f"{name} ran again after it completed"
                assert event.attempt == attempts[name]
                assert len(at_work) < state.plan.limits.parallel, "those that wait for a person take no place"
                assert not any(step.reduced for step in at_work), "somebody runs alone"
                if state.steps[name].spec.is_agent:
                    assert state.quotas.get(runtime, 0.0) <= event.at, f"{runtime} has no quota"
                    for (failed, on, category), count in failures.items():
                        retries = allowed(category, state.steps[name].spec.retry)  # type: ignore[arg-type]
                        assert (failed, on) != (name, runtime) or count <= retries, "retried too often"
            case ev.AgentBegan(step=name):
                agent = state.steps[name].agent
                assert agent is not None
                assert event.runtime not in agent.given_up, "who has given up was asked again"
            case ev.AttemptFailed(step=name, failure=failure):
                failures[name, runtime, failure.category] += 1
            case ev.RuntimeFellBack(step=name):
                assert state.steps[name].spec.fallback is not False
                assert event.runtime != "cli"
            case ev.ApprovalAsked(step=name):
                assert (name, event.digest) not in answered, "what was answered was asked again"
            case ev.ApprovalAnswered(step=name):
                answered.add((name, event.digest))
    assert picture(state) == picture(run.state)
    assert (state.quotas, state.allowed, state.cost) == (run.state.quotas, run.state.allowed, run.state.cost)
    assert snapshot(state) == snapshot(run.state)
    assert state.status.finished
    assert all(step.settled for step in state.steps.values())
    assert not run.running
    assert state.questions == {}
    check_performed(run)


@pytest.mark.parametrize("seeds", blocks(SEEDS), ids=named)
def test_d2_with_agents_the_rules_hold_and_every_wait_ends(seeds: range) -> None:
    for seed in seeds:
        with world(seed):
            check(AgentPlayer(seed).play())


def test_the_worlds_with_agents_are_rough_enough() -> None:
    met: Counter[str] = Counter()
    for seed in range(200):
        run = AgentPlayer(seed).play()
        met[f"ended {run.state.status}"] += 1
        met["crashed"] += bool(run.crashes)
        for event in run.journal:
            met[f"{type(event).__name__} {getattr(event, 'reason', '')}".strip()] += 1
            met["asked in the middle"] += isinstance(event, ev.ApprovalAsked) and event.attempt > 0
            met["a yes"] += isinstance(event, ev.ApprovalAnswered) and event.allow
            met["closed"] += isinstance(event, ev.ApprovalAnswered) and event.by == "windlass"
            met["no more money"] += isinstance(event, ev.BudgetAnswered) and not event.allow
    wanted = {"ended completed", "ended partial", "ended failed", "ended cancelled", "crashed", "asked in the middle"}
    wanted |= {"StepWaiting quota", "StepWaiting budget", "StepWaiting retry", "StepWaiting outcome", "RuntimeFellBack"}
    wanted |= {
        "ExecutionPaused quota",
        "ExecutionPaused budget",
        "ExecutionPaused approval",
        "ExecutionPaused decision",
    }
    wanted |= {"AttemptStopped quota", "AttemptStopped budget", "AttemptStopped lost", "AttemptStopped paused"}
    wanted |= {"a yes", "closed", "no more money"}
    assert {what for what in wanted if met[what] < 3} == set(), met


def test_folding_a_journal_with_agents_cut_at_any_event_never_fails() -> None:
    for seed in range(20):
        run = AgentPlayer(seed).play()
        for length in range(1, len(run.journal) + 1):
            snapshot(fold(run.journal[:length]))
