"""The cost of agents: learned from the dollars of earlier runs, or from their tokens and the price of a model.

A run that was asked for the same model, and whose cost is known, says what it costs. Where the step has another model
now, or the cost was not known, the tokens of the run are priced instead. A run that has neither says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from windlass.core.event_base import Usage
from windlass.core.forecast.calibration import Band
from windlass.core.forecast.learning import Difficulty, Experience, Observation, Prediction, StepKey, normal_quantile

__all__ = [
    "NORMAL",
    "SMALLEST_USD",
    "CostHistory",
    "CostObservation",
    "CostTask",
    "PriceList",
    "TokenPrice",
    "no_prices",
    "rest_of_cost",
]

SMALLEST_USD = 0.0005
"""Dollars that are added to all: differences below that do not matter."""
SAMPLES = 100
NORMAL = [normal_quantile((n + 0.5) / 128) for n in range(128)]
"""The shape of deviations where none were observed."""


class TokenPrice(Protocol):
    """The price of a model's tokens."""

    def of_usage(self, usage: Usage) -> float: ...


PriceList = Callable[[str], TokenPrice | None]
"""The price of a model by its name; None where nobody knows it."""


def no_prices(_model: str) -> TokenPrice | None:
    return None


class CostObservation(NamedTuple):
    """An agent's step of an earlier run: the cost of one item, and what it is made of."""

    step: Observation
    """Its `amount` is not used."""
    asked: str
    """The model as it was asked for; empty for the runtime's own."""
    model: str
    """The model that did it."""
    usage: Usage
    usd: float | None
    """None if a part of it is unknown."""


class _ModelCost(NamedTuple):
    experience: Experience
    by_price: frozenset[StepKey]
    """Steps whose cost comes from tokens and a price."""


@dataclass(slots=True)
class CostHistory:
    """The costs of earlier runs, newest first, for whichever model a step has now."""

    seen: Sequence[CostObservation] = ()
    prices: PriceList = no_prices
    _learned: dict[str, _ModelCost] = field(default_factory=dict)

    def of(self, model: str) -> Experience:
        """The dollars of steps that are asked for that model; empty for one that is not named."""
        return self._for(model).experience

    def is_priced(self, model: str, step: StepKey, prediction: Prediction) -> bool:
        """True if the prediction for a step comes from tokens and a price, at least in part."""
        found = self._for(model).by_price
        return step in found if prediction.origin == "step" else bool(found)

    def _for(self, model: str) -> _ModelCost:
        if model not in self._learned:
            by_price: set[StepKey] = set()
            rows = list(self._priced(model, by_price))
            self._learned[model] = _ModelCost(Experience.of(rows, SMALLEST_USD), frozenset(by_price))
        return self._learned[model]

    def _priced(self, model: str, by_price: set[StepKey]) -> Iterator[Observation]:
        for one in self.seen:
            same = model in ("", one.asked, one.model)
            usd = one.usd if same else None
            if usd is None:
                price = self.prices((one.model if same else model) or model)
                if price is None or not (one.usage.tokens_in or one.usage.tokens_out):
                    continue
                usd = price.of_usage(one.usage)
                by_price.add(one.step.step)
            yield one.step._replace(amount=usd)


class CostTask(NamedTuple):
    """The cost of what is left of a step."""

    prediction: Prediction
    learned: Experience
    items: int
    """Items that have not started."""
    spent: Sequence[float] = ()
    """Dollars of each running attempt so far."""


def rest_of_cost(tasks: Sequence[CostTask], paid: Sequence[tuple[Prediction, float]], seed: int) -> Band:
    """Dollars of the steps that are left; `paid` are those that ended, with their predictions."""
    levels = [task.learned.difficulty(paid) for task in tasks]
    chance = Random(seed)
    totals = []
    for place in range(SAMPLES):
        common = normal_quantile((place + 0.5) / SAMPLES)
        totals.append(sum([_sample(task, level, common, chance) for task, level in zip(tasks, levels, strict=True)]))
    totals.sort()
    return Band(*(totals[int(q * SAMPLES)] for q in (0.1, 0.5, 0.9)))


def _sample(task: CostTask, difficulty: Difficulty, common: float, chance: Random) -> float:
    prediction, share = task.prediction, task.learned.share
    shape, smallest = task.learned.shape or NORMAL, task.learned.smallest
    level = difficulty.mean + difficulty.deviation * common
    middle = prediction.mean + math.sqrt(share) * prediction.spread * level
    noise = math.sqrt((1 - share) * prediction.spread**2 + prediction.doubt**2)
    total = 0.0
    for spent in task.spent:
        whole = math.exp(middle + noise * shape[int(chance.random() * len(shape))]) - smallest
        total += max(0.0, whole - spent)
    if task.items:
        whole = math.exp(middle + noise / math.sqrt(task.items) * shape[int(chance.random() * len(shape))])
        total += task.items * max(0.0, whole - smallest)
    return total
