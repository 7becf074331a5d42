"""Ratios of benchmarks are compared with recorded ones."""

from __future__ import annotations

import sys

from doc_pages import REPOSITORY

sys.path.insert(0, str(REPOSITORY))

from benchmarks import ratios
from benchmarks.ours import SCENARIOS
from benchmarks.peers.run import PEERS


def test_a_ratio_that_became_worse_by_more_than_a_fifth_is_warned_of() -> None:
    before = {"speed": 5.0, "cost": 2.0, "time": 1.0}
    rows = [("speed", "3.9× (100/s)", "≥ 5×"), ("cost", "2.6× (3 ms)", "≤ 3×"), ("time", "7 ms", "< 9 ms")]
    assert list(ratios.fallen(rows, before)) == [
        "warning: speed is at 3.9×, was 5× when it was recorded",
        "warning: cost is at 2.6×, was 2× when it was recorded",
    ]


def test_a_ratio_that_is_better_or_new_or_worse_by_less_is_not() -> None:
    before = {"speed": 5.0, "cost": 2.0}
    rows = [("speed", "4.1×", "≥ 5×"), ("cost", "0.1×", "≤ 3×"), ("speed", "1,900×", ""), ("other", "0.1×", "≥ 5×")]
    assert list(ratios.fallen(rows, before)) == []


def test_the_names_of_recorded_ratios_are_those_of_the_benchmarks() -> None:
    names = ratios.recorded().keys()
    assert {text for _scenario, text in SCENARIOS.values()} & names
    peers = {
        f"{scenario}: Windlass over {peer}" for scenario in ("sequential", "concurrent", "looking") for peer in PEERS
    }
    assert peers <= names
