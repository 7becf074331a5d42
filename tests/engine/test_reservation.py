"""The money of one attempt: what it reserves, counts and says, step by step (E1, E3)."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.budget import NOTHING, ReservationRefused
from windlass.engine.agents import reservation
from windlass.engine.agents.reservation import LOOK_AGAIN, LOOK_LATER, BudgetReservation
from windlass.engine.perform import Held
from windlass.errors import ToolError
from windlass.journal.memory import MemoryLedger
from windlass.plan.model import Plan
from windlass.ports import Amount, Charge, Usage
from windlass.settings.tables import BudgetSettings, LimitSettings
from windlass.testing import FakeClock, Simulation

NOW = 1_800_000_000.0


class Lending(MemoryLedger):
    """Another attempt holds room, and gives it back as soon as it was looked for twice."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Charge | None = None
        self.refused = 0
        self.attempts = 0
        """Those in it by then."""

    async def reserve(self, *wanted: Any) -> ReservationRefused | None:
        refusal = await super().reserve(*wanted)
        self.refused += refusal is not None
        if refusal is not None and self.refused == 2 and self.other is not None:
            self.attempts = (await self.spent("execution"))[0].attempts
            await self.release(self.other)
        return refusal


class World:
    """An attempt whose calls cost at most `call`, under these limits."""

    def __init__(self, call: Amount, *, ledger: MemoryLedger | None = None, **limits: Any) -> None:
        steps = [{"id": name, "agent": "developer", "prompt": "go"} for name in ("work", "other")]
        run = Simulation(Plan.model_validate({"name": "p", "steps": steps}))
        run.start()
        self.told: list[ev.Event] = []
        self.notes: list[str] = []
        self.ledger = ledger or MemoryLedger()
        contact: Any = SimpleNamespace(
            state=run.state, step=run.state.steps["work"], tell=self.told.append, unclocked=nullcontext
        )
        self.charge = Charge(run.state.id, "work", 1, "cli", "openai/gpt-x:free", "developer")
        self.reservation = BudgetReservation(
            self.ledger,
            BudgetSettings(**limits),
            FakeClock(NOW),
            contact,
            self.charge,
            self.nobody_is_dead,
            lambda prompt: call,
            self.notes.append,
        )

    async def nobody_is_dead(self) -> None:
        """No process has died."""

    async def other_holds(self, usd: float) -> Charge:
        """Another attempt of the step holds that much."""
        other = self.charge._replace(attempt=2)
        assert await self.ledger.reserve(other, NOW, Amount(usd, 0), self.reservation.scopes()) is None
        return other

    async def reserved(self) -> tuple[float, int]:
        (row,) = await self.ledger.spent("execution")
        return row.reserved_usd, row.reserved_tokens


STEP: dict[str, Any] = {"step": LimitSettings(usd=1.0)}
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


@pytest.mark.parametrize(
    ("scope", "left"), [("step", Amount(0.75, 465)), ("execution", Amount(0.75, 465)), ("day", Amount(1.0, 500))]
)
async def test_e1_an_attempt_has_what_its_step_and_its_execution_have_left(scope: str, left: Amount) -> None:
    limits: dict[str, Any] = {scope: LimitSettings(usd=1.0, tokens=500)}
    world = World(Amount(0.25, 100), **limits)
    state = world.reservation.contact.state
    state.apply(ev.AgentBegan(NOW, "work", 1, "cli", "developer", "system", "prompt"))
    state.apply(ev.UsageReported(NOW, "work", 1, Usage(30, 5, usd=0.25), "cli", "developer"))
    assert await world.reservation.open(10) == left


async def test_e1_the_next_call_may_be_a_quarter_dearer_than_the_dearest_so_far() -> None:
    world = World(Amount(0.1, 100), **STEP)
    await world.reservation.open(10)
    assert await world.reservation.cover(Usage(50, 10, usd=0.4)) is None
    assert (await world.reserved())[0] == pytest.approx(0.5), "0.4 is spent, and 0.5 may come"
    assert await world.reservation.cover(Usage(60, 20, usd=0.45)) is None
    assert (await world.reserved())[0] == pytest.approx(0.5), "the call of 0.05 is not the dearest"
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
    assert world.reservation.held.tokens == 111


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


async def test_e1_a_report_between_two_calls_counts_no_call() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=1.0, tokens=1000))
    await world.reservation.open(10)
    assert await world.reservation.afford(10) is None
    await world.reservation.cover(Usage(30, 5, usd=0.1))
    await world.reservation.cover(Usage(30, 5, usd=None, at_least=0.1))
    assert world.reservation.assumed == Amount(0.0, 0)


async def test_e1_a_runtime_that_does_not_ask_first_assumes_nothing() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(tokens=1000))
    await world.reservation.open(10)
    await world.reservation.cover(Usage(30, 5, usd=None))
    assert world.reservation.assumed == Amount(0.0, 0)


async def test_e1_a_call_under_way_takes_the_room_that_others_leave_and_waits_for_more_before_the_next() -> None:
    world = World(Amount(0.25, 100), **STEP)
    money = world.reservation
    await money.open(10)
    await world.other_holds(0.7)
    assert await money.cover(Usage(10, 1, usd=0.1)) is None
    assert money.held.usd == pytest.approx(0.3)
    held = await money.cover(Usage(20, 2, usd=0.35))
    assert isinstance(held, Held), "now there is none left while the other works"
    assert (held.reason, held.until) == ("budget", NOW + LOOK_AGAIN), "it looks again soon"


async def test_e1_an_attempt_says_that_it_waits_for_room_and_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservation, "LOOK_AGAIN", 0.0)
    ledger = Lending()
    world = World(Amount(0.25, 100), ledger=ledger, **STEP)
    ledger.other = await world.other_holds(0.9)
    await world.reservation.open(10)
    waits = "waiting for room in the budget for this step: $0.00 spent and $0.90 reserved of $1.00"
    assert [getattr(event, "message", None) for event in world.told] == [waits, ""]
    assert ledger.attempts == 1, "an attempt that waits to begin is no attempt of the ledger yet"


@pytest.mark.parametrize(("scope", "until"), [("execution", NOW + 100.0), ("day", NOW + LOOK_LATER)])
async def test_e1_room_of_one_who_asks_a_person_comes_with_the_answer_and_a_days_may_come_before(
    scope: str, until: float
) -> None:
    limits: dict[str, Any] = {scope: LimitSettings(usd=1.0)}
    world = World(Amount(0.25, 100), **limits)
    await world.other_holds(0.9)
    state = world.reservation.contact.state
    state.apply(ev.ApprovalAsked(NOW, "other", "digest", "Bash", {}, NOW + 100.0, 1))
    with pytest.raises(Held) as held:
        await world.reservation.open(10)
    assert (held.value.reason, held.value.scope, held.value.until) == ("budget", scope, until)


async def test_e1_an_attempt_does_not_wait_for_room_that_a_dead_process_holds() -> None:
    world = World(Amount(0.25, 100), **STEP)
    await world.other_holds(0.9)

    async def release_dead() -> None:
        await world.ledger.abandon(world.charge.execution, NOW)

    world.reservation.release_dead = release_dead
    await world.reservation.open(10)
    assert world.told == []
    assert world.reservation.held.usd == pytest.approx(0.1), "it counts as spent, and the rest is there"


async def test_e1_an_attempt_has_the_rest_of_many_limits_at_once() -> None:
    names = ("step", "execution", "day", "month")
    limits: dict[str, Any] = {
        name: LimitSettings(usd=4.0 - less, tokens=400 - 100 * less) for less, name in enumerate(names)
    }
    world = World(Amount(9.0, 900), **limits)
    assert await world.reservation.open(10) == Amount(1.0, 100)
    assert await world.reserved() == (1.0, 100)


async def test_e1_a_call_that_may_cost_more_than_is_left_is_noted_once_with_what_is_left() -> None:
    world = World(Amount(0.9, 100), step=LimitSettings(usd=1.25))
    await world.ledger.settle(world.charge._replace(attempt=2), NOW, Usage(10, 1, usd=0.25))
    await world.reservation.open(10)
    assert world.notes == []
    for usd in (0.4, 0.5):
        assert await world.reservation.cover(Usage(10, 1, usd=usd)) is None
    said = "one call can cost up to $0.90, and $0.60 is left of the limit of $1.25 for this step"
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
    one_over = money._question(ReservationRefused("step", "tokens", 100, 101, 0, 10))
    assert one_over.question == "the limit of 100 tokens for this step is exceeded (101 tokens spent)"
    none = money._question(refusal(0.0, 0.0))
    assert none.needed == 1.0, "a limit of nothing is raised to a dollar"
    no_tokens = money._question(ReservationRefused("step", "tokens", 0, 0, 0, 100))
    assert no_tokens.needed == 100_000, "or to 100,000 tokens"
    small = money._question(refusal(0.0005, 0.0))
    assert small.question.endswith("is too small for a call of a model: no call begins with less than $0.0010")


async def test_e1_the_next_call_is_priced_with_the_longest_prompt_so_far() -> None:
    world = World(NOTHING, step=LimitSettings(usd=9.0))
    world.reservation.call_cost = lambda prompt: Amount(prompt / 1000, 0)
    await world.reservation.open(100)
    for tokens_in, most in ((400, 0.4), (700, 0.4), (1300, 0.6)):
        await world.reservation.cover(Usage(tokens_in, 1, usd=0.0))
        assert world.reservation.held.usd == most


async def test_e1_what_passed_its_limit_is_said_when_it_is_settled() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=1.0, tokens=50))
    await world.reservation.settle(Usage(40, 10, usd=1.5))
    (passed,) = world.told
    assert isinstance(passed, ev.BudgetWarned)
    assert passed.message == "the limit of $1.00 for this step is exceeded: $1.50 spent, $0.50 over"
    assert (passed.scope, passed.unit, passed.limit, passed.spent) == ("step", "usd", 1.0, 1.5)
    await world.reservation.settle(Usage(41, 10, usd=0.5))
    assert getattr(world.told[-1], "message", "").endswith(": 51 tokens spent, 1 token over")
    unmeasured = World(Amount(0.25, 100), **STEP)
    await unmeasured.reservation.settle(Usage(usd=1.5))
    assert len(unmeasured.told) == 1, "a cost without tokens counts, too"
    unused = World(Amount(0.25, 100), **STEP)
    await unused.ledger.settle(unused.charge._replace(attempt=2), NOW, Usage(10, 1, usd=2.0))
    await unused.reservation.settle(Usage(0, 0, usd=0.0))
    assert unused.told == [], "it was said of the one that passed it"
    quiet = World(Amount(0.25, 100), **STEP)
    await quiet.reservation.settle(Usage(0, 0, usd=0.0))
    await quiet.reservation.settle(Usage(10, 1, usd=1.0))
    assert quiet.told == []


@pytest.mark.parametrize(("usd", "needed"), [(0.5, 6.0), (3.5, 6.5)])
async def test_e3_an_allowance_that_ran_out_is_that_of_the_least_limit(usd: float, needed: float) -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(usd=5.0, tokens=99), execution=LimitSettings(usd=3.0))
    await world.reservation.settle(Usage(90, 8, usd=usd))
    held = await world.reservation.run_out("it stopped")
    assert held is not None
    assert (held.scope, held.unit, held.needed, held.question) == ("execution", "usd", needed, "it stopped")


async def test_e3_an_allowance_in_tokens_that_ran_out_is_asked_for_in_tokens() -> None:
    world = World(Amount(0.25, 100), step=LimitSettings(tokens=100), execution=LimitSettings(usd=3.0, tokens=99))
    await world.reservation.settle(Usage(90, 9, usd=0.5))
    held = await world.reservation.run_out("it stopped")
    assert held is not None
    assert (held.scope, held.unit, held.needed, held.question) == ("execution", "tokens", 198, "it stopped")
    rest = World(Amount(0.25, 100), step=LimitSettings(tokens=100))
    await rest.reservation.settle(Usage(90, 9, usd=0.5))
    assert await rest.reservation.run_out("it stopped") is None, "the runtime stopped by a limit of its own"


async def test_e3_a_question_is_put_with_all_that_the_attempt_has_cost_by_then() -> None:
    world = World(Amount(0.25, 100), **STEP)
    money = world.reservation
    waits, used = Held("budget", "waiting", until=NOW), Usage(20, 2, usd=2.5)
    assert money.restated(waits, used) is waits
    held = await money.cover(Usage(10, 1, usd=1.5))
    assert isinstance(held, Held)
    assert getattr(money.restated(held, used), "needed", None) == 3.5
    for other in (waits, ToolError("no price is known")):
        assert money.restated(other, used) is other, "nothing that a person could allow"


@pytest.mark.parametrize("begins", [True, False])
async def test_e3_told_to_proceed_an_attempt_warns_of_its_limit_once(begins: bool) -> None:
    """Before it begins, or with what it has used itself."""
    world = World(Amount(0.25, 100), **STEP, on_overrun="proceed")
    if begins:
        await world.ledger.settle(world.charge._replace(attempt=2), NOW, Usage(10, 1, usd=1.5))
    assert await world.reservation.open(10) == Amount()
    assert len(world.told) == begins
    used = 0.0 if begins else 1.5
    for _ in range(2):
        assert await world.reservation.cover(Usage(10, 1, usd=used)) is None
    (warned,) = world.told
    assert isinstance(warned, ev.BudgetWarned)
    reached = "the limit of $1.00 for this step is exceeded ($1.50 spent)"
    assert warned.message == f"{reached}; continuing, as the settings say"
