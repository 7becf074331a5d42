"""Instructions per step: a unit of speed that a busy machine and a slow disk do not change.

    python -m benchmarks.instructions [KIND …] [--check | --record]

Each kind runs twice under valgrind, once with more rounds; the difference over the steps between is a step's cost.
`--check` compares with `instructions.json` and exits with 1 if a figure grew by more than 10 %; `--record` writes it.
Valgrind makes everything some fifty times slower, so what is done by the clock (looking for messages, checkpoint
files, judging the disk, forecasts, a task's turn) would count many times too often: it is left out of both runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import windlass
from benchmarks.ours import chain, increment, layers
from windlass import Engine, Plan
from windlass.engine import checkpoints, driver, forecasts
from windlass.engine.gates import intake
from windlass.journal.database import Pace
from windlass.ports.journal import PolledJournal

__all__ = [
    "CACHEGRIND",
    "FEW",
    "GROWTH",
    "KINDS",
    "MANY",
    "count_instructions",
    "leave_out_the_clock",
    "measure_instructions",
    "read_instructions",
    "recorded_figures",
    "valgrind",
]

CACHEGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")

RECORD = Path(__file__).with_name("instructions.json")
GROWTH = 1.1
"""A figure may be this many times the recorded one."""
FEW, MANY = 1, 3
"""Rounds of the two runs."""
NEVER = 1e9


async def _once(engine: Engine, plan: Plan) -> None:
    state = await (await engine.start(plan)).wait()
    assert state.status == "completed", state.status


async def _sequence(engine: Engine) -> None:
    await _once(engine, chain(100))


async def _executions(engine: Engine) -> None:
    await asyncio.gather(*(_once(engine, chain(10)) for _ in range(20)))


async def _graph(engine: Engine) -> None:
    await _once(engine, layers(150, 50))


KINDS: dict[str, tuple[Callable[[Engine], Awaitable[None]], int, str]] = {
    "sequence": (_sequence, 100, "steps in a row"),
    "executions": (_executions, 200, "20 executions of ten steps at once"),
    "graph": (_graph, 150, "a graph in layers of 50"),
}
"""What is run in a round, how many steps that has, and its description."""


def valgrind() -> str | None:
    return shutil.which("valgrind")


def recorded_figures() -> dict[str, int]:
    found: dict[str, int] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def measure_instructions(kind: str) -> int:
    """Instructions of one step of that kind."""
    _scenario, steps, _text = KINDS[kind]
    return (_total(kind, MANY) - _total(kind, FEW)) // ((MANY - FEW) * steps)


def _total(kind: str, rounds: int) -> int:
    return count_instructions("benchmarks.instructions", kind, "--rounds", str(rounds))


def count_instructions(module: str, *arguments: str) -> int:
    """Instructions of a module that is run under valgrind."""
    command = [*CACHEGRIND, sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"}, check=False
    )
    found = read_instructions(done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return found


def read_instructions(report: str) -> int | None:
    """The count in a report of cachegrind."""
    found = re.search(r"I +refs: +([\d,]+)", report)
    return int(found[1].replace(",", "")) if found else None


def leave_out_the_clock() -> None:
    """Leave out what is done by the clock, which runs on while valgrind makes everything slow."""
    checkpoints.INTERVAL = intake.FRESH = forecasts.FIRST = driver.SHORT_ATTEMPT = NEVER
    PolledJournal.poll = property(lambda self: NEVER)
    Pace.fast = property(lambda self: True)


async def _run(kind: str, rounds: int, home: Path) -> None:
    leave_out_the_clock()
    async with windlass.open(home, tools=[increment]) as engine:
        await _once(engine, chain(10))
        for _ in range(rounds):
            await KINDS[kind][0](engine)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure grew by more than a tenth")
    parser.add_argument("--record", action="store_true", help=f"write the figures to {RECORD.name}")
    parser.add_argument("--rounds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    kinds = given.kinds or list(KINDS)
    if given.rounds:
        with tempfile.TemporaryDirectory() as home:
            asyncio.run(_run(kinds[0], given.rounds, Path(home)))
        return 0
    if valgrind() is None:
        print("valgrind is missing: apt-get install valgrind")
        return 1
    recorded = recorded_figures()
    found = {}
    for kind in kinds:
        found[kind] = measure_instructions(kind)
        print(f"{kind}: {found[kind]:,} instructions a step ({KINDS[kind][2]}); recorded {recorded.get(kind, 0):,}")
    if given.record:
        RECORD.write_text(json.dumps({**recorded, **found}, indent=2) + "\n")
    grown = [kind for kind, figure in found.items() if figure > recorded.get(kind, 0) * GROWTH]
    if given.check and grown:
        print(f"more than {GROWTH:.0%} of what is recorded: {', '.join(grown)}; on purpose? --record writes it anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
