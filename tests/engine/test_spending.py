"""The limits that hold for a step, and what is left of them (E1, E3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from windlass.core import events as ev
from windlass.core.budget import Amount, ScopeName
from windlass.engine.spending import By, as_json, limits_of, look_up, scopes_of
from windlass.journal.memory import MemoryLedger
from windlass.plan.model import Plan
from windlass.ports import Charge, Usage
from windlass.settings.tables import BudgetSettings, LimitSettings
from windlass.testing import Simulation

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC).timestamp()
SETTINGS = BudgetSettings(
    step=LimitSettings(usd=1.0), execution=LimitSettings(tokens=9), day=LimitSettings(usd=20.0, tokens=500)
)


def simulation(**more: Any) -> Simulation:
    agent = {"agent": "developer", "prompt": "do it"}
    steps = [{"id": "plain", **agent}, {"id": "each", **agent, "foreach": [1, 2], "budget": {"usd": 3}}]
    run = Simulation(Plan.model_validate({"name": "p", "steps": steps, **more}))
    run.start()
    return run


def limits(run: Simulation, step: str) -> dict[str, tuple[float | None, int | None]]:
    found = scopes_of(run.state, run.state.steps[step], SETTINGS, NOON)
    return {scope.name: (scope.limit.usd, scope.limit.tokens) for scope in found}


def test_e1_a_limit_of_the_plan_takes_the_place_of_the_settings() -> None:
    run = simulation()
    assert limits(run, "plain") == {"step": (1.0, None), "execution": (None, 9), "day": (20.0, 500)}
    assert limits(run, "each")["step"] == (3.0, None)
    assert limits(simulation(budget=7), "plain")["execution"] == (7.0, None)


def test_e1_the_items_of_a_step_share_its_limit() -> None:
    run = simulation()
    (own, *_) = scopes_of(run.state, run.state.steps["each[1]"], SETTINGS, NOON)
    assert (own.name, own.step, own.execution, own.limit.usd) == ("step", "each", run.state.id, 3.0)


def test_e3_a_persons_answer_takes_the_place_of_the_plan_and_the_settings() -> None:
    run = simulation(budget=7)
    for scope, step, usd in (("step", "plain", 5.0), ("execution", "", 50.0), ("day", "", 60.0), ("month", "", 70.0)):
        run.state.apply(ev.BudgetAnswered(9.0, True, "me", step, scope, usd))
    assert limits(run, "plain") == {
        "step": (5.0, None),
        "execution": (50.0, None),
        "day": (60.0, 500),
        "month": (70.0, None),
    }
    assert limits(run, "each")["step"] == (3.0, None), "the answer was about another step"
    run.state.apply(ev.BudgetAnswered(9.0, True, "me", "", "execution"))
    assert "execution" not in limits(run, "plain"), "a yes without a number lifts the limit"


def test_e1_the_limits_of_the_settings_are_shown_with_their_units() -> None:
    assert limits_of(SETTINGS) == {
        "step": Amount(1.0, None),
        "execution": Amount(None, 9),
        "day": Amount(20.0, 500),
        "month": Amount(),
    }


async def test_e1_tokens_that_were_read_and_written_both_count() -> None:
    ledger = MemoryLedger(tz=UTC)
    day: dict[ScopeName, Amount] = {"day": Amount(1.0, 500), "month": Amount()}
    await ledger.settle(Charge("x", "a", 1), NOON, Usage(300, 40, usd=0.1, source="runtime"))
    assert await ledger.reserve(Charge("x", "b", 1), NOON, Amount(0.2, 10), []) is None
    shown = as_json(await look_up(ledger, NOON, day, By.EXECUTION, UTC))
    told = ("tokens", "reserved_tokens", "left_tokens", "spent_usd", "reserved_usd", "left_usd")
    assert [shown["day"][name] for name in told] == [340, 10, 150, 0.1, 0.2, 0.7]
    (row,) = shown["by"]
    assert (row["execution"], row["tokens_in"], row["tokens_out"], row["attempts"]) == ("x", 300, 40, 2)


async def test_e1_an_unknown_cost_is_told_by_what_it_counts_with_and_no_rest_is_below_nothing() -> None:
    ledger = MemoryLedger(tz=UTC)
    day: dict[ScopeName, Amount] = {"day": Amount(1.0, 500), "month": Amount()}
    await ledger.settle(Charge("x", "a", 1), NOON, Usage(300, 40, usd=0.1, source="runtime"))
    unknown = Charge("x", "b", 1)
    assert await ledger.reserve(unknown, NOON, Amount(0.3, 0), []) is None
    await ledger.settle(unknown, NOON, Usage(10))
    shown = as_json(await look_up(ledger, NOON, day, By.EXECUTION, UTC))["day"]
    assert [shown[name] for name in ("spent_usd", "unknown", "assumed_usd", "left_usd")] == [0.1, 1, 0.3, 0.6]
    await ledger.settle(Charge("x", "c", 1), NOON, Usage(300, 40, usd=2.0, source="runtime"))
    shown = as_json(await look_up(ledger, NOON, day, By.EXECUTION, UTC))["day"]
    assert (shown["left_usd"], shown["left_tokens"]) == (0.0, 0)


async def test_e1_where_nothing_was_spent_the_whole_limit_is_left() -> None:
    day: dict[ScopeName, Amount] = {"day": Amount(1.0, 500), "month": Amount()}
    shown = as_json(await look_up(MemoryLedger(tz=UTC), NOON, day, By.MODEL, UTC))
    assert shown["by"] == []
    assert shown["day"] == {
        "name": "2026-11-16",
        "limit_usd": 1.0,
        "spent_usd": 0.0,
        "unknown": 0,
        "assumed_usd": 0.0,
        "reserved_usd": 0.0,
        "left_usd": 1.0,
        "limit_tokens": 500,
        "tokens": 0,
        "reserved_tokens": 0,
        "left_tokens": 500,
    }


async def test_e1_the_last_seven_days_and_the_last_twelve_months_are_listed() -> None:
    ledger = MemoryLedger(tz=UTC)
    for month in range(24):
        at = datetime(2025 + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()
        await ledger.settle(Charge(f"m{month}", "a", 1), at, Usage(usd=1.0, source="runtime"))
    for day in range(9, 17):
        at = datetime(2026, 11, day, tzinfo=UTC).timestamp()
        await ledger.settle(Charge(f"d{day}", "a", 1), at, Usage(usd=1.0, source="runtime"))
    none: dict[ScopeName, Amount] = {"day": Amount(), "month": Amount()}
    days = (await look_up(ledger, NOON, none, By.DAY, UTC)).rows
    past = [row.heading for row in days if row.heading <= "2026-11-16"]
    assert (min(past), len(past)) == ("2026-11-10", 7)
    assert len((await look_up(ledger, NOON, none, By.MONTH, UTC)).rows) == 12
