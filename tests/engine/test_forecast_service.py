"""Forecasts are made once for all who look, for no more than their share of the computing (D7, C7)."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_worlds import BEGAN as NOW
from agent_worlds import AgentWorld, agent, done, occurred, plan
from waiting import settled, wait_until_async

from windlass import Step, tool
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine import forecasts as module
from windlass.engine.forecasts import Forecasts, _of_tool
from windlass.engine.shared_forecast import SharedForecast
from windlass.errors import JournalError
from windlass.plan.model import Plan
from windlass.ports import Estimate, Rate, Terms, Tool
from windlass.prices import Prices
from windlass.testing import FakeClock, ScriptedRunner
from windlass.tools.built_in import Registry

if TYPE_CHECKING:
    from conftest import Project

    from windlass.core.forecast.value import Forecast
    from windlass.engine.engine import Engine

PLAN = Plan(name="p", steps=[Step(id="a", tool="greet"), Step(id="b", tool="greet", needs=["a"])])
PAUSED = ev.ExecutionPaused(NOW, "me")


@tool
def greet() -> str:
    return "hello"


@pytest.fixture
def world(project: Project) -> AgentWorld:
    return AgentWorld(project, clock=FakeClock(NOW + 60), tools=[greet])


def service(engine: Engine) -> Forecasts:
    return engine._forecasts


class Made:
    """Stands for what is made: counts, and takes its time of the processor."""

    def __init__(self, forecasts: Forecasts, cost: float = 0.0) -> None:
        self.forecasts, self.cost, self.count = forecasts, cost, 0

    async def __call__(self, state: State) -> int:
        self.count += 1
        self.forecasts.spent_s += self.cost
        return self.count


async def test_d7_of_an_execution_that_stands_still_a_forecast_is_made_for_each_change(world: AgentWorld) -> None:
    state = await world.left_behind(PLAN, PAUSED)
    async with world.engine() as engine:
        found, kept = Made(service(engine), cost=60.0), dict[str, Any]()

        async def look() -> int:
            return await service(engine)._recent(state, kept, found)

        assert [await look(), await look()] == [1, 1]
        state.apply(ev.BudgetAnswered(NOW, True, "me", "", "execution", 5.0))
        assert [await look(), await look()] == [2, 2]


async def test_d7_of_a_running_execution_a_forecast_is_as_old_as_its_cost_allows(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE", 0.5)
    state = await world.left_behind(PLAN)
    async with world.engine() as engine:
        loop = asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        found, kept = Made(service(engine), cost=2.0), dict[str, Any]()
        service(engine).spent_s = 10.0

        async def look() -> int:
            return await service(engine)._recent(state, kept, found)

        assert await look() == 1
        state.apply(ev.AttemptStarted(NOW, "a", 1, "greet", {}, "none"))
        now += 3.9
        assert await look() == 1, "it has changed, but two seconds of computing are half of four"
        now += 0.1
        assert await look() == 2


async def test_d7_forecasts_of_the_last_executions_that_were_looked_at_are_kept(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ASKED", 2)
    state = await world.left_behind(PLAN, PAUSED)
    async with world.engine() as engine:
        found, kept = Made(service(engine), cost=60.0), dict[str, Any]()
        for name in ("x", "y", "x", "z", "y"):
            state.id = name
            await service(engine)._recent(state, kept, found)
        assert (list(kept), found.count) == (["y", "z"], 3)
        state.id = "z"
        state.apply(ev.BudgetAnswered(NOW, True, "me", "", "execution", 5.0))
        await service(engine)._recent(state, kept, found)
        assert (list(kept), found.count) == (["y", "z"], 4), "a new one takes the place of its own"


async def test_d7_what_has_ended_or_cannot_be_forecast_has_no_forecast(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "windlass.engine")
    state = await world.left_behind(PLAN, PAUSED)

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("a mistake")

    async with world.engine() as engine:
        found = await service(engine).forecast(state)
        steps = await service(engine).by_step(state)
        assert found is not None
        assert steps is not None
        assert (found.unknown, found.runs, steps.at) == (("a", "b"), 0, NOW + 60)
        monkeypatch.setattr(service(engine), "_knowledge", broken)
        service(engine)._asked.clear()
        service(engine)._by_step.clear()
        service(engine)._learned.clear()
        assert await service(engine).forecast(state) is None
        assert await service(engine).by_step(state) is None
        assert await service(engine).view(state) is None
        monkeypatch.undo()
        told = [(one.getMessage(), one.exc_info and one.exc_info[0]) for one in caplog.records]
        assert told[:2] == [
            (f"{state.id} cannot be forecast", ZeroDivisionError),
            (f"the steps of {state.id} cannot be forecast", ZeroDivisionError),
        ], "the log says why"
        state.apply(ev.ExecutionFinished(NOW, "cancelled"))
        assert await service(engine).forecast(state) is None
        assert await service(engine).by_step(state) is None


async def test_d7_a_list_gets_few_forecasts_that_are_not_made_yet(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FRESH", 2)
    async with world.engine() as engine:
        ids = [await engine.create(PLAN) for _ in range(4)]
        recorded = await engine.estimate(PLAN)
        await world.journal.forecasts.add(ids[0], "p", recorded)
        views = await service(engine).views([ids[0], "gone", ids[1], ids[2], ids[0]])
        assert list(views) == [ids[0], ids[1]], "one is recorded, one cannot be read, and one is made"
        assert views[ids[0]] == {**recorded.as_dict(recorded.at), "text": recorded.beside_question()}


async def test_d7_of_an_execution_that_runs_here_only_what_was_made_here_counts(world: AgentWorld) -> None:
    async with world.engine() as engine:
        execution = await engine.create(PLAN)
        made = await engine.estimate(PLAN)
        await world.journal.forecasts.add(execution, "p", made)
        assert list(await service(engine).latest(execution)) == [execution]
        service(engine).attend_shared(execution)
        first = service(engine)._watched[execution]
        service(engine).attend_shared(execution)
        assert service(engine)._watched[execution] is first, "it is forecast already"
        assert await service(engine).latest(execution) == {}
        service(engine)._latest[execution] = made
        assert await service(engine).latest(execution) == {execution: made}
        service(engine).leave(execution)
        service(engine).leave(execution)
        assert service(engine)._latest == {}
        assert list(await service(engine).latest(execution)) == [execution]


async def test_d7_of_an_execution_that_workers_share_what_was_written_since_counts(world: AgentWorld) -> None:
    state = await world.left_behind(PLAN)
    async with world.engine() as engine:
        shared = SharedForecast(world.journal, state.id, engine.attempt_runner.tools)
        assert (await shared.refresh()).status == "running"
        await world.journal.append(state.id, state.seq, [PAUSED])
        assert (await shared.refresh()).status == "paused"
        assert shared.state is await shared.refresh()


async def test_d7_scores_and_what_was_learned_are_looked_up_again_after_a_minute(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = await world.left_behind(PLAN, PAUSED)
    plan = Plan(name="other", steps=[Step(id="a", tool="greet")])
    other = fold([ev.ExecutionCreated(NOW, "y" * 32, msgspec.Raw(plan.encoded), {}, "")], plan)
    async with world.engine() as engine:
        loop = asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        scores, known = await service(engine).scores(), await service(engine)._shared_knowledge(state)
        assert scores.keys() == {"time", "cost"}
        now += module.LEARN_AGAIN
        assert await service(engine).scores() is scores
        assert await service(engine)._shared_knowledge(state) is known
        await service(engine)._shared_knowledge(other)
        now += 0.1
        assert await service(engine).scores() is not scores
        assert await service(engine)._shared_knowledge(state) is not known
        assert len(service(engine)._learned) == 2
        now += module.LEARN_AGAIN + 0.1
        await service(engine)._shared_knowledge(state)
        assert len(service(engine)._learned) == 1


async def test_d7_an_estimate_is_made_with_the_inputs_of_the_run(world: AgentWorld) -> None:
    step = {"id": "each", "tool": "greet", "foreach": "{{ inputs.items }}"}
    plan = Plan.model_validate({"name": "p", "inputs": {"items": [1, 2]}, "steps": [step]})
    async with world.engine() as engine:
        await (await engine.start(plan)).wait()
        found: list[Forecast] = [
            await engine.estimate(plan),
            await engine.estimate(plan, None, {"items": list(range(60))}),
        ]
    assert found[0].left is not None
    assert found[1].left is not None
    assert found[1].left.middle > found[0].left.middle


async def test_d7_a_step_that_never_completed_is_forecast_by_what_its_tool_took_in_other_plans(
    project: Project,
) -> None:
    broken: list[bool] = []

    @tool
    def flaky() -> None:
        if broken:
            raise ValueError("it does not work")

    world = AgentWorld(project, tools=[flaky])
    steps = [Step(id="a", tool="flaky", retry=0)]
    async with world.engine() as engine:
        assert (await (await engine.start(Plan(name="other", steps=steps))).wait()).status == "completed"
        broken.append(True)
        own = Plan(name="own", steps=steps)
        assert (await (await engine.start(own)).wait()).status == "failed"
        found = await engine.estimate(own)
    assert (found.runs, found.unknown) == (0, ())
    assert found.left is not None


def test_h1_a_tool_is_asked_for_its_time_only_with_arguments_that_it_takes() -> None:
    class Slow(Tool):
        name, description = "slow", "Take some time"

        def validate(self, arguments: Any) -> list[str]:
            return [] if "text" not in arguments else ["not known yet"]

        def estimate(self, arguments: Any) -> Estimate:
            return Estimate(seconds=7.0, usd=0.5)

        async def execute(self, arguments: Any, call: Any) -> None: ...

    def state(**given: Any) -> Any:
        plan = Plan.model_validate({"name": "p", "steps": [{"id": "a", **given}]})

        return fold([ev.ExecutionCreated(NOW, "x", msgspec.Raw(plan.encoded), {}, "/")], plan).steps["a"]

    tools = Registry([Slow()])
    assert _of_tool(tools, state(tool="slow")) == (7.0, 0.5)
    assert _of_tool(tools, state(tool="slow", **{"with": {"text": "{{ inputs.x }}"}})) == (None, None)
    assert _of_tool(tools, state(tool="gone")) == (None, None)


async def test_d7_all_computing_for_a_forecast_counts_for_its_share(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(work: Any) -> tuple[Any, float]:
        return work(), 1.0

    monkeypatch.setattr(module, "_timed", timed)
    state = await world.left_behind(PLAN, PAUSED)
    async with world.engine() as engine:
        await service(engine).forecast(state)
        assert service(engine).spent_s == 3.0, "it learns, puts the steps in order, and simulates"
        await service(engine).by_step(state)
        assert service(engine).spent_s == 6.0
        await service(engine).by_step(state)
        assert service(engine).spent_s == 6.0


async def test_d7_a_journal_in_trouble_is_left_alone_for_a_while_and_another_error_ends_the_forecasts_of_one(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "windlass.engine")
    monkeypatch.setattr(module, "FIRST", 0.001)
    monkeypatch.setattr(module, "JOURNAL_WAIT", 3600.0)
    tried: list[str] = []

    async def make(execution: str, watched: Any) -> None:
        tried.append(execution)
        raise JournalError("the database is locked") if execution == "one" else ZeroDivisionError("a mistake")

    async with world.engine() as engine:
        monkeypatch.setattr(service(engine), "_make", make)
        for name in ("one", "other"):
            service(engine).attend_shared(name)
        await wait_until_async(lambda: len(tried) == 2)
        await settled()
        assert sorted(tried) == ["one", "other"]
        assert [one.getMessage() for one in caplog.records if one.exc_info] == [
            f"{name} cannot be forecast" for name in tried
        ], "the log says why"
        assert list(service(engine)._watched) == ["one"]
        assert service(engine)._watched["one"].due > asyncio.get_running_loop().time() + 3000


async def test_d7_each_of_several_executions_gets_its_forecast_whenever_it_begins(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST", 0.001)
    monkeypatch.setattr(module, "SHARE", 1e6)
    async with world.engine() as engine:

        async def are_forecast(*executions: str) -> bool:
            return len(await service(engine).latest(*executions)) == len(executions)

        ids = [await engine.create(PLAN) for _ in range(4)]
        for execution in ids[:2]:
            service(engine).attend_shared(execution)
        await wait_until_async(partial(are_forecast, *ids[:2]))
        service(engine).attend_shared(ids[2])
        assert service(engine)._timer is None, "the task that is at work serves it, too"
        await wait_until_async(partial(are_forecast, ids[2]))
        for execution in ids:
            service(engine).leave(execution)
        await wait_until_async(lambda: service(engine)._worker is None)
        service(engine).attend_shared(ids[3])
        await wait_until_async(partial(are_forecast, ids[3]))


async def test_d7_the_time_since_executions_run_begins_with_the_first_of_them(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST", 3600.0)
    found: list[tuple[float, float, float]] = []
    async with world.engine() as engine:
        forecasts = service(engine)
        for now, execution in ((1e6, "a"), (1e6 + 50, "b"), (1e6 + 90, "c")):
            monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda now=now: now)
            monkeypatch.setattr("time.process_time", lambda now=now: now - 1e6)
            if execution == "c":
                forecasts.leave("a")
                forecasts.leave("b")
            forecasts.attend_shared(execution)
            found.append((forecasts._attended, forecasts._computed, forecasts._watched[execution].due))
    assert found == [
        (1e6, 0.0, 1e6 + 3600),
        (1e6, 0.0, 1e6 + 50 + 3600),
        (1e6 + 90, 0.0, 1e6 + 90 + 3600),
    ]
    assert forecasts._timer is not None
    assert forecasts._timer.cancelled(), "a closed engine begins no forecast"


async def test_d7_between_two_forecasts_of_an_execution_passes_the_least_time(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST", 0.9)
    monkeypatch.setattr(module, "SHARE", 1e6)
    async with world.engine() as engine:
        execution, loop = await engine.create(PLAN), asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        service(engine).attend_shared(execution)
        now += 0.9
        while not await service(engine).latest(execution):
            await settled()
        spent = service(engine).spent_s
        await settled()
        assert service(engine).spent_s == spent
        now += 0.9
        while service(engine).spent_s == spent:
            await settled()


async def test_d7_an_execution_that_has_ended_here_is_forecast_no_more(world: AgentWorld) -> None:
    async with world.engine() as engine:
        started = await engine.start(PLAN)
        assert list(service(engine)._watched) == [started.id]
        assert (await started.wait()).status == "completed"
        await settled()
        assert service(engine)._watched == {}


async def test_d7_a_step_whose_tool_is_not_there_is_unknown_and_bands_have_the_offsets_of_their_kind(
    world: AgentWorld,
) -> None:
    gone = Plan(name="p", steps=[Step(id="a", tool="gone")])
    created = ev.ExecutionCreated(NOW, "x", msgspec.Raw(gone.encoded), {}, "/")
    async with world.engine() as engine:
        found = await service(engine).forecast(fold([created], gone))
        assert found is not None
        assert found.unknown == ("a",)
        state = await world.left_behind(PLAN)
        known = await service(engine)._shared_knowledge(state)
        around = service(engine)._surroundings(state, engine.attempt_runner.tools, known, {})
        assert around.times is known[1]
        assert around.costs is known[2]


@pytest.mark.parametrize(
    ("terms", "least", "most"),
    [(Terms(), 5, 30), (Terms(concurrent=1), 25, 90), (Terms(rate=Rate(1, 1000)), 2000, 4000)],
    ids=["no limit", "one at a time", "one in a thousand seconds"],
)
async def test_d7_a_forecast_counts_the_waits_for_a_tool_with_limits(
    project: Project, terms: Terms, least: float, most: float
) -> None:
    class Limited(Tool):
        name, description = "limited", "Take ten seconds"

        def estimate(self, arguments: Any) -> Estimate:
            return Estimate(seconds=10.0)

        async def execute(self, arguments: Any, call: Any) -> None: ...

    limited = Limited()
    limited.terms = terms
    async with AgentWorld(project, tools=[limited]).engine() as engine:
        found = await engine.estimate(Plan(name="p", steps=[Step(id=name, tool="limited") for name in "abc"]))
    assert found.left is not None
    assert least < found.left.middle < most


async def test_d7_a_forecast_counts_the_computing_between_its_beginning_and_its_end(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = count(5.0)
    monkeypatch.setattr(module, "FIRST", 0.001)
    monkeypatch.setattr("time.thread_time", lambda: next(moments))
    async with world.engine() as engine:
        execution = (await world.left_behind(PLAN)).id
        world.clock.advance(100_000 - 60)  # type: ignore[attr-defined]
        service(engine).spent_s = 100.0
        service(engine).attend_shared(execution)
        await wait_until_async(partial(service(engine).latest, execution))
        assert service(engine).spent_s == 103.0, "a second each to learn, to put the steps in order, and to simulate"
        computed, until = service(engine)._rested
        assert 3 * 40 < computed - time.process_time() <= 3 * 50, "it rests until the engine has computed so much"
        assert 3 * 200 < until - asyncio.get_running_loop().time() <= 3 * 250, "or for so long"
        due = service(engine)._watched[execution].due - asyncio.get_running_loop().time()
        assert 1000 < due <= 2000, "the next one comes after 2 % of the time that it has run"


async def test_d7_a_busy_engine_is_one_that_wrote_many_events_and_a_plan_of_many_steps_waits_longer_in_it(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST", 3600.0)
    monkeypatch.setattr(module, "BUSY", 20.0)
    plan = Plan(name="p", steps=[Step(id="a", tool="greet", approve="always")])
    before = (ev.ExecutionPaused(NOW, "me"), ev.ExecutionResumed(NOW, "gone")) * 20
    state = await world.left_behind(plan, *before)
    async with world.engine() as engine:
        await occurred(await engine.resume(state.id, hold=True), ev.ApprovalAsked)
        begun, computed = service(engine)._attended, 100.0
        monkeypatch.setattr(service(engine), "_computed", computed)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: begun + 1.0)
        monkeypatch.setattr("time.process_time", lambda: computed)
        assert not service(engine)._too_early(1), "its events of long ago do not count"
        service(engine)._watched[state.id].began = 0
        assert service(engine)._too_early(1), "those since it was taken up do"
        monkeypatch.setattr("time.process_time", lambda: computed + 7.5)
        assert not service(engine)._too_early(1), "2 % of it pay for a forecast"
        assert service(engine)._too_early(10_000)


async def test_d7_prices_are_looked_up_beside_the_event_loop(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price lists take a while to load, in which nothing else of the process would go on."""
    asked: dict[str, bool] = {}
    rates = Prices.rates

    def noted(self: Prices, model: str) -> Any:
        asked.setdefault(model, threading.current_thread() is threading.main_thread())
        return rates(self, model)

    monkeypatch.setattr(Prices, "rates", noted)
    prices = {"*": {"input": 1.0, "output": 1.0}}
    world = AgentWorld(project, ScriptedRunner([done(usd=None)], name="cli"), prices=prices)
    work = plan(agent(runtime="cli", model="old"), name="p")
    assert (await world.run(work)).status == "completed"
    async with world.engine() as engine:
        await engine.estimate(plan(agent(runtime="cli", model="new"), name="p"))
    assert asked == {"new": False}
