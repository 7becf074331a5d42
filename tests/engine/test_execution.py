"""A handle on an execution gives its events and its end, whoever drives it (I5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from windlass.core import events as ev
from windlass.engine.execution import Execution
from windlass.errors import JournalError
from windlass.ports import Entry

EVENTS: list[ev.Event] = [ev.ExecutionStarted(1.0, "d"), ev.ExecutionPaused(2.0, "me"), ev.ExecutionResumed(3.0, "d")]


class Asked:
    """An engine that knows one execution, as other processes left it."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def pause(self, execution: str, **how: Any) -> None:
        self.asked.append(how)

    async def retry(self, execution: str, step: str, **how: Any) -> None:
        self.asked.append(how)

    def driven(self, head: Any) -> bool:
        return True

    async def wait(self, execution: str) -> str:
        return f"{execution} as it stands now"

    async def follow(self, execution: str, after: int = 0) -> AsyncIterator[Entry]:
        for seq, event in enumerate(EVENTS[after:], after + 1):
            yield Entry(seq, execution, seq, event)


def handle(task: asyncio.Task[Any] | None = None) -> Execution:
    engine: Any = Asked()
    return Execution(engine, "x", task=task)


async def end_of(driven: Execution) -> Any:
    return await driven.wait()


async def test_i5_events_come_from_the_beginning_or_after_a_sequence() -> None:
    assert [event async for event in handle().events()] == EVENTS
    assert [event async for event in handle().events(2)] == EVENTS[2:]


async def test_i5_a_pause_lets_steps_finish_and_a_retry_keeps_the_conversation_unless_asked_otherwise() -> None:
    engine: Any = Asked()
    driven = Execution(engine, "x")
    assert driven.since == 0
    await driven.pause()
    await driven.retry("a")
    assert engine.asked == [
        {"now": False, "by": "python"},
        {"edits": None, "runtime": None, "model": None, "fresh": False, "by": "python"},
    ]


async def test_i5_a_wait_gives_what_the_driver_here_came_to_and_later_what_became_of_it_since() -> None:
    go_on: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def drive() -> str:
        return await go_on

    waiting = asyncio.ensure_future(end_of(handle(task := asyncio.ensure_future(drive()))))
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set_result("as its driver left it")
    assert await waiting == "as its driver left it"
    assert await end_of(handle(task)) == "x as it stands now"
    assert await end_of(handle()) == "x as it stands now"


async def test_i5_a_wait_raises_the_error_of_its_driver_however_late_it_is() -> None:
    async def drive() -> None:
        raise JournalError("the disk is full")

    driven = handle(asyncio.ensure_future(drive()))
    for _ in range(2):
        with pytest.raises(JournalError, match="the disk is full"):
            await driven.wait()


async def test_i5_a_wait_that_is_cancelled_leaves_the_driver_at_work() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(handle(task).wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert not task.cancelling()
    task.cancel()


async def test_i5_a_wait_in_another_event_loop_asks_the_engine() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    assert await asyncio.to_thread(asyncio.run, end_of(handle(task))) == "x as it stands now"
    task.cancel()
