"""kill -9 in the middle of a program, through the real command line and a real disk (G1, D2).

Every point of a long program is walked through in `tests/engine/test_code_durability.py`, where the power is cut in the
journal. Here the process dies: its workers die with it, and another process finds only what is on disk.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from crash_cli import Cli, Ended, Home, run_fresh

from windlass.core import events as ev
from windlass.core.state import fold
from windlass.trust import Trust

NewHome = Callable[[str], Home]

PLAN = """
name: program
tools: [tools.py]
steps:
  - id: work
    code: |
      const first = await tools.note({text: `first ${Math.random()} ${Date.now()}`});
      const all = await Promise.all([1, 2, 3].map((n) => tools.note({text: `all ${n} ${first}`})));
      let failed = "";
      try { await tools.note({text: "fails"}); } catch (error) { failed = error.category; }
      const paid = await tools.pay({text: `paid ${all.length} ${failed}`});
      const last = [];
      for (const one of [paid, Date.now(), Math.random()]) last.push(await tools.note({text: `last ${one}`}));
      return {first, all, failed, paid, last};
"""
TOOLS = """
from pathlib import Path

from windlass import ToolError, tool


def write(text: str) -> str:
    with Path("log").open("a") as log:
        log.write(text + "\\n")
    return text.upper()


@tool
async def note(text: str) -> str:
    if text == "fails":
        write(text)
        raise ToolError("as it was told to", category="configuration")
    return write(text)


@tool(effect="once")
async def pay(text: str) -> str:
    return write(text)
"""


@pytest.fixture
def made(new_home: NewHome) -> Callable[[], Home]:
    def make() -> Home:
        home = new_home(PLAN)
        (home.folder / "tools.py").write_text(TOOLS)
        Trust(home.folder / ".config" / "windlass").add(home.folder)
        return home

    return make


def env(fault: str = "") -> dict[str, str]:
    told = {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    return {**told, "WINDLASS_FAULT": fault} if fault else told


def lines(home: Home) -> list[str]:
    log: Path = home.folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def ended_calls(events: list[ev.Event]) -> set[str]:
    log = fold(events).steps["work"].programs if events else None
    return {call.input["text"] for call in log.calls.values() if call.ended} if log is not None else set()


def survive(home: Home, run: Callable[..., Ended], *faults: str) -> None:
    """Killed at each of these, one process after another, and then brought to its end."""
    started = run(home, "run", str(home.plan), "--json", env=env(faults[0]))
    crashes = 1
    assert started.code == -signal.SIGKILL, started.err
    events = home.events()
    if not events:
        assert lines(home) == []
        return
    execution = fold(events).id
    for fault in (*faults[1:], *[""] * 20):
        events, done = home.events(), Counter(lines(home))
        if fold(events).status.finished:
            break
        finished = ended_calls(events)
        ended = run(home, "resume", execution, "--json", env=env(fault))
        assert [text for text in finished if Counter(lines(home))[text] != done[text]] == [], "a call was done again"
        crashes += ended.code == -signal.SIGKILL
        if ended.code == 3:
            question = fold(home.events()).steps["work"].approval
            assert question is not None
            assert question.tool == "pay", "only what may happen once is asked about"
            assert run(home, "approve", execution, "work", env=env()).code == 0
    state = fold(home.events())
    assert state.status == "completed", state.steps["work"].error
    times = Counter(lines(home))
    assert max(times.values()) <= 1 + crashes
    result = state.steps["work"].output
    assert [result["first"], *result["all"], result["paid"], *result["last"]] == [
        text.upper() for text in dict.fromkeys(lines(home)) if text != "fails"
    ], "what it returned is what was done"
    assert result["failed"] == "configuration"


POINTS = ("before_write", "before_commit", "after_commit")


@pytest.mark.parametrize(
    ("commit", "point"),
    [
        pytest.param(commit, point, marks=() if commit == first else pytest.mark.soak)
        for point, first in zip(POINTS, (3, 6, 9), strict=True)
        for commit in (3, 6, 9)
    ],
)
def test_g1_d2_a_program_survives_kill_9(cli: Cli, made: Callable[[], Home], commit: int, point: str) -> None:
    survive(made(), cli.run, f"journal.{point}:{commit}")


def test_g1_d2_a_program_whose_every_driver_is_killed_comes_to_its_end(cli: Cli, made: Callable[[], Home]) -> None:
    survive(made(), cli.run, *(f"journal.{point}:4" for point in ("after_commit", "before_commit") * 2))


def test_g1_d2_a_program_is_gone_on_with_by_a_process_started_from_nothing(made: Callable[[], Home]) -> None:
    survive(made(), run_fresh, "journal.after_commit:5")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_g1_d2_the_long_form_killed_anywhere_again_and_again(cli: Cli, made: Callable[[], Home], seed: int) -> None:
    chance = Random(seed)
    survive(made(), cli.run, *(f"*:{chance.randint(4, 40)}" for _ in range(chance.randint(1, 5))))
