"""The gates at which the steps of this process wait: the person who asks why nothing happens is told (C4, C8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from gate_worlds import Scripted

from windlass.core.breaker import Breaker
from windlass.core.decide import Policy
from windlass.engine.gates import Gates
from windlass.engine.waiting import waiting_steps
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.ports import Call
from windlass.process import Supervisor
from windlass.testing import FakeClock, Simulation
from windlass.tools.built_in import Registry


class Hosted(Scripted):
    """A tool with a breaker for each host, as `http.get` has."""

    def circuit(self, arguments: Mapping[str, Any]) -> str:
        return f"host {arguments['host']}"


class World:
    """An execution, and gates with the breaker of `host down` open."""

    def __init__(self, *steps: dict[str, Any], policy: Policy | None = None) -> None:
        self.clock = FakeClock()
        self.run = Simulation(Plan.model_validate({"name": "p", "steps": steps}), clock=self.clock, policy=policy)
        self.gates = Gates(clock=self.clock)
        self.run.start()
        self.trip("host down")

    def trip(self, circuit: str) -> None:
        self.gates.book.keep_breaker(circuit, Breaker(5, 1, self.clock.now() + 30.0, because="no answer"))

    def fail(self, step: str, message: str = "no answer") -> None:
        self.run.fail(step, Failure(Category.TRANSIENT, message))
        assert self.run.state.steps[step].waiting_for == "retry"

    def told(self) -> list[dict[str, Any]]:
        return waiting_steps(self.gates, [self.run.state], Registry([Hosted("ask"), Scripted("work")]), self.run.policy)

    def steps(self) -> dict[str, list[str]]:
        """The steps that wait, by the name of their gate."""
        return {gate["name"]: [step["step"] for step in gate["steps"]] for gate in self.told()}

    @contextmanager
    def waiting(self, gate: Literal["slot", "rate", "place"], tool: str, step: str, of: str = "") -> Iterator[None]:
        folder = Path("/")
        execution = of or self.run.state.id
        call = Call(execution=execution, step=step, attempt=1, workdir=folder, folder=folder, processes=Supervisor())
        with self.gates.waits.noted(gate, tool, call, self.clock.now()):
            self.clock.advance(1.0)
            yield


def asking(step: str, host: str = "down") -> dict[str, Any]:
    return {"id": step, "tool": "ask", "with": {"host": host}, "retry": {"delay": 60}}


def test_c8_steps_that_wait_at_a_gate_are_counted_and_named_with_the_longest_wait_first() -> None:
    world = World(asking("a"), asking("b"), asking("c"))
    began = world.clock.now()
    with (
        world.waiting("rate", "ask", "b"),
        world.waiting("place", "ask", "c"),
        world.waiting("rate", "ask", "a"),
        world.waiting("rate", "ask", "a", of="another process's"),
    ):
        known = {"execution": "simulated", "plan": "p", "until": None}
        place = [{"step": "c", "since": began + 1.0, **known}]
        rate = [{"step": "b", "since": began, **known}, {"step": "a", "since": began + 2.0, **known}]
        assert world.told() == [
            {"gate": "place", "name": "ask", "count": 1, "steps": place},
            {"gate": "rate", "name": "ask", "count": 2, "steps": rate},
        ]
    assert world.told() == []


def test_c8_of_many_steps_at_a_gate_the_first_twenty_are_named() -> None:
    names = [f"s{number}" for number in range(22)]
    world = World(*map(asking, names))
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(world.waiting("slot", "", name))
        (slot,) = world.told()
    assert (slot["count"], [step["step"] for step in slot["steps"]]) == (22, names[:20])


def test_c4_a_step_whose_next_attempt_meets_an_open_breaker_waits_at_it_until_that_attempt() -> None:
    world = World(asking("a"), asking("up", "up"), asking("runs"), {**asking("work"), "tool": "work"})
    world.clock.advance(5.0)
    for step in ("a", "up", "work"):
        world.fail(step)
    failed = world.clock.now()
    world.clock.advance(1.0)
    world.run.finish("runs")
    retried = world.run.state.steps["a"].until
    waits = {"execution": "simulated", "plan": "p", "step": "a", "since": failed, "until": retried}
    assert world.told() == [{"gate": "breaker", "name": "host down", "count": 1, "steps": [waits]}]
    world.trip("work")
    assert world.steps() == {"host down": ["a"], "work": ["work"]}
    world.gates.book.keep_breaker("host down", Breaker())
    world.gates.book.keep_breaker("work", Breaker(1, because="it does not count yet"))
    assert world.told() == []


def test_c4_a_step_that_waits_for_something_else_or_not_at_all_does_not_wait_at_a_breaker() -> None:
    world = World(
        asking("asks") | {"approve": "always"}, asking("runs"), asking("over"), asking("after") | {"needs": "over"}
    )
    world.run.fail("over", Failure(Category.LOGIC, "no such page"))
    assert {step.id: str(step.status) for step in world.run.state.top_level()} == {
        "asks": "waiting",
        "runs": "running",
        "over": "failed",
        "after": "skipped",
    }
    assert world.told() == []
    world.run.approve("asks")
    world.fail("asks")
    assert world.steps() == {"host down": ["asks"]}


def test_c4_a_tool_that_is_gone_or_cannot_tell_its_breaker_holds_up_no_answer() -> None:
    world = World(asking("a"), {"id": "gone", "tool": "gone", "retry": 3}, {"id": "bare", "tool": "ask", "retry": 3})
    for step in ("a", "gone", "bare"):
        world.fail(step)
    world.trip("gone")
    assert world.steps() == {"host down": ["a"]}


def test_c4_an_agent_waits_at_the_breaker_of_its_runtime_and_of_the_account_that_failed() -> None:
    agent = {"agent": "developer", "prompt": "do it", "retry": 3}
    world = World(
        {"id": "mine", **agent}, {"id": "other", "runtime": "claude-code", **agent}, policy=Policy(runtime="cli")
    )
    for step in ("mine", "other"):
        world.fail(step, "circuit open with openai, account 3fa1b2c4")
    assert world.told() == []
    world.trip("runtime cli (openai, account 3fa1b2c4)")
    assert world.steps() == {"runtime cli (openai, account 3fa1b2c4)": ["mine"]}
    world.trip("runtime cli (anthropic, account 77)")
    world.trip("runtime claude-code")
    assert world.steps() == {"runtime claude-code": ["other"], "runtime cli (openai, account 3fa1b2c4)": ["mine"]}
