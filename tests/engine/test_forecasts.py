"""Forecasts of real executions: made while they run, recorded, scored, and shown on every surface (C7, D7)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from waiting import settled, wait_until, wait_until_async

import windlass
from windlass import Plan, Step, assembly
from windlass import open as open_engine
from windlass.core.view import snapshot
from windlass.engine import driver
from windlass.engine import forecasts as service
from windlass.redact import Redactor
from windlass.server.stream_messages import MessageEncoder
from windlass.testing import FakeClock, Reply, ScriptedModel, ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project, Windlass

    from windlass.core.forecast.value import Forecast

PLAN = Plan(name="timed", steps=[Step(id=name, run="true", needs=needs) for name, needs in (("a", []), ("b", ["a"]))])
SLOW = Plan(
    name="slow", steps=[Step(id="a", run="true"), Step(id="b", run="until [ -e go ]; do sleep 0.02; done", needs=["a"])]
)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecast at once, and as often as possible."""
    monkeypatch.setattr(service, "FIRST", 0.02)
    monkeypatch.setattr(service, "SHARE", 10.0)
    monkeypatch.setattr(service, "LEARN_AGAIN", 0.0)


async def test_d7_a_short_execution_is_not_forecast(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST", 3600.0)  # on a slow machine too, it is shorter than that
    async with windlass.open() as engine:
        started = await engine.start(PLAN)
        await started.result()
        assert await engine.forecasts(started.id) == {}
        assert engine._forecasts.spent_s == 0


async def test_d7_a_running_execution_is_forecast_recorded_and_scored(project: Project, soon: None) -> None:
    async with windlass.open() as engine:
        for number in range(3):
            (project.path / "go").unlink(missing_ok=True)
            started = await engine.start(SLOW)
            found = await wait_until_async(partial(engine.forecasts, started.id))
            state = await started.state()
            shown = await engine.forecast_view(state)
            assert shown is not None
            assert snapshot(state, shown)["eta"] == (shown["left_s"] or {"p50": None})["p50"]
            assert found[started.id].runs == number
            assert found[started.id].low_confidence
            (project.path / "go").touch()
            await started.result()
            assert await started.forecast() is None, "nothing is left"
        outcomes = await engine.forecast_outcomes("slow")
        assert len({one.execution for one in outcomes}) == 3
        assert all(one.took_s >= one.forecast.elapsed_s for one in outcomes)
        known = await engine.estimate(SLOW, engine.attempt_runner.tools)
        assert (known.runs, known.unchanged, known.unknown) == (3, 3, ())


async def test_d7_no_error_of_a_forecast_harms_an_execution(
    project: Project, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def broken(*_args: Any) -> None:
        tried.set()
        raise RuntimeError("no forecast today")

    async with windlass.open() as engine:
        monkeypatch.setattr(engine._forecasts, "_knowledge", broken)
        started = await engine.start(SLOW)
        await tried.wait()
        assert await engine.forecast_view(await started.state()) is None
        (project.path / "go").touch()
        assert (await started.result())["status"] == "completed"


async def test_d7_a_damaged_table_of_forecasts_harms_nothing(project: Project, soon: None) -> None:
    async with windlass.open() as engine:
        (project.path / "go").touch()
        await (await engine.start(SLOW)).result()
        (project.path / "go").unlink()
        first = await engine.start(SLOW)
        await wait_until_async(partial(engine.forecasts, first.id))
        (project.path / "go").touch()
        await first.result()
    with closing(sqlite3.connect(project.home / "windlass.db")) as db, db:
        db.execute("UPDATE forecasts SET forecast = x'00'")
    (project.path / "go").unlink()
    async with windlass.open() as engine:
        assert await engine.forecast_outcomes() == []
        second = await engine.start(SLOW)
        assert await engine.forecast_view(await second.state()) is not None
        (project.path / "go").touch()
        assert (await second.result())["status"] == "completed"


async def test_d7_a_forecast_that_comes_after_the_end_is_not_recorded(
    project: Project, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be right by itself, and later ones would be calibrated by it."""
    from windlass.core.forecast import outlook

    made, make = threading.Event(), outlook.Outlook.forecast

    def late(self: outlook.Outlook) -> Forecast:
        (project.path / "go").touch()
        wait_until(lambda: self.state.status.finished)
        made.set()
        return make(self)

    monkeypatch.setattr(outlook.Outlook, "forecast", late)
    monkeypatch.setattr(service.Forecasts, "leave", lambda *_args: None)  # it is seen as running for a moment longer
    async with windlass.open() as engine:
        await (await engine.start(SLOW)).result()
        await wait_until_async(made.is_set)
        await settled()
        assert await engine.forecast_outcomes() == []


async def test_d7_many_executions_share_the_time_for_forecasts(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one forecast, the next has to wait for fifty times its cost, whichever execution it is for."""
    monkeypatch.setattr(service, "FIRST", 0.02)
    monkeypatch.setattr(service, "SHARE", 1e-9)
    async with windlass.open() as engine:
        every = [await engine.start(SLOW) for _ in range(4)]
        await wait_until_async(partial(engine.forecasts, *(one.id for one in every)))
        await settled()
        assert len(await engine.forecasts(*(one.id for one in every))) == 1
        (project.path / "go").touch()
        await asyncio.gather(*(one.result() for one in every))


async def test_d7_however_many_look_a_forecast_of_a_running_execution_is_made_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from windlass.core.forecast import outlook

    made: list[str] = []

    class Counted(outlook.Outlook):
        def __init__(self, state: Any, *rest: Any) -> None:
            made.append(state.id)
            super().__init__(state, *rest)

    monkeypatch.setattr(outlook, "Outlook", Counted)
    monkeypatch.setattr(service, "FIRST", 3600.0)  # none is made by itself
    monkeypatch.setattr(service, "SHARE", 1e-9)
    async with windlass.open() as engine:
        started = await engine.start(SLOW)
        state = await started.state()
        views = await asyncio.gather(*(engine.forecast_view(state) for _ in range(20)))
        assert made == [started.id]
        assert None not in views
        (project.path / "go").touch()
        await started.result()


async def test_d7_the_first_forecast_of_a_busy_engine_waits_until_it_is_a_small_part(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FIRST", 0.02)
    monkeypatch.setattr(service, "BUSY", -1.0)
    monkeypatch.setattr(service, "SHARE", 1e-9)
    async with windlass.open() as engine:
        started = await engine.start(SLOW)
        looked = asyncio.Event()
        early = engine._forecasts._too_early

        def look(steps: int) -> bool:
            looked.set()
            return early(steps)

        monkeypatch.setattr(engine._forecasts, "_too_early", look)
        await looked.wait()
        await settled()
        assert (await engine.forecasts(started.id), engine._forecasts.spent_s) == ({}, 0)
        monkeypatch.setattr(service, "SHARE", 10.0)
        await wait_until_async(partial(engine.forecasts, started.id))
        (project.path / "go").touch()
        await started.result()


async def test_d7_the_computing_of_executions_that_have_ended_counts_for_the_first_forecast(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 0.0
    monkeypatch.setattr(service, "FIRST", 0.02)
    monkeypatch.setattr(service, "BUSY", -1.0)
    monkeypatch.setattr("time.process_time", lambda: computed)
    async with windlass.open() as engine:
        first = await engine.start(SLOW)
        computed += 4.0  # 2 % of it do not pay for a forecast yet
        (project.path / "go").touch()
        await first.result()
        (project.path / "go").unlink()
        assert engine._forecasts.spent_s == 0
        second = await engine.start(SLOW)
        computed += 4.0
        await wait_until_async(partial(engine.forecasts, second.id))
        (project.path / "go").touch()
        await second.result()


async def test_d7_a_question_comes_with_the_forecast_of_its_execution(project: Project) -> None:
    plan = Plan(name="asks", steps=[Step(id="a", run="true"), Step(id="b", run="true", needs=["a"], approve="always")])
    async with windlass.open() as engine:
        for _ in range(2):
            started = await engine.start(plan, hold=False)
            assert (await started.result())["status"] == "paused"
        first, second = [one.execution for one, _asked in await engine.open_questions()]
        found = await engine.forecast_views([first, second])
        assert set(found) == {first, second}
        assert found[first]["approvals_ahead"] == 1
        paused = await engine.forecast_view(await engine.state(first))
        assert paused is not None
        assert paused["unknown"] == [], "a step of its tool has run"


async def test_d7_the_stream_has_an_eta(project: Project, soon: None) -> None:
    async with windlass.open() as engine:
        (project.path / "go").touch()
        await (await engine.start(SLOW)).result()
        (project.path / "go").unlink()
        started = await engine.start(SLOW)
        await wait_until_async(partial(engine.forecasts, started.id))
        encoder = MessageEncoder(engine.journal, Redactor(), engine.forecasts)
        told = [json.loads(one.text) for one in await encoder.encode(await engine.journal.read(started.id))]
        assert told[-1]["eta"] >= 0
        assert told[0]["eta"] is None, "it did not run yet"
        (project.path / "go").touch()
        await started.result()
        told = [json.loads(one.text) for one in await encoder.encode((await engine.journal.read(started.id))[-1:])]
        assert told[-1]["eta"] is None


async def test_d7_a_plan_without_steps_that_ran_is_estimated_as_unknown(project: Project) -> None:
    async with windlass.open() as engine:
        found = await engine.estimate(PLAN, engine.attempt_runner.tools)
    assert (found.left, found.usd, found.unknown) == (None, None, ("a", "b"))


async def test_d7_the_scores_of_forecasts_are_shown(project: Project, soon: None, windlass: Windlass) -> None:
    assert "no forecast has an outcome yet" in windlass("history", "--forecasts").out
    async with open_engine() as engine:
        for _ in range(3):
            (project.path / "go").unlink(missing_ok=True)
            started = await engine.start(SLOW)
            await wait_until_async(partial(engine.forecasts, started.id))
            engine._forecasts._watched.pop(started.id)  # one more after its last step would know that nothing is left
            (project.path / "go").touch()
            await started.result()
    told = windlass("history", "--forecasts", "--plan", "slow", "--json").json
    assert told["runs"] == 2, "nothing was known of the first one"
    assert told["scores"][-1]["done_percent"] == "all"
    assert 0 <= told["scores"][-1]["coverage"] <= 1
    assert "in the 80 % band" in windlass("history", "--forecasts").out
    assert "goes with --plan" in windlass("history", "--forecasts", "--slow", code=2).err


def test_d7_a_quarter_is_marked_once_although_another_process_goes_on(
    project: Project, windlass: Windlass, until: Any
) -> None:
    plan = project.plan("name: slow\nsteps: [{id: a, run: 'until [ -e go ]; do sleep 0.02; done'}]")
    project.file("go", "")
    windlass("run", plan)
    (project.path / "go").unlink()
    execution = windlass.detached(plan)

    def marks() -> list[int | None]:
        with closing(sqlite3.connect(project.home / "windlass.db", timeout=30)) as db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'forecasts'").fetchone() is None:
                return []
            rows = db.execute("SELECT mark FROM forecasts WHERE execution = ? ORDER BY number", (execution,))
            return [mark for (mark,) in rows]

    until(marks, "it is forecast")
    windlass.kill(execution)
    before = len(marks())
    windlass("resume", "--detach", execution)
    until(lambda: len(marks()) > before, "the other process forecasts it as well")
    project.file("go", "")
    windlass("watch", execution)
    assert [mark for mark in marks() if mark is not None] == [0]


def test_d7_an_agent_with_another_model_is_forecast_by_its_tokens_and_the_price(
    project: Project, windlass: Windlass
) -> None:
    """From the command line to the answer: runs with one model, an estimate with another, whose price is known."""
    plan = project.plan("name: dear\nsteps: [{id: a, agent: developer, prompt: Do it.}]")
    used = {"tokens_in": 1_000_000, "tokens_out": 1000}
    project.user_file("config.toml", "[prices.'old']\ninput = 1.0\noutput = 0.0\n")
    with ScriptedModel([Reply.say("Yes.", when="Do it.", **used) for _ in range(3)]) as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}
        for name in ("old", "old", "unknown"):
            windlass("run", plan, "--model", f"anthropic:{name}", **env)
    known = windlass("plan", "estimate", plan, "--json").json["forecast"]
    assert (known["unknown_cost"], known["cost_by_price"]) == ([], [])
    assert known["usd"]["p50"] == pytest.approx(1.0, rel=0.3), "two of three runs have a cost"
    other = project.plan(
        "name: dear\nmodel: anthropic:new\nsteps: [{id: a, agent: developer, prompt: Do it.}]", "new.yaml"
    )
    unknown = windlass("plan", "estimate", other)
    assert "cost: unknown, because these agents have no known cost or price here (a)" in unknown.out
    project.user_file("config.toml", "[prices.'new']\ninput = 7.0\noutput = 0.0\n")
    told = windlass("plan", "estimate", other)
    assert "by tokens and price: a" in told.out
    usd = windlass("plan", "estimate", other, "--json").json["forecast"]["usd"]
    assert usd["p50"] == pytest.approx(7.0, rel=0.3)


def test_d7_lists_have_the_time_to_the_end_of_running_executions(
    project: Project, windlass: Windlass, until: Any
) -> None:
    plan = project.plan("name: slow\nsteps: [{id: a, run: 'until [ -e go ]; do sleep 0.02; done'}]")
    project.file("go", "")
    windlass("run", plan)
    (project.path / "go").unlink()
    execution = windlass.detached(plan)

    def listed() -> dict[str, Any]:
        return {one["id"]: one["eta"] for one in windlass("list", "--json").json}

    until(lambda: listed()[execution] is not None, "its first forecast")
    assert listed()[execution] >= 0
    (done,) = set(listed()) - {execution}
    assert listed()[done] is None
    windlass.kill(execution)
    assert listed()[execution] is None, "nobody drives it: it has no end in sight"


async def test_d7_a_forecast_counts_the_wait_for_a_quota(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(assembly, "SystemClock", lambda: clock)
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)
    works = Turn(repeat=True).say("done").spend(tokens_in=10, tokens_out=1, usd=0.0)
    limit = Turn().fail("5-hour limit reached", category="resource", resets_at=clock.now() + 3600)
    plan = Plan(name="agents", steps=[Step(id=name, agent="developer", prompt=name) for name in "ab"])
    async with open_engine(runners=[ScriptedRunner([works], name="cli")]) as engine:
        assert (await (await engine.start(plan)).result())["status"] == "completed"
    async with open_engine(runners=[ScriptedRunner([limit, works], name="cli")]) as engine:
        started = await engine.start(plan)

        async def waits() -> bool:
            return bool((await started.state()).quotas)

        async def left() -> float:
            shown = await engine.forecast_view(await started.state())
            assert shown is not None
            return float(shown["left_s"]["p50"])

        await wait_until_async(waits)
        assert await left() == pytest.approx(3600, rel=0.01)
        clock.advance(1800)
        assert await left() == pytest.approx(1800, rel=0.01)
        clock.advance(1800)
        assert (await started.result())["status"] == "completed"
