"""The forecast of an execution: from its state, and from what the history of its home says about its steps.

A step that nothing is known of is named, and its time is not in the figures; it is never guessed. Waiting for a person
is no part of the time: the forecast counts the approvals that lie ahead instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from windlass.core.decide import Policy
from windlass.core.delegate import named_model, runtime_of
from windlass.core.forecast.calibration import Band, Calibration, bucket_of
from windlass.core.forecast.costs import NORMAL, CostTask, rest_of_cost
from windlass.core.forecast.knowledge import Knowledge, kind_of
from windlass.core.forecast.learning import Prediction
from windlass.core.forecast.simulation import Gate, Task, TaskTimes, Work, band_of, simulate_tasks, simulate_work
from windlass.core.forecast.value import LOW_CONFIDENCE, Forecast
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.core.view import progress
from windlass.errors import Category
from windlass.plan.conditions import foresee, items_before
from windlass.plan.model import Importance

__all__ = ["Estimates", "Outlook", "Surroundings", "elapsed_of"]

ITEM_SPREAD = 0.5
"""Standard deviation of the logarithm of an item's time, while few items have ended."""
ESTIMATE_DOUBT = 0.7
"""Doubt about a tool's own estimate: within a factor of two, mostly."""
_COMPLETED, _RUNNING, _WAITING, _SKIPPED = (
    StepStatus.COMPLETED,
    StepStatus.RUNNING,
    StepStatus.WAITING,
    StepStatus.SKIPPED,
)
_encode = msgspec.json.Encoder().encode

Estimates = Callable[[StepState], tuple[float | None, float | None]]
"""Seconds and dollars that the tool of a step expects; None where it does not say."""


def _no_estimate(_step: StepState) -> tuple[float | None, float | None]:
    return None, None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything around an execution that bears on its time."""

    policy: Policy = field(default_factory=Policy)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """Limits of tools."""
    estimates: Estimates = _no_estimate
    times: Calibration = field(default_factory=Calibration)
    costs: Calibration = field(default_factory=Calibration)


def elapsed_of(state: State, now: float) -> float:
    """Seconds that it has run, without the time in which only a person could go on; the same as a record's `took_s`."""
    held = state.held_s + (max(0.0, now - state.held_since) if state.held_since is not None else 0.0)
    return max(0.0, state.worked(now) - held)


class Outlook:
    """The steps that are left, as tasks of a simulation. Reads the state when it is made, and not again."""

    def __init__(self, state: State, now: float, known: Knowledge, around: Surroundings) -> None:
        self.state, self.now, self.known, self.around = state, now, known, around
        self._done = progress(state) / 100 if state.plan.steps else 1.0
        self._elapsed_s = elapsed_of(state, now)
        self._spent, self._seed, self._parallel = state.cost, state.seq, state.prepared.parallel
        self.samples = 0
        self.origins: dict[str, int] = {}
        """Steps that are left, by where their prediction comes from."""
        self.estimated: list[str] = []
        """Steps that their tools have an estimate of, and nothing else is known."""
        self.unknown: list[str] = []
        """Steps that nothing is known of."""
        self.uncounted: list[str] = []
        """Foreach steps whose number of items is not known yet."""
        self.unpriced: list[str] = []
        """Agents that nothing is known of the cost of."""
        self.overdue: list[str] = []
        """Steps that have been running for longer than most that were observed."""
        self.approvals = 0
        self._tasks: list[Task] = []
        self._costs: list[CostTask] = []
        self.priced: list[str] = []
        """Agents whose cost comes from tokens and a price."""
        self._finished: list[tuple[Prediction, float]] = []
        self._paid: list[tuple[Prediction, float]] = []
        self._quotas = self._waits_for_quotas()
        self._foreseen = foresee(state.prepared, state.inputs)
        self._place = {step.id: n for n, step in enumerate(s for s in state.top_level() if not s.settled)}
        for step in state.top_level():
            predicted = self._predict(step)
            if step.settled:
                self._look_back(step, predicted)
            else:
                self._look_ahead(step, predicted)

    def forecast(self) -> Forecast:
        """Simulate the rest. The same state, history and time give the same forecast."""
        known, bucket = self.known, bucket_of(self._done)
        left = raw = None
        overdue: tuple[str, ...] = ()
        if not self._tasks or len(self.unknown) < len(self._tasks):
            samples = simulate_work(self._work(), self._seed)
            raw = band_of(samples)
            left = self.around.times.apply(raw, bucket)
            overdue = tuple(self.overdue)
        usd, usd_raw = self._cost(self.around.costs, bucket)
        return Forecast(
            at=self.now,
            elapsed_s=self._elapsed_s,
            done=self._done,
            left=left,
            raw=raw,
            usd=usd,
            usd_raw=usd_raw,
            spent_usd=self._spent.usd,
            runs=known.runs,
            unchanged=known.unchanged,
            samples=self.samples,
            origins=self.origins,
            estimated=tuple(self.estimated),
            unknown=tuple(self.unknown),
            uncounted=tuple(self.uncounted),
            unpriced=tuple(self.unpriced),
            priced=tuple(self.priced),
            overdue=overdue,
            approvals=self.approvals,
            approval_s=known.person_s if self.approvals else None,
            low_confidence=known.runs < LOW_CONFIDENCE or bool(self.unknown or self.uncounted or overdue),
        )

    def by_step(self) -> dict[str, TaskTimes]:
        """The expected times of the steps that are left, by the simulation that makes the forecast.

        Without steps that nothing is known of, and those that will be skipped. All are stretched as the calibration
        stretches the whole, so that the last one ends with the forecast.
        """
        uncertain = {*self.unknown, *self.uncounted}
        samples, found = simulate_tasks(self._work(traced=True), self._seed)
        raw = band_of(samples)
        left = self.around.times.apply(raw, bucket_of(self._done))
        middle, high = (whole / part if part > 0 else 1.0 for whole, part in zip(left[1:], raw[1:], strict=True))
        return {
            name: TaskTimes(one.begins * middle, one.ends * middle, max(one.ends * middle, one.late * high))
            for name, one in zip(self._place, found, strict=True)
            if one is not None and name not in uncertain
        }

    def _work(self, traced: bool = False) -> Work:
        seconds = self.known.seconds
        difficulty = seconds.difficulty(self._finished)
        shape = seconds.shape or NORMAL
        return Work(self._tasks, self._parallel, shape, difficulty, seconds.smallest, self.around.gates, traced)

    # -- steps that have ended -------------------------------------------------------------------

    def _look_back(self, step: StepState, predicted: Prediction | None) -> None:
        if step.status is not _COMPLETED or step.undone:
            return
        worked, attempts = _amounts(step)
        if predicted is not None and attempts and predicted.origin != "estimate":
            self._finished.append((predicted, worked / attempts))
        if step.prepared.is_agent:
            expected, cost = self._expected_cost(step), _dollars(step)
            if expected is not None and cost is not None:
                self._paid.append((expected, cost / max(1, len(step.children or ()))))

    # -- steps that are left ---------------------------------------------------------------------

    def _look_ahead(self, step: StepState, predicted: Prediction | None) -> None:
        state, known, spec = self.state, self.known, step.spec
        graph = state.prepared.graph
        counts: Sequence[int] = ()
        written = None
        items, running, due = self._parts(step)
        if step.children is None and spec.foreach is not None and not running:
            habits = known.habits.get(step.id)
            if (written := items_before(state.prepared, spec, state.inputs)) is not None:
                items = written
            else:
                counts = habits.counts if habits is not None else ()
                if not counts:
                    self.uncounted.append(step.id)
        share = known.seconds.share
        task = Task(
            math.log(known.seconds.smallest),
            0.0,
            1e-6,
            needs=sum(need in self._place for need in graph.needs[step.id]),
            feeds=[self._place[name] for name in graph.dependents[step.id] if name in self._place],
            items=items,
            counts=counts,
            running=running,
            due=due,
            skipped=self._skips(step),
            handles=step.id in graph.in_charge,
            gate=step.prepared.tool,
        )
        self._tasks.append(task)
        if task.skipped < 1 and written != 0 and self.around.policy.asks(step.prepared) and not step.answers:
            self.approvals += max(1, items)
        if task.skipped < 1:
            self._look_at_cost(step, items if not counts else round(sum(counts) / len(counts)))
        if predicted is None:
            if task.skipped < 1:
                self.unknown.append(step.id)
            return
        self.origins[predicted.origin] = self.origins.get(predicted.origin, 0) + 1
        self.samples += predicted.observed
        if predicted.origin == "estimate":
            self.estimated.append(step.id)
        within = self._item_spread(step) if spec.foreach is not None else 0.0
        task.mean, task.loading = predicted.mean, math.sqrt(share) * predicted.spread
        task.noise = max(1e-3, math.sqrt((1 - share) * predicted.spread**2 + predicted.doubt**2 + within**2))
        fails = known.repeats(step.id)
        retry = spec.retry
        if fails >= 0.005 and Category.TRANSIENT in retry.on:
            task.fails, task.retries = min(fails, 0.9), retry.max
            task.delay, task.backoff, task.longest = retry.delay, retry.backoff, retry.max_delay
        if any(math.log(s + 0.01) > task.mean + 2.5 * math.hypot(task.noise, task.loading) for s in running):
            self.overdue.append(step.id)

    def _parts(self, step: StepState) -> tuple[int, tuple[float, ...], float]:
        """Items that have not started, seconds of the attempts that run, and the seconds until it may go on."""
        if step.children is None:
            elapsed = self._elapsed(step)
            if elapsed is not None:
                return 0, (elapsed,), 0.0
            return 1, (), self._due(step)
        items, running, due = 0, [], math.inf
        for child in step.children:
            if child.settled:
                continue
            elapsed = self._elapsed(child)
            if elapsed is not None:
                running.append(elapsed)
            else:
                items += 1
                due = min(due, self._due(child))
        return items, tuple(running), due if items else 0.0

    def _elapsed(self, step: StepState) -> float | None:
        """Seconds that the current attempt has worked; None without one. A clock that was set back makes it 0."""
        if step.status is not _RUNNING or step.attempt_at is None or step.id not in self.state.active:
            return None
        if step.stalled is not None and step.stalled[0] == step.attempts:
            return 0.0
        return max(0.0, self.now - step.attempt_at - step.off_work)

    def _due(self, step: StepState) -> float:
        """Seconds that the step waits for a retry or a quota."""
        until = step.until if step.status is _WAITING and not step.asks and step.until is not None else 0.0
        if step.prepared.is_agent and self._quotas:
            until = max(until, self._quotas.get(runtime_of(self.state, step, self.around.policy), 0.0))
        return max(0.0, until - self.now) if until else 0.0

    def _waits_for_quotas(self) -> dict[str, float]:
        """The times at which used-up quotas come back, by runtime: its other agents will be refused until then."""
        state = self.state
        found = dict(state.quotas)
        for step in state.steps.values() if found else ():  # a quota of an account is known by the steps that wait
            if step.status is _WAITING and step.waiting_for == "quota" and step.until is not None:
                runtime = runtime_of(state, step, self.around.policy)
                found[runtime] = max(step.until, found.get(runtime, 0.0))
        return found

    def _skips(self, step: StepState) -> float:
        """The probability that it is skipped; 1 if a step that it needs has failed, or if the inputs decide so."""
        state, spec = self.state, step.spec
        if step.status is StepStatus.PENDING and step.id in self._foreseen.skipped:
            return 1.0
        if step.upstream_failed:
            handled = state.prepared.graph.in_charge.get(step.id, frozenset())
            for need in state.prepared.graph.needs[step.id]:
                before = state.steps[need]
                if not before.settled or before.status is _COMPLETED or need in handled:
                    continue
                dispensable = before.spec.importance is Importance.OPTIONAL or before.skip_by
                if before.by_condition or not dispensable:
                    return 1.0
        if spec.when is None or step.status is not StepStatus.PENDING:
            return 0.0
        return self.known.skips(step.id) if step.id in self._foreseen.undecided else 0.0

    def _item_spread(self, step: StepState) -> float:
        logs = [self.known.seconds.log(seconds) for seconds in _item_times(step)]
        if len(logs) < 4:
            return ITEM_SPREAD
        mean = sum(logs) / len(logs)
        square = sum((x - mean) ** 2 for x in logs)
        return math.sqrt((square + 4 * ITEM_SPREAD**2) / (len(logs) - 1 + 4))

    # -- predictions -----------------------------------------------------------------------------

    def _predict(self, step: StepState) -> Prediction | None:
        """The time of one attempt of a step, or of one of its items."""
        seconds = self.known.seconds
        key, tool = self._keys(step)
        size = None
        if seconds.grows(key):
            size = _size_of(step)
        found = seconds.predict(key, tool, kind_of(step.prepared.tool), size)
        logs = [seconds.log(taken) for taken in _item_times(step)] if not step.settled else []
        if logs:  # its own items in this very run say most
            weight = len(logs) / (len(logs) + 2.0)
            mean = sum(logs) / len(logs)
            if found is None:
                return Prediction(mean, ITEM_SPREAD, ITEM_SPREAD / math.sqrt(len(logs)), "run", len(logs))
            mixed = weight * mean + (1 - weight) * found.mean
            return found._replace(mean=mixed, doubt=found.doubt * math.sqrt(1 - weight))
        if found is not None and found.origin != "kind":
            return found
        expected, _usd = self.around.estimates(step)
        if expected is not None and 0 <= expected < math.inf:
            return Prediction(seconds.log(expected), 0.3, ESTIMATE_DOUBT, "estimate", 0)
        return found

    def _keys(self, step: StepState) -> tuple[tuple[str, str], tuple[str, str, str]]:
        prepared, agent = step.prepared, step.agent
        runtime = model = ""
        if prepared.is_agent:
            runtime = runtime_of(self.state, step, self.around.policy)
            model = self._named_model(step)
            if agent is not None and not step.spec.models:
                model = agent.model or model
        return (self.state.plan.name, step.id), (prepared.tool, runtime, model)

    def _named_model(self, step: StepState) -> str:
        """The model whose price counts; empty where several go on with each other: what they cost together counts."""
        return "" if step.spec.models and not step.model else named_model(self.state, step)

    # -- cost ------------------------------------------------------------------------------------

    def _expected_cost(self, step: StepState) -> Prediction | None:
        key, tool = self._keys(step)
        return self.known.costs.of(tool[2]).predict(key, tool, "agent")

    def _look_at_cost(self, step: StepState, items: int) -> None:
        key, (_tool, _runtime, model) = self._keys(step)
        learned = self.known.costs.of(model)
        expected = self._expected_cost(step) if step.prepared.is_agent else None
        if expected is None:
            _seconds, usd = self.around.estimates(step)
            if usd is None or not 0 <= usd < math.inf:
                if step.prepared.is_agent:
                    self.unpriced.append(step.id)
                return
            expected = Prediction(learned.log(usd), 0.3, ESTIMATE_DOUBT, "estimate", 0)
        elif self.known.costs.is_priced(model, key, expected):
            self.priced.append(step.id)
        open_ones = [s for s in (step.children or [step]) if not s.settled and self._elapsed(s) is not None]
        self._costs.append(CostTask(expected, learned, items, [_dollars(one) or 0.0 for one in open_ones]))

    def _cost(self, calibration: Calibration, bucket: int) -> tuple[Band | None, Band | None]:
        """Dollars of the whole execution, and of the rest before calibration. None where a part of it is not known."""
        spent = self._spent
        if self.unpriced or spent.unknown or not (self._costs or spent.tokens or spent.usd):
            return None, None
        if not self._costs:
            return Band(spent.usd, spent.usd, spent.usd), None
        rest = rest_of_cost(self._costs, self._paid, self._seed)
        told = any(task.prediction.origin == "estimate" for task in self._costs)
        # A tool's own estimate cannot be compared with the cost in the end, which is that of agents.
        return Band(*(spent.usd + part for part in calibration.apply(rest, bucket))), None if told else rest


def _amounts(step: StepState) -> tuple[float, int]:
    """Seconds of work and attempts of a step, with its items."""
    every = (step, *(step.children or ()))
    return sum(one.worked for one in every), sum(one.attempts for one in every)


def _item_times(step: StepState) -> list[float]:
    """Seconds of an attempt of each item that has completed."""
    done = [child for child in step.children or () if child.status is _COMPLETED and child.attempts]
    return [child.worked / child.attempts for child in done]


def _dollars(step: StepState) -> float | None:
    """The cost of a step and its items; None where it is unknown."""
    costs = [one.agent.cost for one in (step, *(step.children or ())) if one.agent is not None]
    return None if any(cost.unknown for cost in costs) else sum(cost.usd for cost in costs)


def _size_of(step: StepState) -> int | None:
    """Bytes of its input; None while its templates are not filled in."""
    if step.children:
        inputs = [child.input for child in step.children if child.input is not None]
        return sum(len(_encode(one)) for one in inputs) // len(inputs) if inputs else None
    if step.input is not None:
        return len(_encode(step.input))
    arguments = step.prepared.arguments
    return len(_encode(arguments.render({}))) if arguments.constant else None
