"""Notifications of a quota (I8): of an execution that waits for it by itself, from its runtime to a real webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from waiting import wait_until_async

import windlass
from windlass import Plan, Step, assembly
from windlass.engine import driver
from windlass.notify import notifier
from windlass.testing import FakeClock, ScriptedRunner, Turn

if TYPE_CHECKING:
    from notify_world import Receivers

HOUR = 3600.0
PLAN = Plan(name="both", steps=[Step(id=name, agent="developer", prompt=f"Do {name}.") for name in "ab"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The engine's clock. Nobody wakes the driver and the notifier when it is set, so they look often."""
    made = FakeClock()
    monkeypatch.setattr(assembly, "SystemClock", lambda: made)
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)
    monkeypatch.setattr(notifier, "LOOK_EVERY", 0.01)
    return made


def used_up(at: float) -> Turn:
    return Turn().fail("5-hour limit reached", category="resource", resets_at=at)


def worked() -> Turn:
    return Turn(repeat=True).say("done").spend(tokens_in=10, tokens_out=1, usd=0.0)


async def test_i8_a_quota_is_told_of_while_it_is_waited_for_and_again_when_it_is_back(
    receivers: Receivers, clock: FakeClock
) -> None:
    receivers.rules({"to": "hook", "on": ["quota"]})
    back = clock.now() + HOUR
    cli = ScriptedRunner([used_up(back), worked()], name="cli")
    async with windlass.open(runners=[cli]) as engine:
        started = await engine.start(PLAN)
        await wait_until_async(lambda: started.id in _waiting(receivers), "the note is written with the wait")
        assert receivers.hooks == [], "it may be over in a moment"
        clock.advance(notifier.SHORTEST_WAIT)
        await wait_until_async(lambda: len(receivers.hooks) == 1, "it is told of")
        clock.set(back)
        assert (await started.wait()).status == "completed"
        await wait_until_async(lambda: len(receivers.hooks) == 2, "and of its return")
    assert [(told["kind"], told["status"]) for told in receivers.hooks] == [("quota", "used up"), ("quota", "back")]
    assert receivers.hooks[0]["account"] == "cli"


async def test_i8_a_quota_that_is_back_before_anybody_was_told_is_not_told_of(
    receivers: Receivers, clock: FakeClock
) -> None:
    receivers.rules({"to": "hook", "on": ["quota", "done"]})
    cli = ScriptedRunner([used_up(clock.now() + 1), worked()], name="cli")
    async with windlass.open(runners=[cli]) as engine:
        started = await engine.start(PLAN)
        await wait_until_async(lambda: started.id in _waiting(receivers), "the note is written with the wait")
        clock.advance(1)
        assert (await started.wait()).status == "completed"
        clock.advance(notifier.SHORTEST_WAIT)
        await wait_until_async(lambda: "waiting" not in str(receivers.outbox()), "all is sent, or moot")
    assert [told["kind"] for told in receivers.hooks] == ["done"], "neither its end nor its return is news"


def _waiting(receivers: Receivers) -> list[str]:
    return receivers.executions("quota")
