"""Tokens and dollars of one run on the `cli` runtime, turn by turn (E1, E2)."""

from __future__ import annotations

import pytest

from windlass.prices import Prices
from windlass.runners.model_api.wire import Counted, UsageTally


def test_e1_a_turn_that_broke_off_leaves_the_cost_of_the_others_known() -> None:
    tally = UsageTally(Prices({"house": {"input": 1.0, "output": 2.0}}), "house", "house")
    tally.add(Counted(1_000_000, 60_000), 0.0)
    assert (tally.usage.usd, tally.usage.at_least) == (1.12, 0.0)
    tally.add(Counted(500, whole=False), 0.0)
    assert (tally.usage.usd, tally.usage.at_least, tally.tokens) == (None, 1.12, 1_060_500)
    tally.add(Counted(1_000_000, 0), 0.0)
    assert (tally.usage.usd, tally.usage.at_least) == (None, pytest.approx(2.12))
