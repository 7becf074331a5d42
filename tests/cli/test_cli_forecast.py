"""Forecasts at the terminal: in the headline of `run` and `watch`, and beside the question of an approval (C7)."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from waiting import wait_until

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.ids import new_id
from windlass.journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from conftest import Project, Terminal, Windlass

SLOW = "until [ -e go ]; do sleep 0.02; done"
DRAWING = re.compile(r"\x1b\[[0-9;:]*m")


def past_run(project: Project, plan: Plan, seconds: float) -> None:
    """Write a run of the plan into the journal whose steps took so long, one after the other."""
    at = 1_700_000_000.0
    name = new_id()
    events: list[ev.Event] = [
        ev.ExecutionCreated(at, name, msgspec.Raw(plan.encoded), {}, str(project.path)),
        ev.ExecutionStarted(at, "somebody"),
    ]
    for step in plan.steps:
        events.append(ev.AttemptStarted(at, step.id, 1, "shell", {}, "once"))
        at += seconds
        events.append(ev.AttemptFinished(at, step.id, 1, None))
    events.append(ev.ExecutionFinished(at, "completed"))
    state = fold(events)

    async def write() -> None:
        journal = SqliteJournal(project.home / "windlass.db")
        await journal.append(name, 0, events, head=head_of(state))
        await journal.close()

    asyncio.run(write())


def _shows(terminal: Terminal, text: re.Pattern[str]) -> bool:
    return text.search(" ".join(DRAWING.sub("", terminal.shown).split())) is not None


def test_c7_the_headline_of_run_and_watch_has_the_forecast(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: first, run: 'true'}]"))  # the home is made
    past_run(project, Plan(name="slow", steps=[Step(id="a", run=SLOW)]), 600)
    plan = project.plan(f"name: slow\nsteps: [{{id: a, run: '{SLOW}'}}]")
    running = windlass.terminal("run", plan)
    running.expect(" min left (")
    (execution,) = [one for one in project.ids() if project.state(one).status == "running"]
    watching = windlass.terminal("watch", execution)
    headline = re.compile(rf"slow running ─+ 0% \S+ s 10 min left \(\d+–\d+ min\), low confidence {execution}")
    for terminal in (running, watching):
        wait_until(partial(_shows, terminal, headline), "the headline is drawn")
    project.file("go", "")
    assert running.ended().code == 0
    assert watching.ended().code == 0


def test_c7_the_question_in_the_terminal_comes_with_the_forecast(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: first, run: 'true'}]"))
    steps = [Step(id="a", run="true", approve="always"), Step(id="b", run="true", needs=["a"])]
    past_run(project, Plan(name="asks", steps=steps), 600)
    plan = project.plan("name: asks\nsteps: [{id: a, run: 'true', approve: always}, {id: b, run: 'true', needs: [a]}]")
    terminal = windlass.terminal("run", plan)
    terminal.expect("Allow it? [y]es, [n]o, [l]ater: ")
    asked = DRAWING.sub("", terminal.shown)
    assert re.search(r"forecast: 2\d min left \(\d+–\d+ min\), .*low confidence\s.*Allow it\?", asked, re.DOTALL), asked
    terminal.type("y\n")
    assert terminal.ended().code == 0
