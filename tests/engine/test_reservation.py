"""The money of one attempt: what it reserves, counts and says, step by step (E1, E3)."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.budget import ReservationRefused
from windlass.engine.agents.reservation import BudgetReservation
from windlass.errors import ToolError
from windlass.journal.memory import MemoryLedger
from windlass.plan.model import Plan
from windlass.ports import Amount, Charge, Usage
from windlass.settings.tables import BudgetSettings, LimitSettings
from windlass.testing import FakeClock, Simulation


class World:
    """An attempt whose calls cost at most `call`, under these limits."""

    def __init__(self, call: Amount, **limits: Any) -> None:
        plan = Plan.model_validate({"name": "p", "steps": [{"id": "work", "agent": "developer", "prompt": "go"}]})
        run = Simulation(plan)
        run.start()
        self.told: list[ev.Event] = []
        self.notes: list[str] = []
        self.ledger = MemoryLedger()
        contact: Any = SimpleNamespace(
            state=run.state, step=run.state.steps["work"], tell=self.told.append, unclocked=nullcontext
        )
        self.charge = Charge(run.state.id, "work", 1, "cli", "openai/gpt-x:free", "developer")
        self.reservation = BudgetReservation(
            self.ledger,
            BudgetSettings(**limits),
            FakeClock(1_800_000_000.0),
            contact,
            self.charge,
            self.nobody_is_dead,
            lambda prompt: call,
            self.notes.append,
        )

    async def nobody_is_dead(self) -> None:
        """No process has died."""

    async def reserved(self) -> tuple[float, int]:
        (row,) = await self.ledger.spent("execution")
        return row.reserved_usd, row.reserved_tokens


STEP = {"step": LimitSettings(usd=1.0)}
UNPRICED = Amount(None, 100)


async def test_e1_an_attempt_reserves_its_first_call_and_has_the_least_limit() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=1.0, tokens=500), day=LimitSettings(usd=0.75))
    assert await world.reservation.open(10) == Amount(0.75, 500)
    assert await world.reserved() == (0.25, 100)
    free = World(Amount(0.25, 100))
    assert await free.reservation.open(10) == Amount()
    assert await free.reserved() == (0.0, 0), "without a limit nothing is held"


async def test_e1_a_limit_of_one_token_allows_one() -> None:
    assert await World(Amount(None, 100), step=LimitSettings(tokens=1)).reservation.open(10) == Amount(None, 1)


async def test_e1_the_next_call_may_be_a_quarter_dearer_than_the_dearest_so_far() -> None:
    world = World(Amount(0.1, 100), **STEP)
    await world.reservation.open(10)
    assert await world.reservation.cover(Usage(50, 10, usd=0.4)) is None
    assert (await world.reserved())[0] == pytest.approx(0.5), "0.4 is spent, and 0.5 may come"
    fixed = World(Amount(0.1, 100), **STEP, reserve_usd=0.02)
    await fixed.reservation.open(10)
    assert (await fixed.reserved())[0] == 0.02


@pytest.mark.parametrize(
    ("limits", "ways"),
    [
        (STEP, 2),
        ({**STEP, "execution": LimitSettings(usd=2.0)}, 2),
        ({**STEP, "day": LimitSettings(usd=2.0)}, 1),
        ({"month": LimitSettings(usd=2.0)}, 1),
    ],
)
async def test_e1_a_limit_in_dollars_is_refused_for_a_model_without_a_known_price(
    limits: dict[str, Any], ways: int
) -> None:
    world = World(UNPRICED, **limits)
    with pytest.raises(ToolError, match=r"no price is known for openai/gpt-x:free, so the limit of \$") as refused:
        await world.reservation.open(10)
    advice = refused.value.failure.advice
    assert len(advice) == ways, "tokens of a day are no choice of the plan"
    assert '[prices."free"]' in advice[0]


async def test_e1_told_to_proceed_a_model_without_a_known_price_is_warned_of_once() -> None:
    world = World(UNPRICED, **STEP, on_overrun="proceed")
    assert await world.reservation.open(10) == Amount()
    await world.reservation.cover(Usage(10, 1, usd=None))
    (warned,) = world.told
    assert isinstance(warned, ev.BudgetWarned)
    assert warned.message.endswith("cannot be enforced; continuing without counting its dollars")


async def test_e1_a_limit_in_tokens_alone_needs_no_price() -> None:
    world = World(UNPRICED, step=LimitSettings(tokens=1000))
    assert await world.reservation.open(10) == Amount(None, 1000)
    assert await world.reservation.cover(Usage(10, 1, usd=None)) is None


async def test_e1_a_call_of_unknown_cost_counts_with_what_was_reserved_for_it() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=1.0, tokens=1000))
    money = world.reservation
    await money.open(10)
    assert await money.afford(10) is None
    await money.cover(Usage(0, 0, usd=None))
    assert money.assumed == Amount(0.25, 100)
    assert await money.afford(10) is None
    await money.cover(Usage(30, 5, usd=None))
    assert money.assumed == Amount(0.5, 100), "its tokens are known this time"
    await money.cover(Usage(30, 5, usd=0.1))
    assert money.assumed == Amount(0.5, 100)


async def test_e1_a_runtime_that_does_not_ask_first_assumes_nothing() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(tokens=1000))
    await world.reservation.open(10)
    await world.reservation.cover(Usage(30, 5, usd=None))
    assert world.reservation.assumed == Amount(0.0, 0)


async def test_e1_a_call_under_way_takes_the_room_that_others_leave_and_waits_for_more_before_the_next() -> None:
    world = World(Amount(0.25, 100), **STEP)
    money = world.reservation
    await money.open(10)
    other = world.charge._replace(attempt=2)
    assert await world.ledger.reserve(other, 1_800_000_000.0, Amount(0.7, 0), money.scopes()) is None
    assert await money.cover(Usage(10, 1, usd=0.1)) is None
    assert money.held.usd == pytest.approx(0.3)
    held = await money.cover(Usage(20, 2, usd=0.35))
    assert getattr(held, "reason", "") == "budget", "now there is none left while the other works"


async def test_e1_a_call_that_may_cost_more_than_is_left_is_noted_once_with_what_is_left() -> None:
    world = World(Amount(0.9, 100), **STEP)
    await world.reservation.open(10)
    assert world.notes == []
    for usd in (0.4, 0.5):
        assert await world.reservation.cover(Usage(10, 1, usd=usd)) is None
    said = "one call can cost up to $0.90, and $0.60 is left of the limit of $1.00 for this step"
    assert world.notes == [said]


def refusal(limit: float, spent: float) -> ReservationRefused:
    return ReservationRefused("step", "usd", limit, spent, 0.0, 0.25)


@pytest.mark.parametrize(("spent", "reached"), [(0.5, False), (0.998, False), (0.9995, True), (1.0, True), (1.5, True)])
def test_e3_a_limit_is_reached_when_no_call_fits_into_the_rest(spent: float, reached: bool) -> None:
    assert World(Amount(0.25, 100), **STEP).reservation._is_reached(refusal(1.0, spent)) is reached


async def test_e1_exactly_the_least_amount_is_room_for_a_call() -> None:
    world = World(Amount(None, 100), step=LimitSettings(tokens=1))
    assert not world.reservation._is_reached(ReservationRefused("step", "tokens", 1, 0, 0, 100))
    assert world.reservation._is_reached(ReservationRefused("step", "tokens", 1, 1, 0, 100))


def test_e3_a_person_is_asked_for_the_limit_once_more() -> None:
    money = World(Amount(0.25, 100), **STEP).reservation
    asked = money._question(refusal(1.0, 1.0))
    assert (asked.reason, asked.scope, asked.needed, asked.unit) == ("budget", "step", 2.0, "usd")
    assert asked.question == "the limit of $1.00 for this step is reached ($1.00 spent)"
    over = money._question(refusal(1.0, 3.0))
    assert (over.needed, over.question) == (4.0, "the limit of $1.00 for this step is exceeded ($3.00 spent)")
    none = money._question(refusal(0.0, 0.0))
    assert none.needed == 1.0, "a limit of nothing is raised to a dollar"
    small = money._question(refusal(0.0005, 0.0))
    assert small.question.endswith("is too small for a call of a model: no call begins with less than $0.0010")


async def test_e1_what_passed_its_limit_is_said_when_it_is_settled() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=1.0, tokens=50))
    await world.reservation.settle(Usage(40, 10, usd=1.5))
    (passed,) = world.told
    assert isinstance(passed, ev.BudgetWarned)
    assert passed.message == "the limit of $1.00 for this step is exceeded: $1.50 spent, $0.50 over"
    assert (passed.scope, passed.unit, passed.limit, passed.spent) == ("step", "usd", 1.0, 1.5)
    quiet = World(Amount(0.25, 100), **STEP)
    await quiet.reservation.settle(Usage(0, 0, usd=0.0))
    await quiet.reservation.settle(Usage(10, 1, usd=1.0))
    assert quiet.told == []


async def test_e3_an_allowance_that_ran_out_is_that_of_the_least_limit() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=5.0), execution=LimitSettings(usd=2.0))
    held = world.reservation.run_out("it stopped")
    assert held is not None
    assert (held.scope, held.needed, held.question) == ("execution", 4.0, "it stopped")
    assert World(Amount(0.25, 100), step=LimitSettings(tokens=9)).reservation.run_out("it stopped") is None
