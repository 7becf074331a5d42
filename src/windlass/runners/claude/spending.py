"""What a turn used: counted live from the messages, and billed by the runtime's own figures at its end (E1, E2).

The live count knows each call to the model by its message id, so that nothing counts twice. The runtime's figures of
one result (`model_usage_since_last_result`) count everything, subagents too; its other totals go on over a resume and
are never billed. An answer that was cut off is missing from them, and a model without a price has a made-up one: then
our prices are asked, and without them the cost is unknown, which is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from windlass.ports import Usage
from windlass.prices import Prices

__all__ = ["Counts", "Spending", "count"]


class Counts(NamedTuple):
    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def most(self, other: Counts) -> Counts:
        return Counts(*map(max, self, other))

    def usage(self, usd: float | None, source: Literal["runtime", "prices"], model: str) -> Usage:
        return Usage(*self, usd=usd, source="unknown" if usd is None else source, model=model)


def count(figures: Mapping[str, Any]) -> Counts:
    """Tokens as the API counts them, in a message's `usage`."""
    fresh, out, read, write = (
        _whole(figures.get(name))
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return Counts(fresh + read + write, out, read, write)


class Spending:
    def __init__(self, prices: Prices | None, *, resumed: bool) -> None:
        self._prices, self._resumed = prices, resumed
        self._calls: dict[str, tuple[str, Counts]] = {}
        self._seen = Counts()
        self._costs: dict[str, float | None] = {}
        self._billed: Counts | None = None
        self._usd: float | None = 0.0
        self._models: dict[str, float] = {}
        self.asked = False
        """The model may have been called."""

    def saw(self, call: str, model: str, counts: Counts) -> bool:
        """One call to the model, as far as it has come. False when that is nothing new."""
        known, before = self._calls.get(call, (model, Counts()))
        after = before.most(counts)
        if after == before:
            return False
        self._calls[call] = (known or model, after)
        self._seen = Counts(*(seen + new - old for seen, new, old in zip(self._seen, after, before, strict=True)))
        if self._prices is not None:
            self._costs[call] = self._prices.cost(known or model, Usage(*after))
        return True

    def live(self) -> Usage:
        """All that was seen so far."""
        costs = list(self._costs.values())
        known = [cost for cost in costs if cost is not None]
        usd = sum(known) if costs and len(known) == len(costs) else None
        model = next(reversed(self._calls.values()))[0] if self._calls else ""
        return self._seen.usage(usd, "prices", model)

    def bill(self, result: Mapping[str, Any]) -> None:
        """Add what the runtime says one result took."""
        models = result.get("model_usage_since_last_result")
        if not isinstance(models, dict) and not self._resumed and self._billed is None:
            models = result.get("modelUsage")  # an older one: of the whole session, which is this turn alone
        if not isinstance(models, dict):
            return
        self._billed = self._billed or Counts()
        for model, figures in models.items():
            if isinstance(figures, dict):
                self._add(str(model), figures)

    def _add(self, model: str, figures: Mapping[str, Any]) -> None:
        fresh, out, read, write = (
            _whole(figures.get(name))
            for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        )
        assert self._billed is not None
        self._billed = self._billed.plus(Counts(fresh + read + write, out, read, write))
        cost = figures.get("costUSD")
        known = isinstance(cost, int | float) and figures.get("costBasis") != "unknown"
        self._usd = self._usd + float(cost or 0) if known and self._usd is not None else None
        self._models[model] = self._models.get(model, 0.0) + float(cost or 0) + out * 1e-9

    def final(self, *, cut_off: bool) -> Usage:
        """What the turn took. `cut_off`: an answer was on its way when it ended."""
        if not self.asked and not self._calls:
            return Usage(usd=0.0, source="runtime")  # it never came to that
        billed = self._billed
        if billed is None or cut_off or self._seen.tokens_in > billed.tokens_in:
            return self.live()
        model = max(self._models, key=lambda name: self._models[name]) if self._models else self.live().model
        if self._usd is None:
            return billed.usage(self.live().usd if self._seen.tokens_in == billed.tokens_in else None, "prices", model)
        return billed.usage(self._usd, "runtime", model)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
