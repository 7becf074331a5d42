"""Followers get everything that was written, also what a driver wrote right before its end (D2, I5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.engine.observer import Drivers, Observer
from windlass.ports import Head
from windlass.testing import MemoryJournal

PLAN = Plan(steps=[Step(id="a", tool="work")])


class EndsMeanwhile(MemoryJournal):
    """The driver of `running` writes its last event, and ends, while a follower waits for its head."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[ev.Event] = []
        self.looks = 0

    @property
    def poll(self) -> float:
        return 2.0  # longer than a follower waits before it looks whether anybody drives

    def listen(self, name: str, told: Callable[[], None]) -> Callable[[], None]:
        asyncio.get_running_loop().call_later(0.01, told)
        return lambda: None

    async def heads(self, **query: Any) -> list[Head]:
        found = await super().heads(**query)
        self.looks += 1
        if self.looks == 2:
            state = fold([*self.running, last := ev.ExecutionFinished(3.0, "cancelled")])
            await self.append(state.id, len(self.running), [last], head=head_of(state))
            self.retire(state.driver)
        return found


async def test_d2_what_a_driver_writes_right_before_its_end_is_not_missed() -> None:
    journal = EndsMeanwhile()
    created = ev.ExecutionCreated(1.0, id="x", plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")
    journal.running = [created, ev.ExecutionStarted(2.0, journal.enlist())]
    await journal.append("x", 0, journal.running, head=head_of(fold(journal.running)))
    seen = [entry.event async for entry in Observer(Drivers(journal)).follow("x")]
    assert journal.looks == 2
    assert isinstance(seen[-1], ev.ExecutionFinished)
