"""Usage of a turn: counted live from the messages, and billed by the runtime's own figures at its end (E1, E2).

The live count knows each call to the model by its message id, so that nothing counts twice. The runtime's figures of
one result (`model_usage_since_last_result`) count everything, subagents too; its other totals go on over a resume and
are never billed. A model without a price has a made-up one there: then our prices are asked. An answer that was cut
off is missing from them, and its tokens are unknown: then the cost is at least that of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from windlass.core.budget import known_part
from windlass.ports import Usage
from windlass.prices import Prices

__all__ = ["Counts", "TurnSpending", "count"]


class Counts(NamedTuple):
    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Counts) -> Counts:
        return Counts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def most(self, other: Counts) -> Counts:
        return Counts(*map(max, self, other))

    def usage(self, spent: Iterable[_Spent], source: Literal["runtime", "prices"], model: str) -> Usage:
        """These tokens at the cost of all that was spent: unknown if that of any is, and then at least the rest."""
        costs = [one.usd for one in spent]
        known = sum(cost for cost in costs if cost is not None)
        if costs and None not in costs:
            return Usage(*self, usd=known, source=source, model=model)
        return Usage(*self, model=model, at_least=known)


def count(figures: Mapping[str, Any]) -> Counts:
    """Tokens as the API counts them, in a message's `usage`."""
    fresh, out, read, write = (
        _whole(figures.get(name))
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return Counts(fresh + read + write, out, read, write)


class TurnSpending:
    def __init__(self, prices: Prices | None, *, resumed: bool) -> None:
        self._prices, self._resumed = prices, resumed
        self._calls: dict[str, _Spent] = {}
        self._seen = Counts()
        self._billed: dict[str, _Spent] | None = None
        self.asked = False
        """The model may have been called."""

    def saw(self, call: str, model: str, counts: Counts) -> bool:
        """One call to the model, as far as it has come. False when that is nothing new."""
        before = self._calls.get(call, _Spent(model))
        after = before.counts.most(counts)
        if after == before.counts:
            return False
        self._calls[call] = _Spent(before.model, after, self._price(before.model, after))
        self._seen = self._seen.plus(after).minus(before.counts)
        return True

    def of_call(self, call: str) -> Usage | None:
        """Usage of one call to the model; None if it said nothing of it."""
        spent = self._calls.get(call)
        return spent.counts.usage([spent], "prices", spent.model) if spent is not None else None

    def live(self) -> Usage:
        """All that was seen so far."""
        model = next(reversed(self._calls.values())).model if self._calls else ""
        return self._seen.usage(self._calls.values(), "prices", model)

    def bill(self, result: Mapping[str, Any]) -> None:
        """Add the runtime's figures of one result."""
        models = result.get("model_usage_since_last_result")
        if not isinstance(models, dict) and not self._resumed and self._billed is None:
            models = result.get("modelUsage")  # an older one: of the whole session, which is this turn alone
        if not isinstance(models, dict):
            return
        self._billed = self._billed or {}
        for model, figures in models.items():
            if isinstance(figures, dict):
                more = _billed(str(model), figures)
                known = self._billed.get(more.model, _Spent(more.model, usd=0.0))
                usd = None if known.usd is None or more.usd is None else known.usd + more.usd
                self._billed[more.model] = _Spent(more.model, known.counts.plus(more.counts), usd)

    def final(self, *, cut_off: bool) -> Usage:
        """Return the turn's usage. `cut_off`: an answer was on its way when it ended."""
        if not self.asked and not self._calls:
            return Usage(usd=0.0, source="runtime")  # it never came to that
        billed = list((self._billed or {}).values())
        counts = functools.reduce(Counts.plus, (spent.counts for spent in billed), Counts())
        if cut_off:  # the tokens of the cut-off answer are unknown
            seen = self.live()
            return msgspec.structs.replace(seen, usd=None, source="unknown", at_least=known_part(seen))
        if self._billed is None or self._seen.tokens_in > counts.tokens_in:
            return self.live()
        most = max(billed, key=lambda spent: (spent.usd or 0.0, spent.counts.tokens_out), default=_Spent(""))
        if all(spent.usd is not None for spent in billed):
            return counts.usage(billed, "runtime", most.model)
        return counts.usage([self._estimate(spent) for spent in billed], "prices", most.model)

    def _estimate(self, billed: _Spent) -> _Spent:
        """Price a model that the runtime has no price for, call by call if all of them were seen."""
        if billed.usd is not None:
            return billed
        calls = [call for call in self._calls.values() if call.model == billed.model]
        if sum(call.counts.tokens_in for call in calls) == billed.counts.tokens_in:
            return billed._replace(usd=_sum(calls))
        return billed._replace(usd=self._price(billed.model, billed.counts))

    def _price(self, model: str, counts: Counts) -> float | None:
        return self._prices.cost(model, Usage(*counts)) if self._prices is not None else None


class _Spent(NamedTuple):
    """Tokens and cost of one call or one model."""

    model: str
    counts: Counts = Counts()
    usd: float | None = None


def _billed(model: str, figures: Mapping[str, Any]) -> _Spent:
    """The runtime's figures of one model. Where it knows no price, it makes one up and says so."""
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    fresh, out, read, write = (_whole(figures.get(name)) for name in names)
    cost = figures.get("costUSD")
    known = isinstance(cost, int | float) and figures.get("costBasis") != "unknown"
    return _Spent(model, Counts(fresh + read + write, out, read, write), float(cost or 0) if known else None)


def _sum(spent: Iterable[_Spent]) -> float | None:
    """The cost of all of it; unknown if that of any is, or if there is none."""
    costs = [one.usd for one in spent]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
