"""What the peers' scripts share: the scenarios, the clock, the check of the result, the one line printed.

It lives here so that no peer is measured by a clock or a size of its own. Called by bench_*.py inside the
peers' environment, therefore standard library only. It never prints a number for work that it did not check.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["SCENARIOS", "Measurement", "Scenario", "expect", "main", "timed"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """How much work, and how much of it at the same time."""

    name: str
    executions: int
    steps_each: int
    at_once: int
    rounds: int = 2
    """The last one is measured, those before it warm the peer up. A script finds the steps of all in its store."""

    @property
    def steps(self) -> int:
        return self.executions * self.steps_each

    @property
    def steps_of_all_rounds(self) -> int:
        return self.rounds * self.steps


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("sequential", executions=1, steps_each=1_000, at_once=1),
        Scenario("concurrent", executions=200, steps_each=10, at_once=50),
        Scenario("looking", executions=1, steps_each=1_000, at_once=1),
        # So few that valgrind, which makes them some fifty times slower, comes to an end.
        Scenario("sequence", executions=1, steps_each=100, at_once=1),
        Scenario("executions", executions=20, steps_each=10, at_once=20),
    )
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a script hands back once its work is done and checked."""

    seconds: float
    durability: str
    """The settings that decide whether "acknowledged" means "on disk", as the peer itself reports them."""


def expect(what: str, found: object, wanted: object) -> None:
    """End the script unless `found` is what was wanted: a wrong result must never become a number."""
    if found != wanted:
        raise SystemExit(f"{what}: expected {wanted!r}, found {found!r}; nothing was measured")


def timed(execute: Callable[[int, int], int], scenario: Scenario) -> float:
    """Seconds from the first start to the last completion; `execute(number, steps)` returns the final sum.

    The whole scenario runs twice in one process and the second round counts, as on our own side: what a peer
    puts off until its first use is its set-up, not its work. `--rounds` asks for more or fewer.
    """
    seconds = 0.0
    with ThreadPoolExecutor(scenario.at_once) as threads:
        for played in range(scenario.rounds):
            numbers = range(played * scenario.executions, (played + 1) * scenario.executions)
            start = time.perf_counter()
            sums = list(threads.map(lambda number: execute(number, scenario.steps_each), numbers))
            seconds = time.perf_counter() - start
            expect("the sums of all executions", sums, [scenario.steps_each] * scenario.executions)
    return seconds


def main(
    peer: str,
    version: str,
    measure: Callable[[Scenario, Path], Measurement],
    measure_on: Callable[[Scenario, str], Measurement] | None = None,
) -> None:
    """The command line of every peer's script: measure in a fresh folder of --dir, print one line.

    A peer that can use PostgreSQL has `measure_on`, which gets the address of an empty database.
    """
    parser = argparse.ArgumentParser(description=f"Measure {peer} {version}.")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), required=True)
    parser.add_argument("--dir", type=Path, required=True, help="a folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=2, help="the last one is measured; usually 2")
    if measure_on is not None:
        parser.add_argument("--database", default="", help="the address of an empty PostgreSQL database")
    arguments = parser.parse_args()
    scenario = replace(SCENARIOS[arguments.scenario], rounds=arguments.rounds)

    arguments.dir.mkdir(parents=True, exist_ok=True)
    # A fresh folder each time: a peer that found yesterday's database would resume work instead of doing it.
    with tempfile.TemporaryDirectory(prefix=f"{peer}-", dir=arguments.dir.resolve()) as folder:
        with contextlib.redirect_stdout(sys.stderr):  # stdout carries our one line, whatever a peer prints
            if measure_on is not None and arguments.database:
                measurement = measure_on(scenario, arguments.database)
            else:
                measurement = measure(scenario, Path(folder))
    print(
        json.dumps(
            {
                "peer": peer,
                "version": version,
                "scenario": scenario.name,
                "steps": scenario.steps,
                "seconds": round(measurement.seconds, 4),
                "steps_per_s": round(scenario.steps / measurement.seconds, 1),
                "durability": measurement.durability,
            }
        )
    )
