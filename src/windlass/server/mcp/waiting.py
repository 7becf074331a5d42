"""Follows an execution while a call waits for it, and reports its progress to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine.engine import Engine
from windlass.server.mcp.answers import ProgressReporter
from windlass.server.mcp.look import ObservedExecution, following, look

__all__ = ["LONGEST_WAIT", "Until", "closed", "taken_up", "watch"]

Until: TypeAlias = Literal["end", "change"]
LONGEST_WAIT = 3600.0
HEARTBEAT = 15.0
"""Seconds between signs of life."""
TAKES_UP = 10.0
"""Seconds that a driver may take to notice an answer."""


async def watch(
    engine: Engine,
    execution: str,
    wait_s: float,
    until: Until,
    reporter: ProgressReporter,
    stopping: asyncio.Event | None = None,
) -> ObservedExecution:
    """Wait until it ends, pauses or asks something, or the time is over; its state then.

    When the server is `stopping`, the time is over at once.
    """
    seen = await look(engine, execution)
    state = seen.state
    if wait_s <= 0 or state.status.finished or state.status == "paused" or (until == "end" and state.questions):
        return seen  # nothing more happens by itself
    before, asked = _standing(state), set(state.questions)
    await reporter.progress(state, _headline(state))
    beating = asyncio.get_running_loop().create_task(_beat(state, reporter))
    try:
        async with _time(wait_s, stopping), following(engine, state.id, state.seq) as entries:
            async for entry in entries:
                warning = seen.take(entry.event)
                if warning is not None:
                    await reporter.warn(warning)
                message = _told(entry.event)
                if message is not None:
                    await reporter.progress(state, message)
                changed = until == "change" and _standing(state) != before
                if changed or state.status.finished or state.questions.keys() - asked:
                    break
    except TimeoutError:
        return await look(engine, execution)
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    return seen


async def _beat(state: State, reporter: ProgressReporter) -> None:
    """Say now and then that it goes on: clients give up a call of which they hear nothing for a minute."""
    while True:
        await asyncio.sleep(HEARTBEAT)
        await reporter.progress(state, _headline(state))


async def closed(engine: Engine, execution: str, step: str) -> None:
    """Wait until a question of that step is no longer open: answered, expired, or stopped."""
    seen = await look(engine, execution)
    async with following(engine, execution, seen.state.seq) as entries:
        async for entry in entries:
            seen.take(entry.event)
            if step not in seen.state.questions:
                return


@asynccontextmanager
async def _time(wait_s: float, stopping: asyncio.Event | None) -> AsyncIterator[None]:
    """Limit a block to so many seconds, or until the server stops; then TimeoutError."""
    async with asyncio.timeout(wait_s) as limit:
        if stopping is None:
            yield
            return
        loop = asyncio.get_running_loop()
        stopped = loop.create_task(stopping.wait())
        stopped.add_done_callback(lambda ended: None if ended.cancelled() else limit.reschedule(loop.time()))
        try:
            yield
        finally:
            stopped.cancel()


async def taken_up(engine: Engine, execution: str, after: int, answers: int = 1) -> None:
    """Wait until its driver has noticed so many answers; not long, as it may be busy or gone."""
    if answers <= 0:
        return
    try:
        async with asyncio.timeout(TAKES_UP), following(engine, execution, after) as entries:
            async for entry in entries:
                answers -= isinstance(entry.event, ev.ApprovalAnswered | ev.DecisionMade | ev.BudgetAnswered)
                if answers <= 0:
                    return
    except TimeoutError:
        return  # the answer is on disk; how things stand is said by who asks next


def _standing(state: State) -> tuple[object, ...]:
    """The statuses whose change counts as a change."""
    return (state.status, *((step.id, step.status) for step in state.steps.values()))


def _headline(state: State) -> str:
    running = ", ".join(step.id for step in list(state.active.values())[:3])
    return f"{state.plan.name}: {f'at {running}' if running else state.status}"


def _told(event: ev.Event) -> str | None:
    """One line for people, of events that they would want to see go by."""
    match event:
        case ev.AttemptStarted():
            again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"{event.step}: {event.tool}{again}"
        case ev.AttemptFinished() | ev.StepCompleted():
            return f"{event.step}: completed"
        case ev.AttemptFailed():
            return f"{event.step}: failed: {event.failure.message}"
        case ev.StepSkipped():
            return f"{event.step}: skipped: {event.because}"
        case ev.AgentActed():
            return f"{event.step}: {event.tool} {event.summary}"
        case ev.ApprovalAsked():
            return f"{event.step}: asks to run {event.tool}"
        case ev.StepWaiting():
            return f"{event.step}: waits for {event.reason}"
        case ev.ExecutionPaused():
            return f"paused: {event.reason}"
        case ev.ExecutionFinished():
            return f"{event.status}"
        case ev.BudgetWarned() | ev.BudgetWaited() if event.message:
            return f"{event.step}: {event.message}"
        case _:
            return None
