"""Many agents at one limit (E1): they pass it by at most the call each is in, those that wait say so, and what was
passed is said. Agents that ask before each call pass it by one call in all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan
from waiting import skip_time

import windlass
from windlass import Plan
from windlass.core import events as ev
from windlass.core.budget import ReservationRefused
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.agents import reservation
from windlass.engine.commit_writer import head_of
from windlass.errors import Category, Failure
from windlass.journal.ledger import SqliteLedger
from windlass.journal.memory import MemoryLedger
from windlass.ports import AgentRequest, AgentResult, Amount, Host, Ledger, Usage
from windlass.testing import MemoryJournal, ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

CALL = 0.3
"""Dollars of one call; two hundred tokens."""


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "LOOK_AGAIN", 0.01)


class Calling(ScriptedRunner):
    """Agents that make three calls each, all as dear as a call can be."""

    def __init__(self, *, asks: bool, calls: int = 3) -> None:
        """`asks`: before each call, as the `cli` runtime does; else only what was used is told, after it."""
        super().__init__(name="cli")
        self.call = Amount(CALL, 200)
        self.asks, self.calls = asks, calls
        self.made = 0
        self.counts = True
        """It reports what a call used; else nobody knows."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        stopped = self._running[request.id] = asyncio.Event()
        used = Usage(usd=0.0)
        for _ in range(self.calls):
            if self.asks and not await host.afford(100):
                return AgentResult("half", usage=self._told(used), interrupted=True)
            if stopped.is_set():
                return AgentResult("half", usage=self._told(used), interrupted=True)
            self.made += 1
            await asyncio.sleep(0)
            used = Usage(used.tokens_in + 100, used.tokens_out + 100, usd=(used.usd or 0.0) + CALL, source="runtime")
            host.usage(self._told(used))
            if not self.asks:
                await host.watched()  # type: ignore[attr-defined]
        return AgentResult("whole", usage=self._told(used))

    def _told(self, used: Usage) -> Usage:
        return used if self.counts or not self.made else Usage()


def crowd(count: int, **more: Any) -> Plan:
    return plan(*(agent(f"s{number}", **more) for number in range(count)), limits={"parallel": count})


async def spent(ledger: Ledger) -> float:
    return sum(row.usd for row in await ledger.spent("execution"))


def over(state: State) -> list[tuple[str, str]]:
    return [(passed["scope"], passed["unit"]) for passed in snapshot(state)["budget"]["overruns"]]


@pytest.mark.parametrize("asks", [True, False], ids=["asks before", "tells after"])
@pytest.mark.parametrize("scope", ["step", "execution", "day", "month"])
@pytest.mark.parametrize("count", [1, 4, 16])
async def test_e1_agents_at_once_pass_a_limit_by_at_most_one_call_each_and_say_so(
    project: Project, tmp_path: Path, count: int, scope: str, asks: bool
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    runner = Calling(asks=asks)
    world = AgentWorld(project, runner, ledger=ledger, budget={scope: 0.5 if scope == "step" else 1.0})
    many = (
        plan(agent("each", foreach=list(range(count))), limits={"parallel": count}) if scope == "step" else crowd(count)
    )
    state = await world.run(many)
    total, limit = await spent(ledger), 0.5 if scope == "step" else 1.0
    most = CALL if asks else count * CALL
    if total < count * 3 * CALL - 1e-9:
        assert (state.status, state.paused_for) == ("paused", "budget")
        assert total >= limit - CALL, "what there is can be spent"
    assert total <= limit + most + 1e-9
    assert total == pytest.approx(runner.made * CALL), "every call is counted"
    assert (await ledger.spent("execution"))[0].reserved_usd == 0.0
    assert (over(state) != []) == (total > limit + 1e-9), "what passed the limit is said, and nothing else"
    for passed in state.overruns.values():
        assert (passed.scope, passed.limit) == (scope, limit)
        assert passed.spent == pytest.approx(total)


@pytest.mark.parametrize("count", [4, 16])
async def test_e1_agents_whose_one_call_passes_the_limit_run_one_by_one(project: Project, count: int) -> None:
    """Four calls of $2.10 at once are not begun under a limit of $1.00: one is, and the rest finds the limit passed."""
    runner = Calling(asks=True, calls=1)
    runner.call = Amount(2.1, 200)
    world = AgentWorld(project, runner)
    state = await world.run(crowd(count), budget={"execution": 0.2})
    assert runner.made == 1
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert over(state) == [("execution", "usd")]
    (passed,) = state.overruns.values()
    assert passed.message == "the limit of $0.20 for this execution is exceeded: $0.30 spent, $0.10 over"


async def test_e1_several_engines_of_one_home_share_the_limit_of_the_day(project: Project, tmp_path: Path) -> None:
    journal, file = MemoryJournal(), tmp_path / "ledger.db"
    runners = [Calling(asks=True) for _ in range(4)]
    worlds = [
        AgentWorld(project, runner, journal=journal, ledger=SqliteLedger(file), budget={"day": 2.0})
        for runner in runners
    ]
    states = await asyncio.gather(*(world.run(crowd(4)) for world in worlds))
    ledger = SqliteLedger(file)
    total = await spent(ledger)
    assert 2.0 - CALL <= total <= 2.0 + CALL + 1e-9
    assert total == pytest.approx(sum(runner.made for runner in runners) * CALL)
    assert {(str(state.status), state.paused_for) for state in states} == {("paused", "budget")}
    assert sum(row.reserved_usd for row in await ledger.spent("day")) == 0.0


@pytest.mark.parametrize("limit", [{"usd": 1.0}, {"tokens": 700}], ids=str)
async def test_e1_calls_that_nobody_measured_count_with_what_was_reserved_for_them(
    project: Project, limit: dict[str, float]
) -> None:
    """A server that reports no tokens does not go round a limit."""
    ledger, runner = MemoryLedger(), Calling(asks=True, calls=20)
    runner.counts = False
    world = AgentWorld(project, runner, ledger=ledger, budget={"execution": limit})
    state = await world.run(crowd(4))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert 3 <= runner.made <= 5
    assert snapshot(state)["cost"]["text"] == "unknown"


async def test_e1_a_token_limit_is_held_in_the_same_way(project: Project) -> None:
    ledger, runner = MemoryLedger(), Calling(asks=True)
    world = AgentWorld(project, runner, ledger=ledger, budget={"execution": {"tokens": 700}})
    state = await world.run(crowd(8))
    (row,) = await ledger.spent("execution")
    assert 500 <= row.tokens_in + row.tokens_out <= 900
    assert over(state) == ([("execution", "tokens")] if row.tokens_in + row.tokens_out > 700 else [])


async def test_e1_an_attempt_that_waits_for_room_says_so_and_goes_on(project: Project) -> None:
    class Gate(Calling):
        """Its first call lasts until the gate is opened."""

        gate: asyncio.Event

        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            if not self.made:
                assert await host.afford(100)
                self.made = 1
                await self.gate.wait()
                return AgentResult("first", usage=Usage(10, usd=0.1, source="runtime"))
            return await super().run(request, host)

    runner = Gate(asks=True, calls=1)
    runner.gate = asyncio.Event()
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent("a"), agent("b"), budget=0.5))
        waited = await occurred(execution, ev.BudgetWaited)
        assert waited.message == (
            "waiting for room in the budget for this execution: $0.00 spent and $0.30 reserved of $0.50"
        )
        step = next(s for s in snapshot(await execution.state())["steps"] if s["id"] == waited.step)
        assert (step["status"], step["waiting_for"], step["waiting_because"]) == ("running", "budget", waited.message)
        runner.gate.set()
        state = await execution.wait()
    assert state.status == "completed"
    assert over(state) == []
    assert {s["waiting_for"] for s in snapshot(state)["steps"]} == {None}
    told = [event.message for event in await world.events(state.id) if isinstance(event, ev.BudgetWaited)]
    assert told == [waited.message, ""]


async def test_e1_agents_whose_calls_turn_out_dearer_do_not_keep_the_room_from_each_other(project: Project) -> None:
    class Dearer(ScriptedRunner):
        """The prompt of the first call, with the tools in it, is longer than was known when the attempt began."""

        def call_cost(self, model: str | None, prompt: int) -> Amount:
            return Amount(0.4 if prompt > 1_000_000 else CALL)

        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            await begun.wait()
            assert await host.afford(1_000_001)
            return AgentResult("done", usage=Usage(10, usd=0.1, source="runtime"))

    begun = asyncio.Barrier(3)
    state = await AgentWorld(project, Dearer(name="cli"), budget={"execution": 0.95}).run(crowd(3))
    assert state.status == "completed"


class Counting(MemoryLedger):
    """Lets one know when room was looked for often and in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.refused, self.often = 0, asyncio.Event()

    async def reserve(self, *wanted: Any) -> ReservationRefused | None:
        refusal = await super().reserve(*wanted)
        self.refused += refusal is not None
        if self.refused == 2:
            self.often.set()
        return refusal


async def test_e1_the_wait_for_room_is_not_the_steps_own_time(project: Project) -> None:
    """The second waits for room, and its timeout is over before there is any."""
    ledger, at_work = Counting(), asyncio.Event()

    class Slow(ScriptedRunner):
        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            if not at_work.is_set():
                at_work.set()
                await ledger.often.wait()
                skip_time(120)
            return AgentResult("done", usage=Usage(10, usd=0.1, source="runtime"))

    @windlass.tool
    async def when_a_works() -> None:
        await at_work.wait()

    world = AgentWorld(project, Slow(name="cli"), ledger=ledger, tools=[when_a_works])
    steps = [agent("a"), windlass.Step(id="t", tool="when_a_works"), agent("b", needs=["t"], timeout="2m")]
    state = await world.run(plan(*steps, budget=0.4))
    assert state.status == "completed"
    assert state.steps["b"].attempts == 1


async def test_e1_a_limit_below_the_price_of_one_call_lets_one_begin_and_says_what_it_can_cost(
    project: Project,
) -> None:
    runner = ScriptedRunner([Turn().say("cheap").spend(tokens_in=10, usd=0.01)], name="cli")
    runner.call = Amount(5.4, 200_000)
    world = AgentWorld(project, runner)
    state = await world.run(plan(budget=0.3))
    assert state.status == "completed"
    notes = [e.text for e in await world.events(state.id) if isinstance(e, ev.OutputWritten) and e.stream == "note"]
    assert notes == ["one call can cost up to $5.40, and $0.30 is left of the limit of $0.30 for this execution\n"]


@pytest.mark.parametrize("scope", ["execution", "day"])
async def test_e1_a_model_without_a_price_is_refused_before_it_begins(project: Project, scope: str) -> None:
    runner = ScriptedRunner([done()], name="cli")
    runner.call = Amount(None, 1000)
    world = AgentWorld(project, runner, budget={scope: 0.3}, runtimes={"cli": {"model": "homemade"}})
    state = await world.run(plan())
    error = state.steps["work"].error
    assert runner.requests == []
    assert error is not None
    assert error.category == "configuration"
    assert error.message.startswith("no price is known for homemade, so the limit of $0.30 for ")
    assert '[prices."homemade"]' in error.advice[0]
    assert ("`budget_tokens`" in error.advice[-1]) == (scope == "execution"), "no advice that leads back here"
    assert (state.cost.usd, state.cost.unknown) == (0.0, 0)
    assert (await world.run(plan(), budget={"execution": {"tokens": 5000}})).status == "completed"


async def test_e1_a_runtime_that_cannot_price_its_first_call_is_stopped_after_it(project: Project) -> None:
    turn = Turn(session="s1").spend(tokens_in=500).hang()
    world = AgentWorld(project, ScriptedRunner([turn], name="open-code"), runtime="open-code")
    state = await world.run(plan(budget=0.3))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, error.message[:18]) == ("configuration", "no price is known ")
    assert state.cost.tokens == 500


async def test_e1_what_is_known_of_a_call_that_broke_off_is_said_as_at_least(project: Project) -> None:
    ledger = MemoryLedger()
    broke = AgentResult("half", Failure(Category.LOGIC, "it broke off"), Usage(20))
    turn = Turn(moves=Turn().spend(usd=1.12).moves, result=broke)
    world = AgentWorld(project, ScriptedRunner([turn], name="cli"), ledger=ledger)
    state = await world.run(plan())
    assert snapshot(state)["cost"]["text"] == "at least $1.12"
    assert (snapshot(state)["cost"]["usd"], snapshot(state)["cost"]["known"]) == (1.12, False)
    (row,) = await ledger.spent("execution")
    assert (row.usd, row.unknown) == (1.12, 1)


async def test_e1_an_execution_that_ended_over_its_budget_says_so_until_the_limit_is_raised(project: Project) -> None:
    world = AgentWorld(project, ScriptedRunner([Turn().say("dear").spend(tokens_in=9, usd=2.0)], name="cli"))
    state = await world.run(plan(budget=1))
    assert (state.status, over(state)) == ("completed", [("execution", "usd")])
    assert head_of(state).detail == "over budget"
    state.apply(ev.BudgetAnswered(0.0, True, "me", usd=5.0))
    assert over(state) == []


async def test_e1_the_items_of_a_step_share_its_limit(project: Project) -> None:
    world = AgentWorld(project, Calling(asks=True, calls=1))
    many = plan(agent("each", foreach=[1, 2, 3, 4], budget=0.7), limits={"parallel": 1})
    async with world.engine() as engine:
        execution = await engine.start(many)
        told = await occurred(execution, ev.StepWaiting)
        assert (told.scope, told.reason) == ("step", "budget")
        await engine.allow_budget(execution.id, usd=5, scope="step", step=told.step)
        state = await execution.wait()
    assert state.status == "completed"
    assert state.cost.usd == pytest.approx(4 * CALL)
