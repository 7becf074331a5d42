"""kill -9 before and after every write to the journal, through the real command line (D2, D3, D6).

`WINDLASS_FAULT=*:N` kills the process at the N-th fault point that it passes: before a transaction, before its
commit, after its commit. N grows until the run gets through. After each kill the execution is resumed in another
process, and the steps' own log, which they write themselves, is held against the journal as the kill left it.
"""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from shlex import quote
from typing import Any

import msgspec
import pytest
import yaml
from crash_cli import Cli, Ended, Home, run_fresh

from windlass.core import events as ev
from windlass.core.history import ExecutionRecord, has_stopped, record_of
from windlass.core.state import State, fold

NewHome = Callable[[str], Home]
WRITE = 'echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> log'

FIVE = f"""
name: five
limits: {{parallel: 2}}
steps:
  - id: one
    run: {WRITE}
  - id: flaky
    retry: {{delay: 1ms}}
    run: |
      {WRITE}
      [ "$WINDLASS_ATTEMPT" -gt 1 ] || exit 75
  - id: pay
    needs: [one]
    effect: once
    run: {WRITE}
  - id: each
    foreach: [a, b]
    needs: [flaky]
    run: {WRITE}
  - id: last
    needs: [pay, each]
    run: {WRITE}
"""

LOOKS = f"""
name: looks
steps:
  - {{id: look, tool: files.read, with: {{path: plan.yaml}}}}
  - {{id: again, needs: [look], tool: files.read, with: {{path: plan.yaml}}}}
  - {{id: write, needs: [again], run: {WRITE!r}}}
  - {{id: third, needs: [write], tool: files.read, with: {{path: plan.yaml}}}}
  - {{id: fourth, needs: [third], tool: files.read, with: {{path: plan.yaml}}}}
  - {{id: pay, needs: [fourth], effect: once, run: {WRITE!r}}}
  - {{id: fifth, needs: [pay], tool: files.read, with: {{path: plan.yaml}}}}
  - {{id: last, needs: [fifth], tool: files.read, with: {{path: plan.yaml}}}}
"""
"""Steps without effect around others: their commits may overlap."""


def killed(ended: Ended) -> bool:
    assert ended.code in (0, -signal.SIGKILL), ended.err
    return ended.code != 0


def doubts(state: State) -> list[str]:
    """Steps of which nobody can know whether they took effect: a question is due, or has been put already."""
    in_flight = [step for step in state.steps.values() if step.status == "running" and step.children is None]
    lost = [step.id for step in in_flight if step.effect == "once"]
    return lost + [step.id for step in state.questions.values() if step.waiting_for == "outcome"]


def the_id(cli: Cli, home: Home) -> str:
    listed = cli.run(home, "list", "--json")
    assert listed.code == 0, listed.err
    (execution,) = listed.json
    return str(execution["id"])


def check_record(home: Home, events: list[ev.Event]) -> None:
    """The record is in the commit that stops the execution: it is there exactly when that is, and says so (D7)."""
    with closing(sqlite3.connect(home.path / "windlass.db")) as db:
        kept = db.execute("SELECT record FROM history_records WHERE execution IS NOT NULL").fetchall()
    state = fold(events)
    wanted = [record_of(state)] if has_stopped(state) else []
    assert [msgspec.msgpack.decode(body, type=ExecutionRecord) for (body,) in kept] == wanted


class Aftermath:
    """What a killed run left, and what has to become of it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.events = home.events()
        self.state = fold(self.events) if self.events else None
        self.completed = {step.id: step.attempts for step in self._steps() if step.status == "completed"}
        self.started = {event.step for event in self.events if isinstance(event, ev.AttemptStarted)}
        self.doubts = doubts(self.state) if self.state is not None else []
        assert {step for step, _ in home.log} <= self.started, "a step ran before its start was on disk"

    @property
    def finished(self) -> bool:
        return self.state is not None and self.state.status.finished

    def _steps(self) -> Iterator[Any]:
        return iter(self.state.steps.values() if self.state is not None else ())

    def check(self, final: dict[str, Any], unrun: set[str]) -> None:
        """Hold the end against it: nothing lost, nothing that was done done again."""
        assert final["status"] == "completed", final
        assert {step["status"] for step in final["steps"]} == {"completed"}
        after = self.home.events()
        assert after[: len(self.events)] == self.events, "the journal only ever grows"
        times = Counter(self.home.log)
        assert set(times.values()) <= {1}, "no attempt happens twice"
        ran = {step for step, _ in times}
        for step, attempts in self.completed.items():
            late = [attempt for name, attempt in times if name == step and attempt > attempts]
            assert late == [], f"{step} ran again after it was journalled as completed"
        writers = {step.id for step in fold(after).steps.values() if step.prepared.tool == "shell"}
        wanted = {step["id"] for step in final["steps"] if step["input"] is not None and step["id"] in writers} - unrun
        assert wanted <= ran, "every step ran"
        repeated = [step for step in ran if self.state and self.state.steps.get(step) and self._once_twice(step, times)]
        assert set(repeated) <= set(self.doubts), "a `once` step was repeated unasked"

    def _once_twice(self, step: str, times: Counter[tuple[str, int]]) -> bool:
        assert self.state is not None
        spec = self.state.steps[step].spec
        return spec.effect == "once" and sum(name == step for name, _ in times) > 1


def resume_to_the_end(cli: Cli, home: Home, aftermath: Aftermath, choice: str) -> tuple[Ended, set[str]]:
    """Resume, answering the questions that there have to be. Returns the end, and steps that may never have run."""
    execution = the_id(cli, home)
    resumed = cli.run(home, "resume", execution, "--json")
    if not aftermath.doubts:
        return resumed, set()
    assert resumed.code == 3, resumed.err
    status = cli.run(home, "status", execution, "--json").json
    assert (status["status"], status["reason"]) == ("paused", "decision")
    asked = {step["id"]: step["question"] for step in status["steps"] if step["question"]}
    assert sorted(asked) == sorted(aftermath.doubts)
    assert all("not repeated without asking" in question["text"] for question in asked.values())
    answers = [part for step in aftermath.doubts for part in (f"--{choice}", step)]
    assert all(f"resume {execution} --again {quote(step)}" in resumed.err for step in aftermath.doubts), resumed.err
    return cli.run(home, "resume", execution, *answers, "--json"), set(aftermath.doubts if choice == "done" else ())


def survive_every_point(cli: Cli, new_home: NewHome, plan: str, chance: Random | None = None) -> int:
    """Kill a run of the plan at each point there is. Returns how many there were."""
    point = 0
    while True:
        point += 1
        home = new_home(plan)
        fault = {"WINDLASS_FAULT": f"*:{point}"}
        if not killed(cli.run(home, "run", str(home.plan), "--json", env=fault)):
            return point - 1
        aftermath = Aftermath(home)
        if aftermath.events:
            check_record(home, aftermath.events)
        if not aftermath.events:
            assert home.log == []
            assert cli.run(home, "list", "--json").json == []
            continue
        while chance is not None and not aftermath.finished and chance.random() < 0.3:
            # Killed again while it was being resumed, or come to its end or its question before that.
            again = {"WINDLASS_FAULT": f"*:{chance.randint(1, 9)}"}
            assert cli.run(home, "resume", the_id(cli, home), "--json", env=again).code in (0, 3, -signal.SIGKILL)
            aftermath = Aftermath(home)
        if aftermath.finished:
            assert cli.run(home, "resume", the_id(cli, home)).code == 2
            aftermath.check(cli.run(home, "status", the_id(cli, home), "--json").json, set())
            continue
        choice = chance.choice(["again", "done"]) if chance else ("again", "done")[point % 2]
        ended, unrun = resume_to_the_end(cli, home, aftermath, choice)
        assert ended.code == 0, ended.err
        aftermath.check(ended.json, unrun)


def test_d2_no_kill_at_any_point_loses_or_repeats_anything(cli: Cli, new_home: NewHome) -> None:
    points = survive_every_point(cli, new_home, FIVE)
    assert points >= 3 * 6, "each of at least six commits has a point before, inside and after it"
    print(f"{points} points")


def test_d2_a_kill_while_commits_of_steps_without_effect_overlap_repeats_nothing_else(
    cli: Cli, new_home: NewHome
) -> None:
    points = survive_every_point(cli, new_home, LOOKS)
    assert points >= 3 * 3, "the steps with an effect, and the end, have commits of their own"


@pytest.mark.parametrize(
    "point",
    [
        "journal.before_commit:3",
        pytest.param("journal.before_write:3", marks=pytest.mark.soak),
        pytest.param("journal.after_commit:3", marks=pytest.mark.soak),
    ],
)
def test_d2_a_killed_process_is_survived_by_another_one_started_from_nothing(new_home: NewHome, point: str) -> None:
    """The same with `python -m windlass` itself, at each of the three kinds of points."""
    home = new_home(FIVE)
    assert run_fresh(home, "run", str(home.plan), "--json", env={"WINDLASS_FAULT": point}).code == -signal.SIGKILL
    aftermath = Aftermath(home)
    listed = run_fresh(home, "list", "--json").json
    assert [(found["status"], found["driven"]) for found in listed] == [("running", False)]
    resumed = run_fresh(home, "resume", listed[0]["id"], "--json")
    if aftermath.doubts:
        assert resumed.code == 3
        resumed = run_fresh(home, "resume", listed[0]["id"], "--again", "pay", "--json")
    assert resumed.code == 0, resumed.err
    aftermath.check(resumed.json, set())


@pytest.mark.parametrize("pace", [7, *(pytest.param(pace, marks=pytest.mark.soak) for pace in (6, 11))])
def test_d6_an_execution_whose_every_driver_is_killed_still_comes_to_its_end(
    cli: Cli, new_home: NewHome, pace: int
) -> None:
    """Every process gets to its second commit, or a little further, and is killed: each brings it forward by a step."""
    home = new_home(FIVE.replace("effect: once", "effect: repeatable"))
    fault = {"WINDLASS_FAULT": f"*:{pace}"}
    deaths = 0
    ended = cli.run(home, "run", str(home.plan), "--json", env=fault)
    while killed(ended):
        deaths += 1
        assert deaths < 40, "it gets nowhere"
        aftermath = Aftermath(home)
        if aftermath.finished:
            break
        ended = cli.run(home, "resume", the_id(cli, home), "--json", env=fault)
    final = cli.run(home, "status", the_id(cli, home), "--json").json
    Aftermath(home).check(final, set())
    assert deaths >= 2


def random_plan(chance: Random) -> str:
    """A small plan of shell lines that write down that they ran."""
    steps: list[dict[str, Any]] = []
    for number in range(chance.randint(2, 5)):
        before = [step["id"] for step in steps]
        step: dict[str, Any] = {
            "id": f"s{number}",
            "needs": chance.sample(before, chance.randint(0, min(2, len(before)))),
            "run": WRITE,
        }
        if chance.random() < 0.3:
            step["effect"] = "once"
        elif chance.random() < 0.3:
            step["retry"] = {"delay": "1ms", "max": 2}
            step["run"] += f'\n[ "$WINDLASS_ATTEMPT" -gt {chance.randint(1, 2)} ] || exit 75'
        if chance.random() < 0.2:
            step["foreach"] = list(range(chance.randint(1, 3)))
        steps.append(step)
    plan = {"name": "random", "limits": {"parallel": chance.choice([1, 2, 4])}, "steps": steps}
    return str(yaml.safe_dump(plan))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_d2_the_long_form_a_hundred_random_plans_at_every_point(cli: Cli, new_home: NewHome, seed: int) -> None:
    chance = Random(seed)
    plan = random_plan(chance)
    print(f"seed {seed}\n{plan}")
    points = survive_every_point(cli, new_home, plan, chance)
    print(f"{points} points")
