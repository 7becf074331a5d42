"""Our sandbox beside other ways to run JavaScript from Python: the same programs, in turn, on the same machine.

Every engine is a process of its own, warm, that is asked again and again; in each round all of them are asked, so that
all meet the same machine. The median of the rounds counts. The hostile programs have a fresh process each.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.environment import python_of
from benchmarks.peers.sandboxed import MEMORY, Asked
from benchmarks.peers.talk import Conversation, Hang, NoAnswer, Used
from benchmarks.sandbox_programs import PROGRAMS, Measured, hostile_programs

__all__ = ["ENGINES", "Containment", "Figure", "containment", "figures"]

OURS = "windlass"
ENGINES = (OURS, "deno", "mini-racer", "quickjs-ng")
ROUNDS = 9
ANSWER_WITHIN = 60.0

SECONDS = 1.0
SPARE_SECONDS = 0.5
SPARE_MEMORY = 64 * 1024 * 1024
HANGS_AFTER = 5.0

_PEERS = Path(__file__).resolve().parent / "peers"
_ROOT = _PEERS.parent.parent


class Figure(NamedTuple):
    """One program on one engine."""

    program: Measured
    engine: str
    seconds: float
    """Median of the rounds, per unit of work."""
    problem: str = ""


def figures(folder: Path, environment: Path, engines: Sequence[str]) -> Iterator[list[Figure]]:
    """For each program, the figure of every engine."""
    with ExitStack() as held:
        talks: dict[str, Conversation] = {}
        missing: dict[str, str] = {}
        for engine in engines:
            try:
                talks[engine] = held.enter_context(_started(engine, folder / engine, environment))
            except (OSError, NoAnswer, Hang) as error:
                missing[engine] = str(error)
        for program in PROGRAMS.values():
            found = _in_turn(talks, program)
            yield [
                Figure(program, engine, statistics.median(found[engine]))
                if engine in found
                else Figure(program, engine, 0.0, missing[engine])
                for engine in engines
            ]


def _in_turn(talks: dict[str, Conversation], program: Measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {engine: [] for engine in talks}
    for played in range(ROUNDS + 1):
        for engine, talk in talks.items():
            answer = talk.ask(program.asked, ANSWER_WITHIN)
            if answer.get("value") != program.value:
                raise SystemExit(f"{engine}: {program.what}: {str(answer)[:300]}; nothing was measured")
            taken = answer["whole"] if program.asked.at_once else statistics.median(answer["each"])
            if played:  # the first round warms up
                found[engine].append(taken / program.per)
    return found


class Containment(NamedTuple):
    """How one engine holds programs that mean harm."""

    engine: str
    programs: int
    too_long: tuple[str, ...]
    """Those that computed for longer than the limit and half a second, or never came back."""
    too_large: tuple[str, ...]
    """Those for which its processes held more than the limit and 64 MB more than before."""
    hung: tuple[str, ...]
    worst: Used
    problem: str = ""


def containment(engine: str, folder: Path, environment: Path, *, all_of_them: bool) -> Containment:
    programs = hostile_programs(all_of_them=all_of_them)
    too_long, too_large, hung, worst = [], [], [], Used(0.0, 0)
    for number, (name, source) in enumerate(programs.items()):
        asked = Asked(source, limit=SECONDS, hostile=True)
        try:
            with _started(engine, folder / f"{engine}-{number}", environment) as talk:
                answer, used = talk.watched(asked, HANGS_AFTER, SECONDS + SPARE_SECONDS)
        except (OSError, NoAnswer, Hang) as error:
            return Containment(engine, 0, (), (), (), worst, str(error))
        if answer.get("hangs"):
            hung.append(name)
        if answer.get("hangs") or used.cpu > SECONDS + SPARE_SECONDS:
            too_long.append(name)
        if used.memory > MEMORY + SPARE_MEMORY:
            too_large.append(name)
        worst = Used(max(worst.cpu, used.cpu), max(worst.memory, used.memory))
    return Containment(engine, len(programs), tuple(too_long), tuple(too_large), tuple(hung), worst)


def _started(engine: str, folder: Path, environment: Path) -> Conversation:
    if engine == OURS:
        cache = folder.parent.absolute() / "cache"  # one for all: each would compile for itself
        return Conversation([sys.executable, "-m", "benchmarks.sandbox_ours", cache], folder, cwd=_ROOT)
    script = _PEERS / f"sandbox_{engine.replace('-', '_')}.py"
    return Conversation([python_of(environment), script], folder, cwd=_ROOT)
