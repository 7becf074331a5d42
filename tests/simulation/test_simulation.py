"""A thousand worlds: random plans, attempts that fail and hang, people, power cuts and wrong clocks, the real rules.

Every seed is a world of its own, and the same one each time: `WINDLASS_SEED=N pytest tests/simulation` plays one.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from invariants import CheckedSimulation, check_end, check_journal, check_performed, journal_bytes, picture
from random_plans import Verdict, add_up, random_plan, worked_out

from windlass.core.decide import Policy
from windlass.core.events import AttemptStarted
from windlass.core.state import fold
from windlass.errors import Category
from windlass.plan.model import Plan
from windlass.testing import Act, Done, Fail, Hang, Script, Simulation, simulate

FAST = 1_000
LONG = 50_000


def blocks(seeds: int, size: int = 100) -> list[range]:
    """Seeds for one test each: few enough to spread over workers, enough to cost no time in between."""
    chosen = os.environ.get("WINDLASS_SEED")
    if chosen is not None:
        return [range(int(chosen), int(chosen) + 1)]
    return [range(first, first + size) for first in range(0, seeds, size)]


def named(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def rough_world(seed: int) -> tuple[Plan, Script]:
    """A random plan in a world where anything may happen."""
    chance = Random(seed)
    plan = random_plan(chance, mistakes=True)
    trouble = chance.choice([0.0, 0.1, 0.3, 0.6])

    def act(started: AttemptStarted, chance: Random) -> Act:
        after = chance.choice([0.01, 1.0, 7.0])
        if chance.random() < trouble:
            category = chance.choices(list(Category), [6, 1, 2, 3, 2])[0]
            return Fail(category, "by chance", after, chance.choice([None, None, 3.0]))
        return Hang() if chance.random() < 0.05 else Done(add_up(started), after)

    script = Script(
        act,
        crash=chance.choice([0.0, 0.1, 0.3]),
        pause=chance.choice([0.0, 0.05]),
        interrupt=chance.choice([0.0, 0.05]),
        cancel=chance.choice([0.0, 0.0, 0.01]),
        clock_jump=chance.choice([0.0, 3600.0, 86400.0]),
        answer=chance.choice([1.0, 0.5]),
        allow=chance.choice([1.0, 0.5]),
        retry=chance.choice([0.0, 0.0, 0.1, 0.5]),
        skip=chance.choice([0.0, 0.0, 0.1]),
    )
    return plan, script


def kind_world(seed: int) -> tuple[Plan, Script]:
    """A random plan in a world where attempts are late or lost or fail for a moment, and all goes well in the end."""
    chance = Random(seed)
    plan = random_plan(chance)

    def act(started: AttemptStarted, chance: Random) -> Act:
        retry = plan.by_id[started.step.partition("[")[0]].retry
        if retry.max >= 2 and started.attempt <= 2 and chance.random() < 0.5:
            return Fail(Category.TRANSIENT, "for a moment", chance.random())
        return Done(add_up(started), chance.choice([0.01, 1.0]))

    return plan, Script(act, crash=0.2, pause=0.05, interrupt=0.05, clock_jump=chance.choice([0.0, 3600.0]))


def failing_world(seed: int) -> tuple[Plan, Script, set[str]]:
    """A random plan in which some steps, none of them critical, fail whenever they run."""
    chance = Random(seed)
    plan = random_plan(chance, gates=False)
    names = [step.id for step in plan.steps if step.foreach is None]
    names += [f"{step.id}[{n}]" for step in plan.steps for n in range(len(step.foreach or ()))]
    failing = {
        name for name in names if plan.by_id[name.partition("[")[0]].importance != "critical" and chance.random() < 0.25
    }

    def act(started: AttemptStarted, _chance: Random) -> Act:
        if started.step in failing:
            return Fail(Category.CONFIGURATION, "always")
        return Done(add_up(started))

    return plan, Script(act, crash=0.1, interrupt=0.03), failing


def check_rough(seed: int) -> None:
    plan, script = rough_world(seed)
    run = simulate(plan, script, seed, kind=CheckedSimulation, policy=Policy(approval_expiry=40.0))
    state = check_journal(run.journal)
    assert picture(state) == picture(run.state)
    check_performed(run)
    check_end(run)


def check_kind(seed: int) -> None:
    plan, script = kind_world(seed)
    # An approval that expires while nobody is there fails closed; here, somebody always is, in time.
    run = simulate(plan, script, seed, kind=CheckedSimulation, policy=Policy(approval_expiry=1e9))
    if run.state.steps and run.state.status == "failed" and plan.limits.timeout:
        return  # it was given too little time; whatever else it is given, it needs no sums
    answered_done = any(s.status == "completed" and s.output is None for s in run.state.top_level())
    assert not answered_done, "every doubt was settled by doing it again"
    check_against(plan, run, worked_out(plan))
    assert run.state.status == "completed"


def check_failing(seed: int) -> None:
    plan, script, failing = failing_world(seed)
    run = simulate(plan, script, seed)
    expected = worked_out(plan, failing.__contains__)
    check_against(plan, run, expected)
    ordered = ((name, expected[name]) for name in run.state.prepared.graph.order)
    missing = [name for name, verdict in ordered if verdict.status != "completed" and not verdict.by_condition]
    assert list(run.state.lacks) == missing
    needed = [name for name in missing if plan.by_id[name].importance != "optional"]
    some = any(verdict.status == "completed" for verdict in expected.values())
    assert run.state.status == ("completed" if not needed else "partial" if some else "failed")


def check_against(plan: Plan, run: Simulation, expected: dict[str, Verdict]) -> None:
    """Every step became what it had to become: by its status, its output, and the reason if it was skipped."""
    found = {step.id: (str(step.status), step.output, step.skipped_because or "") for step in run.state.top_level()}
    assert found == {name: (v.status, v.output, v.because) for name, v in expected.items()}


@pytest.mark.parametrize("seeds", blocks(FAST), ids=named)
def test_d2_whatever_happens_the_rules_hold(seeds: range) -> None:
    for seed in seeds:
        with world(seed):
            check_rough(seed)


@pytest.mark.parametrize("seeds", blocks(FAST), ids=named)
def test_d2_when_nothing_fails_for_good_the_sums_are_those_of_a_run_without_a_disturbance(seeds: range) -> None:
    for seed in seeds:
        with world(seed):
            check_kind(seed)


@pytest.mark.parametrize("seeds", blocks(FAST), ids=named)
def test_b3_a_failed_prerequisite_skips_its_dependents_and_nothing_else(seeds: range) -> None:
    for seed in seeds:
        with world(seed):
            check_failing(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seeds", blocks(LONG, 1000), ids=named)
def test_d2_the_long_form(seeds: range) -> None:
    for seed in seeds:
        with world(seed):
            check_rough(seed)
            check_kind(seed)
            check_failing(seed)


def test_the_same_seed_gives_the_same_journal() -> None:
    for seed in range(20):
        first, second = (simulate(*rough_world(seed), seed) for _ in range(2))
        assert journal_bytes(first.journal) == journal_bytes(second.journal)


def test_the_worlds_are_rough_enough() -> None:
    """What the seeds of the fast form meet with: a test of rules that nothing tries would prove nothing."""
    met: dict[str, int] = {}

    def note(what: str) -> None:
        met[what] = met.get(what, 0) + 1

    for seed in range(300):
        plan, script = rough_world(seed)
        run = simulate(plan, script, seed, kind=CheckedSimulation, policy=Policy(approval_expiry=40.0))
        assert isinstance(run, CheckedSimulation)
        note(f"ended {run.state.status}")
        for _ in range(min(1, run.crashes)):
            note("crashed")
        for event in run.journal:
            reason = getattr(event, "reason", "")
            note(f"{type(event).__name__} {reason}".strip())
        for step in run.state.steps.values():
            note(f"step {step.status}")
            if step.status == "failed" and step.error is not None:
                note(f"failed {step.error.category}")
    wanted = {"ended completed", "ended partial", "ended failed", "ended cancelled", "ended paused", "crashed"}
    wanted |= {"AttemptStopped lost", "AttemptStopped paused", "AttemptStopped cancelled", "AttemptStopped critical"}
    wanted |= {"AttemptStopped timeout"}
    wanted |= {"StepWaiting retry", "StepWaiting outcome", "ApprovalAsked", "ApprovalAnswered", "DecisionMade"}
    wanted |= {"ExecutionReopened", "StepRetried", "StepSkipRequested", "AttemptStopped skipped"}
    wanted |= {"StepExpanded", "StepCompleted", "ExecutionPaused approval", "ExecutionPaused decision"}
    wanted |= {f"failed {category}" for category in Category}
    assert {what for what in wanted if met.get(what, 0) < 5} == set(), met


class world:
    """Says which seed it was, if one fails."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(f"seed {self._seed}: WINDLASS_SEED={self._seed} pytest tests/simulation")


def test_folding_a_journal_cut_at_any_event_never_fails() -> None:
    for seed in range(30):
        run = simulate(*rough_world(seed), seed)
        for length in range(1, len(run.journal) + 1):
            assert fold(run.journal[:length]).seq == length
