"""Tokens and dollars of one run, turn by turn.

Every turn is priced by itself, because some models cost more per token above a size of prompt. A turn that broke off
after the model had begun (or may have) was paid for by an unknown amount, so from then on the dollars of the run are
at least those of the other turns; the tokens stay what was seen of them. A request that was refused before the model
began cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.budget import known_part
from windlass.core.events import Usage
from windlass.prices import Prices

__all__ = ["Counted", "Tally"]


@dataclass(frozen=True, slots=True)
class Counted:
    """What one turn used, as the API says."""

    tokens_in: int = 0
    """With what was read from a cache and written to one."""
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0
    whole: bool = True
    """The API said all of it: the turn ended, and its numbers came."""


class Tally:
    def __init__(self, prices: Prices, model: str, priced_as: str) -> None:
        self._prices, self._priced_as = prices, priced_as
        self._sum = Usage(model=model, usd=0.0, source="prices")

    @property
    def usage(self) -> Usage:
        return self._sum

    @property
    def tokens(self) -> int:
        return self._sum.tokens_in + self._sum.tokens_out

    def add(self, turn: Counted, at: float) -> None:
        before = self._sum
        used = Usage(
            tokens_in=turn.tokens_in,
            tokens_out=turn.tokens_out,
            cache_read=turn.cache_read,
            cache_write=turn.cache_write,
        )
        usd = self._prices.cost(self._priced_as, used, at) if turn.whole else None
        known = usd is not None and before.usd is not None
        dollars = known_part(before) + (usd or 0.0)
        self._sum = Usage(
            tokens_in=before.tokens_in + turn.tokens_in,
            tokens_out=before.tokens_out + turn.tokens_out,
            cache_read=before.cache_read + turn.cache_read,
            cache_write=before.cache_write + turn.cache_write,
            usd=dollars if known else None,
            source="prices" if known else "unknown",
            model=before.model,
            at_least=0.0 if known else dollars,
        )
