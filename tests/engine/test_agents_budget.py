"""Budgets (E1, E3): set aside before, watched while it runs, settled after; asked for, refused, raised."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, done, occurred, plan

import windlass
from windlass import Execution
from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.agents import reservation
from windlass.errors import Category, Failure, NotFound, UsageError
from windlass.journal.ledger import SqliteLedger
from windlass.journal.memory import MemoryLedger
from windlass.ports import AgentRequest, AgentResult, Amount, Charge, Host, Ledger, ReservationRefused, Usage
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

SCOPES = ["step", "execution", "day", "month"]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether others have settled is looked at without a wait."""
    monkeypatch.setattr(reservation, "LOOK_AGAIN", 0.01)


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    return MemoryLedger() if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db")


def cli(*script: Turn | AgentResult) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


def spends(usd: float | None = None, tokens: int = 10, **more: Any) -> Turn:
    return Turn(**more).say("spent").spend(tokens_in=tokens, usd=usd)


async def asked(execution: Execution, count: int = 1) -> ev.StepWaiting:
    told = await occurred(execution, ev.StepWaiting, count)
    assert isinstance(told, ev.StepWaiting)
    assert told.reason == "budget"
    return told


async def row(ledger: Ledger) -> Any:
    (found,) = await ledger.spent("execution")
    return found


# -- at the limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["usd", "tokens"])
@pytest.mark.parametrize("scope", SCOPES)
async def test_e1_an_agent_that_passes_a_limit_is_stopped_and_goes_on_once_more_is_allowed(
    project: Project, ledger: Ledger, scope: str, unit: str
) -> None:
    limit, passed = (1.0, spends(1.5)) if unit == "usd" else (30_000, spends(0.0, 40_000))
    runner = cli(Turn(session="s1", moves=passed.moves).hang(), done("whole"))
    world = AgentWorld(project, runner, ledger=ledger, budget={scope: {unit: limit}})
    async with world.engine() as engine:
        execution = await engine.start(plan())
        told = await asked(execution)
        assert (told.scope, told.unit, told.until) == (scope, unit, None)
        assert told.needed is not None
        assert told.needed > (1.5 if unit == "usd" else 40_000), "what is offered lets it go on"
        assert runner.interrupts, "it was asked to end its turn"
        question = snapshot(await execution.state())["steps"][0]["question"]
        assert question["kind"] == "budget"
        assert ("$1.00" if unit == "usd" else "30,000 tokens") in question["text"]
        await engine.allow_budget(execution.id, **{unit: told.needed}, scope=scope, step="work", by="me")
        state = await execution.wait()
    assert (state.status, state.steps["work"].output) == ("completed", "whole")
    assert [request.session for request in runner.requests] == [None, "s1"], "in the same conversation"
    assert state.steps["work"].failures is None, "no retry was counted"
    answered = [event for event in await world.events(state.id) if isinstance(event, ev.BudgetAnswered)]
    assert [(event.allow, event.scope, event.by) for event in answered] == [(True, scope, "me")]


class Slow(ScriptedRunner):
    """A runtime that is told to stop when its next call has begun, which is paid for."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        result = await super().run(request, host)
        usage = Usage(usd=5.0 * result.interrupted, tokens_in=100_000 * result.interrupted)
        return replace(result, usage=usage)


@pytest.mark.parametrize(("unit", "cost"), [("usd", 5.0), ("tokens", 100_000)])
async def test_e1_the_new_limit_that_is_offered_covers_a_call_that_was_under_way(
    project: Project, ledger: Ledger, unit: str, cost: float
) -> None:
    limit, passed = (1.0, spends(1.5)) if unit == "usd" else (30_000, spends(0.0, 40_000))
    runner = Slow([Turn(moves=passed.moves).hang(), done("whole")], name="cli")
    world = AgentWorld(project, runner, ledger=ledger)
    async with world.engine() as engine:
        execution = await engine.start(plan(budget={unit: limit}))
        told = await asked(execution)
        assert told.needed is not None
        assert told.needed > cost
        assert ("$5.00 spent" if unit == "usd" else "100,000 tokens spent") in str(told.question)
        await engine.allow_budget(execution.id, **{unit: told.needed}, scope="execution", step="work", by="me")
        state = await execution.wait()
    assert (state.status, state.steps["work"].output) == ("completed", "whole")


@pytest.mark.parametrize("unit", ["usd", "tokens"])
async def test_e1_what_exactly_fits_fits_and_the_next_is_asked_before_it_begins(
    project: Project, ledger: Ledger, unit: str
) -> None:
    turn = spends(1.0) if unit == "usd" else spends(0.0, 30_000)
    runner = cli(turn)
    world = AgentWorld(project, runner, ledger=ledger)
    budget = {"usd": 1.0} if unit == "usd" else {"tokens": 30_000}
    state = await world.run(plan(agent("a"), agent("b", needs=["a"]), budget=budget))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert [str(state.steps[name].status) for name in "ab"] == ["completed", "waiting"]
    assert len(runner.requests) == 1


async def test_e1_a_limit_below_any_call_says_so_and_offers_one_that_is_enough(project: Project) -> None:
    world = AgentWorld(project, cli(done("whole")), ledger=MemoryLedger())
    async with world.engine() as engine:
        execution = await engine.start(plan(budget=0.0002))
        told = await asked(execution)
        assert told.question == (
            "the limit of $0.0002 for this execution is too small for a call of a model: "
            "no call begins with less than $0.0010"
        )
        await engine.allow_budget(execution.id, usd=told.needed, scope="execution", step="work", by="me")
        assert (await execution.wait()).status == "completed"


@pytest.mark.parametrize("budget", [0, {"usd": 0}, {"tokens": 0}], ids=str)
async def test_e1_a_budget_of_nothing_lets_nothing_begin(project: Project, ledger: Ledger, budget: Any) -> None:
    runner = cli(done())
    world = AgentWorld(project, runner, ledger=ledger)
    state = await world.run(plan(budget=budget))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert runner.requests == []
    assert state.cost.usd == 0.0


async def test_e1_last_words_that_pass_the_limit_are_paid_for_and_kept(project: Project, ledger: Ledger) -> None:
    runner = cli(spends(3.0).done("all of it"))
    world = AgentWorld(project, runner, ledger=ledger)
    state = await world.run(plan(agent("a"), agent("b", needs=["a"]), budget=1))
    assert state.steps["a"].output == "all of it"
    assert state.steps["b"].waiting_for == "budget"
    assert (await row(ledger)).usd == pytest.approx(3.0)


async def test_e1_a_runtime_is_told_what_it_may_spend_at_most(project: Project) -> None:
    runner = cli(spends(0.4), done())
    world = AgentWorld(project, runner, budget={"day": 7})
    await world.run(plan(agent("a"), agent("b", needs=["a"], budget={"tokens": 500}), budget=1))
    first, second = (request.budget for request in runner.requests)
    assert first == Amount(1.0, None)
    assert second == Amount(pytest.approx(0.6), 500)  # type: ignore[arg-type]


async def test_e1_the_first_call_of_an_attempt_is_priced_with_the_conversation_that_it_goes_on_in(
    project: Project,
) -> None:
    class Priced(ScriptedRunner):
        def call_cost(self, model: str | None, prompt: int) -> Amount:
            asked.append(prompt)
            return self.call

    asked: list[int] = []
    spent = Turn(session="s1").spend(tokens_in=50_000, usd=0.1)
    runner = Priced([spent.fail("stuck"), spent.fail("stuck"), done()], name="cli")
    world = AgentWorld(project, runner, budget={"day": 9})
    state = await world.run(plan(agent(retry={"max": 0})))
    first_of = [asked[0]]
    for fresh in (False, True):
        begun = len(asked)
        async with world.engine() as engine:
            await engine.retry(state.id, "work", fresh=fresh)
            state = await (await engine.resume(state.id)).wait()
        first_of.append(asked[begun])
    assert [request.session for request in runner.requests] == [None, "s1", None]
    assert [prompt >= 50_000 for prompt in first_of] == [False, True, False]


async def test_e1_a_runtime_that_holds_itself_to_its_allowance_is_asked_for_under_the_right_limit(
    project: Project, ledger: Ledger
) -> None:
    stopped = AgentResult(
        failure=Failure(Category.RESOURCE, "its budget is used up"),
        usage=Usage(10, 1, usd=0.2, source="runtime"),
        session="s1",
        metadata={"budget": True},
    )
    runner = cli(stopped, done("whole"))
    world = AgentWorld(project, runner, ledger=ledger, budget={"day": 9})
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(budget=0.2), budget=5))
        told = await asked(execution)
        assert (told.scope, told.unit) == ("step", "usd")
        assert told.needed is not None
        await engine.allow_budget(execution.id, usd=told.needed, scope="step", step="work")
        state = await execution.wait()
    assert state.steps["work"].output == "whole"
    assert runner.requests[1].session == "s1"


async def test_e1_a_budget_of_the_runtimes_own_is_an_ordinary_failure(project: Project) -> None:
    own = AgentResult(failure=Failure(Category.LOGIC, "the account is empty"), metadata={"budget": True})
    state = await AgentWorld(project, cli(own)).run(plan())
    assert state.steps["work"].status == "failed"


# -- answers -------------------------------------------------------------------------------------


async def test_e3_a_no_pauses_it_and_is_written_down(project: Project) -> None:
    runner = cli(Turn(session="s1").spend(usd=2.0).hang(), done("whole"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(budget=1))
        await asked(execution)
        await engine.allow_budget(execution.id, allow=False, by="me")
        state = await execution.wait()
        assert (state.status, state.paused_for) == ("paused", "budget")
        (answer,) = [event for event in await world.events(state.id) if isinstance(event, ev.BudgetAnswered)]
        assert (answer.allow, answer.by) == (False, "me")
        state = await (await engine.resume(state.id, hold=False)).wait()
        assert (state.status, state.paused_for) == ("paused", "budget"), "resumed as it is, it stands where it stood"
        assert len(runner.requests) == 1
        raised = ev.BudgetAnswered(world.clock.now(), True, "me", usd=5.0)
        state = await (await engine.resume(state.id, hold=False, budget=[raised])).wait()
    assert (state.status, state.steps["work"].output) == ("completed", "whole")
    assert runner.requests[1].session == "s1"


async def test_e3_it_may_be_allowed_while_it_stands_still(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().spend(usd=2.0).hang(), done()))
    state = await world.run(plan(budget=1))
    assert state.paused_for == "budget"
    async with world.engine() as engine:
        await engine.allow_budget(state.id, usd=5)
        assert (await (await engine.resume(state.id, hold=False)).wait()).status == "completed"


@pytest.mark.parametrize("scope", SCOPES)
async def test_e3_a_higher_limit_in_the_settings_is_heeded_at_the_next_resume(project: Project, scope: str) -> None:
    """Also another day: what stood at yesterday's limit is not asked about for ever."""
    world = AgentWorld(project, cli(Turn().spend(usd=2.0).hang(), done()))
    state = await world.run(plan(), budget={scope: 1})
    assert state.paused_for == "budget"
    assert (await world.resume(state.id, budget={scope: 9})).status == "completed"


async def test_e3_a_word_on_dollars_leaves_the_limit_on_tokens(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().spend(usd=2.0, tokens_in=10).hang(), spends(0.0, 50_000).hang()))
    async with world.engine() as engine:
        execution = await engine.start(plan(budget={"usd": 1, "tokens": 30_000}))
        assert (await asked(execution)).unit == "usd"
        await engine.allow_budget(execution.id, usd=9)
        told = await asked(execution, 2)
        assert (told.unit, told.scope) == ("tokens", "execution")
        await engine.allow_budget(execution.id, tokens=40_000)
        told = await asked(execution, 3)
        assert told.unit == "tokens", "the dollars of the first answer hold"


async def test_e3_a_yes_without_a_number_lifts_the_limit(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().spend(usd=2.0).hang(), spends(50.0)))
    async with world.engine() as engine:
        execution = await engine.start(plan(budget={"usd": 1, "tokens": 100_000}))
        await asked(execution)
        await engine.allow_budget(execution.id)
        assert (await execution.wait()).status == "completed"


async def test_e3_an_answer_that_fits_nothing_is_refused(project: Project) -> None:
    world = AgentWorld(project, cli(Turn().spend(usd=2.0).hang()))
    async with world.engine() as engine:
        execution = await engine.start(plan(budget=1))
        await asked(execution)
        with pytest.raises(UsageError, match="week"):
            await engine.allow_budget(execution.id, usd=2, scope="week")
        for wrong in ({"usd": -1}, {"usd": float("nan")}, {"tokens": -1}, {"tokens": 1.5}, {"usd": "much"}):
            with pytest.raises(UsageError, match="a budget of"):
                await engine.allow_budget(execution.id, **wrong)
            answer = ev.BudgetAnswered(world.clock.now(), True, "me", **wrong)
            with pytest.raises(UsageError, match="a budget of"):
                await engine.resume(execution.id, budget=[answer], take_over=True)
            # Another process may be of another version: what it sends is looked at as well.
            await world.journal.send(execution.id, world.clock.now(), {"kind": "budget", "allow": True, **wrong})
        with pytest.raises(NotFound, match="wrok"):
            await engine.allow_budget(execution.id, usd=2, scope="step", step="wrok")
        assert (await execution.cancel()).allowed == {}
        with pytest.raises(UsageError, match="cancelled"):
            await engine.allow_budget(execution.id, usd=2)


async def test_e3_where_the_settings_say_so_it_goes_on_with_a_warning(project: Project, ledger: Ledger) -> None:
    runner = cli(spends(3.0), spends(3.0))
    world = AgentWorld(project, runner, ledger=ledger, budget={"execution": 1, "on_overrun": "proceed"})
    state = await world.run(plan(agent("a"), agent("b", needs=["a"])))
    assert state.status == "completed"
    warned = [event for event in await world.events(state.id) if isinstance(event, ev.BudgetWarned)]
    assert "b" in {event.step for event in warned}
    assert all("$1.00" in event.message for event in warned)
    assert runner.requests[0].budget == Amount(), "a runtime that holds itself to a limit would not go on"


async def test_e1_one_step_at_its_limit_does_not_keep_the_others(project: Project) -> None:
    runner = cli(Turn(when="do a").spend(usd=2.0).hang(), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent("a", budget=1), agent("b"), agent("c", needs=["b"])))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert [str(state.steps[name].status) for name in "abc"] == ["waiting", "completed", "completed"]


# -- unknown -------------------------------------------------------------------------------------


async def test_e1_unknown_cost_is_shown_as_unknown_and_counts_with_what_was_set_aside(
    project: Project, ledger: Ledger
) -> None:
    runner = cli(spends(None), done())
    world = AgentWorld(project, runner, ledger=ledger, budget={"reserve_usd": 0.5})
    state = await world.run(plan(agent("a"), agent("b", needs=["a"]), budget=0.5))
    assert state.steps["b"].waiting_for == "budget", "0.50 had been set aside for the first"
    view = snapshot(state)
    assert (view["cost"]["usd"], view["cost"]["known"]) == (None, False)
    assert view["cost"]["tokens_in"] == 10
    assert view["steps"][0]["cost_usd"] is None
    assert view["steps"][0]["agent"]["cost"]["text"] == "unknown"
    found = await row(ledger)
    assert (found.usd, found.unknown, found.tokens_in) == (0.0, 1, 10)


async def test_e1_the_known_part_is_shown_and_that_it_is_a_part(project: Project) -> None:
    world = AgentWorld(project, cli(spends(0.5), spends(None)))
    state = await world.run(plan(agent("a"), agent("b", needs=["a"])))
    cost = {"usd": 0.5, "known": False, "tokens_in": 20, "tokens_out": 0, "text": "at least $0.50"}
    assert snapshot(state)["cost"] == cost
    assert [step["cost_usd"] for step in snapshot(state)["steps"]] == [0.5, None]


@pytest.mark.parametrize("usd", [-1.0, float("nan"), float("inf")], ids=str)
async def test_e1_a_cost_that_cannot_be_one_is_unknown(project: Project, ledger: Ledger, usd: float) -> None:
    world = AgentWorld(project, cli(spends(usd)), ledger=ledger)
    state = await world.run(plan(budget=1))
    assert (snapshot(state)["cost"]["usd"], snapshot(state)["cost"]["known"]) == (None, False)
    assert (await row(ledger)).unknown == 1


async def test_e1_what_died_with_its_engine_is_unknown_and_not_nothing(project: Project) -> None:
    runner = cli(Turn().spend(usd=0.25).hang(), spends(0.5))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.UsageReported)
        told_nothing = await world.cut_off(execution.id, lambda event: isinstance(event, ev.AgentBegan))
        told_some = await world.cut_off(execution.id, lambda event: isinstance(event, ev.UsageReported))
    for cut, known in ((told_nothing, 0.5), (told_some, 0.75)):
        cut.runners["cli"] = cli(spends(0.5))
        cost = snapshot(await cut.resume(execution.id))["cost"]
        assert (cost["usd"], cost["known"]) == (pytest.approx(known), False)


class Watched(SqliteLedger):
    """Says when a usage has come."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.told = asyncio.Event()

    async def reserve(self, *wanted: Any) -> ReservationRefused | None:
        refusal = await super().reserve(*wanted)
        if wanted[-1].tokens_in:
            self.told.set()
        return refusal


@pytest.mark.parametrize("limits", [{}, {"day": 5}], ids=["no limit", "limit"])
@pytest.mark.parametrize("how", ["resume", "cancel"])
async def test_e1_what_was_used_before_a_crash_counts_in_the_budget(
    project: Project, how: str, limits: dict[str, Any]
) -> None:
    ledger = Watched(project.path / "ledger.db")
    dead = Turn().spend(tokens_in=30, tokens_out=5, usd=0.25).hang()
    world = AgentWorld(project, cli(dead), ledger=ledger, budget=limits)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.UsageReported)
        await ledger.told.wait()
        found = await row(ledger)
        cut = await world.cut_off(execution.id, lambda event: isinstance(event, ev.UsageReported))
        assert (found.tokens_in, found.tokens_out, found.unknown) == (30, 5, 0), "while it runs"
        cut.runners["cli"] = cli(spends(0.5))
        if how == "resume":
            cost = (await cut.resume(execution.id)).cost
        else:
            async with cut.engine() as other:
                cost = (await other.cancel(execution.id)).cost
        total = await row(ledger)
        assert (total.usd, total.unknown, total.tokens_in, total.tokens_out) == (
            *(pytest.approx(cost.usd), cost.unknown),
            *(cost.tokens_in, cost.tokens_out),
        )
        assert (cost.tokens_in, cost.unknown, total.reserved_usd) == (40 if how == "resume" else 30, 1, 0.0)


async def test_e1_an_agent_that_died_before_its_first_report_is_unknown_in_the_budget(project: Project) -> None:
    ledger = SqliteLedger(project.path / "ledger.db")
    world = AgentWorld(project, cli(Turn().hang()), ledger=ledger)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentBegan)
        cut = await world.cut_off(execution.id, lambda event: isinstance(event, ev.AgentBegan))
        async with cut.engine() as other:
            cost = (await other.cancel(execution.id)).cost
        assert ((await row(ledger)).unknown, cost.unknown) == (1, 1)


# -- together ------------------------------------------------------------------------------------


class Careful(ScriptedRunner):
    """Agents that make calls of a dollar tenth each, and see what the engine says between two of them."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        self.requests.append(request)
        stopped = self._running[request.id] = asyncio.Event()
        used = Usage()
        for _call in range(20):
            if stopped.is_set():
                return AgentResult("half", usage=used, interrupted=True)
            used = Usage(used.tokens_in + 100, 0, usd=(used.usd or 0.0) + 0.1, source="runtime")
            host.usage(used)
            await host.watched()  # type: ignore[attr-defined]
        return AgentResult("whole", usage=used)


@pytest.mark.parametrize("scope", ["execution", "day"])
async def test_e1_agents_in_parallel_overrun_together_by_no_more_than_the_call_each_is_in(
    project: Project, ledger: Ledger, scope: str
) -> None:
    world = AgentWorld(project, Careful(name="cli"), ledger=ledger, budget={scope: 1})
    steps = [agent(f"s{number}") for number in range(4)]
    state = await world.run(plan(*steps, limits={"parallel": 4}))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert 1.0 <= (await row(ledger)).usd + 1e-9 <= 1.0 + 4 * 0.1 + 1e-9
    assert state.cost.usd == pytest.approx((await row(ledger)).usd)


class Gated(ScriptedRunner):
    """Its agents are at work until the gate is opened."""

    def __init__(self, script: list[Turn]) -> None:
        super().__init__(script, name="claude-code")
        self.at_work, self.gate = asyncio.Event(), asyncio.Event()

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        self.at_work.set()
        await self.gate.wait()
        return await super().run(request, host)


async def test_e1_room_that_others_hold_is_waited_for(project: Project, ledger: Ledger) -> None:
    """The first holds all there is while it works; the second begins when it has given some back."""
    first, second = Gated([spends(0.1)]), cli(spends(0.1))

    @windlass.tool
    async def when_a_works() -> None:
        await first.at_work.wait()

    world = AgentWorld(project, first, second, ledger=ledger, tools=[when_a_works])
    steps = [agent("a", runtime="claude-code"), windlass.Step(id="t", tool="when_a_works"), agent("b", needs=["t"])]
    async with world.engine() as engine:
        execution = await engine.start(plan(*steps, budget=0.25))
        waited = await occurred(execution, ev.BudgetWaited)
        assert (waited.step, second.requests) == ("b", [])
        first.gate.set()
        state = await execution.wait()
    assert state.status == "completed"
    assert len(second.requests) == 1
    history = [type(event).__name__ + getattr(event, "step", "") for event in await world.events(state.id)]
    assert history.index("AgentBeganb") > history.index("BudgetWaitedb")
    assert not [name for name in history if name.startswith("StepWaiting")], "nobody was asked"


def held_by_a_question() -> tuple[ScriptedRunner, windlass.Plan]:
    """The first sets aside all there is, and asks a person something; the second finds no room."""
    asks = Turn(when="do a", repeat=True).ask("Bash", {}).spend(usd=0.1).say("a")
    runner = cli(asks, Turn(when="do b", repeat=True).spend(usd=0.1).say("b"))
    return runner, plan(agent("a"), agent("b"), budget=0.25, limits={"parallel": 1})


async def test_e1_room_that_waits_for_a_person_comes_free_with_the_answer(project: Project, ledger: Ledger) -> None:
    runner, two = held_by_a_question()
    world = AgentWorld(project, runner, ledger=ledger)
    async with world.engine() as engine:
        execution = await engine.start(two)
        told = await occurred(execution, ev.StepWaiting)
        assert (told.step, told.reason) == ("b", "budget")
        assert told.until is not None, "nobody is asked for money"
        assert len(runner.requests) == 1
        await execution.approve("a")
        assert (await execution.wait()).status == "completed"


async def test_e1_with_nobody_there_it_does_not_wait_for_ever_for_who_waits_for_a_person(
    project: Project, ledger: Ledger
) -> None:
    runner, two = held_by_a_question()
    world = AgentWorld(project, runner, ledger=ledger, budget={"reserve_usd": 0.25})
    state = await world.run(two)
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert state.steps["b"].status != "completed"


async def test_e1_what_a_dead_process_had_set_aside_does_not_block_for_ever(project: Project, ledger: Ledger) -> None:
    dead = Charge("01890000-0000-7000-8000-000000000000", "work", 1)
    world = AgentWorld(project, cli(done()), ledger=ledger, budget={"day": 1})
    assert await ledger.reserve(dead, world.clock.now(), Amount(1.0, 0), []) is None
    state = await world.run(plan())
    assert state.paused_for == "budget", "it counts as spent, so a person is asked"
    assert (await world.resume(state.id, budget={"day": 2})).status == "completed"


async def test_e1_what_the_last_driver_had_set_aside_before_the_agent_began_is_given_up(
    project: Project, ledger: Ledger
) -> None:
    world = AgentWorld(project, cli(done()), ledger=ledger)
    state = await world.run(plan(budget=0.3))
    cut = await world.cut_off(state.id, lambda event: isinstance(event, ev.AttemptStarted))
    cut.ledger = MemoryLedger() if isinstance(ledger, MemoryLedger) else SqliteLedger(project.path / "other.db")
    charge = Charge(state.id, "work", 1, "cli")
    assert await cut.ledger.reserve(charge, world.clock.now(), Amount(0.3, 0), []) is None
    state = await cut.resume(state.id)
    assert state.paused_for == "budget", "it is not waited for: it counts, and a person is asked"


# -- settled, whatever happens -------------------------------------------------------------------


async def play(world: AgentWorld, runner: ScriptedRunner, how: str) -> State:
    async with world.engine() as engine:
        execution = await engine.start(plan(budget=5), hold=False)
        if how in ("interrupt", "cancel"):
            await occurred(execution, ev.UsageReported)
            return await getattr(execution, how)()  # type: ignore[no-any-return]
        return await execution.wait()


@pytest.mark.parametrize(
    ("how", "turn"),
    [
        ("success", spends(0.5)),
        ("failure", spends(0.5).fail("no")),
        ("interrupt", spends(0.5).hang()),
        ("cancel", spends(0.5).hang()),
        ("quota", spends(0.5).fail("used up", resets_at=4e9)),
        ("limit", spends(6.0).hang()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_e1_what_was_used_is_settled_however_it_ended(
    project: Project, ledger: Ledger, how: str, turn: Turn
) -> None:
    runner = cli(turn)
    world = AgentWorld(project, runner, ledger=ledger, wait_for_quota=False)
    state = await play(world, runner, how)
    found = await row(ledger)
    expected = 6.0 if how == "limit" else 0.5
    assert (found.usd, found.unknown, found.tokens_in) == (pytest.approx(expected), 0, 10)
    assert (found.reserved_usd, found.reserved_tokens) == (0.0, 0)
    assert state.cost.usd == pytest.approx(expected), "the journal knows it too"


async def test_e1_a_runner_that_raises_is_settled_with_what_it_told(project: Project, ledger: Ledger) -> None:
    class Broken(ScriptedRunner):
        async def run(self, request: AgentRequest, host: Host) -> AgentResult:
            host.usage(Usage(10, usd=0.5, source="runtime"))
            raise RuntimeError("broken")

    world = AgentWorld(project, Broken(name="cli"), ledger=ledger)
    state = await world.run(plan(budget=5))
    found = await row(ledger)
    assert (found.usd, found.reserved_usd) == (0.5, 0.0)
    assert state.cost.usd == 0.5


async def test_e1_what_never_began_cost_nothing(project: Project, ledger: Ledger) -> None:
    """Stopped while it waits for room: what was set aside goes back."""
    world = AgentWorld(project, cli(Turn().ask("Bash", {}).say("a"), done()), ledger=ledger)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent("a"), agent("b"), budget=0.25, limits={"parallel": 1}))
        await occurred(execution, ev.ApprovalAsked)
        await occurred(execution, ev.AttemptStarted, 2)
        state = await execution.cancel()
    assert state.status == "cancelled"
    found = await row(ledger)
    assert (found.reserved_usd, found.reserved_tokens) == (0.0, 0)
    assert found.unknown == 1, "the one that had begun"


async def test_d4_a_restored_execution_brings_what_it_spent_along(project: Project, ledger: Ledger) -> None:
    runner = cli(spends(0.9), spends(None), done())
    first = AgentWorld(project, runner)
    steps = [agent("a"), agent("b", needs=["a"]), agent("c", needs=["b"], approve="always")]
    async with first.engine() as engine:
        state = await (await engine.start(plan(*steps, budget=1), hold=False)).wait()
        file = await engine.checkpoint(state.id)
    second = AgentWorld(project, runner, ledger=ledger)
    async with second.engine() as engine:
        await engine.restore(file)
        found = await row(ledger)
        assert (found.usd, found.unknown, found.tokens_in) == (pytest.approx(0.9), 1, 20)
        await engine.approve(state.id, "c")
        state = await (await engine.resume(state.id, hold=False)).wait()
    assert runner.requests[-1].budget.usd == pytest.approx(0.1), "its own limit goes on where it was"


@pytest.mark.parametrize("runtime", ["open-code", "cli"])
async def test_e1_a_model_without_a_known_price_works_under_a_limit_of_tokens_alone(
    project: Project, runtime: str
) -> None:
    script = Turn().spend(tokens_in=10, usd=None).say("half").spend(tokens_in=20, tokens_out=3, usd=None).say("done")
    world = AgentWorld(project, ScriptedRunner([script], name=runtime))
    state = await world.run(plan(agent(runtime=runtime, retry=0), budget={"tokens": 100_000}))
    assert (state.status, state.steps["work"].error) == ("completed", None)
    assert (await row(world.ledger)).unknown == 1
