"""Everything that the history of a home says about a plan's steps: time, cost, retries, skips, numbers of items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windlass.core.event_base import Usage
from windlass.core.forecast.costs import CostHistory, CostObservation, PriceList, no_prices
from windlass.core.forecast.learning import NEWEST, Experience, Observation, quantile
from windlass.core.history import ExecutionRecord, StepRecord
from windlass.plan.model import AGENT, CODE

__all__ = ["Knowledge", "kind_of", "learn"]

_USUAL_FAILURES, _PRIOR = 0.01, 4.0
"""Part of the attempts that fail where nothing is known, and the attempts that the plan's own part counts for."""


@dataclass(slots=True)
class StepHabits:
    """The counts of one step of this plan in its earlier runs."""

    attempts: float = 0.0
    repeated: float = 0.0
    """Attempts that failed and were repeated."""
    seen: int = 0
    """Runs in which it settled."""
    skipped: int = 0
    """Runs in which it was skipped."""
    counts: list[int] = field(default_factory=list)
    """Numbers of its items, newest first."""


@dataclass(slots=True)
class Knowledge:
    seconds: Experience = field(default_factory=Experience)
    costs: CostHistory = field(default_factory=CostHistory)
    habits: dict[str, StepHabits] = field(default_factory=dict)
    """By step of this plan."""
    runs: int = 0
    """Runs of this plan that completed."""
    unchanged: int = 0
    """Those of them with the very same plan."""
    failures: float = _USUAL_FAILURES
    """Part of the attempts that fail and are repeated, over all steps."""
    person_s: float | None = None
    """Usual time until a person has answered."""

    def repeats(self, step: str) -> float:
        """The probability that an attempt of the step fails and is repeated."""
        habits = self.habits.get(step) or StepHabits()
        return (habits.repeated + _PRIOR * self.failures) / (habits.attempts + _PRIOR)

    def skips(self, step: str) -> float:
        """The probability that the step's condition is false."""
        habits = self.habits.get(step)
        return (habits.skipped + 0.5) / (habits.seen + 1) if habits is not None and habits.seen else 0.0


def kind_of(tool: str) -> str:
    return {AGENT: "agent", CODE: "program", "shell": "command"}.get(tool, "tool")


def learn(
    plan: str,
    digest: str,
    own: Sequence[ExecutionRecord],
    others: Iterable[ExecutionRecord] = (),
    but: str = "",
    prices: PriceList = no_prices,
) -> Knowledge:
    """Learn from the records of this plan, and of all others, newest first; `but` names the execution itself."""
    own = [record for record in own if record.id != but]
    known = Knowledge()
    seconds: list[Observation] = []
    costs: list[CostObservation] = []
    waits: list[float] = []
    attempts = repeated = 0.0
    for record in own:
        completed = record.status == "completed"
        known.runs += completed
        known.unchanged += completed and record.digest == digest
        for step in record.steps:
            habits = known.habits.setdefault(step.step, StepHabits())
            _count(habits, step)
            _observe(record, step, seconds, costs)
            if step.status == "completed" and step.attempts:
                attempts += step.attempts
                repeated += step.attempts - max(1, step.items)
            if step.person_s > 0:
                waits.append(step.person_s)
    for record in others:
        if record.plan != plan and record.id != but:
            for step in record.steps:
                _observe(record, step, seconds, costs)
    known.seconds = Experience.of(seconds)
    known.costs = CostHistory(costs, prices)
    known.failures = (max(0.0, repeated) + 50 * _USUAL_FAILURES) / (attempts + 50)
    known.person_s = quantile(sorted(waits), 0.5) if waits else None
    return known


def _count(habits: StepHabits, step: StepRecord) -> None:
    if step.status not in ("completed", "skipped"):
        return
    habits.seen += 1
    habits.skipped += step.status == "skipped"
    if step.status == "completed" and step.attempts:
        habits.attempts += step.attempts
        habits.repeated += max(0, step.attempts - max(1, step.items))
    if step.items and len(habits.counts) < NEWEST:
        habits.counts.append(step.items)


def _observe(
    record: ExecutionRecord, step: StepRecord, seconds: list[Observation], costs: list[CostObservation]
) -> None:
    if step.status != "completed" or not step.attempts:
        return
    key, tool, kind = (record.plan, step.step), (step.tool, step.runtime, step.model), kind_of(step.tool)
    items = max(1, step.items)
    size = step.input_bytes // items
    seen = Observation(record.id, key, tool, kind, step.worked_s / step.attempts, size)
    seconds.append(seen)
    if step.runtime:
        usage = Usage(
            step.tokens_in // items, step.tokens_out // items, step.cache_read // items, step.cache_write // items
        )
        # With the model as asked for: a step is looked up before anybody knows which one answers.
        asked = (step.tool, step.runtime, step.asked or step.model)
        usd = None if step.usd is None else step.usd / items
        costs.append(CostObservation(seen._replace(tool=asked), step.asked, step.model, usage, usd))
