"""Distributions of what a step takes, learned from earlier steps of this home.

The same is done for seconds and for dollars. Both are learned as logarithms, in three groups, each drawn to the mean of
the wider one: the step of this plan, its tool with runtime and model, the kind of step. A group of a few observations
leans on the wider one by as much as that one is known to fit its members, and by `K0` observations at most.

Steps of one run are slow or fast together (a larger task, a busy machine): `Experience.share` is how much of a step's
deviation it has in common with the rest of its run, and `difficulty` is what the steps already finished say about it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = ["Difficulty", "Experience", "Observation", "Origin", "Prediction", "normal_quantile", "quantile"]

NEWEST = 60
"""Observations of a step that count."""
HALF_LIFE = 20.0
"""Runs after which an observation counts half."""
_WEIGHTS = [0.5 ** (age / HALF_LIFE) for age in range(NEWEST)]
SIZES = 8
"""Observations from which the growth with the size of the input can be learned."""
K0 = 4.0
"""Observations that the mean of the wider group counts for, at most."""
SPREAD = 0.4
"""Standard deviation of a logarithm from run to run, where nothing says otherwise."""
WIDE = 1.2
"""The same between the members of a group, where nothing says otherwise: most within a factor of five."""
SMALLEST = 0.01
"""Seconds that are added to all: differences below that do not matter."""
MOST = 1e8
"""Seconds of three years: a clock that jumped."""
TABLE = 128
"""Quantiles that stand for the shape of the deviations."""
_NORMALS = 48
"""Deviations of a normal distribution that are mixed among those observed."""

StepKey = tuple[str, str]
"""Plan and step."""
ToolKey = tuple[str, str, str]
"""Tool, runtime, model."""
Origin = Literal["step", "run", "tool", "kind", "estimate"]
"""The source of a prediction: this plan's step, this run, its tool, its kind, or the tool's own estimate."""


class Observation(NamedTuple):
    """One step of an earlier run that completed."""

    run: str
    step: StepKey
    tool: ToolKey
    kind: str
    """`agent`, `command`, `program` or `tool`."""
    amount: float
    """Seconds or dollars of one attempt (of one item)."""
    size: int | None = None
    """Bytes of its input."""


class Prediction(NamedTuple):
    """The distribution of the logarithm of an amount."""

    mean: float
    spread: float
    """Standard deviation from run to run."""
    doubt: float
    """Standard deviation of `mean` itself."""
    origin: Origin
    observed: int
    """Observations that it comes from."""


class Difficulty(NamedTuple):
    """The deviation that all steps of a run share, in units of their spread."""

    mean: float = 0.0
    deviation: float = 1.0


class _GroupSummary(NamedTuple):
    mean: float
    doubt: float
    spread: float
    """Of an observation around the mean of its own step."""
    between: float
    """Of the members' means around this one."""
    observed: int
    size: float = 0.0
    """Mean logarithm of the input's size."""
    slope: float = 0.0
    """Growth with that logarithm; 0 where it does not help."""


class _StepSummary(NamedTuple):
    """The observations of one step."""

    mean: float
    weight: float
    squares: float
    """Weighted sum of the squared deviations from the mean."""
    size: float
    slope: float
    seen: Sequence[Observation]
    logs: Sequence[float]


@dataclass(slots=True)
class Experience:
    """Everything learned about one amount: seconds, or dollars."""

    steps: dict[StepKey, _GroupSummary] = field(default_factory=dict)
    tools: dict[ToolKey, _GroupSummary] = field(default_factory=dict)
    kinds: dict[str, _GroupSummary] = field(default_factory=dict)
    share: float = 0.3
    """Part of a deviation's variance that the steps of a run have in common."""
    runs: int = 0
    recent: float = 0.0
    """Difficulty that the newest runs make likely for the next one."""
    shape: Sequence[float] = ()
    """Quantiles of a step's own deviation, in units of its standard deviation."""
    smallest: float = SMALLEST

    @classmethod
    def of(cls, observations: Iterable[Observation], smallest: float = SMALLEST) -> Experience:
        """Learn from observations, newest first."""
        learned = cls(smallest=smallest)
        by_step: defaultdict[StepKey, list[Observation]] = defaultdict(list)
        for one in observations:
            seen = by_step[one.step]
            if len(seen) < NEWEST and 0 <= one.amount < MOST:
                seen.append(one)
        members = {step: learned._member(seen) for step, seen in by_step.items() if seen}
        by_kind: defaultdict[str, list[_StepSummary]] = defaultdict(list)
        by_tool: defaultdict[ToolKey, list[_StepSummary]] = defaultdict(list)
        for member in members.values():
            by_kind[member.seen[0].kind].append(member)
            for tool in _widening(member.seen[0].tool):
                by_tool[tool].append(member)
        learned.kinds = {kind: _wide(inside, None) for kind, inside in by_kind.items()}
        learned.tools = {tool: _wide(inside, learned.kinds[inside[0].seen[0].kind]) for tool, inside in by_tool.items()}
        learned.steps = {step: _narrow(one, learned.tools[one.seen[0].tool]) for step, one in members.items()}
        learned._learn_runs(members)
        return learned

    def log(self, amount: float) -> float:
        return math.log(max(amount, 0.0) + self.smallest)

    def predict(self, step: StepKey, tool: ToolKey, kind: str, size: int | None = None) -> Prediction | None:
        """The distribution for a step; None if nothing like it was observed."""
        own = self.steps.get(step)
        if own is not None:
            mean = own.mean
            if own.slope and size is not None:
                mean += own.slope * (math.log(size + 1) - own.size)
            return Prediction(mean, own.spread, own.doubt, "step", own.observed)
        origin: Origin = "tool"
        wide = next((found for wider in _widening(tool) if (found := self.tools.get(wider)) is not None), None)
        if wide is None:
            wide, origin = self.kinds.get(kind), "kind"
        if wide is None:
            return None
        return Prediction(wide.mean, wide.spread, math.hypot(wide.doubt, wide.between), origin, wide.observed)

    def grows(self, step: StepKey) -> bool:
        """True if the size of the step's input matters."""
        own = self.steps.get(step)
        return own is not None and own.slope != 0

    def difficulty(self, finished: Iterable[tuple[Prediction, float]]) -> Difficulty:
        """The difficulty of a run after some of its steps, each with its prediction and its amount."""
        share = self.share
        precision = 1 - 2 / (self.runs + 3)  # after a few runs, little is known of how much they differ
        weighed = self.recent * precision
        for prediction, amount in finished:
            spread, doubt = prediction.spread, prediction.doubt
            most = 2.5 * math.hypot(spread, doubt)  # one step that hangs says little about the others
            away = max(-most, min(most, self.log(amount) - prediction.mean))
            loading, noise = math.sqrt(share) * spread, (1 - share) * spread**2 + doubt**2
            precision += loading**2 / noise
            weighed += loading * away / noise
        return Difficulty(weighed / precision, math.sqrt(1.0 / precision))

    # -- learning --------------------------------------------------------------------------------

    def _member(self, seen: Sequence[Observation]) -> _StepSummary:
        logs = [math.log(one.amount + self.smallest) for one in seen]
        weights = _WEIGHTS[: len(seen)]
        weight = sum(weights)
        mean = sum([w * x for w, x in zip(weights, logs, strict=True)]) / weight
        squares = sum([w * (x - mean) ** 2 for w, x in zip(weights, logs, strict=True)])
        size, slope, explained = _slope(seen, logs)
        return _StepSummary(mean, weight, max(0.0, squares - explained * weight), size, slope, seen, logs)

    def _learn_runs(self, members: dict[StepKey, _StepSummary]) -> None:
        """Learn how much the steps of a run have in common, and the shape of what they have not."""
        runs: dict[str, list[float]] = {}
        for step, member in members.items():
            group = self.steps[step]
            if len(member.seen) < 3:
                continue  # its mean is nearly its own observations: they would seem to deviate from nothing
            middle, spread, slope = group.mean, group.spread, group.slope
            for one, x in zip(member.seen, member.logs, strict=True):
                away = (x - middle) / spread
                if slope and one.size is not None:
                    away -= slope * (math.log(one.size + 1) - group.size) / spread
                away = max(-4.0, min(4.0, away))
                if one.run in runs:
                    runs[one.run].append(away)
                else:
                    runs[one.run] = [away]
        products, pairs = 10 * self.share, 10.0
        for together in runs.values():
            count, total = len(together), sum(together)
            # A run's pairs are not independent of each other: each counts for less.
            products += (total * total - sum(x * x for x in together)) / count
            pairs += count - 1
        self.runs = len(runs)
        share = self.share = min(0.9, max(0.02, products / pairs))
        root, own = math.sqrt(share), math.sqrt(1 - share)
        deviations: list[float] = []
        level = weights = 0.0
        for age, together in enumerate(runs.values()):
            common = root * sum(together) / (1 - share + share * len(together))
            deviations += [(away - root * common) / own for away in together]
            level += 0.7**age * common
            weights += 0.7**age
        self.recent = level / (weights + 1.0)
        self.shape = _table(deviations)


def _widening(tool: ToolKey) -> tuple[ToolKey, ...]:
    """A tool with runtime and model, with its runtime, alone: each once."""
    name, runtime, model = tool
    if model:
        return tool, (name, runtime, ""), (name, "", "")
    return (tool, (name, "", "")) if runtime else (tool,)


def _slope(seen: Sequence[Observation], logs: Sequence[float]) -> tuple[float, float, float]:
    """Mean logarithm of the size, growth with it, and the variance that it explains; no growth where that is little."""
    pairs = [(math.log(one.size + 1), x) for one, x in zip(seen, logs, strict=True) if one.size is not None]
    if len(pairs) < SIZES:
        return 0.0, 0.0, 0.0
    middle = sum(size for size, _ in pairs) / len(pairs)
    mean = sum(x for _, x in pairs) / len(pairs)
    across = sum((size - middle) ** 2 for size, _ in pairs)
    along = sum((size - middle) * x for size, x in pairs)
    whole = sum((x - mean) ** 2 for _, x in pairs)
    if across < 0.05 * len(pairs) or whole <= 0 or along * along / (across * whole) < 0.3:
        return middle, 0.0, 0.0
    slope = max(-2.0, min(2.0, along / across))
    return middle, slope, max(0.0, min(0.95 * whole, 2 * slope * along - slope * slope * across)) / len(pairs)


def _wide(members: Sequence[_StepSummary], wider: _GroupSummary | None) -> _GroupSummary:
    """The summary of several steps. Each step's mean counts once: a step that ran often is still one step."""
    count = len(members)
    plain = sum(member.mean for member in members) / count
    between = sum((member.mean - plain) ** 2 for member in members)
    prior = wider.between if wider is not None else WIDE
    between = math.sqrt((between + 2 * prior**2) / (count - 1 + 2))
    pull = 1.0 if wider is not None else 0.0
    mean = (plain * count + (wider.mean if wider is not None else 0.0) * pull) / (count + pull)
    usual = wider.spread if wider is not None else SPREAD
    freedom = sum(max(0.0, member.weight - 1) for member in members)
    spread = math.sqrt((sum(member.squares for member in members) + K0 * usual**2) / (freedom + K0))
    seen = sum(len(member.seen) for member in members)
    return _GroupSummary(mean, between / math.sqrt(count + pull), max(spread, 0.02), max(between, 0.02), seen)


def _narrow(member: _StepSummary, wider: _GroupSummary) -> _GroupSummary:
    """The summary of one step, drawn to its tool."""
    weight = member.weight
    spread = math.sqrt((member.squares + K0 * wider.spread**2) / (max(0.0, weight - 1) + K0))
    spread = max(spread, 0.02)
    pull = min(K0, (spread / wider.between) ** 2)
    mean = (member.mean * weight + wider.mean * pull) / (weight + pull)
    return _GroupSummary(
        mean, spread / math.sqrt(weight + pull), spread, 0.0, len(member.seen), member.size, member.slope
    )


# -- quantiles -----------------------------------------------------------------------------------


def _table(deviations: list[float]) -> list[float]:
    """Quantiles of the observed deviations, mixed with those of a normal distribution, in units of their own."""
    mixed = sorted(deviations + [normal_quantile((n + 0.5) / _NORMALS) for n in range(_NORMALS)])
    table = [quantile(mixed, (n + 0.5) / TABLE) for n in range(TABLE)]
    middle = sum(table) / TABLE
    scale = math.sqrt(sum((x - middle) ** 2 for x in table) / TABLE)
    return [(x - middle) / scale for x in table]


def quantile(ordered: Sequence[float], q: float) -> float:
    """A quantile of sorted numbers, between its two neighbours."""
    place = q * len(ordered) - 0.5
    below = max(0, math.floor(place))
    above = min(len(ordered) - 1, below + 1)
    part = max(0.0, place - below)
    return ordered[below] * (1 - part) + ordered[above] * part


_NORMAL_STEPS = [n / 32 for n in range(-128, 129)]
_NORMAL_BELOW = [0.5 * math.erfc(-x / math.sqrt(2)) for x in _NORMAL_STEPS]


def normal_quantile(q: float) -> float:
    """A quantile of the normal distribution, to two digits: between -4 and 4."""
    place = bisect_left(_NORMAL_BELOW, q)
    if place == 0 or place == len(_NORMAL_BELOW):
        return -4.0 if place == 0 else 4.0
    below, above = _NORMAL_BELOW[place - 1], _NORMAL_BELOW[place]
    return _NORMAL_STEPS[place - 1] + (q - below) / (above - below) / 32
