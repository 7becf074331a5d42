"""Notifications (I8) of a process that goes on for long, while its disk or its receiver is in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until_async

import windlass
from windlass import Plan, Step, assembly
from windlass.errors import JournalError
from windlass.journal.outbox import SqliteOutbox
from windlass.notify import notifier
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from notify_world import Receivers


async def test_i8_a_note_whose_sending_could_not_be_written_down_is_settled_later_and_sent_once(
    receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, settle, refused = FakeClock(), SqliteOutbox.settle, list[str]()

    async def full(outbox: SqliteOutbox, number: int, status: str, *more: Any) -> None:
        if not refused:
            refused.append(status)
            raise JournalError("the disk is full")
        await settle(outbox, number, status, *more)

    monkeypatch.setattr(assembly, "SystemClock", lambda: clock)
    monkeypatch.setattr(notifier, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(SqliteOutbox, "settle", full)
    receivers.rules({"to": "hook", "on": ["done"]})
    async with windlass.open() as engine:
        started = await engine.start(Plan(name="nightly", steps=[Step(id="build", run="true")]))
        assert (await started.wait()).status == "completed"
        await wait_until_async(lambda: refused == ["sent"], "it is sent")
        await wait_until_async(lambda: "waiting" in str(receivers.outbox()), "it is no longer claimed")
        clock.advance(notifier.PAUSES[0])
        await wait_until_async(lambda: receivers.outbox() == [("done", "hook", "sent")], "and settled")
    assert len(receivers.posted) == 1
