"""Hypothesis against a model: anything people, attempts and power cuts can do, in any order it can think of.

The model knows an execution of six steps as a child would tell it: which steps have to wait for which, who is at
work, who waits for whom. After every move, the engine's rules must agree with it to the last step.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from invariants import check_journal, check_performed, picture

from windlass.core.state import fold
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.testing import Simulation

NEEDS = {"a": [], "b": ["a"], "pay": ["a"], "gate": ["a"], "vital": ["a"], "end": ["pay", "gate", "b"]}
ONCE, GATED, CRITICAL = "pay", "gate", "vital"
RETRIES = 3
PLAN = Plan.model_validate(
    {
        "name": "six",
        "limits": {"parallel": 8},
        "steps": [
            {"id": "a", "tool": "t"},
            {"id": "b", "tool": "t", "needs": NEEDS["b"]},
            {"id": "pay", "tool": "t", "needs": NEEDS["pay"], "effect": "once"},
            {"id": "gate", "tool": "t", "needs": NEEDS["gate"], "approve": "always"},
            {"id": "vital", "tool": "t", "needs": NEEDS["vital"], "importance": "critical"},
            {"id": "end", "tool": "t", "needs": NEEDS["end"]},
        ],
    }
)

Standing = Literal["idle", "running", "retry", "asked", "doubt", "completed", "failed", "skipped"]
SETTLED = ("completed", "failed", "skipped")


@dataclass
class Model:
    """The execution as it has to be."""

    status: str = "running"
    driving: bool = True
    wanted: Literal["pause", "interrupt", "cancel"] | None = None
    steps: dict[str, Standing] = field(default_factory=lambda: dict.fromkeys(NEEDS, "idle"))
    attempts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NEEDS, 0))
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NEEDS, 0))
    outputs: dict[str, int] = field(default_factory=dict)
    allowed: bool | None = None
    due: set[str] = field(default_factory=set)
    """Retries whose time has come."""
    told: dict[str, str] = field(default_factory=dict)
    """Who was told to stop, and why at first."""
    one_commit: bool = False
    """Only what the next commit holds: that nothing can go on before a person answers is written in one after it."""

    def having(self, *standings: Standing) -> set[str]:
        return {name for name, standing in self.steps.items() if standing in standings}

    def go_on(self) -> None:
        """Bring about everything that has to follow."""
        while self.driving and self._one_thing():
            """One thing leads to another."""

    def _one_thing(self) -> bool:
        running = self.having("running")
        if self.wanted == "cancel" or self.steps[CRITICAL] == "failed":
            self._tell(running, "cancel" if self.wanted == "cancel" else "critical")
            return not running and self._close("cancelled" if self.wanted == "cancel" else "failed")
        if self.wanted is not None:
            self._tell(running if self.wanted == "interrupt" else set(), "pause")
            return not running and self._stand_still()
        for name in NEEDS:
            if self.steps[name] == "idle" and self._begin(name):
                return True
            if self.steps[name] == "retry" and name in self.due:
                return self._run(name)
        if all(standing in SETTLED for standing in self.steps.values()):
            return self._close(self._verdict())
        return not running and not self.having("retry") and not self.one_commit and self._stand_still()

    def _tell(self, running: set[str], why: str) -> None:
        for name in running:
            self.told.setdefault(name, why)

    def _begin(self, name: str) -> bool:
        before = {self.steps[need] for need in NEEDS[name]}
        if not before <= set(SETTLED):
            return False
        if before - {"completed"}:
            self.steps[name] = "skipped"
        elif name == GATED and self.allowed is not True:
            self.steps[name] = "asked" if self.allowed is None else "failed"
        else:
            self._run(name)
        return True

    def _run(self, name: str) -> bool:
        self.due.discard(name)
        self.told.pop(name, None)
        self.steps[name] = "running"
        self.attempts[name] += 1
        return True

    def _stand_still(self) -> bool:
        self.status, self.driving, self.wanted = "paused", False, None
        return True

    def _close(self, status: str) -> bool:
        for name in self.having("idle", "retry", "asked", "doubt"):
            self.steps[name] = "skipped"
        self.status, self.driving = status, False
        return True

    def _verdict(self) -> str:
        if self.having("failed", "skipped"):
            return "partial" if self.having("completed") else "failed"
        return "completed"

    def finish(self, name: str, output: int) -> None:
        self.steps[name] = "completed"
        self.outputs[name] = output
        self.go_on()

    def fail(self, name: str, transient: bool) -> None:
        self.failures[name] += transient
        again = transient and self.failures[name] <= RETRIES and self.wanted != "cancel"
        self.steps[name] = "retry" if again else "failed"
        self.go_on()

    def obey(self, name: str) -> None:
        self.steps[name] = "doubt" if name == ONCE and self.told[name] != "cancel" else "idle"
        self.go_on()

    def die(self) -> None:
        self.driving = False

    def take_up(self) -> None:
        """What a new driver makes of it: who was at work is lost, and a pause that was asked for is answered."""
        self.status, self.driving = "running", True
        if self.wanted != "cancel":
            self.wanted = None
        for name in self.having("running"):
            self.steps[name] = "doubt" if name == ONCE else "idle"


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.run = Simulation(PLAN)
        self.model = Model()
        self.run.start()
        self.model.go_on()

    def choose(self, names: set[str] | dict[str, object], number: int) -> str:
        return sorted(names)[number % len(names)]

    def driven(self) -> bool:
        return self.model.driving

    def at_work(self) -> bool:
        return self.model.driving and bool(self.run.running)

    def resumable(self) -> bool:
        return not self.model.driving and self.model.status in ("running", "paused")

    @precondition(at_work)
    @rule(number=st.integers(0, 5), output=st.integers())
    def an_attempt_finishes(self, number: int, output: int) -> None:
        step = self.choose(dict(self.run.running), number)
        self.run.finish(step, output)
        self.model.finish(step, output)

    @precondition(at_work)
    @rule(number=st.integers(0, 5), transient=st.booleans())
    def an_attempt_fails(self, number: int, transient: bool) -> None:
        step = self.choose(dict(self.run.running), number)
        self.run.fail(step, Failure(Category.TRANSIENT if transient else Category.LOGIC, "no"))
        self.model.fail(step, transient)

    @precondition(lambda self: self.model.driving and bool(self.run.stopping))
    @rule(number=st.integers(0, 5))
    def an_attempt_obeys(self, number: int) -> None:
        step = self.choose(dict(self.run.stopping), number)
        self.run.stop(step)
        self.model.obey(step)

    @precondition(driven)
    @rule(now=st.booleans())
    def somebody_pauses(self, now: bool) -> None:
        self.run.pause(now=now)
        self.want("interrupt" if now else "pause")

    @precondition(driven)
    @rule()
    def somebody_interrupts(self) -> None:
        self.run.interrupt()
        self.want("interrupt")

    @precondition(lambda self: self.driven() or self.resumable())
    @rule()
    def somebody_cancels(self) -> None:
        self.run.cancel()
        if not self.model.driving:
            self.model.take_up()
        self.want("cancel")

    def want(self, kind: Literal["pause", "interrupt", "cancel"]) -> None:
        if self.model.wanted != "cancel":
            self.model.wanted = kind
        self.model.go_on()

    @precondition(lambda self: bool(self.model.having("asked")) and self.model.status in ("running", "paused"))
    @rule(allow=st.booleans())
    def somebody_answers(self, allow: bool) -> None:
        self.run.approve(GATED, allow=allow)
        self.model.allowed = allow
        self.model.steps[GATED] = "idle"
        self.model.go_on()

    @precondition(lambda self: bool(self.model.having("doubt")) and self.model.status in ("running", "paused"))
    @rule(choice=st.sampled_from(["again", "done", "fail"]))
    def somebody_decides(self, choice: Literal["again", "done", "fail"]) -> None:
        if ONCE not in self.run.state.questions:
            return  # its driver died with the doubt, and nobody has been asked yet
        self.run.settle(ONCE, choice, 7)
        if choice == "done":
            self.model.finish(ONCE, 7)
        else:
            self.model.steps[ONCE] = "idle" if choice == "again" else "failed"
            self.model.go_on()

    @precondition(lambda self: self.model.status in ("running", "paused"))
    @rule()
    def time_passes(self) -> None:
        self.run.pass_time(10.0)  # longer than any backoff of three retries
        self.model.due = self.model.having("retry")
        self.model.go_on()

    @precondition(driven)
    @rule()
    def the_driver_dies(self) -> None:
        self.run.crash()
        self.model.die()

    @precondition(at_work)
    @rule(number=st.integers(0, 5), moment=st.sampled_from(["before_commit", "after_commit"]))
    def the_driver_dies_around_a_commit(self, number: int, moment: Literal["before_commit", "after_commit"]) -> None:
        step = self.choose(dict(self.run.running), number)
        after = copy.deepcopy(self.model)
        after.one_commit = True
        after.finish(step, 1)
        after.one_commit = False
        self.run.crash(moment)
        self.run.finish(step, 1)
        if moment == "after_commit":
            self.model = after
        self.model.die()

    @precondition(resumable)
    @rule()
    def somebody_resumes(self) -> None:
        self.run.resume()
        self.model.take_up()
        self.model.go_on()

    @precondition(lambda self: self.run.state.status.finished)
    @rule()
    def it_is_over_and_another_one_begins(self) -> None:
        before = len(self.run.journal)
        with pytest.raises(ValueError, match="nothing to resume"):
            self.run.resume()
        self.run.pass_time(1000.0)
        assert len(self.run.journal) == before
        self.teardown()
        self.begin()

    @invariant()
    def the_rules_agree_with_the_model(self) -> None:
        state, model = self.run.state, self.model
        assert (str(state.status), self.run.driving) == (model.status, model.driving)
        assert {name: self._standing(name) for name in NEEDS} == model.steps
        assert {name: state.steps[name].attempts for name in NEEDS} == model.attempts
        assert {name: step.output for name, step in state.steps.items() if step.status == "completed"} == model.outputs
        if model.driving:
            assert set(self.run.running) == model.having("running")

    def _standing(self, name: str) -> str:
        step = self.run.state.steps[name]
        if step.status in ("running", *SETTLED):
            return str(step.status)
        if step.status == "waiting" and (step.waiting_for == "retry" or name in self.run.state.questions):
            return {"retry": "retry", "approval": "asked", "outcome": "doubt"}[str(step.waiting_for)]
        return "idle"

    @invariant()
    def the_journal_gives_it_all_back(self) -> None:
        assert picture(fold(self.run.journal)) == picture(self.run.state)

    def teardown(self) -> None:
        check_journal(self.run.journal)
        check_performed(self.run)


def play(examples: int) -> None:
    """Let Hypothesis think up so many executions of 50 moves each."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    run_state_machine_as_test(Machine, settings=profile)  # type: ignore[no-untyped-call]


def test_d3_the_execution_agrees_with_its_model_whatever_is_done_to_it() -> None:
    play(80)


def test_d3_what_may_happen_once_and_a_critical_failure_cut_off_is_in_doubt_until_the_others_have_stopped() -> None:
    machine = Machine()
    machine.an_attempt_finishes(0, 0)
    machine.an_attempt_fails(2, transient=False)
    for number, standing in ((1, "doubt"), (0, "skipped")):
        machine.an_attempt_obeys(number)
        machine.the_rules_agree_with_the_model()
        assert machine.model.steps[ONCE] == standing
    machine.teardown()


@pytest.mark.soak
def test_d3_the_execution_agrees_with_its_model_the_long_form() -> None:
    play(500)
